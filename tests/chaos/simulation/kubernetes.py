# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes, as far as the recovery meets it: its objects, its kubelets, and the controllers of nodes and Jobs.

As measured on the lab's Kubernetes 1.36, with short time-outs: a silent kubelet's node gets Unknown, then its pods are
told to end and stay until the kubelet is back; a Job of which one pod is lost is FailureTarget, and Failed only when
all of its pods have ended. Jobs are gangs: all pods or none, one on a node, no pod is made again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Callable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    OPT_IN_ANNOTATION,
    OUT_OF_SERVICE,
    UNREACHABLE,
)

from ..facts import COMPLETED, KILLED, Forced, Hold, Life, Requeue
from .clock import Clock
from .gangs import Gang, Object, ended, number_of, owner_of, spec_of, whose_cordon
from .hardware import Hardware, Process
from .slurmctld import Run

NAMESPACE = "default"
SICK = "KernelDeadlock"
UNKNOWN_AFTER = 12.0  # seconds
EVICTED_AFTER = 20.0
_TERMINATION = 1.0
_COLLECTED_AFTER = 2.0
_LOOK_AGAIN = 4.0
_RENEWED_EVERY = 10.0  # Leases
_OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":%d}}'


@dataclass
class Kubernetes:
    """The objects, by kind and key, and what acts on them."""

    clock: Clock
    hardware: Hardware
    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    jobs: dict[str, Object] = field(default_factory=dict)
    gangs: dict[int, Gang] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    requeues: list[Requeue] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    forced: list[Forced] = field(default_factory=list)
    budget: bool = False  # a disruption budget allows no eviction at present
    on_pod: list[Callable[[Object], None]] = field(default_factory=list)
    _heard: dict[str, int] = field(default_factory=dict)
    _renewed: dict[str, str] = field(default_factory=dict)
    _numbers: int = 0

    # objects

    def stamped(self, thing: Object) -> Object:
        """With another version."""
        self._numbers += 1
        thing["metadata"]["resourceVersion"] = str(self._numbers)
        return thing

    def _made(self, kind: str, name: str, namespace: str = NAMESPACE, **parts: Any) -> Object:
        self._numbers += 1
        metadata = {"name": name, "uid": "u%d" % self._numbers, "creationTimestamp": self.now()}
        metadata.update(parts.pop("metadata", {}))
        if namespace:
            metadata["namespace"] = namespace
        return self.stamped({"kind": kind, "metadata": metadata, **parts})

    def now(self, later: float = 0.0) -> str:
        """As the API writes times."""
        moment = datetime.fromtimestamp(int(self.clock.time() + later), tz=timezone.utc)
        return moment.isoformat().replace("+00:00", "Z")

    # nodes

    def add_node(self, name: str) -> None:
        """Its kubelet registers it."""
        self.hardware.machines[name].kubelet = True
        self.nodes[name] = self._made("Node", name, "", spec={}, status={})
        self._reports(name)

    def heard(self, name: str) -> None:
        """A kubelet began or ended to answer."""
        if self.hardware.machines[name].kubelet is None:
            return
        number = self._heard[name] = self._heard.get(name, 0) + 1

        def still(do: Callable[[str], None]) -> Callable[[], None]:
            return lambda: do(name) if self._heard[name] == number else None

        if self.hardware.machines[name].kubelet_answers:
            self.clock.after(1.0, still(self._back))
            return
        self.clock.after(UNKNOWN_AFTER, still(self._unknown))
        self.clock.after(EVICTED_AFTER, still(self._evict_lost))

    def _back(self, name: str) -> None:
        if name not in self.nodes:
            self.nodes[name] = self._made("Node", name, "", spec={}, status={})
        self._reports(name)
        for pod in self._pods_of_node(name):
            self._synced(pod, name)
        self.schedule()

    def _reports(self, name: str) -> None:
        machine, node = self.hardware.machines[name], self.nodes[name]
        boot, told = machine.boot_id, node["status"].get("nodeInfo", {}).get("bootID")
        sick = "True" if machine.sick else "False"
        node["status"]["nodeInfo"] = {"bootID": boot, "machineID": machine.machine_id, "systemUUID": machine.uuid}
        self._condition(node, "Ready", "True", told != boot)
        self._condition(node, SICK, sick)
        self._taint(node, UNREACHABLE, False)

    def lease(self, name: str) -> Object:
        """A node's Lease, which its kubelet renews every ten seconds."""
        if self.hardware.machines[name].kubelet_answers:
            self._renewed[name] = self.now(-(self.clock.time() % _RENEWED_EVERY))
        return {"spec": {"renewTime": self._renewed.get(name, "")}}

    def report_sick(self, name: str) -> None:
        """An agent on the node says so, until it boots again."""
        self._reports(name)

    def _unknown(self, name: str) -> None:
        if name in self.nodes:
            self._condition(self.nodes[name], "Ready", "Unknown")
            self._taint(self.nodes[name], UNREACHABLE, True)

    def _condition(self, node: Object, kind: str, status: str, anew: bool = False) -> None:
        found = node["status"].setdefault("conditions", [])
        entry = next((one for one in found if one["type"] == kind), None)
        if entry is None:
            found.append({"type": kind, "status": status, "lastTransitionTime": self.now()})
        elif entry["status"] != status or anew:
            entry.update(status=status, lastTransitionTime=self.now())
        self.stamped(node)

    def _taint(self, node: Object, key: str, there: bool) -> None:
        kept = [taint for taint in node["spec"].get("taints", []) if taint["key"] != key]
        node["spec"]["taints"] = [*kept, {"key": key, "effect": "NoExecute"}] if there else kept
        self.stamped(node)

    def written(self, before: Object, node: Object, manager: str) -> None:
        """A node was written by somebody: the server's own account of who cordoned it, and what follows."""
        name, now = node["metadata"]["name"], self.clock.time()
        was, is_now = (bool(one["spec"].get("unschedulable")) for one in (before, node))
        if was != is_now:
            managed = [{"manager": manager, "time": self.now(), "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
            node["metadata"]["managedFields"] = managed if is_now else []
        holder = whose_cordon(node) if is_now else ""
        if holder != (whose_cordon(before) if was else ""):
            self._end_hold(name)
            if holder:
                self.holds.append(Hold(now, name, holder))
        if not was and is_now:
            return
        if any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", [])):
            self._note_forced(name)
            self.clock.after(_COLLECTED_AFTER, lambda: self._collect(name))
        self.schedule()

    def _end_hold(self, name: str) -> None:
        """Of Kubernetes alone; Slurm keeps its own."""
        self.holds = [
            replace(hold, until=self.clock.time()) if hold.node == name and hold.until is None else hold
            for hold in self.holds
        ]

    def cordon_by_person(self, name: str, cordoned: bool) -> None:
        """kubectl cordon, or uncordon."""
        if name not in self.nodes:
            return
        node = self.nodes[name]
        before = copy.deepcopy(node)
        node["spec"]["unschedulable"] = cordoned
        self.written(before, self.stamped(node), "kubectl-cordon")

    def delete_node(self, name: str) -> None:
        """A person deletes it; a kubelet that lives registers it again, as another node."""
        if self.nodes.pop(name, None) is not None:
            self._end_hold(name)
            self.heard(name)

    # pods

    def _pods_of_node(self, name: str) -> list[Object]:
        return [pod for pod in list(self.pods.values()) if pod["spec"].get("nodeName") == name]

    def _evict_lost(self, name: str) -> None:
        for pod in self._pods_of_node(name):
            self.disrupt(pod, "DeletionByTaintManager")

    def disrupt(self, pod: Object, reason: str) -> None:
        """It is told to end, not by its own fault; its kubelet ends it."""
        if "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] != "Running":
            return
        pod["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": self.now()}
        ]
        self._delete(pod)
        self._job_loses(pod)

    def _delete(self, pod: Object) -> None:
        pod["metadata"]["deletionTimestamp"] = self.now(_TERMINATION)
        self._tell(pod)
        name = pod["spec"].get("nodeName", "")
        if not name:
            self.remove(pod)
        else:
            self.clock.after(_TERMINATION, lambda: self._synced(pod, name))

    def _synced(self, pod: Object, name: str) -> None:
        """What its kubelet does with it, if it lives."""
        machine, run = self.hardware.machines[name], self._run_of(pod)
        if not machine.kubelet_answers or self.pods.get(pod["metadata"]["name"]) is not pod:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.hardware.end(name, run.owns)
            self.remove(pod)
        elif pod["status"]["phase"] == "Running" and not any(run.owns(process) for process in machine.processes):
            lost = {"terminated": {"exitCode": 255, "reason": "Unknown", "finishedAt": None}}
            pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": lost}]}
            self._tell(pod)
            self._job_loses(pod)

    def force(self, pod: Object) -> None:
        """Deleted without waiting for its kubelet."""
        self._note_forced(pod["spec"].get("nodeName", ""))
        self.remove(pod)

    def _collect(self, name: str) -> None:
        """The garbage collector, for a node that is out of service."""
        node = self.nodes.get(name)
        if node is None or not any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", [])):
            return
        for pod in self._pods_of_node(name):
            self.disrupt(pod, "DeletionByPodGC")
            self.remove(pod)

    def _note_forced(self, name: str) -> None:
        self.forced.append(Forced(self.clock.time(), name, self.hardware.machines[name].power))

    def remove(self, pod: Object) -> None:
        """The object is gone; whatever ran for it may run on."""
        if self.pods.pop(pod["metadata"]["name"], None) is not None:
            self._tell(pod)
            self._job_settles(pod)

    def _tell(self, pod: Object) -> None:
        self.stamped(pod)
        for listener in self.on_pod:
            listener(pod)

    # Jobs

    def submit(self, gang: Gang) -> None:
        """A user's Job that opted in."""
        self.gangs[gang.number] = gang
        annotations = {OPT_IN_ANNOTATION: _OPT_IN % gang.allowed}
        self.add_job({"metadata": {"name": "gang%d" % gang.number, "annotations": annotations}, "spec": spec_of(gang)})

    def add_job(self, wanted: Object) -> Object:
        """Made by its user, or again by the recovery, which counts as a restart."""
        again = JOB_ANNOTATION in wanted["metadata"].get("annotations", {})
        given = {key: value for key, value in wanted["metadata"].items() if key in ("annotations", "labels")}
        job = self._made("Job", wanted["metadata"]["name"], metadata=given, spec=wanted["spec"], status={})
        number = number_of(job)
        if again:
            self.requeues.append(Requeue(self.clock.time(), number, asked=True))
        self.jobs[job["metadata"]["name"]] = job
        job["status"]["startTime"] = self.now()
        run = Run(number, (), 0.0, sum(run.job == number for run in self.runs), set())
        self.runs.append(run)
        for index in range(self.gangs[number].pods):
            owner = {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"], "controller": True}
            metadata = {"labels": {"controller-uid": owner["uid"]}, "ownerReferences": [owner]}
            name = "%s-%d" % (owner["name"], index)
            self.pods[name] = self._made(
                "Pod", name, metadata=metadata, spec={"restartPolicy": "Never"}, status={"phase": "Pending"}
            )
            self.pods[name]["run"] = run
        self.schedule()
        return job

    def schedule(self) -> None:
        """Start the gangs that find nodes for all of their pods."""
        for job in list(self.jobs.values()):
            pods = self._pods_of_job(job)
            if ended(job) or not pods or any(pod["status"]["phase"] != "Pending" for pod in pods):
                continue
            free = [name for name, node in self.nodes.items() if self._is_free(name, node)]
            if len(free) >= len(pods):
                self._start(job, pods, free[: len(pods)])

    def _is_free(self, name: str, node: Object) -> bool:
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
        usable = ready and not node["spec"].get("unschedulable") and not node["spec"].get("taints")
        busy = any(pod["status"]["phase"] == "Running" for pod in self._pods_of_node(name))
        return usable and not busy and self.hardware.machines[name].kubelet_answers

    def _start(self, job: Object, pods: list[Object], names: list[str]) -> None:
        run = self._run_of(pods[0])
        run.nodes, run.at, run.living = tuple(names), self.clock.time(), set(names)
        for pod, name in zip(pods, names):
            pod["spec"]["nodeName"], pod["status"]["phase"] = name, "Running"
            self.hardware.begin(run.job, run.number, name)
            self._tell(pod)
        self.clock.after(self.gangs[run.job].seconds, lambda: self._ends(job, run))

    def _ends(self, job: Object, run: Run) -> None:
        """It comes to its own end, if all of its processes still can."""
        if ended(job) or run.living != set(run.nodes):
            return
        if not all(self.hardware.machines[name].kubelet_answers for name in run.nodes):
            self.clock.after(_LOOK_AGAIN, lambda: self._ends(job, run))
            return
        run.end = COMPLETED
        job["status"]["conditions"] = [self._true("Complete", "")]
        self.stamped(job)
        for pod, name in zip(self._pods_of_job(job), run.nodes):
            pod["status"] = {"phase": "Succeeded"}
            self._tell(pod)
            self.hardware.end(name, run.owns)
        self.schedule()

    def _job_loses(self, pod: Object) -> None:
        job = self._job_of(pod)
        if job is None or ended(job):
            return
        job["status"]["conditions"] = [self._true("FailureTarget", "BackoffLimitExceeded")]
        self.stamped(job)
        for other in self._pods_of_job(job):
            if other["status"]["phase"] in ("Pending", "Running") and "deletionTimestamp" not in other["metadata"]:
                self._delete(other)
        self._job_settles(pod)

    def _job_settles(self, pod: Object) -> None:
        """FailureTarget becomes Failed when no pod of it may run any more."""
        job = self._job_of(pod)
        if job is None or not ended(job) or job["status"]["conditions"][-1]["type"] != "FailureTarget":
            return
        if all(other["status"]["phase"] == "Failed" for other in self._pods_of_job(job)):
            job["status"]["conditions"].append(self._true("Failed", "BackoffLimitExceeded"))
            self.stamped(job)

    def _true(self, kind: str, reason: str) -> Object:
        return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": self.now()}

    def _pods_of_job(self, job: Object) -> list[Object]:
        return [pod for pod in list(self.pods.values()) if owner_of(pod)["uid"] == job["metadata"]["uid"]]

    def _job_of(self, pod: Object) -> Optional[Object]:
        return self.jobs.get(owner_of(pod)["name"])

    @staticmethod
    def _run_of(pod: Object) -> Run:
        return pod["run"]

    # the facts

    def process_ended(self, process: Process, name: str) -> None:
        """A process of a pod is gone, whatever ended it."""
        for run in self.runs:
            if run.owns(process) and name in run.living:
                run.living.discard(name)
                if not run.living:
                    run.until, run.end = self.clock.time(), run.end or KILLED

    def goes_on(self) -> bool:
        """Whether a gang runs, or waits for nodes."""
        return any(not ended(job) for job in self.jobs.values())

    def lives(self) -> tuple[Life, ...]:
        """The facts of all runs that began."""
        return tuple(Life(run.job, run.nodes, run.at, run.until, run.end) for run in self.runs if run.nodes)
