# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection to the ledger's database: deadlines on everything, errors told apart, short transactions.

Every statement commits by itself unless it stands in `transaction`. The database's clock rules all leases: `NOW` is
the SQL for it, epoch seconds with microseconds, and the session's time zone is UTC so that no change to summer time
makes it jump.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, TypeVar

try:
    import pymysql
    import pymysql.cursors
except ImportError:  # only where the ledger is used the library is needed
    pymysql = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

NOW = "UNIX_TIMESTAMP(NOW(6))"

Row = Mapping[str, Any]
T = TypeVar("T")

_DUPLICATE = 1062
_ALREADY = (1050, 1060, 1061, 1091)  # table, column or index is there, or one to be dropped is not
_LOCKED = (1205, 1213)  # lock wait timeout, deadlock: nothing was done, the whole transaction may run again
_FORBIDDEN = (1044, 1045, 1142, 1143, 1227, 1370, 1698, 3159)  # 3159: without TLS
_ABSENT = (1049, 1146, 1054)  # no database, no table, no column: not installed, or older than this collection
_TRIES = 5
_OWN_MACHINE = ("127.0.0.1", "::1", "localhost")


class Sql(str):
    """An expression of this package's own, to stand in a statement as it is; never a caller's text."""


class Duplicate(Conflict):
    """A row with this key is there already."""


class Already(Conflict):
    """The table, column or index is as the statement would make it."""


class Locked(Conflict):
    """Other sessions hold the rows; nothing was written."""


class Database:
    """One session. Threads take turns, a transaction is one turn."""

    def __init__(self, connection: Any, where: str) -> None:
        self._lock = threading.RLock()
        self._connection = connection
        self._where = where
        self._in_transaction = False

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows that a query gives, each as a dictionary."""
        with self._cursor(sql, parameters) as cursor:
            return list(cursor.fetchall())

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> Optional[dict[str, Any]]:
        """The first row that a query gives, None for no row."""
        found = self.rows(sql, parameters)
        return found[0] if found else None

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, None for no row."""
        found = self.row(sql, parameters)
        return next(iter(found.values())) if found else None

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement; the number of rows that it changed. Alone it is tried again while others are in the way."""

        def once() -> int:
            with self._cursor(sql, parameters) as cursor:
                return cursor.rowcount

        return once() if self._in_transaction else _insist(once)

    def insert(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run an INSERT; the number that the database gave to the row.

        Raises:
            Duplicate: a unique key is there already.
        """
        with self._cursor(sql, parameters) as cursor:
            return cursor.lastrowid

    def now(self) -> float:
        """The database's time, epoch seconds."""
        return float(self.value("SELECT %s AS now" % NOW))

    def transaction(self, work: Callable[[], T]) -> T:
        """Call `work` in one transaction and commit; again from its start when other sessions were in the way.

        Raises:
            Locked: they stayed in the way.
        """
        with self._lock:
            return _insist(lambda: self._once(work))

    def close(self) -> None:
        """End the session; never fails."""
        try:
            self._connection.close()
        except (pymysql.err.Error, OSError):
            pass  # it is over either way

    def _once(self, work: Callable[[], T]) -> T:
        self._in_transaction = True
        try:
            self.write("START TRANSACTION")
            result = work()
            self.write("COMMIT")
            return result
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False

    def _roll_back(self) -> None:
        try:
            self.write("ROLLBACK")
        except RecoveryError:
            pass  # the session is gone, and with it the transaction

    @contextmanager
    def _cursor(self, sql: str, parameters: Sequence[Any]) -> Iterator[Any]:
        try:
            with self._lock, self._connection.cursor() as cursor:
                cursor.execute(sql, tuple(parameters) or None)
                yield cursor
        except (pymysql.err.Error, OSError) as exc:
            raise translate(exc, self._where) from exc


def connect(settings: LedgerSettings) -> Database:
    """Open a session.

    Raises:
        Unreadable: PyMySQL is missing, or the password file cannot be read.
        Unreachable, TimedOut: no answer. Forbidden: refused. Absent: no such database.
    """
    if pymysql is None:
        raise Unreadable("the ledger: the Python library PyMySQL is missing", "install it for this Python")
    where = settings.unix_socket or "%s:%d" % (settings.host, settings.port)
    ways = _ways(settings)
    for way in ways[:-1]:
        try:
            return _open(settings, way, where)
        except (Forbidden, Unreadable):
            pass  # an account, or a way to authenticate, that wants TLS: the next way has it
    return _open(settings, ways[-1], where)


def _open(settings: LedgerSettings, way: Mapping[str, Any], where: str) -> Database:
    password = _password(settings.password_file)
    try:
        connection = pymysql.connect(
            **way,
            user=settings.user,
            password=password,
            database=settings.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, int(settings.timeout)),
            read_timeout=settings.timeout,
            write_timeout=settings.timeout,
            cursorclass=pymysql.cursors.DictCursor,
            init_command=_session(settings.timeout),
        )
    except RuntimeError as exc:  # PyMySQL: caching_sha2_password without TLS needs another library
        raise Unreadable("the ledger at %s: PyMySQL cannot authenticate without TLS" % where) from exc
    except (pymysql.err.Error, OSError) as exc:
        raise translate(exc, where) from exc
    return Database(connection, where)


def translate(exc: BaseException, where: str) -> RecoveryError:
    """The error of this collection for one of PyMySQL's. Its text names the server, never a parameter's value."""
    code = exc.args[0] if exc.args and isinstance(exc.args[0], int) else 0
    if code == _DUPLICATE:
        return Duplicate("the ledger at %s has this row already" % where)
    if code in _ALREADY:
        return Already("the ledger at %s is changed so already (MySQL error %d)" % (where, code))
    if code in _LOCKED:
        return Locked("the ledger at %s: other sessions hold the rows" % where, "it is tried again")
    if code in _FORBIDDEN:
        return Forbidden(
            "the ledger at %s refuses the account (MySQL error %d)" % (where, code),
            "run the role ledger again, or check the account and its password file",
        )
    if code in _ABSENT:
        return Absent(
            "the ledger at %s has not the tables of this version (MySQL error %d)" % (where, code),
            "run the role ledger, or `job-recovery migrate`",
        )
    if "timed out" in str(exc):
        return TimedOut("the ledger at %s gave no answer in time" % where, "is the database up?")
    if isinstance(exc, OSError) or (pymysql is not None and isinstance(exc, _connection_errors())):
        return Unreachable("the ledger at %s cannot be reached (%s)" % (where, _short(exc)), "is the database up?")
    return Unreadable("the ledger at %s: %s (MySQL error %d)" % (where, type(exc).__name__, code))


def assignments(columns: Mapping[str, Any], table: str = "") -> tuple[str, list[Any]]:
    """`a = %s, b = NOW()` and its parameters; columns are named by this package, values are parameters or `Sql`."""
    prefix = table + "." if table else ""
    parts = ["%s%s = %s" % (prefix, name, _expression(value, prefix)) for name, value in columns.items()]
    return ", ".join(parts), [value for value in columns.values() if not isinstance(value, Sql)]


def pack(value: Any) -> str:
    """JSON text of plain data, for a column."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def unpack(text: Optional[str]) -> dict[str, Any]:
    """The mapping in a column; empty for none.

    Raises:
        Unreadable: somebody else wrote something there.
    """
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise Unreadable("the ledger: a JSON column holds no JSON", "was the database edited by hand?") from exc
    if not isinstance(value, dict):
        raise Unreadable("the ledger: a JSON column holds no mapping", "was the database edited by hand?")
    return value


def clip(text: Any, limit: int) -> str:
    """Text cut to `limit` characters, without code points that MySQL's utf8mb4 cannot hold (lone surrogates)."""
    clean = str(text).encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def marks(values: Sequence[Any]) -> str:
    """Placeholders for an IN list; `NULL`, which matches nothing, for an empty one."""
    return ",".join(["%s"] * len(values)) or "NULL"


def _ways(settings: LedgerSettings) -> list[dict[str, Any]]:
    """How to connect, the first that works. On one's own machine without TLS first.

    PyMySQL prepares TLS for every connection unless told not to, and reading the system's certificates for that takes
    longer than all that a step asks of the ledger.
    """
    if settings.unix_socket:
        return [{"unix_socket": settings.unix_socket, "ssl_disabled": True}]
    address = {"host": settings.host, "port": settings.port}
    if settings.ca_file:
        return [{**address, "ssl": {"ca": settings.ca_file, "check_hostname": True}}]
    if settings.host in _OWN_MACHINE:
        return [{**address, "ssl_disabled": True}, address]
    return [address]


def _session(timeout: float) -> str:
    """Strict types, UTC, and no longer wait for a lock than for an answer."""
    return (
        "SET SESSION time_zone='+00:00', sql_mode='STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ENGINE_SUBSTITUTION', "
        "innodb_lock_wait_timeout=%d" % max(1, int(timeout) - 1)
    )


def _password(path: str) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise Unreadable(
            "the ledger's password file %s cannot be read (%s)" % (path, type(exc).__name__),
            "run the role ledger again, as the account of the recovery service",
        ) from exc


def _expression(value: Any, prefix: str) -> str:
    """A placeholder, or an expression: one that begins in lower case begins with a column of the written table."""
    if not isinstance(value, Sql):
        return "%s"
    return prefix + value if value[0].islower() else value


def _insist(work: Callable[[], T]) -> T:
    """Nothing of what other sessions were in the way of was done: it may run again."""
    for attempt in range(1, _TRIES):
        try:
            return work()
        except Locked:
            time.sleep(0.02 * attempt)
    return work()


def _connection_errors() -> tuple[type, ...]:
    return (pymysql.err.OperationalError, pymysql.err.InterfaceError)


def _short(exc: BaseException) -> str:
    code = exc.args[0] if exc.args and isinstance(exc.args[0], int) else 0
    return "MySQL error %d" % code if code else type(exc).__name__
