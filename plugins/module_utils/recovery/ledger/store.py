# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's tables, one small class each: `Store.machines`, `.claims`, `.incidents`, `.steps`, `.records` and
`.control`.

What a run writes about a step goes through `Steps.start` and `Claims.settle`: statements that write only where the
claim's token is this run's and its lease, by the database's clock, is not over. So a run that slept over its lease can
write nothing. Several rows are written by one statement, which is shorter than a transaction and as whole.
"""

from __future__ import annotations

import uuid
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, TypeVar

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import rows, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.changes import WHY, asked
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.commands import Commands
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    NOW,
    Database,
    Duplicate,
    Sql,
    assignments,
    clip,
    connect,
    marks,
    pack,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    LIVE,
    OPEN,
    PAUSED,
    STARTED,
    Incident,
    Request,
    StepRow,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Lost, Machine

T = TypeVar("T")

_DAY = 86400
_MACHINE_FIELDS = ("slurm_name", "kubernetes_name", "ssh_address", "bmc_url", "smbios_uuid", "machine_id", "boot_id")


class Store:
    """The ledger, opened. Use it in one thread, close it at the end (`with open_store(...) as store`)."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.machines = Machines(database)
        self.claims = Claims(database)
        self.incidents = Incidents(database)
        self.steps = Steps(database)
        self.records = Records(database)
        self.control = Control(database)
        self.commands = Commands(database)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.database.close()

    def now(self) -> float:
        """The database's time, epoch seconds."""
        return self.database.now()


def open_store(settings: LedgerSettings) -> Store:
    """Connect and look whether the tables are those of this version.

    Raises:
        RecoveryError: Unreachable, TimedOut, Forbidden, Absent (older tables), Conflict (newer ones), Unreadable.
    """
    database = connect(settings)
    try:
        schema.require(database)
    except BaseException:
        database.close()
        raise
    return Store(database)


class Machines:
    """Every node: one machine, its names, its identity while healthy."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[Machine]:
        """All, by name."""
        return [rows.machine_of(row) for row in self._db.rows("SELECT * FROM machines ORDER BY name")]

    def get(self, names: Sequence[str]) -> dict[str, Machine]:
        """By the ledger's own name."""
        return self._by("name", names)

    def resolve(self, scheduler: str, names: Sequence[str]) -> dict[str, Machine]:
        """By the name that a scheduler uses; a name that is not in the result is unknown."""
        return self._by("slurm_name" if scheduler == SLURM else "kubernetes_name", names)

    def put(self, machine: Machine) -> None:
        """Write a machine's row, new or not.

        Raises:
            Duplicate: another machine has one of its scheduler names.
        """
        values = [machine.slurm_name or None, machine.kubernetes_name or None]
        values += [getattr(machine, name) for name in _MACHINE_FIELDS[2:]] + [machine.boot_seen_at]
        assign = ", ".join("%s = %%s" % name for name in _MACHINE_FIELDS + ("boot_seen_at",))

        def write() -> None:
            known = self._db.row("SELECT name FROM machines WHERE name = %s FOR UPDATE", (machine.name,))
            if known:
                self._db.write(
                    "UPDATE machines SET %s, updated_at = %s WHERE name = %%s" % (assign, NOW),
                    values + [machine.name],
                )
            else:
                self._db.write(
                    "INSERT INTO machines SET %s, updated_at = %s, name = %%s" % (assign, NOW),
                    values + [machine.name],
                )

        self._db.transaction(write)

    def forget(self, name: str) -> None:
        """Remove a machine that has left the cluster."""
        self._db.write("DELETE FROM machines WHERE name = %s", (name,))

    def seen_healthy(self, name: str, boot_id: str, machine_id: str) -> None:
        """Note the boot of a healthy node. A machine-id once known stays: a changed one is for a person to look at."""
        self._db.write(
            "UPDATE machines SET boot_id = %s, machine_id = IF(machine_id = '', %s, machine_id), "
            "boot_seen_at = " + NOW + ", updated_at = " + NOW + " WHERE name = %s",
            (boot_id, machine_id, name),
        )

    def _by(self, column: str, names: Sequence[str]) -> dict[str, Machine]:
        found = self._db.rows("SELECT * FROM machines WHERE %s IN (%s)" % (column, marks(names)), names)
        return {row[column]: rows.machine_of(row) for row in found}


class Claims:
    """Who may act on which target now: a lease with a token, by the database's clock."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def begin(self, remediation: str, holder: str, lease: float, dispatch: int = 0) -> str:
        """Note the start of a run; its token."""
        token = uuid.uuid4().hex
        self._db.write(
            "INSERT INTO runs (token, dispatch, remediation, holder, started_at, lease_until) "
            "VALUES (%s, %s, %s, %s, " + NOW + ", " + NOW + " + %s)",
            (token, dispatch, remediation, clip(holder, 128), lease),
        )
        if dispatch:
            self._db.write("UPDATE dispatches SET claimed_at = " + NOW + " WHERE id = %s", (dispatch,))
        return token

    def held_by(self, token: str, holder: str) -> None:
        """Note in which processes a run lives now."""
        self._db.write("UPDATE runs SET holder = %s WHERE token = %s", (clip(holder, 128), token))

    def holders(self) -> dict[str, str]:
        """By token the holder of every run that has claims, those whose lease is over left out."""
        found = self._db.rows(
            "SELECT DISTINCT r.token, r.holder FROM claims c JOIN runs r ON r.token = c.token "
            "WHERE c.lease_until > " + NOW
        )
        return {row["token"]: row["holder"] for row in found}

    def bury(self, token: str, holder: str) -> bool:
        """End a run whose processes are dead: its claims are free, and its incidents may be dispatched at once.

        Args:
            holder: as it was read; where another one stands by now nothing is done, and False comes back.
        """

        def write() -> bool:
            if not self._db.write(
                "UPDATE runs SET released_at = " + NOW + " WHERE token = %s AND holder = %s", (token, holder)
            ):
                return False
            self._db.write(
                "UPDATE incidents SET dispatch_until = NULL WHERE target_key IN "
                "(SELECT target_key FROM claims WHERE token = %s) AND open_key IS NOT NULL",
                (token,),
            )
            self._db.write("DELETE FROM claims WHERE token = %s", (token,))
            return True

        return self._db.transaction(write)

    def take(self, key: str, token: str, lease: float, incident: int = 0) -> bool:
        """Claim a target; False when another run has it. A lease that is over is nobody's."""
        self._db.write("DELETE FROM claims WHERE target_key = %s AND lease_until <= " + NOW, (key,))
        try:
            self._db.write(
                "INSERT INTO claims (target_key, token, incident, claimed_at, lease_until) "
                "VALUES (%s, %s, %s, " + NOW + ", " + NOW + " + %s)",
                (key, token, incident, lease),
            )
        except Duplicate:
            return False
        return True

    def drop(self, key: str, token: str) -> None:
        """Give one claim back that came to nothing (attached, refused)."""
        self._db.write("DELETE FROM claims WHERE target_key = %s AND token = %s", (key, token))

    def renew(self, key: str, token: str, lease: float, unless: str = "") -> None:
        """Look at token and lease, and lengthen the lease to `lease` seconds from now.

        Args:
            unless: a name in `Control`; while it has a value nothing is lengthened.

        Raises:
            Lost: it is not this run's any more, or `unless` has a value.
        """
        changed = self._db.write(
            "UPDATE claims SET lease_until = " + NOW + " + %s WHERE target_key = %s AND token = %s "
            "AND lease_until > " + NOW + " AND NOT EXISTS (SELECT 1 FROM control WHERE name = %s)",
            (lease, key, token, unless),
        )
        if not changed:
            raise _lost(key)

    def renew_all(self, token: str, lease: float) -> None:
        """Lengthen all leases of a run that are not over."""
        self._db.write(
            "UPDATE claims SET lease_until = " + NOW + " + %s WHERE token = %s AND lease_until > " + NOW,
            (lease, token),
        )

    def settle(
        self, incident: Incident, token: str, step: Mapping[str, Any], change: Mapping[str, Any]
    ) -> None:
        """Write a step's outcome and what becomes of its incident, in one statement, if the claim is this run's.

        Args:
            step: columns of the step's row, empty where it was not begun.
            change: columns of the incident's row, see `changes`.

        Raises:
            Lost: the claim is another run's, or the lease is over; nothing was written.
        """
        sets, values = assignments(change, "i")
        if step:
            more, step_values = assignments(step, "s")
            sets, values = "%s, %s" % (sets, more), values + step_values
        self._write_held(incident, token, sets + ", c.results = c.results + 1", values)

    def decide(self, incident: Incident, token: str, change: Mapping[str, Any]) -> None:
        """Write what a run that has begun no step decides about an incident, if the claim is this run's.

        Raises:
            Lost: the claim is another run's, or the lease is over; nothing was written.
        """
        sets, values = assignments(change, "i")
        self._write_held(incident, token, sets + ", c.claimed_at = c.claimed_at + 0.000001", values)

    def _write_held(self, incident: Incident, token: str, sets: str, values: Sequence[Any]) -> None:
        """Set columns of the claim (`c`), the incident (`i`) and its step (`s`) if the claim is this run's.

        `sets` always changes the claim: a row that stays as it is does not count as written.

        Raises:
            Lost: the claim is another run's, or the lease is over; nothing was written.
        """
        written = self._db.write(
            "UPDATE claims c JOIN incidents i ON i.id = %%s "
            "LEFT JOIN steps s ON s.incident = i.id AND s.round = %%s AND s.step = %%s SET %s "
            "WHERE c.target_key = %%s AND c.token = %%s AND c.lease_until > %s" % (sets, NOW),
            [incident.id, incident.round, incident.step, *values, incident.key, token],
        )
        if not written:
            raise _lost(incident.key)

    def hold(self, key: str, token: str, work: Callable[[], T]) -> T:
        """Call `work` (ledger writes only) in one transaction in which the claim is this run's.

        Raises:
            Lost: it is not; nothing was written.
        """

        def guarded() -> T:
            mine = self._db.row(
                "SELECT target_key FROM claims WHERE target_key = %s AND token = %s AND lease_until > "
                + NOW
                + " FOR UPDATE",
                (key, token),
            )
            if not mine:
                raise _lost(key)
            return work()

        return self._db.transaction(guarded)

    def bind(self, key: str, token: str, incident: int) -> None:
        """Note which incident a claim is for; from now on the run owes a result for it."""
        self._db.write(
            "UPDATE claims SET incident = %s WHERE target_key = %s AND token = %s", (incident, key, token)
        )
        self._db.write("UPDATE runs SET claimed = claimed + 1 WHERE token = %s", (token,))

    def claimed(self, token: str) -> Optional[int]:
        """For how many incidents a run owes a result; None for a token that was never given."""
        number = self._db.value("SELECT claimed FROM runs WHERE token = %s", (token,))
        return None if number is None else int(number)

    def of_run(self, token: str) -> list[dict[str, Any]]:
        """A run's claims, lost ones too: `{incident, target_key, results, live}`."""
        found = self._db.rows(
            "SELECT incident, target_key, results, lease_until > " + NOW + " AS live FROM claims "
            "WHERE token = %s AND incident > 0 ORDER BY incident",
            (token,),
        )
        return [{**row, "live": bool(row["live"])} for row in found]

    def release(self, token: str) -> None:
        """End a run: its claims are free."""
        self._db.write("DELETE FROM claims WHERE token = %s", (token,))
        self._db.write("UPDATE runs SET released_at = " + NOW + " WHERE token = %s", (token,))

    def going(self) -> int:
        """How many runs are going, and dispatches on their way to one."""
        return int(
            self._db.value(
                "SELECT (SELECT COUNT(DISTINCT token) FROM claims WHERE lease_until > " + NOW + ") + "
                "(SELECT COUNT(*) FROM dispatches WHERE claimed_at IS NULL AND until > " + NOW + ") AS going"
            )
        )


class Incidents:
    """One incident is what was done about one fault of one target."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def open(self, fault: Fault, target: Target, key: str, machine: str, request: Request) -> Incident:
        """Write a new incident, not yet decided.

        Raises:
            Duplicate: the target has an open one.
        """
        wish = asked(request)
        number = self._db.insert(
            "INSERT INTO incidents SET target_key = %s, open_key = %s, target_kind = %s, target_name = %s, "
            "target_uid = %s, scheduler = %s, machine = %s, fault_kind = %s, source = %s, suggested = %s, "
            "requested_by = %s, request = %s, state = %s, memory = '', wait_args = '', seen_at = %s, "
            "opened_at = " + NOW + ", updated_at = " + NOW,
            (
                key,
                key,
                target.kind,
                target.name,
                target.uid,
                fault.scheduler,
                machine or None,
                fault.kind,
                fault.source,
                fault.suggested,
                wish["requested_by"],
                wish["request"],
                OPEN,
                fault.seen_at,
            ),
        )
        self._db.write(
            "UPDATE incidents SET reason = %s WHERE id = %s", (held_reason(number, fault.kind), number)
        )
        found = self.get(number)
        if found is None:
            raise _lost(key)
        return found

    def get(self, number: int) -> Optional[Incident]:
        """By its number."""
        row = self._db.row("SELECT * FROM incidents WHERE id = %s", (number,))
        return rows.incident_of(row) if row else None

    def many(self, numbers: Sequence[int]) -> list[Incident]:
        """By their numbers, those that exist."""
        found = self._db.rows("SELECT * FROM incidents WHERE id IN (%s) ORDER BY id" % marks(numbers), numbers)
        return [rows.incident_of(row) for row in found]

    def open_of(self, keys: Sequence[str]) -> dict[str, Incident]:
        """The open (or escalated) incident of each of these targets."""
        found = self._db.rows("SELECT * FROM incidents WHERE open_key IN (%s)" % marks(keys), keys)
        return {row["open_key"]: rows.incident_of(row) for row in found}

    def live(self) -> list[Incident]:
        """All that are not closed, escalated ones too."""
        return [
            rows.incident_of(row)
            for row in self._db.rows("SELECT * FROM incidents WHERE open_key IS NOT NULL ORDER BY id")
        ]

    def claimed(self, token: str, step: str) -> list[Incident]:
        """A run's incidents that are to do this step now."""
        found = self._db.rows(
            "SELECT i.* FROM incidents i JOIN claims c ON c.incident = i.id AND c.target_key = i.target_key "
            "WHERE c.token = %s AND c.lease_until > " + NOW + " AND i.step = %s AND i.state = %s ORDER BY i.id",
            (token, step, OPEN),
        )
        return [rows.incident_of(row) for row in found]

    def change(self, number: int, columns: Mapping[str, Any]) -> None:
        """Write a change; see `changes`."""
        sets, values = assignments(columns)
        self._db.write("UPDATE incidents SET %s WHERE id = %%s" % sets, [*values, number])

    def dispatch(self, due: Mapping[int, float]) -> int:
        """Note that these incidents are being dispatched, each for so many seconds; the dispatch's number."""
        longest = max(due.values())
        number = self._db.insert(
            "INSERT INTO dispatches (sent_at, until) VALUES (" + NOW + ", " + NOW + " + %s)", (longest,)
        )
        for incident, seconds in due.items():
            self._db.write(
                "UPDATE incidents SET dispatch = %s, dispatch_until = " + NOW + " + %s, "
                "dispatch_tries = dispatch_tries + 1 WHERE id = %s",
                (number, seconds, incident),
            )
        return number

    def undispatch(self) -> None:
        """Nothing is on its way any more: the engine that was to bring it has been started anew.

        A run of the old engine that comes to its claim all the same finds its incidents dispatched by another number.
        """
        self._db.write("UPDATE incidents SET dispatch_until = NULL WHERE open_key IS NOT NULL")
        self._db.write("UPDATE dispatches SET until = " + NOW + " WHERE claimed_at IS NULL AND until > " + NOW)

    def idle(self) -> set[int]:
        """Live and escalated incidents that no run has claimed and no dispatch is on its way for."""
        found = self._db.rows(
            "SELECT i.id FROM incidents i LEFT JOIN claims c ON c.target_key = i.target_key AND c.lease_until > "
            + NOW
            + " WHERE i.open_key IS NOT NULL AND c.target_key IS NULL "
            "AND (i.dispatch_until IS NULL OR i.dispatch_until <= " + NOW + ")"
        )
        return {row["id"] for row in found}

    # what the gates ask about the past

    def last_closed(self, key: str, besides: int) -> Optional[float]:
        """When the last other incident of a target ended that had acted."""
        return self._db.value(
            "SELECT MAX(closed_at) AS at FROM incidents WHERE target_key = %s AND acted = 1 AND id <> %s",
            (key, besides),
        )

    def since_of(self, machines: Iterable[str]) -> dict[str, dict[str, Any]]:
        """By machine `{closed_at, busy, boot_id, boot_seen_at}`.

        When an incident of it was closed the last time, whether one is open, and its boot when last seen healthy.
        """
        names = sorted(machines)
        found = self._db.rows(
            "SELECT m.name, m.boot_id, m.boot_seen_at, MAX(i.closed_at) AS closed_at, "
            "COUNT(i.open_key) AS busy FROM machines m LEFT JOIN incidents i ON i.machine = m.name "
            "WHERE m.name IN (%s) GROUP BY m.name, m.boot_id, m.boot_seen_at" % marks(names),
            names,
        )
        return {row.pop("name"): {**row, "busy": bool(row["busy"])} for row in found}

    def acted_upon(self, key: str, kinds: Sequence[str], besides: int, limit: int = 50) -> list[Incident]:
        """The newest other incidents of a target, of faults of these kinds, that have acted."""
        where = "target_key = %%s AND acted = 1 AND id <> %%s AND fault_kind IN (%s)" % marks(kinds)
        return self.select(where, [key, besides, *kinds], limit)

    def attempts(self, key: str, step: str) -> int:
        """In how many incidents of a job this step was begun."""
        return int(
            self._db.value(
                "SELECT COUNT(DISTINCT s.incident) AS n FROM steps s JOIN incidents i ON i.id = s.incident "
                "WHERE i.target_key = %s AND s.step = %s",
                (key, step),
            )
        )

    def restarted(self, key: str, step: str) -> list[Mapping[str, Any]]:
        """What the incidents of a job in which this step was begun remember, the newest first."""
        found = self._db.rows(
            "SELECT memory FROM incidents i WHERE i.target_key = %s AND EXISTS "
            "(SELECT 1 FROM steps s WHERE s.incident = i.id AND s.step = %s) ORDER BY i.id DESC",
            (key, step),
        )
        return [rows.unpack(row["memory"]) for row in found]

    def released(self, successor: int) -> Optional[Mapping[str, Any]]:
        """What the last incident remembers that released this job to follow a failed one; None where none did."""
        found = self._db.rows(
            "SELECT memory FROM incidents WHERE plan = 'release_successor' AND acted = 1 ORDER BY id DESC"
        )
        memories = (rows.unpack(row["memory"]) for row in found)
        return next((memory for memory in memories if memory.get("successor") == successor), None)

    def failed_runs(self, since: float) -> list[dict[str, Any]]:
        """Runs of Slurm's jobs that failed and were taken up since a time: `failed_run` of each memory, with `job`."""
        found = self._db.rows(
            "SELECT target_name, memory FROM incidents WHERE opened_at >= %s AND target_kind = 'job' "
            "AND scheduler = %s AND acted = 1 ORDER BY id",
            (since, SLURM),
        )
        runs = [(row["target_name"], rows.unpack(row["memory"]).get("failed_run")) for row in found]
        return [{**run, "job": name} for name, run in runs if isinstance(run, dict)]

    def reasons_of(self, key: str) -> list[str]:
        """The texts under which we hold, or held, a node; the newest first."""
        found = self._db.rows(
            "SELECT reason FROM incidents WHERE target_key = %s AND acted = 1 ORDER BY id DESC LIMIT 20", (key,)
        )
        return [row["reason"] for row in found]

    def held(self, besides: str, holding: Sequence[str], left_for: float) -> int:
        """How many other nodes we hold out of service, or are about to: open incidents with one of these plans, those
        that were left to a person for `left_for` seconds only."""
        return int(
            self._db.value(
                "SELECT COUNT(*) AS n FROM incidents WHERE open_key IS NOT NULL AND open_key <> %%s "
                "AND target_kind = 'node' AND (state <> %%s OR closed_at > %s - %%s) AND plan IN (%s)"
                % (NOW, marks(holding)),
                [besides, ESCALATED, left_for, *holding],
            )
        )

    def alike(self, kind: str, besides: str, seconds: float) -> int:
        """How many other targets had an incident of this kind in the last seconds, or would have had one."""
        return int(
            self._db.value(
                "SELECT COUNT(DISTINCT target_key) AS n FROM ("
                "SELECT target_key FROM incidents WHERE fault_kind = %s AND opened_at > " + NOW + " - %s "
                "UNION SELECT target_key FROM refusals WHERE fault_kind = %s AND last_at > " + NOW + " - %s "
                "AND gate IN ('common_cause', 'blast_radius', 'breaker', 'mode')) AS both_tables "
                "WHERE target_key <> %s",
                (kind, seconds, kind, seconds, besides),
            )
        )

    def failures_in_a_row(self, kind: str, limit: int, no_repairs: Sequence[str], since: float) -> int:
        """How many of the last repairs failed, counted back to the last one that did not.

        Args:
            kind: node or job; what goes wrong with jobs, which their users can make, stops no repair of a node.
            no_repairs: plans that repair nothing (a quarantine ends with a person by design).
            since: epoch seconds; what ended before does not count.
        """
        found = self._db.rows(
            "SELECT state FROM incidents WHERE acted = 1 AND closed_at IS NOT NULL AND plan NOT IN (%s) "
            "AND target_kind = %%s AND closed_at > %%s ORDER BY closed_at DESC LIMIT %%s" % marks(no_repairs),
            [*no_repairs, kind, since, limit],
        )
        count = 0
        for row in found:
            if row["state"] != ESCALATED:
                break
            count += 1
        return count

    def highest(self) -> int:
        """The highest number that was ever given."""
        return int(self._db.value("SELECT COALESCE(MAX(id), 0) AS n FROM incidents"))

    def select(self, where: str = "1 = 1", parameters: Sequence[Any] = (), limit: int = 100) -> list[Incident]:
        """For reports: the newest that match. `where` is SQL of this package's own, never a caller's text."""
        found = self._db.rows(
            "SELECT * FROM incidents WHERE %s ORDER BY id DESC LIMIT %%s" % where, list(parameters) + [limit]
        )
        return [rows.incident_of(row) for row in found]

    def report(
        self,
        numbers: Sequence[int] = (),
        states: Sequence[str] = (),
        names: Sequence[str] = (),
        since: float = 0.0,
        limit: int = 100,
    ) -> list[Incident]:
        """For reports: the newest incidents that match every filter given; `names` are nodes', machines' or jobs'."""
        where, values = ["opened_at >= %s"], [since]
        for column, wanted in (("id", numbers), ("state", states)):
            if wanted:
                where.append("%s IN (%s)" % (column, marks(wanted)))
                values += list(wanted)
        if names:
            where.append("(target_name IN ({0}) OR machine IN ({0}))".format(marks(names)))
            values += list(names) * 2
        return self.select(" AND ".join(where), values, limit)


class Steps:
    """What was intended, when it began and what became of it. One row for an incident, its round and the step."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, numbers: Sequence[int]) -> list[StepRow]:
        """All steps of these incidents, in the order in which they began."""
        found = self._db.rows(
            "SELECT * FROM steps WHERE incident IN (%s) ORDER BY started_at, round" % marks(numbers), numbers
        )
        return [rows.step_of(row) for row in found]

    def get(self, incident: int, number: int, step: str) -> Optional[StepRow]:
        """One step of an incident's round."""
        row = self._db.row(
            "SELECT * FROM steps WHERE incident = %s AND round = %s AND step = %s", (incident, number, step)
        )
        return rows.step_of(row) if row else None

    def start(self, incident: Incident, token: str, intent: Mapping[str, Any]) -> StepRow:
        """Write `started`, in one statement, if the claim is this run's. The first intent stays.

        Raises:
            Lost: the claim is another run's, or the lease is over; nothing was written.
        """
        if not incident.acted:  # first, so that no step was ever begun by an incident that has not acted
            self._db.write("UPDATE incidents SET acted = 1 WHERE id = %s", (incident.id,))
        written = self._db.write(
            "INSERT INTO steps (incident, round, step, machine, token, status, tries, intent, proof, started_at, "
            "last_started_at) SELECT %s, %s, %s, %s, %s, %s, 1, %s, '', " + NOW + ", " + NOW + " FROM claims "
            "WHERE target_key = %s AND token = %s AND lease_until > " + NOW + " "
            "ON DUPLICATE KEY UPDATE token = VALUES(token), status = VALUES(status), tries = tries + 1, "
            "last_started_at = VALUES(last_started_at)",
            (
                incident.id,
                incident.round,
                incident.step,
                incident.machine or None,
                token,
                STARTED,
                pack(dict(intent)),
                incident.key,
                token,
            ),
        )
        started = self.get(incident.id, incident.round, incident.step) if written else None
        if started is None:
            raise _lost(incident.key)
        return started

    def begun_lately(self, machine: str, steps: Sequence[str], seconds: float, besides: int) -> int:
        """How many other incidents began one of these steps on a machine in the last seconds."""
        return int(
            self._db.value(
                "SELECT COUNT(DISTINCT incident) AS n FROM steps WHERE machine = %%s AND incident <> %%s "
                "AND started_at > %s - %%s AND step IN (%s)" % (NOW, marks(steps)),
                [machine, besides, seconds] + list(steps),
            )
        )

    def under_way(self, first: Sequence[str], last: str, besides: int) -> int:
        """How many other live incidents have begun one of the steps `first` and not done the step `last`.

        To be called inside a transaction that has locked `Control.lock`, so that two runs do not both count.
        """
        return int(
            self._db.value(
                "SELECT COUNT(DISTINCT s.incident) AS n FROM steps s "
                "JOIN incidents i ON i.id = s.incident AND i.round = s.round "
                "LEFT JOIN steps e ON e.incident = s.incident AND e.round = s.round AND e.step = %%s "
                "AND e.status = 'done' "
                "WHERE s.step IN (%s) AND s.incident <> %%s AND i.state IN (%%s, %%s) AND e.incident IS NULL"
                % marks(first),
                [last] + list(first) + [besides] + list(LIVE),
            )
        )

    def latest(self, names: Sequence[str], limit: int) -> list[dict[str, Any]]:
        """For reports: the last starts of these steps, `{incident, target, step, status, at, why}`, newest first."""
        return self._db.rows(
            "SELECT s.incident, i.target_name AS target, s.step, s.status, s.last_started_at AS at, s.why "
            "FROM steps s JOIN incidents i ON i.id = s.incident WHERE s.step IN (%s) "
            "ORDER BY s.last_started_at DESC LIMIT %%s" % marks(names),
            [*names, limit],
        )


class Records:
    """Refusals, counted and not repeated; evidence."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def refuse(
        self,
        key: str,
        fault_kind: str,
        source: str,
        gate: str,
        why: str,
        gates: Mapping[str, str],
        plan: str = "",
        incident: int = 0,
    ) -> None:
        """Count a refusal: one row for target, kind, gate and day."""
        self._db.write(
            "INSERT INTO refusals SET target_key = %s, fault_kind = %s, gate = %s, day = FLOOR(" + NOW + " / %s), "
            "incident = %s, source = %s, why = %s, gates = %s, plan = %s, first_at = " + NOW + ", last_at = " + NOW
            + " ON DUPLICATE KEY UPDATE times = times + 1, last_at = VALUES(last_at), why = VALUES(why), "
            "gates = VALUES(gates), plan = VALUES(plan), source = VALUES(source)",
            (key, fault_kind, gate, _DAY, incident, source, clip(why, WHY), pack(dict(gates)), plan),
        )

    def shadow_holds(self, besides: str, seconds: float) -> int:
        """How many other nodes we would hold now if we acted: refused for the mode alone in the last seconds."""
        return int(
            self._db.value(
                "SELECT COUNT(DISTINCT target_key) AS n FROM refusals WHERE gate = 'mode' AND plan <> '' "
                "AND target_key LIKE 'node:%%' AND target_key <> %s AND last_at > " + NOW + " - %s",
                (besides, seconds),
            )
        )

    def attach(self, incident: int, key: str, kind: str, source: str, body: Mapping[str, Any]) -> None:
        """Keep evidence with an incident; the same kind from the same source is counted."""
        self._db.write(
            "INSERT INTO evidence SET incident = %s, target_key = %s, kind = %s, source = %s, body = %s, "
            "first_at = " + NOW + ", last_at = " + NOW
            + " ON DUPLICATE KEY UPDATE times = times + 1, last_at = VALUES(last_at), body = VALUES(body)",
            (incident, key, kind, source, pack(dict(body))),
        )

    def kept_as(self, number: int) -> Optional[dict[str, Any]]:
        """One row of evidence, `{target_key, kind, body}`."""
        row = self._db.row("SELECT target_key, kind, body FROM evidence WHERE id = %s", (number,))
        return {**row, "body": rows.unpack(row["body"])} if row else None

    def keep(self, key: str, kind: str, source: str, body: Mapping[str, Any]) -> int:
        """Keep evidence of a fault that is about to be sent; its number, for the event's `evidence_ref`."""
        return self._db.insert(
            "INSERT INTO evidence SET incident = NULL, target_key = %s, kind = %s, source = %s, body = %s, "
            "first_at = " + NOW + ", last_at = " + NOW,
            (key, kind, source, pack(dict(body))),
        )

    def renew(self, number: int, body: Mapping[str, Any]) -> bool:
        """Count evidence that was kept and came again; whether it is still there."""
        sql = "UPDATE evidence SET times = times + 1, last_at = " + NOW + ", body = %s WHERE id = %s"
        return bool(self._db.write(sql, (pack(dict(body)), number)))

    def kept(self, source: str, seconds: float) -> list[dict[str, Any]]:
        """Evidence that a source kept in the last seconds, oldest first: `{id, target_key, kind, body, last_at}`."""
        found = self._db.rows(
            "SELECT id, target_key, kind, body, last_at FROM evidence WHERE incident IS NULL AND source = %s "
            "AND last_at > " + NOW + " - %s ORDER BY last_at, id",
            (source, seconds),
        )
        return [{**row, "body": rows.unpack(row["body"])} for row in found]

    def refusals(self, names: Sequence[str] = (), since: float = 0.0, limit: int = 100) -> list[dict[str, Any]]:
        """For reports: the latest refusals, of all targets or of those whose key ends in one of these names."""
        where, values = ["last_at >= %s"], [since]
        if names:
            where.append("SUBSTRING(target_key, LOCATE(':', target_key) + 1) IN (%s)" % marks(names))
            values += list(names)
        return self._db.rows(
            "SELECT id, target_key, fault_kind, gate, incident, source, why, gates, plan, times, first_at, last_at "
            "FROM refusals WHERE %s ORDER BY last_at DESC LIMIT %%s" % " AND ".join(where),
            values + [limit],
        )

    def by_gate(self, since: float) -> list[dict[str, Any]]:
        """For reports: `{gate, targets, times, last_at, why}` of the refusals since then, `why` of the last one."""
        return self._db.rows(
            "SELECT gate, COUNT(DISTINCT target_key) AS targets, CAST(SUM(times) AS SIGNED) AS times, "
            "MAX(last_at) AS last_at, SUBSTRING_INDEX(GROUP_CONCAT(why ORDER BY last_at DESC SEPARATOR '\\0'), "
            "'\\0', 1) AS why FROM refusals WHERE last_at >= %s GROUP BY gate ORDER BY last_at DESC",
            (since,),
        )

    def evidence(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """For reports: the evidence kept with these incidents."""
        return self._db.rows(
            "SELECT id, incident, target_key, kind, source, body, times, first_at, last_at FROM evidence "
            "WHERE incident IN (%s) ORDER BY first_at" % marks(numbers),
            numbers,
        )

    def told_with(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """For reports: the evidence that came with faults, by its numbers."""
        return self._db.rows(
            "SELECT id, incident, target_key, kind, source, body, times, first_at, last_at FROM evidence "
            "WHERE id IN (%s) AND incident IS NULL ORDER BY id" % marks(numbers),
            numbers,
        )

    def expire(self, seconds: float) -> int:
        """Retention: remove what ended longer ago; the number of rows."""
        removed = 0
        for statement in (
            "DELETE FROM steps WHERE incident IN (SELECT id FROM incidents WHERE open_key IS NULL "
            "AND closed_at < " + NOW + " - %s)",
            "DELETE FROM evidence WHERE last_at < " + NOW + " - %s AND (incident IS NULL OR incident NOT IN "
            "(SELECT id FROM incidents WHERE open_key IS NOT NULL))",
            "DELETE FROM refusals WHERE last_at < " + NOW + " - %s",
            "DELETE FROM incidents WHERE open_key IS NULL AND closed_at < " + NOW + " - %s",
            "DELETE FROM runs WHERE lease_until < " + NOW + " - %s",
            "DELETE FROM dispatches WHERE until < " + NOW + " - %s",
        ):
            removed += self._db.write(statement, (seconds,))
        return removed


class Control:
    """Named values: the emergency stop, the high-water mark, the canary."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, name: str) -> Optional[dict[str, Any]]:
        """`{value, changed_by, changed_at}`, None for no such value."""
        return self._db.row("SELECT value, changed_by, changed_at FROM control WHERE name = %s", (name,))

    def put(self, name: str, value: str, who: str) -> None:
        """Set a value."""
        self._db.write(
            "INSERT INTO control (name, value, changed_by, changed_at) VALUES (%s, %s, %s, " + NOW + ") "
            "ON DUPLICATE KEY UPDATE value = VALUES(value), changed_by = VALUES(changed_by), changed_at = " + NOW,
            (name, clip(value, 4000), clip(who, 128)),
        )

    def remove(self, name: str) -> bool:
        """Take a value away; whether it was there."""
        return self._db.write("DELETE FROM control WHERE name = %s", (name,)) > 0

    def lock(self, name: str) -> None:
        """Inside a transaction: let no other session pass here until it ends."""
        self._db.write(
            "INSERT INTO control (name, value, changed_at) VALUES (%s, '', " + NOW + ") "
            "ON DUPLICATE KEY UPDATE changed_at = VALUES(changed_at)",
            (name,),
        )


def finished(status: str, why: str, proof: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a step's row for its outcome. `waiting` is an outcome and no end."""
    return {
        "status": status,
        "tries": 0,
        "why": clip(why, WHY),
        "proof": pack(dict(proof)),
        "finished_at": None if status == PAUSED else Sql(NOW),
    }


def held_reason(number: int, fault_kind: str) -> str:
    """The exact text under which we hold an incident's node."""
    return "job-recovery #%d %s" % (number, fault_kind)


def _lost(key: str) -> Lost:
    return Lost("%s is not this run's any more" % key, "another run goes on with it")


def plain(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with their JSON columns read."""
    return [
        {name: rows.unpack(value) if name in ("body", "gates") else value for name, value in row.items()}
        for row in found
    ]
