# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recovery's adapters over the simulated cluster, with the real ones' methods.

The power adapter is the real one, over answers of the simulated BMCs; a node's helper takes its words by the real
helper's own parser.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Conflict,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import cli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import shell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power import redfish
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Reply
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    AccountingRecord,
    Job,
    JobState,
    Node,
    NodeEvent,
    NodeGroup,
    NodeState,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation

from .hardware import Machine
from .slurmctld import DOWN_AFTER, Slurmctld
from .strikes import ACT, ACTED, LOOK, Points

DEVICE = "0000:05:00"
UP, DOWN, HUNG = "up", "down", "hung"
_LOOK_SECONDS = 0.02
_ACT_SECONDS = 0.1
_HUNG_SECONDS = 10.0


@dataclass
class Slurm:
    """Slurm's commands. `state`: whether slurmctld answers (UP), refuses (DOWN), or lets everybody wait (HUNG)."""

    ctld: Slurmctld
    points: Points
    state: str = UP
    comments: dict[int, str] = field(default_factory=dict)  # AdminComments of jobs in the accounting
    late: Optional[float] = None  # the next drain arrives so many seconds after whoever sent it was killed

    def within(self, _seconds: float) -> Slurm:
        return self

    def nodes(self, names: Optional[Iterable[str]] = None, missing_ok: bool = False) -> list[Node]:
        self._look("nodes")
        return [self.ctld.nodes[name] for name in (names or self.ctld.nodes) if name in self.ctld.nodes]

    def node_groups(self) -> list[NodeGroup]:
        self._look("node_groups")
        return [NodeGroup(node.name, node.base_state, node.flags, node.reason) for node in self.ctld.nodes.values()]

    def node_states(self) -> list[NodeState]:
        return [state for group in self.node_groups() for state in group.states]

    def node_events(self, names: Iterable[str], since: int) -> list[NodeEvent]:
        self._look("node_events")
        return [event for event in self.ctld.events if event.name in names and (event.time or 0) >= since]

    def config(self) -> dict[str, str]:
        self._look("config")
        return {"SlurmdTimeout": "%d sec" % DOWN_AFTER, "MinJobAge": "300 sec"}

    def reservations(self) -> list[Reservation]:
        self._look("reservations")
        return []

    def jobs(self, ids: Iterable[Any], missing_ok: bool = False) -> list[Job]:
        self._look("jobs")
        return [self.ctld.jobs[number] for number in map(int, map(str, ids)) if number in self.ctld.jobs]

    def all_jobs(self, before: queue.Jobs) -> queue.Jobs:
        states = {repr(state): state for state in self.job_states()}
        changed = frozenset(queue.job_name(states[line]) for line in set(states) - set(before.lines))
        return queue.Jobs(states, changed)

    def restarted(self) -> frozenset[int]:
        self._look("restarted")
        return frozenset(job.id for job in self.ctld.jobs.values() if job.state == "PENDING" and job.restart_count)

    def jobs_on(self, nodes: Iterable[str]) -> list[Job]:
        self._look("jobs_on")
        return [job for job in self.ctld.jobs.values() if job.on_nodes and set(nodes) & set(job.nodes)]

    def submissions(self, uids: Iterable[int], since: int) -> list[AccountingRecord]:
        self._look("submissions")  # nobody depends on anything here
        return []

    def waiting_jobs(self, uid: int) -> list[Job]:
        self._look("waiting_jobs")
        return [job for job in self.ctld.jobs.values() if job.uid == uid and job.state == "PENDING"]

    def job_states(
        self, ids: Any = None, nodes: Optional[Iterable[str]] = None, only_states: bool = False
    ) -> list[JobState]:
        self._look("job_states")
        wanted = None if ids is None else {str(name) for name in ids}
        on = None if nodes is None else set(nodes)
        return [
            JobState(
                job.id, job.state, job.flags, state_reason=job.state_reason, nodes=job.nodes, uid=job.uid,
                partition=job.partition, submit_time=job.submit_time, begin_time=job.begin_time,
            )
            for job in self.ctld.jobs.values()
            if (wanted is None or str(job.id) in wanted) and (on is None or on & set(job.nodes))
        ]  # fmt: skip

    def accounting(self, ids: Any = None, since: Optional[int] = None, steps: bool = False, nodes: Any = None) -> list:
        self._look("accounting")
        wanted = None if ids is None else {str(name) for name in ids}
        return [record for record in self.ctld.records if wanted is None or str(record.id) in wanted]

    def update_node(self, names: Iterable[str], state: str, reason: Optional[str] = None) -> None:
        chosen = list(names)
        if state == "DRAIN" and self.late is not None:
            seconds, self.late = self.late, None
            self.ctld.clock.after(seconds, lambda: self.ctld.update_node(chosen, state, reason))
            self.points.die()
        self._act(state, lambda: self.ctld.update_node(chosen, state, reason))

    def requeue(self, job: Any) -> None:
        self._act("requeue", lambda: self.ctld.requeue(int(str(job))))

    def release(self, job: Any) -> None:
        self._act("release", lambda: self.ctld.begin_now(int(str(job))))

    def update_job(self, job: Any, start_now: bool = False, **_more: Any) -> None:
        begin = self.ctld.begin_now if start_now else int
        self._act("start" if start_now else "comment", lambda: begin(int(str(job))))

    def accounted_comment(self, job: int) -> Optional[str]:
        self._look("accounted_comment")
        return self.comments.get(job)

    def update_finished_job(self, job: int, admin_comment: str) -> None:
        self._act("account", lambda: self.comments.update({job: admin_comment}))

    def _look(self, what: str) -> None:
        self.points.reach(LOOK, "slurm " + what)
        self._answers()
        self.ctld.clock.sleep(_LOOK_SECONDS)

    def _act(self, what: str, do: Callable[[], None]) -> None:
        self.points.reach(ACT, "slurm " + what)
        self._answers()
        do()
        self.ctld.clock.sleep(_ACT_SECONDS)
        self.points.reach(ACTED, "slurm " + what)

    def _answers(self) -> None:
        if self.state == HUNG:
            self.ctld.clock.sleep(_HUNG_SECONDS)
            raise TimedOut("slurmctld does not answer", cause="timeout")
        if self.state == DOWN:
            raise Unreachable("slurmctld is down", cause="unreachable")


class AsyncSlurm:
    """The same for the source, whose methods are awaited."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> Any:
            return getattr(self._slurm, name)(*args, **named)

        return call


class Shell:
    """SSH to the nodes' helpers. `obeys`: the conditions that a helper keeps."""

    def __init__(self, ctld: Slurmctld, points: Points) -> None:
        self._ctld, self._points = ctld, points

    def banner(self, addresses: Sequence[str], deadline: Optional[float] = None) -> dict[str, str]:
        self._points.reach(LOOK, "ssh banner")
        return {address: _banner(self._machine(address)) for address in addresses}

    def call(self, requests: Mapping[str, Sequence[str]], deadline: float) -> dict[str, NodeAnswer]:
        return {address: self._call(address, list(words)) for address, words in requests.items()}

    def _call(self, address: str, words: list[str]) -> NodeAnswer:
        request = cli.parse(words)
        looks = request.verb in ("probe", "spool-look", "orphans", "health", "gpu-look", "kernel-look")
        self._points.reach(LOOK if looks else ACT, "ssh " + request.verb)
        self._ctld.clock.sleep(_ACT_SECONDS)
        machine = self._machine(address)
        if not machine.reachable:
            return NodeAnswer(error=Unreachable("node %s: no answer" % machine.name))
        refused = refusal(machine, request)
        if refused:
            return NodeAnswer(error=Conflict(refused))
        answer = NodeAnswer(data=self._verbs[request.verb](self, machine, request))
        if not looks:
            self._points.reach(ACTED, "ssh " + request.verb)
        return answer

    def _machine(self, address: str) -> Machine:
        return self._ctld.hardware.machines[address.partition("ssh-")[2]]

    def _probe(self, machine: Machine, _request: cli.Request) -> dict[str, Any]:
        return {
            "boot_id": machine.boot_id,
            "machine_id": machine.machine_id,
            "hostname": machine.name,
            "uptime": self._ctld.clock.time() - machine.booted_at,
            "units": {
                unit: {"active": "active" if alive else "failed", "load": "loaded"}
                for unit, alive in (("slurmd.service", machine.slurmd), ("kubelet.service", machine.kubelet))
                if alive is not None
            },
        }

    def _restart(self, machine: Machine, _request: cli.Request) -> dict[str, Any]:
        changed = []
        if not machine.slurmd:
            self._ctld.hardware.start_slurmd(machine.name)
            changed.append("slurmd.service")
        if machine.kubelet is False:
            self._ctld.hardware.set_kubelet(machine.name, True)
            changed.append("kubelet.service")
        return {"changed": changed, "units": {}}

    def _reboot(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        told = {"rebooting": is_this_boot(machine, request), "boot_id": machine.boot_id}
        if told["rebooting"]:
            self._ctld.hardware.reboot(machine.name)
        return told

    def _spool_look(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        return {"stale": ["stepd.slurm.pmix.%d.0" % job for job in self._stale(machine, request)], "kept": []}

    def _spool_clean(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        stale = self._stale(machine, request)
        machine.spool -= set(stale)
        return {"removed": ["stepd.slurm.pmix.%d.0" % job for job in stale], "stale": [], "kept": []}

    def _stale(self, machine: Machine, request: cli.Request) -> list[int]:
        named = {int(job) for job in request.options.get("--job", [])} or machine.spool
        living = {process.job for process in machine.processes if not process.orphan}
        return sorted((machine.spool & named) - living)

    def _orphans(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        jobs = {int(job) for job in request.operands}
        found = [process for process in machine.processes if process.job in jobs]
        return {
            "count": len(found),
            "jobs": {str(job): sum(1 for process in found if process.job == job) for job in jobs},
            "processes": [{"pid": process.pid, "start": 1, "job": process.job} for process in found],
        }

    def _end_orphans(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        named = {int(process.partition(".")[0]) for process in request.options["--process"]}
        ended = self._ctld.hardware.end(machine.name, lambda process: process.pid in named)
        return {"ended": len(ended), **self._orphans(machine, request)}

    def _health(self, _machine: Machine, _request: cli.Request) -> dict[str, Any]:
        return {"fit": True, "rc": 0, "output": ""}

    def _kernel_look(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        now, code = self._ctld.clock.time(), request.last("--code")
        told = [at for each, at in machine.gpu.told.items() if each == code]
        return {"findings": [{"code": code, "device": DEVICE, "ago": now - at} for at in told]}

    def _gpu_look(self, machine: Machine, _request: cli.Request) -> dict[str, Any]:
        gpu = {"device": DEVICE, "state": "answers", "recovery": machine.gpu.recovery, "pending": False}
        return {"state": "answers", "trouble": "", "gpus": [gpu], "users": []}

    def _gpu_stop(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        record = machine.gpu.records.setdefault(request.last("--name"), {"services": machine.gpu.services})
        machine.gpu.services = False
        return {"state": "done", "services": ["dcgm"] if record["services"] else [], "persistence": [], "users": []}

    def _gpu_reset(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        record = machine.gpu.records.setdefault(request.last("--name"), {})
        if was_reset(record):
            return record["result"]
        users = users_of(machine)
        if users or machine.gpu.services:
            return {"state": "busy", "why": "in use", "users": users}
        helped = self._ctld.hardware.reset_gpu(machine.name)
        record["result"] = {"state": "done", "why": ""} if helped else {"state": "failed", "why": "it did not help"}
        return record["result"]

    def _gpu_start(self, machine: Machine, request: cli.Request) -> dict[str, Any]:
        machine.gpu.services = machine.gpu.records.get(request.last("--name"), {}).get("services", machine.gpu.services)
        return {"state": "done", "services": [], "persistence": []}

    _verbs = {
        "kernel-look": _kernel_look,
        "gpu-look": _gpu_look,
        "gpu-stop": _gpu_stop,
        "gpu-reset": _gpu_reset,
        "gpu-start": _gpu_start,
        "probe": _probe,
        "restart": _restart,
        "reboot": _reboot,
        "spool-look": _spool_look,
        "spool-clean": _spool_clean,
        "orphans": _orphans,
        "end-orphans": _end_orphans,
        "health": _health,
    }


def was_reset(record: Mapping[str, Any]) -> bool:
    """The helper's record: a reset is done once under one name."""
    return "result" in record


def users_of(machine: Machine) -> list[dict[str, Any]]:
    """Who has the GPU open: the processes of jobs."""
    return [{"pid": process.pid, "name": "python3"} for process in machine.processes]


def is_this_boot(machine: Machine, request: cli.Request) -> bool:
    """The helper's compare and swap: a reboot is of one boot."""
    return request.last("--if-boot-id") == machine.boot_id


def refusal(machine: Machine, request: cli.Request) -> str:
    """Why the helper does nothing at all: it is another machine or another boot than the one that is meant."""
    machine_id, boot_id = request.last("--if-machine-id"), request.last("--if-boot-id")
    if machine_id and machine_id != machine.machine_id:
        return "this is another machine"
    if request.verb != "reboot" and boot_id and boot_id != machine.boot_id:
        return "this is another boot"
    return ""


def _banner(machine: Machine) -> str:
    if machine.cut or machine.power == "Off":
        return shell.NO_ROUTE
    if not machine.up:
        return shell.REFUSED if machine.power == "On" else shell.NO_ROUTE
    return shell.SILENT if machine.frozen else shell.BANNER


class Bmcs(redfish.Power):
    """The real Redfish adapter; what the BMCs answer is simulated."""

    def __init__(self, ctld: Slurmctld, points: Points) -> None:
        super().__init__(PowerSettings())
        self._ctld, self._points = ctld, points

    def _ask(
        self,
        url: str,
        method: str,
        deadline: Optional[float],
        path: str = "",
        body: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Reply:
        name = url.rpartition("/")[2]
        bmc = self._ctld.hardware.bmcs[name]
        level = {"ForceOff": "Off", "On": "On"}[body["ResetType"]] if body else ""
        self._points.reach(ACT if body else LOOK, "bmc %s" % (level or "state"))
        self._ctld.clock.sleep(_ACT_SECONDS)
        if bmc.silent:
            raise Unreachable("BMC %s: no answer" % url)
        if body:
            self._ctld.hardware.reset(name, level)
            self._points.reach(ACTED, "bmc " + level)
            return Reply(204, b"")
        state = "Off" if bmc.lies else self._ctld.hardware.machines[bmc.drives].power
        action = {"target": "/reset", "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}
        system = {"PowerState": state, "UUID": bmc.uuid, "Actions": {"#ComputerSystem.Reset": action}}
        return Reply(200, json.dumps(system).encode())
