# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the steps share: making outcomes, one target's trouble, bounded looks, and the names of things."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import proves_off
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import opt_in, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    DONE,
    FAILED,
    WAITING,
    Lost,
    Machine,
    Outcome,
    Tools,
    Wait,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node

RETRY = 5.0  # seconds until something that could not be reached is tried again
BRIEF = 2.0  # seconds that a step stays for what usually comes at once: cheaper than to end this run and start another
_PAUSE = 0.15
_WORKERS = 16
_POWER_DEADLINE = 4.0
_SSH_DEADLINE = 8.0  # of a helper's verb that only looks
_LEASE_MARGIN = 2.0  # seconds of the lease that are kept for writing the outcome down


class Plain:
    """A step that needs no intent: its act can tell from the present state alone what is left to do."""

    name = ""

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:  # noqa: ARG002 (the protocol's)
        """Nothing."""
        return {work.incident: {} for work in works}


# ---- outcomes ------------------------------------------------------------------------------------------------------


def done(
    work: Work, why: str = "", remember: Optional[Mapping[str, Any]] = None, proof: Optional[Mapping[str, Any]] = None
) -> Outcome:
    """It is done; `proof` shows it."""
    return Outcome(work.incident, DONE, why, None, remember or {}, proof or {})


def failed(work: Work, why: str, proof: Optional[Mapping[str, Any]] = None) -> Outcome:
    """It cannot be done."""
    return Outcome(work.incident, FAILED, why, proof=proof or {})


def waiting(
    work: Work,
    why: str,
    kind: str,
    args: Optional[Mapping[str, Any]] = None,
    until: Optional[float] = None,
    remember: Optional[Mapping[str, Any]] = None,
) -> Outcome:
    """Go on when a wait of `kind` is due, at the latest at `until` (default and at most: the step's deadline)."""
    limits = [moment for moment in (until, work.deadline) if moment]
    return Outcome(work.incident, WAITING, why, Wait(kind, args or {}, min(limits)), remember or {})


def retry(work: Work, tools: Tools, why: str, seconds: float = RETRY) -> Outcome:
    """Try again soon; failed when the step's time is over."""
    now = tools.now()
    if work.deadline and now >= work.deadline:
        return failed(work, "%s; the step's time is over" % why)
    return waiting(work, why, waits.TIME, until=now + seconds)


def trouble(work: Work, tools: Tools, error: RecoveryError) -> Outcome:
    """One target's error as its outcome: what is not known is tried again, a plain no is a failure.

    A run that may not act any more (`Lost`) has done nothing; whoever holds the claim goes on.
    """
    if isinstance(error, Lost):
        return waiting(work, str(error), waits.TIME, until=tools.now() + RETRY)
    if isinstance(error, (Unreachable, Unreadable)):
        return retry(work, tools, str(error))
    return failed(work, str(error))


def over(work: Work, tools: Tools) -> bool:
    """Whether the step's time is over."""
    return bool(work.deadline) and tools.now() >= work.deadline


# ---- doing ---------------------------------------------------------------------------------------------------------


def each(works: Sequence[Work], tools: Tools, act: Callable[[Work, Tools], Outcome]) -> list[Outcome]:
    """`act` for every work, many at once; an error of one is its outcome. The guard is asked by one at a time."""
    lock = threading.Lock()

    def guard(work: Work) -> float:
        with lock:
            return tools.guard(work)

    guarded = replace(tools, guard=guard)

    def safely(work: Work) -> Outcome:
        try:
            return act(work, guarded)
        except RecoveryError as exc:
            return trouble(work, tools, exc)

    if len(works) <= 1:
        return [safely(work) for work in works]
    with ThreadPoolExecutor(min(_WORKERS, len(works))) as pool:
        return list(pool.map(safely, works))


class Answers:
    """Outcomes by work while a step for several works goes through its stages.

    A work that has its outcome takes no part in later stages.
    """

    def __init__(self, works: Sequence[Work], tools: Tools) -> None:
        self._works = list(works)
        self._tools = tools
        self._made: dict[int, Outcome] = {}

    @property
    def open(self) -> list[Work]:
        """The works without an outcome, in their order."""
        return [work for work in self._works if work.incident not in self._made]

    def give(self, outcome: Outcome) -> None:
        """Set a work's outcome."""
        self._made.setdefault(outcome.incident, outcome)

    def give_error(self, works: Iterable[Work], error: RecoveryError) -> None:
        """An error that several works share."""
        for work in works:
            self.give(trouble(work, self._tools, error))

    def guarded(self) -> tuple[list[Work], float]:
        """The open works that may write now, and the seconds that a write for all of them may take."""
        left: list[float] = []
        works = []
        for work in self.open:
            try:
                left.append(self._tools.guard(work))
                works.append(work)
            except RecoveryError as exc:
                self.give(trouble(work, self._tools, exc))
        return works, bounded(min(left, default=0.0))

    def all(self) -> list[Outcome]:
        """One outcome for each work, in their order."""
        return [self._made[work.incident] for work in self._works]


def bounded(seconds_left: float) -> float:
    """How long an act may take when so much of the lease is left."""
    return max(1.0, seconds_left - _LEASE_MARGIN)


def poll(look: Callable[[], bool], seconds: float = BRIEF) -> bool:
    """Look again and again until `look` says true, for at most `seconds`."""
    until = time.monotonic() + seconds
    while not look():
        if time.monotonic() + _PAUSE >= until:
            return False
        time.sleep(_PAUSE)
    return True


def ask_nodes(
    works: Sequence[Work],
    tools: Tools,
    words: Callable[[Work], Optional[Sequence[str]]],
    deadline: float = _SSH_DEADLINE,
) -> dict[int, NodeAnswer]:
    """Ask the helper of each work's machine, all at once; by incident its answer. None as words: not asked.

    Two incidents never share a machine, so an address is asked one thing only.
    """
    requests, incidents = {}, {}
    made: dict[int, NodeAnswer] = {}
    for work in works:
        command = words(work)
        if command is None:
            continue
        if work.machine is None or not work.machine.ssh_address:
            made[work.incident] = NodeAnswer(error=Absent("no SSH address of %s is known" % work.target.name))
            continue
        requests[work.machine.ssh_address] = list(command)
        incidents[work.incident] = work.machine.ssh_address
    answers = tools.nodes.call(requests, deadline)
    made.update({incident: answers[address] for incident, address in incidents.items()})
    return made


def identity_words(work: Work) -> list[str]:
    """The helper's options that make it do nothing on another node than the one that is meant.

    After a boot that was proved it is that boot; before, it is the machine on record (a node without a disk may get
    another machine ID with every boot).
    """
    booted = work.memory.get("new_boot_id")
    if isinstance(booted, str) and booted:
        return ["--if-boot-id", booted]
    machine = work.machine
    return ["--if-machine-id", machine.machine_id] if machine is not None and machine.machine_id else []


# ---- names and records ---------------------------------------------------------------------------------------------


def slurm_name(work: Work, tools: Tools) -> str:
    """The node's name in Slurm; empty where it has none, or where the site has no Slurm."""
    return work.machine.slurm_name if work.machine is not None and tools.slurm is not None else ""


def kubernetes_name(work: Work, tools: Tools) -> str:
    """The node's name in Kubernetes; empty where it has none, or where the site has no Kubernetes."""
    return work.machine.kubernetes_name if work.machine is not None and tools.kubernetes is not None else ""


def slurm_nodes(works: Sequence[Work], tools: Tools) -> dict[int, Node]:
    """By incident the node as Slurm has it now, by one call; without those that Slurm does not know.

    Raises:
        RecoveryError: Slurm cannot be read.
    """
    names = {work.incident: slurm_name(work, tools) for work in works}
    wanted = sorted({name for name in names.values() if name})
    if not wanted:
        return {}
    nodes = {node.name: node for node in tools.slurm.nodes(wanted, missing_ok=True)}
    return {incident: nodes[name] for incident, name in names.items() if name in nodes}


def slurmd_starts(works: Sequence[Work], tools: Tools) -> dict[int, Optional[int]]:
    """By incident when slurmd was started last, as far as Slurm knows and answers: what a registration is told by."""
    try:
        nodes = slurm_nodes(works, tools)
    except RecoveryError:
        nodes = {}
    return {work.incident: nodes[work.incident].slurmd_start_time if work.incident in nodes else None for work in works}


def boot_to_end(work: Work) -> str:
    """The boot that a reboot is to end: the one that this incident proved last, else the one on record."""
    proved = work.memory.get("new_boot_id")
    return proved if isinstance(proved, str) and proved else recorded_boot_id(work)


def recorded_boot_id(work: Work) -> str:
    """The boot that the repair began from: what the incident remembers, else the last one of the healthy machine."""
    remembered = work.memory.get("boot_id")
    if isinstance(remembered, str) and remembered:
        return remembered
    return work.machine.boot_id if work.machine is not None else ""


def power_off_proved(work: Work) -> bool:
    """Whether this incident's fence proved the node off."""
    return work.memory.get("power_off_proved") is True


def proved_off(machines: Sequence[Machine], tools: Tools) -> set[str]:
    """Names of those of which their own BMCs say now that they are off; all are asked at once."""
    asked = [machine for machine in machines if machine.bmc_url]
    if not asked or tools.power is None:
        return set()
    states = tools.power.read_many([machine.bmc_url for machine in asked], _POWER_DEADLINE)
    return {machine.name for machine in asked if proves_off(states[machine.bmc_url], machine.smbios_uuid)}


def job_opted_in(job: Job, tools: Tools) -> bool:
    """Whether the job's user, or the site for all of them, allows that it is restarted."""
    return tools.settings.jobs == "all" or opt_in.parse(job.comment).allowed
