# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told to others (sinks), in the order in which it happened, and what became of it. Part of the ledger.

A line is written down before it is sent, once for each sink and `ref`, and its end is written down after the sink has
taken it. So a crash in between sends the very same text again, and no line is ever made twice.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    NOW,
    Database,
    clip,
    marks,
)

_AT_ONCE = 200  # rows in one statement
_COLUMNS = ("sink", "ref", "at", "component", "outcome", "line")


class Outbox:
    """The rows of one sink."""

    def __init__(self, database: Database, sink: str) -> None:
        self._db, self._sink = database, sink

    def newest(self) -> Optional[float]:
        """When the last thing happened that is in here, told or not; None while there is nothing."""
        found = self._db.value("SELECT MAX(at) AS at FROM outbox WHERE sink = %s", (self._sink,))
        return None if found is None else float(found)

    def put(self, lines: Sequence[tuple[str, float, str, str, str]]) -> None:
        """Keep lines, each `(ref, at, component, outcome, text)`; those that are here already stay as they are."""
        for start in range(0, len(lines), _AT_ONCE):
            some = lines[start : start + _AT_ONCE]
            self._db.write(
                "INSERT INTO outbox (%s) VALUES %s ON DUPLICATE KEY UPDATE ref = VALUES(ref)"
                % (", ".join(_COLUMNS), ", ".join(["(%s)" % marks(_COLUMNS)] * len(some))),
                [value for line in some for value in (self._sink, *line)],
            )

    def waiting(self, limit: int) -> list[dict[str, Any]]:
        """What is to be told now, the earliest first: `{id, ref, at, component, outcome, line, tries}`."""
        return self._db.rows(
            "SELECT id, ref, at, component, outcome, line, tries FROM outbox WHERE sink = %s AND ended_at IS NULL "
            "AND due_at <= " + NOW + " ORDER BY at, id LIMIT %s",
            (self._sink, limit),
        )

    def backlog(self) -> int:
        """How many lines are not told yet."""
        return int(
            self._db.value("SELECT COUNT(*) AS n FROM outbox WHERE sink = %s AND ended_at IS NULL", (self._sink,))
        )

    def end(self, numbers: Sequence[int], trouble: str = "") -> None:
        """They are told; with `trouble` they never will be, and that is why."""
        if numbers:
            self._db.write(
                "UPDATE outbox SET ended_at = " + NOW + ", trouble = %%s WHERE id IN (%s)" % marks(numbers),
                [clip(trouble, 200), *numbers],
            )

    def again(self, number: int, seconds: float) -> None:
        """Count a try that begins now; unless its end is written before, there is another in so many seconds."""
        self._db.write(
            "UPDATE outbox SET tries = tries + 1, due_at = " + NOW + " + %s WHERE id = %s", (seconds, number)
        )

    def postpone(self, number: int, seconds: float, trouble: str) -> None:
        """A try came to nothing: there is another in so many seconds."""
        self._db.write(
            "UPDATE outbox SET due_at = " + NOW + " + %s, trouble = %s WHERE id = %s",
            (seconds, clip(trouble, 200), number),
        )

    def expire(self, told: float, untold: float) -> int:
        """Remove what happened longer ago than so many seconds, told or not; the number of rows."""
        return self._db.write(
            "DELETE FROM outbox WHERE sink = %s AND (at < " + NOW + " - %s OR ended_at IS NOT NULL AND at < " + NOW
            + " - %s)",
            (self._sink, untold, told),
        )
