# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's tables, as numbered migrations that bear a second run.

MySQL and MariaDB commit every change of a table at once, so a migration that died in the middle is simply run again:
each statement either says IF NOT EXISTS or its "is there already" answer is taken for done. What is in MIGRATIONS is
never changed once released; a change is a new number.

Names compare byte for byte (utf8mb4_bin). Times are epoch seconds (DOUBLE), JSON is LONGTEXT written by us.
"""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Conflict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    NOW,
    Already,
    Database,
)

_TABLE = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"

_FIRST = (
    """CREATE TABLE IF NOT EXISTS machines (
        name VARCHAR(253) NOT NULL PRIMARY KEY,
        slurm_name VARCHAR(253) NULL UNIQUE,
        kubernetes_name VARCHAR(253) NULL UNIQUE,
        ssh_address VARCHAR(253) NOT NULL DEFAULT '',
        bmc_url VARCHAR(500) NOT NULL DEFAULT '',
        smbios_uuid VARCHAR(64) NOT NULL DEFAULT '',
        machine_id VARCHAR(64) NOT NULL DEFAULT '',
        boot_id VARCHAR(64) NOT NULL DEFAULT '',
        boot_seen_at DOUBLE NULL,
        updated_at DOUBLE NOT NULL)""",
    # open_key is the target's key while the incident is open or escalated, then NULL: the unique index is what makes
    # a second open incident for one target impossible
    """CREATE TABLE IF NOT EXISTS incidents (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        target_key VARCHAR(330) NOT NULL,
        open_key VARCHAR(330) NULL UNIQUE,
        target_kind VARCHAR(8) NOT NULL,
        target_name VARCHAR(320) NOT NULL,
        target_uid VARCHAR(64) NOT NULL DEFAULT '',
        scheduler VARCHAR(16) NOT NULL,
        machine VARCHAR(253) NULL,
        fault_kind VARCHAR(64) NOT NULL,
        source VARCHAR(64) NOT NULL,
        suggested VARCHAR(64) NOT NULL,
        requested_by VARCHAR(128) NOT NULL DEFAULT '',
        request LONGTEXT NOT NULL,
        state VARCHAR(16) NOT NULL,
        plan VARCHAR(64) NOT NULL DEFAULT '',
        round INT NOT NULL DEFAULT 0,
        step VARCHAR(64) NOT NULL DEFAULT '',
        acted TINYINT NOT NULL DEFAULT 0,
        memory LONGTEXT NOT NULL,
        reason VARCHAR(200) NOT NULL DEFAULT '',
        why VARCHAR(1000) NOT NULL DEFAULT '',
        wait_kind VARCHAR(64) NOT NULL DEFAULT '',
        wait_args LONGTEXT NOT NULL,
        wait_until DOUBLE NULL,
        dispatch BIGINT NOT NULL DEFAULT 0,
        dispatch_until DOUBLE NULL,
        dispatch_tries INT NOT NULL DEFAULT 0,
        seen_at DOUBLE NOT NULL,
        opened_at DOUBLE NOT NULL,
        updated_at DOUBLE NOT NULL,
        closed_at DOUBLE NULL,
        INDEX incidents_of_target (target_key, opened_at),
        INDEX incidents_by_time (opened_at))""",
    """CREATE TABLE IF NOT EXISTS runs (
        token CHAR(32) NOT NULL PRIMARY KEY,
        dispatch BIGINT NOT NULL DEFAULT 0,
        remediation VARCHAR(64) NOT NULL,
        holder VARCHAR(128) NOT NULL,
        claimed INT NOT NULL DEFAULT 0,
        started_at DOUBLE NOT NULL,
        lease_until DOUBLE NOT NULL,
        released_at DOUBLE NULL,
        INDEX runs_going (released_at, lease_until))""",
    """CREATE TABLE IF NOT EXISTS claims (
        target_key VARCHAR(330) NOT NULL PRIMARY KEY,
        token CHAR(32) NOT NULL,
        incident BIGINT NOT NULL DEFAULT 0,
        results INT NOT NULL DEFAULT 0,
        claimed_at DOUBLE NOT NULL,
        lease_until DOUBLE NOT NULL,
        INDEX claims_of_run (token))""",
    """CREATE TABLE IF NOT EXISTS steps (
        incident BIGINT NOT NULL,
        round INT NOT NULL,
        step VARCHAR(64) NOT NULL,
        machine VARCHAR(253) NULL,
        token CHAR(32) NOT NULL,
        status VARCHAR(16) NOT NULL,
        tries INT NOT NULL,
        intent LONGTEXT NOT NULL,
        proof LONGTEXT NOT NULL,
        why VARCHAR(1000) NOT NULL DEFAULT '',
        started_at DOUBLE NOT NULL,
        last_started_at DOUBLE NOT NULL,
        finished_at DOUBLE NULL,
        PRIMARY KEY (incident, round, step),
        INDEX steps_of_machine (machine, step, started_at))""",
    """CREATE TABLE IF NOT EXISTS refusals (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        target_key VARCHAR(330) NOT NULL,
        fault_kind VARCHAR(64) NOT NULL,
        gate VARCHAR(32) NOT NULL,
        day INT NOT NULL,
        incident BIGINT NOT NULL DEFAULT 0,
        source VARCHAR(64) NOT NULL,
        why VARCHAR(1000) NOT NULL,
        gates LONGTEXT NOT NULL,
        plan VARCHAR(64) NOT NULL DEFAULT '',
        times INT NOT NULL DEFAULT 1,
        first_at DOUBLE NOT NULL,
        last_at DOUBLE NOT NULL,
        UNIQUE KEY refusals_counted (target_key, fault_kind, gate, day, incident),
        INDEX refusals_by_time (last_at))""",
    """CREATE TABLE IF NOT EXISTS evidence (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        incident BIGINT NULL,
        target_key VARCHAR(330) NOT NULL,
        kind VARCHAR(64) NOT NULL,
        source VARCHAR(64) NOT NULL,
        body LONGTEXT NOT NULL,
        times INT NOT NULL DEFAULT 1,
        first_at DOUBLE NOT NULL,
        last_at DOUBLE NOT NULL,
        UNIQUE KEY evidence_counted (incident, kind, source),
        INDEX evidence_by_time (last_at))""",
    """CREATE TABLE IF NOT EXISTS dispatches (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        sent_at DOUBLE NOT NULL,
        until DOUBLE NOT NULL,
        claimed_at DOUBLE NULL)""",
    """CREATE TABLE IF NOT EXISTS control (
        name VARCHAR(64) NOT NULL PRIMARY KEY,
        value LONGTEXT NOT NULL,
        changed_by VARCHAR(128) NOT NULL DEFAULT '',
        changed_at DOUBLE NOT NULL)""",
)

_SECOND = (
    """CREATE TABLE IF NOT EXISTS commands (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        command VARCHAR(32) NOT NULL,
        subject VARCHAR(330) NOT NULL DEFAULT '',
        who VARCHAR(128) NOT NULL,
        reason VARCHAR(1000) NOT NULL DEFAULT '',
        at DOUBLE NOT NULL,
        INDEX commands_by_time (at))""",
)

_THIRD = (
    # what the reporter tells others, once for each of them (sink), and whether it was told; recovery never reads it
    """CREATE TABLE IF NOT EXISTS outbox (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        sink VARCHAR(16) NOT NULL,
        ref VARCHAR(190) NOT NULL,
        at DOUBLE NOT NULL,
        component VARCHAR(16) NOT NULL,
        outcome VARCHAR(16) NOT NULL DEFAULT '',
        line LONGTEXT NOT NULL,
        tries INT NOT NULL DEFAULT 0,
        due_at DOUBLE NOT NULL DEFAULT 0,
        ended_at DOUBLE NULL,
        trouble VARCHAR(200) NOT NULL DEFAULT '',
        UNIQUE KEY outbox_once (sink, ref),
        INDEX outbox_waiting (sink, ended_at, at),
        INDEX outbox_by_time (sink, at))""",
    "ALTER TABLE incidents ADD INDEX incidents_by_end (closed_at)",
    "ALTER TABLE steps ADD INDEX steps_by_start (started_at)",
    "ALTER TABLE steps ADD INDEX steps_by_end (finished_at)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD)
VERSION = len(MIGRATIONS)

_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_version (
    version INT NOT NULL PRIMARY KEY, applied_at DOUBLE NOT NULL)"""


def version(database: Database) -> int:
    """The number of the last migration that was applied, 0 for an empty database."""
    try:
        return int(database.value("SELECT COALESCE(MAX(version), 0) FROM schema_version") or 0)
    except Absent:
        return 0


def migrate(database: Database, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> list[int]:
    """Apply what is missing of `migrations`; the numbers of those that ran.

    Raises:
        Conflict: the ledger was made by a newer version of this collection.
    """
    have = version(database)
    _not_newer(have, len(migrations))
    database.write(_VERSIONS)
    missing = list(range(have + 1, len(migrations) + 1))
    for number in missing:
        _apply(database, number, migrations[number - 1])
    return missing


def require(database: Database) -> None:
    """Say so when the tables are not those of this version.

    Raises:
        Absent: older. Conflict: newer.
    """
    have = version(database)
    _not_newer(have, VERSION)
    if have < VERSION:
        raise Absent(
            "the ledger's tables are of version %d, this collection needs %d" % (have, VERSION),
            "run the role ledger, or `job-recovery migrate`",
        )


def _apply(database: Database, number: int, statements: Sequence[str]) -> None:
    for statement in statements:
        try:
            database.write(statement + (_TABLE if statement.startswith("CREATE TABLE") else ""))
        except Already:
            pass  # a run before this one died after it
    database.write(
        "INSERT INTO schema_version (version, applied_at) VALUES (%s, " + NOW + ") "
        "ON DUPLICATE KEY UPDATE version = version",
        (number,),
    )


def _not_newer(have: int, newest: int) -> None:
    if have > newest:
        raise Conflict(
            "the ledger's tables are of version %d, this collection knows up to %d" % (have, newest),
            "install the newer collection on this controller too",
        )
