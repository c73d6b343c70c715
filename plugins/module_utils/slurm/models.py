# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes and jobs of Slurm as values, and the rules about their states, each in one place.

Units everywhere: times are seconds since the epoch, memory is MB (2^20 bytes), lists of nodes are expanded, and None
stands where Slurm has nothing. States and flags are spelled as `scontrol show node` of current versions spells them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist

NODE_BASES = frozenset(["DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE", "UNKNOWN", "INVALID"])
NODE_FLAGS = frozenset(
    [
        "BLOCKED", "CLOUD", "COMPLETING", "DRAIN", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL", "INVALID_REG",
        "FAIL", "MAINTENANCE", "POWER_DOWN", "POWER_UP", "POWERED_DOWN", "REBOOT_REQUESTED", "REBOOT_ISSUED",
        "RESERVED", "RESUME", "NOT_RESPONDING", "PLANNED", "POWERING_UP", "POWERING_DOWN",
    ]
)
# Other spellings: sinfo's words and those of older versions. The meaning is the same.
NODE_ALIASES = {
    "ALLOC": "ALLOCATED",
    "MIX": "MIXED",
    "UNK": "UNKNOWN",
    "INVAL": "INVALID",
    "FUTR": "FUTURE",
    "MAINT": "MAINTENANCE",
    "NO_RESPOND": "NOT_RESPONDING",
    "UNDRAIN": "RESUME",
    "RES": "RESERVED",
    "RESV": "RESERVED",
    "REBOOT": "REBOOT_REQUESTED",
    "FAILING": "FAIL",
    "COMP": "COMPLETING",
}
# What sinfo and older versions put behind a state (`DOWN*`, `IDLE~`), sinfo(1), NODE STATE CODES.
NODE_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
JOB_STATES = frozenset(
    [
        "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
        "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    ]
)
JOB_FLAGS = frozenset(
    [
        "LAUNCH_FAILED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESIZING", "CONFIGURING", "COMPLETING",
        "STOPPED", "RECONFIG_FAIL", "POWER_UP_NODE", "REVOKED", "REQUEUE_FED", "RESV_DEL_HOLD", "SIGNALING",
        "STAGE_OUT", "EXPEDITING", "UPDATE_DB",
    ]
)
JOB_ENDED = JOB_STATES - frozenset(("PENDING", "RUNNING", "SUSPENDED"))
_HELD_REASONS = ("JobHeldUser", "JobHeldAdmin")
# Slurm holds a job itself only after it could not launch it. squeue writes the text with underscores.
_LAUNCH_FAILED = ("launch_failed_requeued_held", "launch failed requeued held")


@dataclasses.dataclass(frozen=True)
class Node:
    """One node as slurmctld sees it.

    `name` is NodeName, `hostname` NodeHostName, `address` NodeAddr: they differ on some sites. `reason_user` is a login
    name or the number where there is no name.
    """

    name: str
    base_state: str
    flags: tuple[str, ...] = ()
    hostname: str | None = None
    address: str | None = None
    reason: str | None = None
    reason_user: str | None = None
    reason_time: int | None = None
    boot_time: int | None = None
    slurmd_start_time: int | None = None
    cpus: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    memory_mb: int | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str | None = None
    version: str | None = None
    os: str | None = None
    comment: str | None = None
    extra: str | None = None

    @property
    def understood(self) -> bool:
        """Every part of the state is known to us; where it is not, nothing may be done to the node."""
        return self.base_state in NODE_BASES - {"UNKNOWN", "INVALID"} and NODE_FLAGS.issuperset(self.flags)

    @property
    def responding(self) -> bool:
        """slurmd answers, as far as slurmctld knows."""
        return "NOT_RESPONDING" not in self.flags

    @property
    def registered(self) -> bool:
        """slurmd has registered, and is there now: the node may be given back."""
        return self.boot_time is not None and self.responding and not self.powering and not self.rebooting

    @property
    def draining_or_drained(self) -> bool:
        """The node gets no new job because of a drain."""
        return "DRAIN" in self.flags

    @property
    def is_drained(self) -> bool:
        """Drained, and nothing runs there any more; a node whose epilog still runs is COMPLETING."""
        return self.draining_or_drained and not self.busy

    @property
    def busy(self) -> bool:
        """A job, or what is left of one, is on the node."""
        return self.base_state in ("ALLOCATED", "MIXED") or "COMPLETING" in self.flags

    @property
    def runs_jobs(self) -> bool:
        """A job that has not ended is on the node, as far as slurmctld knows."""
        return self.base_state in ("ALLOCATED", "MIXED")

    @property
    def down(self) -> bool:
        return self.base_state == "DOWN"

    @property
    def out_of_service(self) -> bool:
        """The node gets no job until somebody, or slurmd's registration, changes that."""
        return self.down or self.base_state == "ERROR" or bool({"DRAIN", "FAIL"}.intersection(self.flags))

    @property
    def in_service(self) -> bool:
        """Jobs may be sent to it, and it answers."""
        return self.understood and self.responding and not self.out_of_service

    @property
    def rebooting(self) -> bool:
        """`scontrol reboot` was called and has not ended: no second reboot, no resume, no drain."""
        return bool({"REBOOT_REQUESTED", "REBOOT_ISSUED"}.intersection(self.flags))

    @property
    def powering(self) -> bool:
        """Slurm's power saving has the node, or is about to."""
        return any(flag.startswith("POWER") for flag in self.flags)

    @property
    def in_maintenance(self) -> bool:
        """A maintenance reservation, or any other reservation, is active on the node."""
        return bool({"MAINTENANCE", "RESERVED"}.intersection(self.flags))

    @property
    def misconfigured(self) -> bool:
        """slurmd registered with less than slurm.conf promises."""
        return "INVALID_REG" in self.flags

    @property
    def state(self) -> str:
        """The state as scontrol prints it: `DOWN+DRAIN+NOT_RESPONDING`."""
        return "+".join((self.base_state, *self.flags))


@dataclasses.dataclass(frozen=True)
class Job:
    """One job, one task of an array (its own `id`), or the not yet started rest of an array (`array_tasks`).

    `state` is the base state. Text output hides the base behind some flags; then `state` is that flag's name and the
    same flag is in `flags`. `het_jobs` are the ids of all components of a heterogeneous job. `begin_time` is
    EligibleTime. `exit_code` is Slurm's `code:signal`.
    """

    id: int
    state: str
    flags: tuple[str, ...] = ()
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: str | None = None
    het_job_id: int | None = None
    het_job_offset: int | None = None
    het_jobs: tuple[int, ...] = ()
    name: str | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    state_reason: str | None = None
    exit_code: str | None = None
    nodes: tuple[str, ...] = ()
    batch_host: str | None = None
    restart_count: int | None = None
    requeue: bool | None = None
    batch: bool | None = None
    comment: str | None = None
    admin_comment: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    submit_time: int | None = None
    begin_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    partition: str | None = None
    dependency: str | None = None
    excluded_nodes: tuple[str, ...] = ()
    required_nodes: tuple[str, ...] = ()
    priority: int | None = None

    @property
    def understood(self) -> bool:
        """The base state and every flag are known to us."""
        return self.state in JOB_STATES and JOB_FLAGS.issuperset(self.flags)

    @property
    def completing(self) -> bool:
        return "COMPLETING" in self.flags

    @property
    def finished(self) -> bool:
        """The job has ended and left its nodes; while it is COMPLETING it has not."""
        return self.state in JOB_ENDED and not self.completing

    @property
    def log_paths(self) -> tuple[str, ...]:
        """Absolute paths of its log's files, once each; what Slurm has not filled in (`%j`) is none."""
        paths = dict.fromkeys(path for path in (self.stderr, self.stdout) if path)
        return tuple(path for path in paths if path.startswith("/") and "%" not in path and path != "/dev/null")

    @property
    def on_nodes(self) -> bool:
        """Processes of the job may be on its nodes."""
        return self.state in ("RUNNING", "SUSPENDED") or self.completing

    @property
    def held(self) -> bool:
        """PENDING until somebody releases it."""
        if self.state != "PENDING":
            return False
        return self.priority == 0 or (self.state_reason or "").startswith(_HELD_REASONS + _LAUNCH_FAILED) or bool(
            {"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}.intersection(self.flags)
        )

    @property
    def held_by_slurm(self) -> bool:
        """Held because its launch failed. Every other hold is the wish of its user, or of an administrator."""
        return self.held and (self.state_reason or "").startswith(_LAUNCH_FAILED)

    @property
    def argument(self) -> str:
        """This job alone, as Slurm's commands take it: the last task of an array bears the whole array's number."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return "%d_%d" % (self.array_job_id, self.array_task_id)
        return str(self.id)

    @property
    def het_leader(self) -> bool:
        """Not a component of a heterogeneous job, or its first one, which alone can be requeued."""
        return self.het_job_id in (None, self.id)


@dataclasses.dataclass(frozen=True)
class NodeState:
    """The cheap look at a node: its full state, and as much of its reason as a fixed column holds."""

    name: str
    base_state: str
    flags: tuple[str, ...]
    reason: str | None
    reason_cut: bool = False

    @property
    def node(self) -> Node:
        """The same as a `Node`, for the rules about states."""
        return Node(name=self.name, base_state=self.base_state, flags=self.flags, reason=self.reason)


@dataclasses.dataclass(frozen=True)
class NodeGroup:
    """Nodes that are in the same state for the same reason, as `sinfo` groups them.

    Attributes:
        hosts: the nodes as a host list (`node[1-4]`).
    """

    hosts: str
    base_state: str
    flags: tuple[str, ...]
    reason: str | None
    reason_cut: bool = False

    @property
    def states(self) -> list[NodeState]:
        """One state for each node.

        Raises:
            HostlistError: the host list cannot be read.
        """
        same = (self.base_state, self.flags, self.reason, self.reason_cut)
        return [NodeState(name, *same) for name in hostlist.expand(self.hosts)]


@dataclasses.dataclass(frozen=True)
class NodeEvent:
    """What slurmdbd recorded of a node: a drain or a failure, when it began, by whom and why.

    slurmctld reports a drain when the node is idle, or gets idle; a drain of a drained node with another reason is an
    event of its own, also if a resume ended it a moment later (seen on 24.11.5).
    """

    name: str
    state: str
    user: str | None
    time: int | None
    reason: str | None


@dataclasses.dataclass(frozen=True)
class JobState:
    """The cheap look at a job, without any text of its user. `array_tasks` as in `Job`."""

    id: int
    state: str
    flags: tuple[str, ...]
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: str | None = None
    state_reason: str | None = None
    uid: int | None = None
    nodes: tuple[str, ...] = ()
    partition: str | None = None
    submit_time: int | None = None
    begin_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None

    @property
    def held_by_slurm(self) -> bool:
        """PENDING, and held because its launch failed."""
        return self.state == "PENDING" and (self.state_reason or "").startswith(_LAUNCH_FAILED)


@dataclasses.dataclass(frozen=True)
class AccountingRecord:
    """One line of sacct: one run of a job, or of a step of it (`step` is `batch`, `extern`, `0` ...).

    A job that was requeued has a record for every run; they differ in `submit_time`.
    """

    id: int
    state: str
    step: str | None = None
    array_job_id: int | None = None
    array_task_id: int | None = None
    het_job_id: int | None = None
    cancelled_by: int | None = None
    exit_code: str | None = None
    derived_exit_code: str | None = None
    user: str | None = None
    partition: str | None = None
    nodes: tuple[str, ...] = ()
    failed_node: str | None = None
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    restart_count: int | None = None
    name: str | None = None
    comment: str | None = None
    submit_line: str | None = None


def split_node_state(words: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return base state and flags, upper case and in today's spelling, from a state's words in any order.

    scontrol prints `?` for a bit that it does not know; it is a word like any other that we do not know.

    >>> split_node_state(["idle*", "drain"])
    ('IDLE', ('DRAIN', 'NOT_RESPONDING'))

    A word that is neither a base nor a flag is kept among the flags as it is, so that `Node.understood` is false.
    """
    base: str | None = None
    flags: dict[str, None] = {}
    for word in words:
        name, suffixes = _split_suffixes(word.strip().upper())
        name = NODE_ALIASES.get(name, name)
        if name in NODE_BASES and base is None:
            base = name
        elif name:
            flags[name] = None
        flags.update(dict.fromkeys(suffixes))
    return base or "UNKNOWN", tuple(sorted(flags))


def _split_suffixes(word: str) -> tuple[str, list[str]]:
    name = word[:1] + word[1:].rstrip("".join(NODE_SUFFIXES))
    return name, [NODE_SUFFIXES[mark] for mark in reversed(word[len(name):])]


def split_job_state(words: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return base state and flags of a job from a state's words in any order; unknown words are kept as flags."""
    base: str | None = None
    flags: dict[str, None] = {}
    for word in words:
        name = word.strip().upper()
        if name in JOB_STATES and base is None:
            base = name
        elif name:
            flags[name] = None
    names = tuple(sorted(flags))
    return base or (names[0] if names else "UNKNOWN"), names


def as_dict(value: Any) -> dict[str, Any]:
    """Return a model as plain data for a module's result: lists for tuples, everything else as it is."""
    return {
        field.name: list(item) if isinstance(item, tuple) else item
        for field in dataclasses.fields(value)
        for item in (getattr(value, field.name),)
    }
