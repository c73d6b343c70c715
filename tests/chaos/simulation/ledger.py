# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions to a real MariaDB that live in the simulated time, pass the points, and meet its outages.

MariaDB takes the time of a statement's NOW() from the variable `timestamp`: leases end when the simulated clock says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

import pymysql
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    Database,
    connect,
    translate,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

from .clock import Clock
from .strikes import SQL, Points

GONE, READ_ONLY, FULL, SLOW = "gone", "read only", "full", "slow"
#: MariaDB's own errors for what the outages are.
_ERRORS = {
    GONE: pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query"),
    READ_ONLY: pymysql.err.OperationalError(1290, "The MariaDB server is running with the --read-only option"),
    FULL: pymysql.err.OperationalError(1114, "The table 'steps' is full"),
}
_TIMED = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SLOW_SECONDS = 0.8
_SECONDS = 0.001  # of a statement: no two are at the same time
_TABLES = ("machines", "incidents", "runs", "claims", "steps", "refusals", "evidence", "dispatches", "control")


def empty(settings: LedgerSettings) -> None:
    """Nothing has happened yet in this ledger."""
    session = connect(settings)
    for table in _TABLES:
        session.write("DELETE FROM %s" % table)
    session.close()


class Session(Database):
    """One session; `ledger` tells what it meets."""

    def __init__(self, raw: Any, ledger: Ledger) -> None:
        super().__init__(raw, "simulated")
        self._ledger = ledger

    def transaction(self, work: Any) -> Any:
        self._ledger.points.in_transaction += 1
        try:
            return super().transaction(work)
        finally:
            self._ledger.points.in_transaction -= 1

    def close(self) -> None:
        raw, self._connection = self._connection, None
        if raw is not None:
            self._ledger.take_back(raw)

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[Any]) -> Iterator[Any]:
        self._ledger.before(sql)
        if sql.startswith(_TIMED):
            sql = "SET STATEMENT timestamp = %.6f FOR %s" % (self._ledger.clock.time(), sql)
        with super()._cursor(sql, parameters) as cursor:
            yield cursor


@dataclass
class Ledger:
    """The server, as the sessions of all processes meet it. `trouble`: one of the outages, or empty."""

    settings: LedgerSettings
    clock: Clock
    points: Points
    trouble: str = ""
    _idle: list[Any] = field(default_factory=list)
    _all: list[Any] = field(default_factory=list)

    def open(self, _settings: Optional[LedgerSettings] = None) -> Store:
        """A session of its own; stands in for `open_store`."""
        self.before("CONNECT")
        return Store(Session(self._idle.pop() if self._idle else self._connect(), self))

    def before(self, sql: str) -> None:
        """What a statement meets.

        Raises:
            RecoveryError: the server's trouble.
        """
        word = sql.split(None, 1)[0]
        if word != "SELECT":
            self.points.reach(SQL, " ".join(sql.split(None, 3)[:3]))
        else:
            self.points.reach(SQL, "SELECT")
        self.clock.sleep(_SECONDS)
        writes = word not in ("SELECT", "CONNECT", "ROLLBACK")
        if self.trouble == SLOW:
            self.clock.sleep(_SLOW_SECONDS)
        elif self.trouble == GONE or (self.trouble and writes):
            raise translate(_ERRORS[self.trouble], "simulated")

    def take_back(self, raw: Any) -> None:
        """A session has ended; whatever it had not committed is gone."""
        raw.rollback()
        self._idle.append(raw)

    def close(self) -> None:
        """End all sessions."""
        for raw in self._all:
            raw.close()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What a person finds in the tables, whatever trouble the recovery has with them."""
        with self._all[0].cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def backup(self) -> dict[str, list[dict[str, Any]]]:
        """All rows, as they are now."""
        return {table: self.rows("SELECT * FROM %s" % table) for table in _TABLES}

    def restore(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        """Put an old backup in place of what is there."""
        with self._all[0].cursor() as cursor:
            for table, rows in tables.items():
                cursor.execute("DELETE FROM %s" % table)
                for row in rows:
                    marks = ", ".join(["%s"] * len(row))
                    cursor.execute(
                        "INSERT INTO %s (%s) VALUES (%s)" % (table, ", ".join(row), marks), list(row.values())
                    )

    def _connect(self) -> Any:
        raw = connect(self.settings)._connection
        self._all.append(raw)
        return raw
