# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmctld, as far as the recovery meets it: what was measured on the lab's Slurm 24.11, with short time-outs.

A silent node is NOT_RESPONDING, then DOWN; its jobs are requeued two minutes ahead. A node that comes back from a boot
that nobody asked Slurm for is DOWN. What is drained stays drained with its reason. RESUME clears both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Conflict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    AccountingRecord,
    Job,
    Node,
    NodeEvent,
)

from ..facts import COMPLETED, FAILED, KILLED, Hold, Life, Requeue
from .clock import Clock
from .hardware import Hardware, Process

SILENT_AFTER = 6.0
DOWN_AFTER = 16.0
REQUEUE_DELAY = 120.0
_LOOK_AGAIN = 4.0


@dataclass
class Run:
    """One run of a job: the life of its processes, kept as facts."""

    job: int
    nodes: tuple[str, ...]
    at: float
    number: int
    living: set[str]
    end: str = ""
    until: Optional[float] = None

    def owns(self, process: Process) -> bool:
        """Whether this is one of its processes."""
        return (process.job, process.run) == (self.job, self.number)


@dataclass
class Wanted:
    """What a job is: how many nodes for how long, and how its next runs end."""

    nodes: int
    seconds: float
    fails: int = 0  # so many runs end FAILED
    allowed: int = 3


@dataclass
class Slurmctld:
    """Nodes and jobs, and their history."""

    clock: Clock
    hardware: Hardware = field(init=False)
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    wanted: dict[int, Wanted] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    records: list[AccountingRecord] = field(default_factory=list)
    requeues: list[Requeue] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    events: list[NodeEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hardware = Hardware(self.clock, self.heard, self.process_ended)

    def add_node(self, name: str) -> None:
        """A node in service."""
        machine = self.hardware.add(name)
        self.nodes[name] = Node(
            name, "IDLE", hostname=name, boot_time=int(machine.booted_at), cpus=4, memory_mb=2000,
            slurmd_start_time=int(machine.slurmd_started_at), partitions=("main",),
        )  # fmt: skip

    def submit(self, number: int, wanted: Wanted, comment: str) -> None:
        """A batch job that may be requeued."""
        self.wanted[number] = wanted
        self.jobs[number] = Job(
            number, "PENDING", comment=comment, batch=True, requeue=True, restart_count=0, priority=1, uid=1000,
            partition="main", submit_time=int(self.clock.time()), begin_time=0,
        )  # fmt: skip
        self.schedule()

    # nodes

    def heard(self, name: str) -> None:
        """slurmd of a node began or ended to answer."""
        if name not in self.nodes:
            return
        if self.hardware.machines[name].slurmd_answers:
            self._registers(name)
            self.schedule()
            return
        since = self.clock.time()
        self.clock.after(SILENT_AFTER, lambda: self._silent(name, since))
        self.clock.after(DOWN_AFTER, lambda: self._given_up(name, since))

    def _still_silent(self, name: str, since: float) -> bool:
        machine = self.hardware.machines[name]
        return not machine.slurmd_answers and machine.slurmd_started_at <= since

    def _silent(self, name: str, since: float) -> None:
        if self._still_silent(name, since):
            self._flag(name, NOT_RESPONDING=True)

    def _given_up(self, name: str, since: float) -> None:
        node = self.nodes[name]
        if self._still_silent(name, since) and not node.down:
            self._change(name, base_state="DOWN", reason=node.reason or "Not responding")
            self._lose_jobs(name)

    def _registers(self, name: str) -> None:
        machine, node = self.hardware.machines[name], self.nodes[name]
        booted = int(machine.booted_at) > (node.boot_time or 0)
        self._flag(name, NOT_RESPONDING=False)
        changes = {"boot_time": int(machine.booted_at), "slurmd_start_time": int(machine.slurmd_started_at)}
        if booted and not node.down:
            self._change(name, base_state="DOWN", reason=node.reason or "Node unexpectedly rebooted", **changes)
            self._lose_jobs(name)
        elif node.down and (node.reason or "") == "Not responding" and not node.draining_or_drained:
            self._change(name, base_state="IDLE", reason=None, **changes)  # ReturnToService=1
        else:
            self._change(name, **changes)
        self.hardware.end(name, self._is_given_up)

    def _is_given_up(self, process: Process) -> bool:
        """A process of a run that Slurm took for lost: slurmd ends it when it is heard again."""
        if process.job not in self.jobs:
            return False  # a pod's
        run = self._run_of(process.job)
        return not process.orphan and (run is None or run.number != process.run)

    def update_node(self, names: list[str], state: str, reason: Optional[str], user: str = "job-recovery") -> None:
        """scontrol update NodeName=... State=DRAIN|DOWN|RESUME."""
        for name in names:
            node = self.nodes[name]
            if state == "RESUME":
                if not node.out_of_service:
                    raise Conflict("Invalid node state specified")
                self._flag(name, DRAIN=False)
                self._change(name, base_state="IDLE" if node.down else node.base_state, reason=None)
                continue
            if state == "DRAIN":
                self._flag(name, DRAIN=True)
            self._change(name, base_state="DOWN" if state == "DOWN" else node.base_state, reason=reason)
            self.events.append(NodeEvent(name, state, user, int(self.clock.time()), reason))
            if state == "DOWN":
                self._lose_jobs(name)
        self.schedule()

    def drain_itself(self, name: str, reason: str) -> None:
        """Slurm drains a node after an error on it."""
        self.update_node([name], "DRAIN", reason, "slurm")

    def _flag(self, name: str, **flags: bool) -> None:
        now = set(self.nodes[name].flags)
        now = (now | {flag for flag, on in flags.items() if on}) - {flag for flag, on in flags.items() if not on}
        self._change(name, flags=tuple(sorted(now)))

    def _change(self, name: str, **fields: object) -> None:
        before = self.nodes[name]
        after = self.nodes[name] = replace(before, **fields)
        held, holds = _held(before), _held(after)
        if held == holds and (before.reason == after.reason or not holds):
            return
        now = self.clock.time()
        if held:
            self.holds = [
                replace(hold, until=now) if hold.node == name and hold.until is None else hold for hold in self.holds
            ]
        if holds:
            self.holds.append(Hold(now, name, after.reason or ""))

    # jobs

    def schedule(self) -> None:
        """Start what may start; look again when the next begin time has come."""
        now = self.clock.time()
        for job in sorted(self.jobs.values(), key=lambda job: job.id):
            if job.state != "PENDING" or job.held:
                continue
            if (job.begin_time or 0) > now:
                self.clock.after((job.begin_time or 0) - now + 0.1, self.schedule)
                continue
            free = [name for name, node in self.nodes.items() if node.in_service and node.base_state == "IDLE"]
            if len(free) >= self.wanted[job.id].nodes:
                self._start(job, tuple(free[: self.wanted[job.id].nodes]))

    def _start(self, job: Job, nodes: tuple[str, ...]) -> None:
        now = self.clock.time()
        number = sum(1 for run in self.runs if run.job == job.id)
        run = Run(job.id, nodes, now, number, set(nodes))
        self.runs.append(run)
        self.jobs[job.id] = replace(job, state="RUNNING", state_reason=None, nodes=nodes, start_time=int(now))
        for name in nodes:
            self._change(name, base_state="ALLOCATED")
            self.hardware.begin(job.id, number, name)
        if any(job.id in self.hardware.machines[name].spool for name in nodes):
            self.clock.after(1.0, lambda: self._ends(run, FAILED))  # left-over files keep its step from starting
        else:
            fails = number < self.wanted[job.id].fails
            seconds = self.wanted[job.id].seconds
            self.clock.after(seconds / 2 if fails else seconds, lambda: self._ends(run, FAILED if fails else COMPLETED))

    def _ends(self, run: Run, how: str) -> None:
        """A run comes to its own end, if all of its processes still can."""
        if self._run_of(run.job) is not run or run.end:
            return
        if not all(self.hardware.machines[name].slurmd_answers for name in run.nodes):
            self.clock.after(_LOOK_AGAIN, lambda: self._ends(run, how))
            return
        run.end = how
        for name in run.nodes:
            if how == FAILED:
                self.hardware.machines[name].spool.add(run.job)
            self.hardware.end(name, run.owns)
        self._leave(run, how.upper())

    def lose_step_daemon(self, job: int, node: str) -> None:
        """kill -9 of slurmstepd: Slurm fails the job, and its processes on that node live on."""
        run = self._run_of(job)
        if run is None or node not in run.nodes:
            return
        for process in self.hardware.machines[node].processes:
            process.orphan = process.orphan or run.owns(process)
        for name in run.nodes:
            self.hardware.machines[name].spool.add(job)
            if name != node:
                self.hardware.end(name, run.owns)
        self._leave(run, "FAILED")

    def requeue(self, number: int) -> None:
        """scontrol requeue: also of a job that runs, whose run is thrown away."""
        job, run = self.jobs[number], self._run_of(number)
        if job.state == "PENDING":
            raise Conflict("Job is pending execution")
        if run is not None:
            for name in run.nodes:
                self._kill_on(name, run)
            self._leave(run, "REQUEUED")
        self._requeued(number, asked=True)

    def begin_now(self, number: int) -> None:
        """scontrol update StartTime=now."""
        self.jobs[number] = replace(self.jobs[number], begin_time=int(self.clock.time()) - 1, state_reason=None)
        self.schedule()

    def process_ended(self, process: Process, name: str) -> None:
        """A process of a job is gone, whatever ended it."""
        for run in self.runs:
            if run.owns(process) and name in run.living:
                run.living.discard(name)
                if not run.living:
                    run.until, run.end = self.clock.time(), run.end or KILLED

    def _lose_jobs(self, name: str) -> None:
        for job in list(self.jobs.values()):
            run = self._run_of(job.id)
            if run is not None and name in run.nodes:
                for each in run.nodes:
                    self._kill_on(each, run)
                self._leave(run, "NODE_FAIL")
                self._requeued(job.id)

    def _kill_on(self, name: str, run: Run) -> None:
        if self.hardware.machines[name].slurmd_answers:
            self.hardware.end(name, run.owns)

    def _leave(self, run: Run, state: str) -> None:
        now = int(self.clock.time())
        job = self.jobs[run.job]
        self.records.append(
            AccountingRecord(
                run.job, state, nodes=run.nodes, submit_time=job.submit_time, start_time=int(run.at), end_time=now,
                restart_count=job.restart_count,
            )
        )  # fmt: skip
        final = state if state in ("COMPLETED", "FAILED") else "NODE_FAIL"
        self.jobs[run.job] = replace(job, state=final, end_time=now)
        for name in run.nodes:
            if self.nodes[name].base_state == "ALLOCATED":
                self._change(name, base_state="IDLE")
        self.schedule()

    def _requeued(self, number: int, asked: bool = False) -> None:
        job, now = self.jobs[number], self.clock.time()
        self.requeues.append(Requeue(now, number, asked))
        self.jobs[number] = replace(
            job, state="PENDING", nodes=(), restart_count=(job.restart_count or 0) + 1, state_reason="BeginTime",
            begin_time=int(now + REQUEUE_DELAY), submit_time=int(now),
        )  # fmt: skip
        self.schedule()

    def _run_of(self, number: int) -> Optional[Run]:
        """The run that Slurm believes to be going on."""
        job = self.jobs[number]
        runs = [run for run in self.runs if run.job == number]
        return runs[-1] if runs and job.state == "RUNNING" else None

    def lives(self) -> tuple[Life, ...]:
        """The facts of all runs."""
        return tuple(Life(run.job, run.nodes, run.at, run.until, run.end) for run in self.runs)


def _held(node: Node) -> bool:
    return node.out_of_service and bool(node.reason)
