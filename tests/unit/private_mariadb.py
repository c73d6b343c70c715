# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A private MariaDB for the tests of the ledger and the engine: own folder, own socket, no network, ended by its pid.

It is started once for a test session, in a copy of an empty data folder. Where the server's programs are missing the
tests that need it are skipped with a hint, unless JOB_RECOVERY_TESTS_NEED_MARIADB is set (as `make test` does).
"""

from __future__ import annotations

import gc
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

try:
    import pymysql
except ImportError:  # then these tests are skipped, see `_missing`
    pymysql = None

_START_SECONDS = 60.0
_TIMEOUT = 3.0
TABLES = (
    "machines",
    "incidents",
    "runs",
    "claims",
    "steps",
    "refusals",
    "evidence",
    "dispatches",
    "control",
    "commands",
    "outbox",
)


class Server:
    """One mariadbd; `stop`, `start`, `freeze` and `thaw` are what an operator's day brings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "s")
        # a server that starts removes all temporary tables that it finds in its folder, also those of another one
        self._tmpdir = "--tmpdir=%s" % folder
        self._process: Optional[subprocess.Popen[bytes]] = None

    def install(self) -> None:
        """Make an empty data folder."""
        subprocess.run(
            [
                _program("mariadb-install-db"),
                "--no-defaults",
                "--datadir=%s" % (self.folder / "data"),
                self._tmpdir,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--user=%s" % pwd.getpwuid(os.getuid()).pw_name,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_START_SECONDS,
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    _program("mariadbd"),
                    "--no-defaults",
                    "--datadir=%s" % (self.folder / "data"),
                    self._tmpdir,
                    "--socket=%s" % self.socket,
                    "--pid-file=%s" % (self.folder / "pid"),
                    "--skip-networking",
                    "--skip-log-bin",
                    "--innodb-buffer-pool-size=16M",
                    "--innodb-flush-log-at-trx-commit=2",
                    "--performance-schema=OFF",
                    "--user=%s" % pwd.getpwuid(os.getuid()).pw_name,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.root().close()
                return
            except (OSError, pymysql.err.OperationalError):
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """It takes connections (the kernel does) and never answers."""
        self._signal(signal.SIGSTOP)
        # every thread of it stands still a moment later than the signal was sent
        until = time.monotonic() + _START_SECONDS
        while not all(state == "T" for state in self._thread_states()) and time.monotonic() < until:
            time.sleep(0.01)

    def _thread_states(self) -> list[str]:
        tasks = Path("/proc/%d/task" % self._process.pid)
        return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]

    def thaw(self) -> None:
        """It goes on."""
        self._signal(signal.SIGCONT)

    def root(self) -> Any:
        """A session of the administrator."""
        if not os.path.exists(self.socket):  # PyMySQL leaves a socket to the collector when it cannot connect
            raise FileNotFoundError(self.socket)
        return pymysql.connect(unix_socket=self.socket, user="root", autocommit=True, connect_timeout=3)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._process = None


def _program(name: str) -> str:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/libexec:/usr/bin") or name


def _missing() -> str:
    if pymysql is None:
        return "PyMySQL is missing"
    for name in ("mariadbd", "mariadb-install-db"):
        if not shutil.which(_program(name)):
            return "%s is missing: apt-get install mariadb-server-core mariadb-client-core" % name
    return ""


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """The server of this session."""
    missing = _missing()
    if missing and os.environ.get("JOB_RECOVERY_TESTS_NEED_MARIADB"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="jr-db-"))  # short: a socket's path has at most 107 characters
    server = Server(folder)
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def empty_ledger(mariadb: Server, tmp_path: Path) -> Iterator[LedgerSettings]:
    """Settings of a fresh, empty database with an account of its own."""
    settings = create(mariadb, tmp_path)
    yield settings
    with mariadb.root() as root, root.cursor() as cursor:
        cursor.execute("DROP DATABASE %s" % settings.database)
        cursor.execute("DROP USER %s@localhost" % settings.user)


@pytest.fixture(scope="session")
def ledger_tables(mariadb: Server, tmp_path_factory: pytest.TempPathFactory) -> LedgerSettings:
    """One ledger with its tables for the whole session: making the tables takes longer than most tests."""
    settings = create(mariadb, tmp_path_factory.mktemp("ledger"))
    session = database.connect(settings)
    schema.migrate(session)
    session.close()
    return settings


@pytest.fixture
def ledger(ledger_tables: LedgerSettings) -> Iterator[LedgerSettings]:
    """Settings of a ledger in which nothing has happened yet."""
    session = database.connect(ledger_tables)
    for table in TABLES:
        session.write("DELETE FROM %s" % table)
    session.close()
    yield ledger_tables
    gc.collect()  # PyMySQL leaves its socket to the collector when it cannot connect: let it be told of this test


@pytest.fixture
def store(ledger: LedgerSettings) -> Iterator[Store]:
    """The same, opened."""
    with Store(database.connect(ledger)) as opened:
        yield opened


def create(mariadb: Server, folder: Path) -> LedgerSettings:
    """A database, and an account of its own with the rights of the recovery's; the password goes to `folder`."""
    name = "t_" + uuid.uuid4().hex[:12]
    password = uuid.uuid4().hex
    with mariadb.root() as root, root.cursor() as cursor:
        cursor.execute("CREATE DATABASE %s" % name)
        cursor.execute("CREATE USER %s@localhost IDENTIFIED BY '%s'" % (name, password))
        cursor.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON %s.* TO %s@localhost" % (name, name)
        )
    file = folder / "ledger.password"
    file.write_text(password + "\n", encoding="utf-8")
    file.chmod(0o600)
    return LedgerSettings(
        unix_socket=mariadb.socket, database=name, user=name, password_file=str(file), timeout=_TIMEOUT
    )
