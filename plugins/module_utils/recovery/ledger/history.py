# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, read from the ledger's tables in the order of time: for reports, never for decisions.

Each function of `READERS` gives plain rows of one kind that happened at `since` or later, the earliest first, at most
`limit` of them beginning with number `offset`. Times are epoch seconds by the database's clock.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Database
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    DECISION,
    ESCALATED,
)

Rows = list[dict[str, Any]]
Reader = Callable[[Database, float, int, int], Rows]

_INCIDENT = (
    "i.id AS incident, i.target_kind, i.target_name AS target, i.machine, i.scheduler, i.fault_kind, i.suggested, "
    "i.plan, i.round"
)


def opened(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Incidents by `opened_at`: the faults that were taken up."""
    return database.rows(
        "SELECT " + _INCIDENT + ", i.source, i.requested_by, i.opened_at FROM incidents i WHERE i.opened_at >= %s "
        "ORDER BY i.opened_at, i.id LIMIT %s OFFSET %s",
        (since, limit, offset),
    )


def attached(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Other faults of a target that has an open incident, by `first_at`; `fault_kind` is that of the other fault."""
    return database.rows(
        "SELECT i.id AS incident, i.target_kind, i.target_name AS target, i.machine, i.scheduler, "
        "e.kind AS fault_kind, e.source, e.id AS evidence, e.first_at FROM evidence e "
        "JOIN incidents i ON i.id = e.incident WHERE e.last_at >= %s AND e.first_at >= %s AND e.kind <> %s "
        "ORDER BY e.first_at, e.id LIMIT %s OFFSET %s",
        (since, since, DECISION, limit, offset),
    )


def refused(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Refusals by `first_at`; one that goes on for days is a new one every day."""
    return database.rows(
        "SELECT r.id, r.target_key, r.fault_kind, r.gate, r.incident, r.source, r.why, r.plan, r.first_at "
        "FROM refusals r WHERE r.last_at >= %s AND r.first_at >= %s ORDER BY r.first_at, r.id LIMIT %s OFFSET %s",
        (since, since, limit, offset),
    )


def steps_begun(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Steps by `started_at`."""
    return database.rows(
        "SELECT " + _INCIDENT + ", s.round AS step_round, s.step, s.started_at FROM steps s "
        "JOIN incidents i ON i.id = s.incident WHERE s.started_at >= %s "
        "ORDER BY s.started_at, s.incident, s.round, s.step LIMIT %s OFFSET %s",
        (since, limit, offset),
    )


def steps_ended(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Steps by `finished_at`."""
    return database.rows(
        "SELECT " + _INCIDENT + ", s.round AS step_round, s.step, s.status, s.why, s.started_at, s.finished_at "
        "FROM steps s JOIN incidents i ON i.id = s.incident WHERE s.finished_at >= %s "
        "ORDER BY s.finished_at, s.incident, s.round, s.step LIMIT %s OFFSET %s",
        (since, limit, offset),
    )


def ended(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """Incidents that were closed or left to a person, by `closed_at`; `proved` (0 or 1) is whether the proof that the
    fault is gone was made in their last round."""
    return database.rows(
        "SELECT " + _INCIDENT + ", i.state, i.acted, i.why, i.opened_at, i.closed_at, EXISTS (SELECT 1 FROM steps s "
        "WHERE s.incident = i.id AND s.round = i.round AND s.step = 'confirm' AND s.status = 'done') AS proved "
        "FROM incidents i WHERE i.closed_at >= %s AND i.state IN (%s, %s) "
        "ORDER BY i.closed_at, i.id LIMIT %s OFFSET %s",
        (since, CLOSED, ESCALATED, limit, offset),
    )


def commanded(database: Database, since: float, limit: int, offset: int = 0) -> Rows:
    """What people told the recovery to do, by `at`."""
    return database.rows(
        "SELECT id, command, subject, who, reason, at FROM commands WHERE at >= %s ORDER BY at, id LIMIT %s OFFSET %s",
        (since, limit, offset),
    )


READERS: Mapping[str, Reader] = {
    "opened": opened,
    "attached": attached,
    "refused": refused,
    "steps_begun": steps_begun,
    "steps_ended": steps_ended,
    "ended": ended,
    "commanded": commanded,
}
