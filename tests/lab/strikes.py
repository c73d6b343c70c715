# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill or stop the recovery's own processes at a moment that its ledger tells.

The lab's hosts are containers on this machine: their processes are signalled from here, and the ledger is read from
here through its socket, so that a blow falls within milliseconds of the moment it is meant for.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pymysql
from joblab import podman, processes
from joblab.errors import LabError
from joblab.instance import HEAD, Instance

LEASE = 30.0  # seconds, job_recovery_lease
_PLAYBOOK = "mission_control.job_recovery."
_RULEBOOK = "ansible-rulebook"
_OTHER_RUNS = ("canary",)  # no incident of theirs
_POLL = 0.003


# ---- processes of the head ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """One process of the head by its number on this machine; `started` tells it from a later one of that number."""

    pid: int
    parent: int
    started: int
    command: str

    def send(self, number: signal.Signals) -> bool:
        """Signal it if it still is this process."""
        if read_process(self.pid, self.started) is None:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def read_process(pid: int, started: int | None = None) -> Process | None:
    """The process, None if it is gone, a zombie, or another one that got its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return None
    found = Process(pid, int(stat[1]), int(stat[19]), command)
    return None if stat[0] == "Z" or started not in (None, found.started) else found


def on_head(instance: Instance) -> list[Process]:
    """Every process of the head."""
    found = map(read_process, processes.pids(podman.group(instance, HEAD)))
    return [process for process in found if process is not None]


def rulebooks(instance: Instance) -> list[Process]:
    """The engine; more than one would be a defect."""
    return [process for process in on_head(instance) if f"/{_RULEBOOK} " in process.command]


def runs(instance: Instance) -> list[list[Process]]:
    """The remediation playbooks that run, each with all processes below it, the playbook's own first."""
    everything = on_head(instance)
    playbooks = {
        process.pid: process
        for process in everything
        if "/ansible-playbook " in process.command
        and process.command.rpartition(_PLAYBOOK)[2].strip() not in _OTHER_RUNS
    }
    mains = [process for process in playbooks.values() if process.parent not in playbooks]
    return [[main, *_below(main, everything)] for main in mains]


def _below(top: Process, everything: list[Process]) -> list[Process]:
    found = [process for process in everything if process.parent == top.pid]
    return found + [deeper for process in found for deeper in _below(process, everything)]


# ---- the ledger -----------------------------------------------------------------------------------------------------


class Ledger:
    """The ledger's rows, read as the database's root through the socket in the head's file system."""

    def __init__(self, instance: Instance) -> None:
        init = podman.init(instance, HEAD)
        self._connection = pymysql.connect(
            unix_socket=f"/proc/{init}/root/run/mysqld/mysqld.sock",
            user="root",
            database="job_recovery",
            autocommit=True,
        )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def rows(self, sql: str, *parameters: object) -> list[tuple]:
        """Rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def reached(self, since: float, plan: str, step: str, status: str) -> bool:
        """Whether an incident with this plan, opened since then, has come so far (no step: is there)."""
        if not step:
            return bool(self.rows("SELECT 1 FROM incidents WHERE opened_at >= %s AND plan = %s", since, plan))
        return bool(
            self.rows(
                "SELECT 1 FROM steps s JOIN incidents i ON i.id = s.incident AND i.round = s.round "
                "WHERE i.opened_at >= %s AND i.plan = %s AND s.step = %s AND s.status = %s",
                since,
                plan,
                step,
                status,
            )
        )


# ---- blows ----------------------------------------------------------------------------------------------------------

KILL, PAUSE = "kill", "pause"
RULEBOOK, PLAYBOOK, MODULE = "rulebook", "playbook", "module"


@dataclass(frozen=True)
class Strike:
    """One blow.

    Attributes:
        plan: of the incident that is in the middle of its repair.
        step, status: the moment: this row of its steps is there. No step: the incident has its plan.
        process: the engine; every remediation playbook that runs, with all below it; or their workers alone, in which
            the modules run.
        how: SIGKILL, or SIGSTOP for longer than a lease and then SIGCONT.
        later: seconds after the moment.
    """

    plan: str
    step: str
    status: str
    process: str
    how: str
    later: float = 0.0

    def __str__(self) -> str:
        moment = f"{self.step} is {self.status}" if self.step else "the claim"
        return f"{self.how} {self.process} {self.later:.2f} s after {moment} in {self.plan}"


class Striker(threading.Thread):
    """Waits for a strike's moment, and strikes once. `struck` tells what was hit."""

    def __init__(self, instance: Instance, strike: Strike, since: float, deadline: float = 180.0) -> None:
        super().__init__(daemon=True)
        self.strike = strike
        self.struck: list[str] = []
        self.error = ""
        self._instance, self._since, self._deadline = instance, since, time.monotonic() + deadline
        self._over = threading.Event()

    def give_up(self) -> None:
        """There is nothing more to come."""
        self._over.set()
        self.join(LEASE * 3)

    def run(self) -> None:
        try:
            with Ledger(self._instance) as ledger:
                strike = self.strike
                if self._await(lambda: ledger.reached(self._since, strike.plan, strike.step, strike.status)):
                    time.sleep(strike.later)
                    self._await(self._hit)
        except (pymysql.err.Error, OSError, LabError) as exc:
            self.error = f"{type(exc).__name__}: {exc}"

    def _await(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._over.is_set() or time.monotonic() > self._deadline:
                return False
            time.sleep(_POLL)
        return True

    def _hit(self) -> bool:
        victims = self._victims()
        number = signal.SIGKILL if self.strike.how == KILL else signal.SIGSTOP
        hit = [process for process in victims if process.send(number)]
        self.struck = [process.command.strip()[-60:] for process in hit]
        if hit and self.strike.how == PAUSE:
            time.sleep(LEASE + 15)  # long enough for another run to take over
            for process in hit:
                process.send(signal.SIGCONT)
        return bool(hit)

    def _victims(self) -> list[Process]:
        if self.strike.process == RULEBOOK:
            return rulebooks(self._instance)
        going = runs(self._instance)
        if self.strike.process == PLAYBOOK:
            return [process for run in going for process in run]
        return [process for main, *below in going for process in below if process.parent == main.pid]


# ---- boots ----------------------------------------------------------------------------------------------------------


@dataclass
class Boots:
    """Every boot of every node, as it was seen: `seen[node]` are its boot IDs in their order."""

    instance: Instance
    seen: dict[str, list[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Note each node's boot ID, if the node is on."""
        for node in self.instance.nodes:
            boot_id = self._boot_id(node)
            known = self.seen.setdefault(node, [])
            if boot_id and boot_id not in known:
                known.append(boot_id)

    def reboots(self, node: str) -> int:
        """How often the node booted while it was watched."""
        return len(self.seen[node]) - 1

    def _boot_id(self, node: str) -> str:
        init = podman.init(self.instance, node)
        try:
            found = Path(f"/proc/{init}/root/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:  # off, or going down
            return ""
        # the first thing a host does is to give itself a boot ID of its own
        return "" if found == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() else found


@contextmanager
def watched_boots(instance: Instance) -> Iterator[Boots]:
    """Watch the nodes' boots: a boot takes longer than the time between two looks."""
    boots, over = Boots(instance), threading.Event()
    boots.look()

    def watch() -> None:
        while not over.wait(0.25):
            boots.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield boots
    finally:
        over.set()
        watcher.join()
        boots.look()


def any_strike(chance: random.Random, plan: str, steps: tuple[str, ...]) -> Strike:
    """A strike at a moment that nobody chose."""
    return Strike(
        plan=plan,
        step=chance.choice(steps),
        status=chance.choice(("started", "done")),
        process=chance.choice((RULEBOOK, PLAYBOOK, PLAYBOOK, MODULE)),
        how=chance.choice((KILL, KILL, PAUSE)),
        later=chance.choice((0.0, 0.0, chance.uniform(0, 1.0))),
    )
