# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the ledger, for metrics: never for decisions. Days are whole days of epoch seconds, UTC."""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    Database,
    marks,
)

DAY = 86400.0
Rows = list[dict[str, Any]]


class Figures:
    """Counts of what stands and of what happened."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self) -> Rows:
        """Incidents that are not closed: `{target_kind, state, n}`."""
        return self._db.rows(
            "SELECT target_kind, state, COUNT(*) AS n FROM incidents WHERE open_key IS NOT NULL "
            "GROUP BY target_kind, state"
        )

    def faults(self, since: float) -> Rows:
        """Incidents opened since then: `{fault_kind, day, n}`."""
        return self._db.rows(
            "SELECT fault_kind, CAST(FLOOR(opened_at / %s) AS SIGNED) AS day, COUNT(*) AS n FROM incidents "
            "WHERE opened_at >= %s GROUP BY fault_kind, day",
            (DAY, since),
        )

    def steps(self, since: float) -> Rows:
        """Steps that ended since then: `{step, status, day, n}`."""
        return self._db.rows(
            "SELECT step, status, CAST(FLOOR(finished_at / %s) AS SIGNED) AS day, COUNT(*) AS n FROM steps "
            "WHERE finished_at >= %s GROUP BY step, status, day",
            (DAY, since),
        )

    def refusals(self, since: float) -> Rows:
        """Refusals of the days since then: `{gate, day, n}`; each is counted."""
        return self._db.rows(
            "SELECT gate, day, CAST(SUM(times) AS SIGNED) AS n FROM refusals "
            "WHERE last_at >= %s AND day >= FLOOR(%s / %s) GROUP BY gate, day",
            (since, since, DAY),
        )

    def nodes_out(self, since: float, holding: Sequence[str]) -> Rows:
        """Incidents that held a node out of service at any time since then: `{state, opened_at, closed_at}`.

        Args:
            holding: the plans that do.
        """
        return self._db.rows(
            "SELECT state, opened_at, closed_at FROM incidents WHERE target_kind = 'node' AND acted = 1 "
            "AND (open_key IS NOT NULL OR closed_at >= %%s) AND plan IN (%s)" % marks(holding),
            [since, *holding],
        )
