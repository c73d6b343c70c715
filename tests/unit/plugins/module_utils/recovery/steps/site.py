# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site for the steps' tests: adapters with the real ones' methods, over plain state that a test can read and change.

Slurm changes its nodes and jobs as slurmctld does; the helper's answers are told by address and verb. Every write is
kept in `writes`, in order.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Conflict,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NO_ROUTE, NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import same_machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, parse
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    Lost,
    Machine,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import STEPS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    JOB_ENDED,
    AccountingRecord,
    Job,
    JobState,
    Node,
    NodeState,
)

OLD_BOOT = "11111111-1111-4111-8111-111111111111"
NEW_BOOT = "22222222-2222-4222-8222-222222222222"
MACHINE_ID = "0123456789abcdef0123456789abcdef"
UUID = "4c4c4544-0042-3010-8058-c7c04f4a4e32"
REASON = "job-recovery incident 7"
OPTED_IN = '{"APS": {"auto_resume_mode": "requeue"}}'


class Site:
    """Slurm, the nodes' helpers and the BMCs of a small cluster."""

    def __init__(self) -> None:
        self.nodes_now: dict[str, Node] = {}
        self.jobs_now: dict[int, Job] = {}
        self.accounted: dict[int, str] = {}
        self.submitted: list[AccountingRecord] = []
        self.runs: list[AccountingRecord] = []
        self.helper: dict[tuple[str, str], Any] = {}  # (address, verb): answer, error, or a function of the words
        self.ports: dict[str, str] = {}  # by address what its SSH port says; nothing by default
        self.bmc: dict[str, PowerState] = {}
        self.bmc_obeys = True
        self.slurm_obeys = True
        self.writes: list[Any] = []
        self.asked: list[tuple[str, ...]] = []  # address and words of every call of a helper
        self.lost: set[int] = set()
        self.sleeps_in_look: set[int] = set()  # incidents whose claim is lost while Slurm is looked at
        self.trouble: Optional[RecoveryError] = None
        self.jobs_trouble: Optional[RecoveryError] = None  # only when asked for the jobs of nodes
        self.machines: dict[str, Machine] = {}
        self.clock = time.time
        self.update_trouble: Optional[RecoveryError] = None
        self.conf = {"UnkillableStepTimeout": "60 sec"}

    def add(self, name: str, base: str = "IDLE", *flags: str, **fields: Any) -> Machine:
        """A node with all its names and a BMC."""
        usual = {"boot_time": 1000, "slurmd_start_time": 1010, "cpus": 4, "memory_mb": 2000, "partitions": ("main",)}
        facts: dict[str, Any] = {**usual, **fields}
        self.nodes_now[name] = Node(name, base, flags, address="nodeaddr-" + name, **facts)
        self.machines[name] = Machine(name, name, "", "ssh-" + name, "https://bmc/" + name, UUID, MACHINE_ID, OLD_BOOT)
        self.bmc["https://bmc/" + name] = PowerState("On", UUID, "/reset", ("On", "ForceOff"))
        return self.machines[name]

    def node(self, name: str, base: str, *flags: str, **fields: Any) -> None:
        """Change a node in Slurm."""
        self.nodes_now[name] = replace(self.nodes_now[name], base_state=base, flags=flags, **fields)

    def job(self, number: int, state: str, *flags: str, **fields: Any) -> None:
        """Add or change a job."""
        usual = {"batch": True, "requeue": True, "restart_count": 0, "priority": 1, "comment": OPTED_IN, "uid": 1000}
        ended = {"end_time": int(time.time()) - 5} if state in JOB_ENDED else {}
        facts = {**usual, **ended, **fields}
        self.jobs_now[number] = Job(number, state, flags, **facts)

    # Slurm

    def nodes(self, names: Optional[Iterable[str]] = None, missing_ok: bool = False) -> list[Node]:
        self._answers()
        self.lost |= self.sleeps_in_look
        wanted = list(self.nodes_now) if names is None else list(names)
        return [self.nodes_now[name] for name in wanted if name in self.nodes_now]

    def update_node(self, names: Sequence[str], state: str, reason: Optional[str] = None) -> None:
        self._answers()
        for name in names:
            self.writes.append((name, state, reason))
            node = self.nodes_now[name]
            flags = set(node.flags)
            if state == "RESUME":
                base = "IDLE" if node.base_state == "DOWN" else node.base_state
                self.nodes_now[name] = replace(node, base_state=base, flags=tuple(flags - {"DRAIN"}), reason=None)
                continue
            base = "DOWN" if state == "DOWN" else node.base_state
            flags |= {"DRAIN"} if state == "DRAIN" else set()
            self.nodes_now[name] = replace(node, base_state=base, flags=tuple(sorted(flags)), reason=reason)

    def reboot_nodes(self, names: Sequence[str]) -> None:
        self._answers()
        for name in names:
            self.writes.append((name, "reboot"))
            node = self.nodes_now[name]
            if self.slurm_obeys:
                reason = "%s : reboot issued" % node.reason
                self.nodes_now[name] = replace(node, flags=(*node.flags, "REBOOT_ISSUED"), reason=reason)

    def within(self, _timeout: float) -> Site:
        return self

    def node_events(self, names: Iterable[str], since: int) -> list[dict[str, Any]]:
        return []

    def jobs(self, ids: Iterable[Any], missing_ok: bool = False) -> list[Job]:
        self._answers()
        self.lost |= self.sleeps_in_look
        wanted = {str(name) for name in ids}
        return [
            job
            for job in self.jobs_now.values()
            if {str(job.id), "%s_%s" % (job.array_job_id, job.array_task_id), str(job.het_job_id)} & wanted
        ]

    def jobs_on(self, nodes: Iterable[str]) -> list[Job]:
        self._answers()
        for trouble in filter(None, [self.jobs_trouble]):
            raise trouble
        return [job for job in self.jobs_now.values() if job.on_nodes and set(nodes) & set(job.nodes)]

    def job_states(self, ids: Any = None, nodes: Optional[Iterable[str]] = None, only_states: bool = False) -> list:
        self._answers()
        wanted = None if nodes is None else set(nodes)
        return [
            JobState(
                job.id, job.state, job.flags, state_reason=job.state_reason, nodes=job.nodes, end_time=job.end_time
            )
            for job in self.jobs_now.values()
            if wanted is None or wanted & set(job.nodes)
        ]

    def config(self) -> dict[str, str]:
        self._answers()
        return self.conf

    def accounting(
        self, ids: Any = None, since: Any = None, steps: bool = False, nodes: Optional[Iterable[str]] = None
    ) -> list[AccountingRecord]:
        self._answers()
        wanted = None if ids is None else {str(name) for name in ids}
        places = None if nodes is None else set(nodes)
        return [
            run
            for run in self.runs
            if (wanted is None or str(run.id) in wanted)
            and (places is None or places & set(run.nodes))
            and (run.step is None or steps)
        ]

    def submissions(self, uids: Iterable[int], since: int) -> list[AccountingRecord]:
        self._answers()
        return list(self.submitted)

    def waiting_jobs(self, uid: int) -> list[Job]:
        self._answers()
        return [job for job in self.jobs_now.values() if job.uid == uid and job.state == "PENDING"]

    def requeue(self, job: Any) -> None:
        self.writes.append(("requeue", str(job)))
        found = self.jobs_now[int(str(job))]
        count = (found.restart_count or 0) + 1
        later = int(self.clock()) + 120
        self.jobs_now[found.id] = replace(
            found, state="PENDING", flags=(), restart_count=count, nodes=(), begin_time=later
        )

    def release(self, job: Any) -> None:
        self.writes.append(("release", str(job)))
        self.jobs_now[int(str(job))] = replace(self.jobs_now[int(str(job))], flags=(), state_reason=None, priority=1)

    def update_job(
        self,
        job: Any,
        start_now: bool = False,
        excluded_nodes: Optional[Sequence[str]] = None,
        admin_comment: Optional[str] = None,
    ) -> None:
        if self.update_trouble is not None:
            raise self.update_trouble
        found = self.jobs_now[int(str(job))]
        if found.finished:
            raise RecoveryError("Job has already finished")
        if start_now:
            self.writes.append(("start", str(job)))
            self.jobs_now[found.id] = replace(found, begin_time=int(self.clock()) - 1)
        if excluded_nodes is not None:
            self.writes.append(("exclude", str(job), *excluded_nodes))
            self.jobs_now[found.id] = replace(found, excluded_nodes=tuple(excluded_nodes))
        if admin_comment is not None:
            self.writes.append(("tell", str(job), admin_comment))
            self.jobs_now[found.id] = replace(found, admin_comment=admin_comment)

    def accounted_comment(self, job: int) -> Optional[str]:
        self._answers()
        return self.accounted.get(job)

    def update_finished_job(self, job: int, admin_comment: str) -> None:
        if self.update_trouble is not None:
            raise self.update_trouble
        self.writes.append(("account", str(job), admin_comment))
        self.accounted[job] = admin_comment

    def node_states(self) -> list[NodeState]:
        self._answers()
        return [NodeState(node.name, node.base_state, node.flags, node.reason) for node in self.nodes_now.values()]

    def _answers(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    # the helpers

    def banner(self, addresses: Sequence[str], deadline: Optional[float] = None) -> dict[str, str]:
        return {address: self.ports.get(address, NO_ROUTE) for address in addresses}

    def call(self, requests: Mapping[str, Sequence[str]], deadline: float) -> dict[str, NodeAnswer]:
        assert deadline > 0
        return {address: self._ask(address, tuple(words)) for address, words in requests.items()}

    def _ask(self, address: str, words: tuple[str, ...]) -> NodeAnswer:
        self.asked.append((address, *words))
        told = self.helper.get((address, words[0]), Unreachable("node %s: no answer" % address))
        told = told(words) if callable(told) else told
        return NodeAnswer(error=told) if isinstance(told, RecoveryError) else NodeAnswer(data=told)

    # the BMCs

    def read(self, url: str, deadline: Optional[float] = None) -> PowerState:
        if url not in self.bmc:
            raise Unreachable("BMC %s: no answer" % url)
        return self.bmc[url]

    def read_many(self, urls: Sequence[str], deadline: Optional[float] = None) -> dict[str, Any]:
        return {url: self.bmc.get(url, Unreachable("BMC %s: no answer" % url)) for url in urls}

    def request_level(
        self, url: str, level: str, smbios_uuid: str, seconds: float, before_write: Optional[Callable[[], Any]] = None
    ) -> PowerState:
        before = self.read(url)
        if not same_machine(before.uuid, smbios_uuid):
            raise Conflict("BMC %s tells another UUID" % url)
        if before.state != level:
            if before_write is not None:
                before_write()
            self.writes.append((url, level))
            if self.bmc_obeys:
                self.bmc[url] = replace(before, state=level)
        return before

    def await_level(self, url: str, levels: Sequence[str], smbios_uuid: str, seconds: float) -> PowerState:
        return self.read(url)

    # running a step

    def tools(self, kubernetes: Any = None, **changes: Any) -> Tools:
        """The adapters; `changes` to the settings."""
        return Tools(
            settings=settings_of(**changes),
            slurm=self,
            kubernetes=kubernetes,
            nodes=self,
            power=self,
            guard=self.guard,
            now=self.clock,
            machines=lambda names: {name: self.machines[name] for name in names if name in self.machines},
            all_machines=lambda: list(self.machines.values()),
        )

    def guard(self, work: Work) -> float:
        if work.incident in self.lost:
            raise Lost("the claim is another run's")
        return 30.0

    def act(self, *works: Work, tools: Optional[Tools] = None) -> list[Outcome]:
        """Intend and act, as the frame does; the outcomes in the order of the works."""
        step = STEPS[works[0].step]
        tools = tools or self.tools()
        intents = step.intend([work for work in works if not work.intent], tools)
        outcomes = step.act([replace(work, intent=intents.get(work.incident, work.intent)) for work in works], tools)
        assert [outcome.incident for outcome in outcomes] == [work.incident for work in works]
        return outcomes

    def act_one(self, work: Work, tools: Optional[Tools] = None) -> Outcome:
        (outcome,) = self.act(work, tools=tools)
        return outcome


def settings_of(**changes: Any) -> Settings:
    """Settings of a small site."""
    return parse({"cluster": "lab", "mode": "act", "scope": {"partitions": ["main"]}, **changes})


def work_of(step: str, target: Machine | str, plan: str = "reboot_by_power", **fields: Any) -> Work:
    """A work at a step, five minutes before its deadline; `target` is a machine, or a job's name."""
    machine = target if isinstance(target, Machine) else None
    now = time.time()
    facts: dict[str, Any] = {
        "incident": 7,
        "step": step,
        "target": Target("node", machine.name) if machine is not None else Target("job", str(target)),
        "fault_kind": "node_not_responding" if machine is not None else "job_failed",
        "plan": plan,
        "machine": machine,
        "reason": REASON,
        "first_started_at": now,
        "deadline": now + 300,
    }
    return Work(**{**facts, **fields})


def late(work: Work) -> Work:
    """The same work when the step's time is over."""
    return replace(work, first_started_at=time.time() - 400, deadline=time.time() - 1)


def probe(boot_id: str = OLD_BOOT, slurmd: str = "active", kubelet: str = "active", **more: Any) -> dict[str, Any]:
    """What a helper answers to `probe`."""
    units = {"slurmd.service": {"active": slurmd}, "kubelet.service": {"active": kubelet}}
    return {"boot_id": boot_id, "machine_id": MACHINE_ID, "uptime": 5.0, "units": units, **more}
