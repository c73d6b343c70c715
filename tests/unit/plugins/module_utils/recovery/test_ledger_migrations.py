# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An upgrade keeps the ledger: from the tables of every earlier version, full of rows, and after dying in the middle.

A real MariaDB. The tables of a version are those that the migrations up to it make; what is in them is found out from
the database itself, so that a new migration is tried without a line here. One made-up migration stands for the next.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Conflict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Duplicate
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

# What a later version may well do: every kind of change that the installer's account is allowed.
NEXT = (
    "CREATE TABLE IF NOT EXISTS later (name VARCHAR(20) NOT NULL PRIMARY KEY)",
    "ALTER TABLE incidents ADD COLUMN later VARCHAR(20) NOT NULL DEFAULT 'new', ADD COLUMN besides INT NULL",
    "ALTER TABLE incidents ADD INDEX incidents_later (later)",
    "ALTER TABLE incidents DROP COLUMN besides",
    "UPDATE incidents SET later = 'old' WHERE later = 'new'",
)
AFTERWARDS: Sequence[Sequence[str]] = (*schema.MIGRATIONS, NEXT)
ROWS = 3
# Columns whose values mean something to the code that reads them.
MEANING = {"target_kind": "node", "scheduler": "slurm", "state": "open", "status": "done"}


@pytest.fixture
def session(empty_ledger: LedgerSettings) -> Iterator[database.Database]:
    opened = database.connect(empty_ledger)
    yield opened
    opened.close()


def made(session: database.Database, version: int) -> dict[str, list[dict[str, Any]]]:
    """The tables of a version, with rows; what is in them, by table."""
    schema.migrate(session, schema.MIGRATIONS[:version])
    columns: dict[str, list[dict[str, Any]]] = {}
    for column in session.rows(
        "SELECT TABLE_NAME AS in_table, COLUMN_NAME AS name, DATA_TYPE AS type FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME <> 'schema_version' ORDER BY ORDINAL_POSITION"
    ):
        columns.setdefault(column["in_table"], []).append(column)
    for table, described in columns.items():
        for number in range(1, ROWS + 1):
            session.write(
                "INSERT INTO %s (%s) VALUES (%s)"
                % (table, ", ".join(column["name"] for column in described), database.marks(described)),
                [value(column["name"], column["type"], number) for column in described],
            )
    return {table: content(session, table) for table in columns}


def value(name: str, kind: str, number: int) -> Any:
    if name in MEANING:
        return MEANING[name]
    if kind in ("varchar", "char"):
        return "node%d" % number
    return '{"number": %d}' % number if kind == "longtext" else number


def content(session: database.Database, table: str) -> list[dict[str, Any]]:
    rows = [dict(row) for row in session.rows("SELECT * FROM %s" % table)]
    return sorted(rows, key=lambda row: str(sorted(row.items())))


def kept(session: database.Database, before: dict[str, list[dict[str, Any]]]) -> None:
    """Every row is there, with every value that it had."""
    for table, rows in before.items():
        shown = [{name: row[name] for name in rows[0]} for row in session.rows("SELECT * FROM %s" % table)]
        assert sorted(shown, key=lambda row: str(sorted(row.items()))) == rows, table


def in_use(session: database.Database) -> None:
    """Recovery of this version reads what is there, and goes on writing."""
    store = Store(session)
    assert sorted(incident.target.name for incident in store.incidents.live()) == ["node1", "node2", "node3"]
    assert sorted(machine.name for machine in store.machines.all()) == ["node1", "node2", "node3"]
    assert len(store.steps.of([1, 2, 3])) == ROWS
    assert len(store.records.refusals()) == ROWS
    assert store.records.evidence([2])
    target = Target("node", "node9")
    fault = Fault("node_not_responding", "slurm", "lab", "slurm", (target,), 1_800_000_000.0, "reboot_node")
    assert store.incidents.open(fault, target, "node:node9", "node9", Request()).id > ROWS
    with pytest.raises(Duplicate):  # the open incident of before still keeps a second one out
        session.insert("INSERT INTO claims (target_key, token, claimed_at, lease_until) VALUES ('node1', 'x', 0, 0)")


@pytest.mark.parametrize("version", range(1, schema.VERSION + 1))
def test_a_ledger_of_every_earlier_version_is_kept_and_used(session: database.Database, version: int) -> None:
    before = made(session, version)
    assert schema.migrate(session) == list(range(version + 1, schema.VERSION + 1))
    kept(session, before)
    in_use(session)
    assert schema.version(session) == schema.VERSION


def test_every_table_has_rows_in_these_tests(session: database.Database) -> None:
    before = made(session, schema.VERSION)
    assert len(before) >= 9
    assert all(len(rows) == ROWS for rows in before.values())


@pytest.mark.parametrize("done", range(len(NEXT) + 1))
def test_an_upgrade_that_died_after_any_statement_is_gone_on_with(session: database.Database, done: int) -> None:
    before = made(session, schema.VERSION)
    for statement in NEXT[:done]:
        session.write(statement)
    assert schema.migrate(session, AFTERWARDS) == [len(AFTERWARDS)]
    kept(session, before)
    assert session.value("SELECT COUNT(*) FROM incidents WHERE later = 'old'") == ROWS
    assert schema.migrate(session, AFTERWARDS) == []
    with pytest.raises(Conflict, match="this collection knows up to %d" % schema.VERSION):
        schema.migrate(session)  # the older collection on another head node


def test_a_statement_that_fails_ends_the_upgrade_and_the_version_stays(session: database.Database) -> None:
    before = made(session, schema.VERSION)
    broken = (*schema.MIGRATIONS, (NEXT[1], "ALTER TABLE nowhere ADD COLUMN x INT", NEXT[2]))
    with pytest.raises(Exception, match="not the tables of this version"):
        schema.migrate(session, broken)
    assert schema.version(session) == schema.VERSION
    kept(session, before)
    assert schema.migrate(session, AFTERWARDS) == [len(AFTERWARDS)]  # mended
