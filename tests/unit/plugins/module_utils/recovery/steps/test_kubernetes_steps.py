# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on Kubernetes, against a small API server."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.losses import Loss
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    NODE_ANNOTATION,
    OUT_OF_SERVICE,
    Origin,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    dispatch,
    observe,
    plans,
    present,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NodeSign
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Work
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes import (
    test_kubernetes_jobs,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    NEW_BOOT,
    OLD_BOOT,
    UUID,
    Site,
    late,
    probe,
    work_of,
)

NODE = "/api/v1/nodes/k1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/k1"
POD = "/api/v1/namespaces/a/pods/p1"
EVICTION = POD + "/eviction"
JOB = "/apis/batch/v1/namespaces/a/jobs/train"


class Cluster:
    """A node of both schedulers, at an API server."""

    def __init__(self, folder: Path) -> None:
        self.api = ApiServer()
        self.api.grants = rbac.OBSERVE + rbac.ACT
        self.client = KubernetesClient(self.api.kubeconfig(folder), timeout=5.0)
        self.site = Site()
        self.machine = replace(self.site.add("node1"), kubernetes_name="k1")
        self.ready()

    def close(self) -> None:
        self.client.close()
        self.api.close()

    def ready(self, ready: str = "True", boot_id: str = OLD_BOOT, **spec: Any) -> None:
        there = self.api.see(NODE) or {"kind": "Node", "metadata": {}, "spec": {}}
        there["spec"] = {**there["spec"], **spec}
        there["status"] = {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"bootID": boot_id, "machineID": "", "systemUUID": ""},
        }
        self.api.put(NODE, there)

    def pod(self, owner: Optional[str] = "ReplicaSet", labels: Optional[dict[str, str]] = None) -> None:
        metadata: dict[str, Any] = {"creationTimestamp": "2026-11-30T10:00:00Z", "labels": labels or {}}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": "r", "uid": "u", "controller": True}]
        self.api.put(
            POD, {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "k1"}, "status": {"phase": "Running"}}
        )

    @property
    def node(self) -> dict[str, Any]:
        return self.api.see(NODE)

    @property
    def writes(self) -> list[str]:
        return [request for request in self.api.requests if not request.startswith("GET")]

    def work(self, step: str, plan: str = "reboot_by_power", **fields: Any) -> Work:
        return work_of(step, self.machine, plan, **fields)

    def power(self, state: str = "Off", uuid: str = UUID) -> None:
        self.site.bmc[self.machine.bmc_url] = PowerState(state, uuid)

    def act(self, work: Work) -> Outcome:
        return self.site.act_one(work, self.site.tools(self.client))


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_cordon_and_uncordon(cluster: Cluster) -> None:
    assert cluster.act(cluster.work("cordon")).status == "done"
    assert cluster.node["spec"]["unschedulable"] is True
    assert '"incident": "7"' in cluster.node["metadata"]["annotations"][NODE_ANNOTATION]
    assert cluster.act(cluster.work("cordon")).status == "done"
    assert len(cluster.writes) == 1
    assert cluster.act(cluster.work("uncordon")).status == "done"
    assert not cluster.node["spec"].get("unschedulable")


@pytest.mark.parametrize(
    ("answer", "deleted", "unknown"), [(200, False, False), (404, True, False), (503, False, True), (403, False, True)]
)
def test_a_node_that_somebody_deleted_is_told_from_one_that_nobody_can_look_at(
    cluster: Cluster, answer: int, deleted: bool, unknown: bool
) -> None:
    if answer != 200:
        cluster.api.tell("GET", NODE, answer, status(answer), times=9)
    target, tools = Target("node", "k1"), cluster.site.tools(cluster.client)
    look = observe.look_at_nodes({target: cluster.machine}, {target: "kubernetes_node_not_ready"}, tools, False)[target]
    assert (look.kubernetes_deleted, "kubernetes" in look.unknown) == (deleted, unknown)
    assert (look.kubernetes is None) is (deleted or unknown)
    assert not (deleted and present.is_well(look))


def test_the_service_may_look_whether_an_evicted_pod_is_gone(cluster: Cluster) -> None:
    cluster.pod()
    wanted = waits.Wanted(pods=frozenset({"a/p1", "a/p2"}))
    assert dispatch.cheap_look(cluster.site.tools(cluster.client), wanted).pods == {"a/p1": True, "a/p2": False}


def test_somebody_elses_cordon(cluster: Cluster) -> None:
    cluster.ready(unschedulable=True)
    assert cluster.act(cluster.work("cordon")).status == "failed"
    outcome = cluster.act(cluster.work("uncordon"))
    assert (outcome.status, cluster.writes) == ("done", [])
    assert "somebody else" in outcome.why


@pytest.mark.parametrize("step", ["cordon", "uncordon", "release_pods"])
def test_a_lost_claim_writes_nothing(cluster: Cluster, step: str) -> None:
    if step in ("uncordon", "release_pods"):
        cluster.act(cluster.work("cordon"))
        cluster.api.requests.clear()
    cluster.power()
    cluster.site.lost.add(7)
    assert cluster.act(cluster.work(step, memory={"power_off_proved": True})).status == "waiting"
    assert cluster.writes == []


@pytest.mark.parametrize("step", ["cordon", "uncordon", "release_pods", "confirm"])
def test_an_api_server_that_does_not_answer(cluster: Cluster, step: str) -> None:
    cluster.api.tell("GET", NODE, 503, status(503), times=50)
    cluster.power()
    memory = {"power_off_proved": True}
    assert cluster.act(cluster.work(step, memory=memory)).status == "waiting"
    assert cluster.act(late(cluster.work(step, memory=memory))).status == "failed"


def test_uncordon_waits_for_the_kubelet_of_the_new_boot(cluster: Cluster) -> None:
    cluster.act(cluster.work("cordon"))
    memory = {"boot_id": OLD_BOOT, "new_boot_id": NEW_BOOT}
    outcome = cluster.act(cluster.work("uncordon", memory=memory))  # Ready, but that is the old boot's word
    assert (outcome.status, outcome.wait.kind) == ("waiting", "kubernetes_node_ready")
    assert outcome.wait.args == {"node": "k1", "boot_id": OLD_BOOT}
    cluster.ready("Unknown", NEW_BOOT)
    assert cluster.act(late(cluster.work("uncordon", memory=memory))).status == "failed"
    cluster.ready("True", NEW_BOOT)
    assert cluster.act(cluster.work("uncordon", memory=memory)).status == "done"


def renew(cluster: Cluster, moment: str) -> None:
    spec = {"holderIdentity": "k1", "leaseDurationSeconds": 40, "renewTime": moment}
    cluster.api.put(LEASE, {"kind": "Lease", "spec": spec})


def test_uncordon_waits_until_the_kubelet_has_renewed_its_lease_after_the_boot(cluster: Cluster) -> None:
    renew(cluster, "2026-11-30T10:00:00.000001Z")
    cluster.act(cluster.work("cordon"))
    cluster.ready("True", NEW_BOOT)
    cluster.machine = replace(cluster.machine, slurm_name="")
    cluster.site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    booted = cluster.act(cluster.work("await_boot", memory={"boot_id": OLD_BOOT}))
    assert booted.remember["lease_renewed"] == "2026-11-30T10:00:00.000001Z"
    work = cluster.work("uncordon", memory={"boot_id": OLD_BOOT, **booted.remember})
    assert "has not renewed its Lease" in cluster.act(work).why
    assert cluster.act(late(work)).status == "failed"
    cluster.api.take(LEASE)
    assert "has not renewed its Lease" in cluster.act(work).why
    assert cluster.node["spec"]["unschedulable"] is True
    renew(cluster, "2026-11-30T09:00:00.000000Z")  # by a clock that was set back at the boot
    assert cluster.act(work).status == "done"


@pytest.mark.parametrize("answer", [404, 403, 503])
def test_a_lease_that_cannot_be_read_does_not_keep_a_node_from_slurm(cluster: Cluster, answer: int) -> None:
    cluster.api.tell("GET", LEASE, answer, status(answer), times=9)
    cluster.machine = replace(cluster.machine, slurm_name="")
    cluster.site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    booted = cluster.act(cluster.work("await_boot", memory={"boot_id": OLD_BOOT}))
    assert (booted.status, booted.remember) == ("done", {"new_boot_id": NEW_BOOT})


def test_uncordon_waits_until_the_condition_that_was_repaired_is_gone(cluster: Cluster) -> None:
    cluster.act(cluster.work("cordon"))
    there = cluster.node
    there["status"]["conditions"].append({"type": "KernelDeadlock", "status": "True"})
    cluster.api.put(NODE, there)
    tools = cluster.site.tools(cluster.client)
    listed = replace(tools.settings.kubernetes, node_signs=(NodeSign(condition="KernelDeadlock"),))
    tools = replace(tools, settings=replace(tools.settings, kubernetes=listed))
    work = cluster.work("uncordon", fault_kind="kubernetes_node_condition")
    outcome = cluster.site.act_one(work, tools)
    assert (outcome.status, outcome.why) == ("waiting", "k1 still shows KernelDeadlock")
    assert cluster.site.act_one(late(work), tools).status == "failed"
    assert cluster.node["spec"]["unschedulable"] is True
    assert cluster.site.act_one(replace(work, fault_kind="node_back"), tools).status == "done"


def test_a_node_of_slurm_alone_needs_nothing_here(cluster: Cluster) -> None:
    cluster.machine = replace(cluster.machine, kubernetes_name="")
    for step in ("cordon", "uncordon", "release_pods"):
        assert cluster.act(cluster.work(step)).status == "done"
    assert cluster.api.requests == []


def test_pods_are_given_up_only_with_the_fences_proof(cluster: Cluster) -> None:
    cluster.act(cluster.work("cordon"))
    cluster.api.requests.clear()
    outcome = cluster.act(cluster.work("release_pods"))
    assert (outcome.status, cluster.writes) == ("failed", [])
    cluster.power()
    assert cluster.act(cluster.work("release_pods", memory={"power_off_proved": True})).status == "done"
    (taint,) = cluster.node["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == (OUT_OF_SERVICE, "NoExecute")
    assert cluster.act(cluster.work("uncordon")).status == "done"
    assert not cluster.node["spec"].get("taints")


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (PowerState("On", UUID), "done"),  # somebody switched it on since: its kubelet starts what is bound to it
        (PowerState("PoweringOff", UUID), "done"),
        (PowerState("unknown", UUID), "done"),
        (PowerState("Off", "another machine"), "failed"),
        (None, "waiting"),
    ],
)
def test_pods_are_given_up_only_while_the_node_is_still_off(
    cluster: Cluster, told: Optional[PowerState], wanted: str
) -> None:
    cluster.act(cluster.work("cordon"))
    cluster.api.requests.clear()
    if told is None:
        del cluster.site.bmc[cluster.machine.bmc_url]
    else:
        cluster.site.bmc[cluster.machine.bmc_url] = told
    outcome = cluster.act(cluster.work("release_pods", memory={"power_off_proved": True}))
    assert (outcome.status, cluster.writes) == (wanted, [])


def test_pods_of_a_node_that_was_added_again_are_not_given_up(cluster: Cluster) -> None:
    cluster.power()
    cluster.act(cluster.work("cordon"))
    cluster.api.take(NODE)
    cluster.ready()  # its kubelet lives: it has just registered
    outcome = cluster.act(cluster.work("release_pods", memory={"power_off_proved": True}))
    assert (outcome.status, cluster.node["spec"].get("taints")) == ("failed", None)
    assert "deleted and added again" in outcome.why


def drained_work(cluster: Cluster, **fields: Any) -> Work:
    if not cluster.node["spec"].get("unschedulable"):
        cluster.act(cluster.work("cordon"))
        cluster.api.requests.clear()
    if cluster.site.nodes_now["node1"].base_state == "IDLE":
        cluster.site.node("node1", "IDLE", "DRAIN", reason="x")
    return cluster.work("await_drained", "reboot_over_ssh", **fields)


def test_pods_are_evicted_and_waited_for(cluster: Cluster) -> None:
    cluster.pod()
    outcome = cluster.act(drained_work(cluster))
    assert (outcome.status, outcome.wait.kind, outcome.wait.args) == ("waiting", "pods_gone", {"pods": ["a/p1"]})
    cluster.api.take(POD)
    assert cluster.act(drained_work(cluster)).status == "done"


def test_a_disruption_budget_holds(cluster: Cluster) -> None:
    cluster.pod()
    told = status(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[{"reason": "DisruptionBudget", "message": "The disruption budget keep needs 1 healthy pods"}],
    )
    cluster.api.tell("POST", EVICTION, 429, told, times=9)
    assert cluster.act(drained_work(cluster)).status == "waiting"
    outcome = cluster.act(drained_work(cluster, memory={"evicting_since": time.time() - 600}))
    assert outcome.status == "failed"
    assert "a/p1" in outcome.why
    assert "keep" in outcome.why


@pytest.mark.parametrize("jobs", ["IDLE", "ALLOCATED"])
@pytest.mark.parametrize(
    ("ready", "kind", "gone"),
    [
        ("True", "kubernetes_node_not_ready", True),
        ("Unknown", "kubernetes_node_not_ready", False),
        ("True", "kubernetes_node_condition", True),
        ("Unknown", "kubernetes_node_condition", False),  # nobody can tell
        ("True", "node_not_responding", False),  # Slurm's to say
        ("True", "gpu_fault", False),  # no state that could end
        ("True", "requested", False),
    ],
)
def test_a_drain_that_is_held_up_says_whether_the_fault_is_gone(
    cluster: Cluster, jobs: str, ready: str, kind: str, gone: bool
) -> None:
    cluster.pod(owner=None)
    cluster.site.node("node1", jobs, "DRAIN", reason="x")
    cluster.ready(ready)
    outcome = cluster.act(drained_work(cluster, fault_kind=kind))
    assert (outcome.status, outcome.proof.get(plans.FAULT_GONE, False)) == ("failed", gone)


def test_a_pod_that_nobody_would_make_again_is_not_evicted(cluster: Cluster) -> None:
    cluster.pod(owner=None)
    outcome = cluster.act(drained_work(cluster))
    assert (outcome.status, cluster.writes) == ("failed", [])


def test_a_pod_that_nobody_would_make_again_is_evicted_where_the_site_says_so(cluster: Cluster) -> None:
    cluster.pod(owner=None)
    tools = cluster.site.tools(cluster.client)
    chosen = replace(tools.settings, kubernetes=replace(tools.settings.kubernetes, unmanaged_pods="evict"))
    tools = replace(tools, settings=chosen)
    assert cluster.site.act_one(drained_work(cluster), tools).status == "waiting"
    assert "POST " + EVICTION in cluster.writes[0]


def test_pods_that_only_end_slowly_do_not_hold_a_repair_for_ever(cluster: Cluster) -> None:
    cluster.pod()
    began = cluster.act(drained_work(cluster)).remember["evicting_since"]
    assert cluster.act(drained_work(cluster, memory={"evicting_since": began})).remember["evicting_since"] == began
    outcome = cluster.act(drained_work(cluster, memory={"evicting_since": began - 600}))
    assert (outcome.status, outcome.proof["pods_left"]) == ("done", ["a/p1"])


def test_slurm_drains_first_and_pods_go_then(cluster: Cluster) -> None:
    cluster.pod()
    cluster.site.node("node1", "ALLOCATED", "DRAIN", reason="x")
    outcome = cluster.act(drained_work(cluster))
    assert (outcome.status, outcome.wait.kind, cluster.writes) == ("waiting", "node_drained", [])
    cluster.site.node("node1", "IDLE", "DRAIN", reason="x")
    # however long the jobs took, the pods have their own time
    outcome = cluster.act(late(drained_work(cluster)))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "pods_gone")
    assert outcome.wait.until > time.time()
    assert len(cluster.writes) == 1


def test_a_pod_with_a_slurm_node_in_it_waits_for_the_drain_of_that_node(cluster: Cluster) -> None:
    cluster.pod(owner="NodeSet", labels={"nodeset.slinky.slurm.net/pod-hostname": "gpu-0"})
    cluster.site.add("gpu-0", "ALLOCATED", "DRAIN", reason="slurm-operator: k8s node was cordoned")
    outcome = cluster.act(drained_work(cluster))
    assert (outcome.status, outcome.wait.kind, cluster.writes) == ("waiting", "pods_gone", [])
    assert "the Slurm node gpu-0 runs in it and is not drained" in outcome.why
    began = outcome.remember["evicting_since"]
    outcome = cluster.act(drained_work(cluster, memory={"evicting_since": began - 600}))
    assert (outcome.status, cluster.writes) == ("failed", [])
    cluster.site.node("gpu-0", "IDLE", "DRAIN")
    assert cluster.act(drained_work(cluster)).status == "waiting"
    assert "POST " + EVICTION in cluster.writes[0]


@pytest.mark.parametrize("known", ["not to Slurm", "Slurm is silent"])
def test_a_slurm_node_in_a_pod_that_nobody_knows_is_not_drained(cluster: Cluster, known: str) -> None:
    cluster.machine = replace(cluster.machine, slurm_name="")
    cluster.pod(owner="NodeSet", labels={"nodeset.slinky.slurm.net/pod-hostname": "gpu-0"})
    work = drained_work(cluster)
    if known == "Slurm is silent":
        cluster.site.trouble = Unreachable("slurmctld")
    assert (cluster.act(work).status, cluster.writes) == ("waiting", [])


def test_a_plan_that_does_not_cordon_evicts_nothing(cluster: Cluster) -> None:
    cluster.pod()
    work = replace(drained_work(cluster), plan="clean_spool")
    cluster.ready(unschedulable=None)
    assert (cluster.act(work).status, cluster.writes) == ("done", [])


def test_a_pod_that_may_not_go_is_told_before_the_jobs_have_ended(cluster: Cluster) -> None:
    cluster.pod(owner=None)
    cluster.site.node("node1", "ALLOCATED", "DRAIN", reason="x")
    outcome = cluster.act(drained_work(cluster))
    assert (outcome.status, cluster.writes) == ("failed", [])
    assert "a/p1" in outcome.why


@pytest.mark.parametrize("base", ["IDLE", "ALLOCATED"])
def test_a_person_who_uncordons_ends_the_drain(cluster: Cluster, base: str) -> None:
    cluster.pod()
    work = drained_work(cluster)
    cluster.site.node("node1", base, "DRAIN", reason="x")
    cluster.ready(unschedulable=None)
    outcome = cluster.act(work)
    assert (outcome.status, cluster.writes) == ("failed", [])
    assert "somebody uncordoned it" in outcome.why


def test_await_boot_of_a_node_of_kubernetes_alone(cluster: Cluster) -> None:
    cluster.machine = replace(cluster.machine, slurm_name="")
    outcome = cluster.act(cluster.work("await_boot"))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "kubernetes_node_ready")
    cluster.site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    assert cluster.act(cluster.work("await_boot")).remember == {"new_boot_id": NEW_BOOT}


def test_a_dead_kubelet_is_started(cluster: Cluster) -> None:
    cluster.site.helper["ssh-node1", "restart"] = {"changed": ["kubelet.service"]}
    outcome = cluster.act(cluster.work("restart_daemon", "restart_daemon"))
    assert (outcome.status, outcome.proof["started"]) == ("done", ["kubelet.service"])
    assert cluster.site.asked[0][1:4] == ("restart", "slurmd.service", "kubelet.service")


@pytest.mark.parametrize(
    ("ready", "cordoned", "status_wanted"),
    [("True", False, "done"), ("Unknown", False, "waiting"), ("True", True, "waiting")],
)
def test_confirm_a_node(cluster: Cluster, ready: str, cordoned: bool, status_wanted: str) -> None:
    if cordoned:
        cluster.act(cluster.work("cordon"))
    cluster.ready(ready)
    assert cluster.act(cluster.work("confirm")).status == status_wanted


def rerun_work(step: str = "rerun", uid: str = "u1", **fields: Any) -> Work:
    work = work_of(step, "a/train", "rerun_kubernetes_job", **fields)
    return replace(work, target=replace(work.target, uid=uid))


def test_rerun_and_confirm(cluster: Cluster) -> None:
    cluster.api.put(JOB, test_kubernetes_jobs.server_job())
    outcome = cluster.act(rerun_work())
    assert outcome.status == "done"
    new = outcome.remember["rerun_as"]
    assert cluster.act(rerun_work()).remember == {"rerun_as": new}
    assert sum(request.startswith("POST") for request in cluster.writes) == 1
    assert cluster.act(rerun_work("confirm", memory={"rerun_as": new})).proof["job"] == new
    assert cluster.act(rerun_work("confirm", memory={"rerun_as": "a/gone"})).status == "done"
    assert cluster.act(rerun_work("confirm")).status == "failed"


def test_a_rerun_waits_for_pods_on_a_lost_node(cluster: Cluster) -> None:
    cluster.api.put(JOB, test_kubernetes_jobs.server_job("FailureTarget"))
    labels = {"controller-uid": "u1"}
    metadata = {"labels": labels, "deletionTimestamp": "2026-11-30T11:00:00Z"}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "k1"}, "status": {"phase": "Running"}}
    cluster.api.put("/api/v1/namespaces/a/pods/train-0", pod)
    outcome = cluster.act(rerun_work())
    assert (outcome.status, outcome.wait.kind, cluster.writes) == ("waiting", "time", [])
    assert "a/train-0 on k1" in outcome.why
    assert cluster.act(late(rerun_work())).status == "failed"
    cluster.api.take("/api/v1/namespaces/a/pods/train-0")
    assert cluster.act(rerun_work()).status == "done"


def test_a_job_that_brings_down_one_node_after_the_other_is_not_rerun(cluster: Cluster) -> None:
    lost = Loss(("k2",), "DeletionByTaintManager", 60.0)
    job = test_kubernetes_jobs.server_job("FailureTarget")
    job["metadata"]["annotations"][JOB_ANNOTATION] = Origin("u0", "train", "u0", 1, lost=lost).as_text()
    job["status"]["startTime"] = "2026-11-30T10:00:00Z"
    cluster.api.put(JOB, job)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    disrupted = {**target, "lastTransitionTime": "2026-11-30T10:02:00Z"}
    pod = {"kind": "Pod", "metadata": {"labels": {"controller-uid": "u1"}}, "spec": {"nodeName": "k1"}}
    cluster.api.put("/api/v1/namespaces/a/pods/train-0", {**pod, "status": {"conditions": [disrupted]}})
    outcome = cluster.act(rerun_work())
    assert (outcome.status, cluster.writes) == ("failed", [])
    assert "it lost k2 and, run again, k1 in the same way" in outcome.why
    asked = cluster.act(rerun_work(fault_kind="requested"))  # a person knows better: it only waits for the pod
    assert (asked.status, asked.remember["loss"]["nodes"]) == ("waiting", ["k1"])
    cluster.api.take("/api/v1/namespaces/a/pods/train-0")
    again = rerun_work(memory=asked.remember)
    assert cluster.act(again).status == "failed"  # its pods are gone, and what they told is remembered
    new = cluster.act(replace(again, fault_kind="requested")).remember["rerun_as"].partition("/")[2]
    record = cluster.api.see("/apis/batch/v1/namespaces/a/jobs/" + new)["metadata"]["annotations"][JOB_ANNOTATION]
    assert json.loads(record)["lost"] == {"nodes": ["k1"], "how": "DeletionByTaintManager", "after": 120}


def test_what_may_not_be_rerun(cluster: Cluster) -> None:
    assert cluster.act(rerun_work()).status == "failed"  # it is gone
    cluster.api.put(JOB, test_kubernetes_jobs.server_job())
    assert cluster.act(rerun_work(uid="u2")).status == "failed"  # another Job bears its name
    assert not [request for request in cluster.writes if request.startswith("POST")]


POD_LOG = "/api/v1/namespaces/a/pods/train-0/log"


def failed_pod(cluster: Cluster, ended: Optional[str] = None, name: str = "train-0", key: str = "state") -> None:
    """A pod of the Job `train`, whose container ended with 139."""
    end = {"exitCode": 139, "finishedAt": ended or "2026-11-30T10:02:00Z"}
    pod = {
        "kind": "Pod",
        "metadata": {"labels": {"controller-uid": "u1"}},
        "spec": {"nodeName": "k1"},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "main", key: {"terminated": end}}]},
    }
    cluster.api.put("/api/v1/namespaces/a/pods/" + name, pod)


def diagnose(cluster: Cluster, folder: Path, uid: str = "u1", **nodes: Any) -> Outcome:
    if cluster.api.see(JOB) is None:
        cluster.api.put(JOB, test_kubernetes_jobs.server_job())
    tools = cluster.site.tools(cluster.client, state_dir=str(folder), nodes=nodes)
    return cluster.site.act_one(rerun_work("diagnose", uid), tools)


def logs_asked(cluster: Cluster) -> list[str]:
    return [request for request in cluster.api.requests if "/log?" in request]


@pytest.mark.parametrize(("key", "previous"), [("state", False), ("lastState", True)])
def test_what_a_pods_log_tells_is_remembered_and_kept(
    cluster: Cluster, tmp_path: Path, key: str, previous: bool
) -> None:
    failed_pod(cluster, key=key)
    cluster.api.tell("GET", POD_LOG, 200, b"\x1b[2J{{ lookup('pipe','id') }} <b>\nSegmentation fault (core dumped)\n")
    outcome = diagnose(cluster, tmp_path)
    assert outcome.remember["diagnosis"] == {"verdict": "application", "why": "segfault", "rank": None}
    page = (tmp_path / "evidence" / "incident-7" / "job-train" / "diagnosis.txt").read_text(encoding="utf-8")
    assert ("application: segfault" in page, "\x1b" in page) == (True, False)
    assert "lookup" not in repr(outcome.proof) + repr(outcome.remember)
    (asked,) = logs_asked(cluster)
    assert "container=main&tailLines=5000&limitBytes=4194304" in asked
    assert ("previous=true" in asked) is previous


def test_of_lines_too_large_to_read_fewer_are_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    failed_pod(cluster)
    cluster.api.tell("GET", POD_LOG, 200, (b"x" * 8191 + b"\n") * 600)
    cluster.api.tell("GET", POD_LOG, 200, b"y\n" * 400000 + b"CUDA out of memory\n")
    assert diagnose(cluster, tmp_path).remember["diagnosis"]["why"] == "cuda_oom"
    assert ["tailLines=200&" in asked for asked in logs_asked(cluster)] == [False, True]


def test_the_first_to_end_is_read_first_and_few_are(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(5):
        name = "train-%d" % number
        failed_pod(cluster, "2026-11-30T10:0%d:00Z" % (9 - number), name)
        cluster.api.tell("GET", "/api/v1/namespaces/a/pods/%s/log" % name, 200, b"CUDA out of memory\n")
    diagnose(cluster, tmp_path)
    assert [asked.split("/")[6] for asked in logs_asked(cluster)] == ["train-4", "train-3", "train-2"]


@pytest.mark.parametrize("answer", [400, 403, 404, 500, 503])
def test_a_pods_log_that_cannot_be_had_keeps_no_repair(cluster: Cluster, tmp_path: Path, answer: int) -> None:
    failed_pod(cluster)
    cluster.api.tell("GET", POD_LOG, answer, status(answer, "x", "\x1b[2J no kubelet"))
    outcome = diagnose(cluster, tmp_path)
    assert (outcome.status, outcome.remember, "\x1b" in outcome.why) == ("done", {}, False)
    assert outcome.why.startswith("the job's log was not read: Kubernetes API: get pods/log train-0 in a: ")


def test_a_kubelet_that_is_silent_is_waited_for_a_little_only(cluster: Cluster, tmp_path: Path) -> None:
    failed_pod(cluster)
    cluster.api.tell("GET", POD_LOG, 200, b"", before=lambda: time.sleep(1.5))
    cluster.client.timeout = 0.4
    began = time.monotonic()
    outcome = diagnose(cluster, tmp_path)
    assert (outcome.status, "no answer in time" in outcome.why, time.monotonic() - began < 1.2) == ("done", True, True)


@pytest.mark.parametrize(
    ("uid", "nodes", "why"),
    [
        ("u2", {}, "another Job bears its name"),
        ("u1", {}, "no container of its pods is known to have failed"),
        ("u1", {"job_log_kib": 0}, "the site reads no logs of jobs"),
    ],
)
def test_a_pods_log_that_is_not_asked_for(
    cluster: Cluster, tmp_path: Path, uid: str, nodes: dict[str, Any], why: str
) -> None:
    if why != "no container of its pods is known to have failed":
        failed_pod(cluster)
    outcome = diagnose(cluster, tmp_path, uid, **nodes)
    assert (outcome.status, outcome.remember, logs_asked(cluster)) == ("done", {}, [])
    assert why in outcome.why


def test_who_lost_his_claim_reads_no_log(cluster: Cluster, tmp_path: Path) -> None:
    failed_pod(cluster)
    cluster.site.lost = {7}
    assert (diagnose(cluster, tmp_path).status, logs_asked(cluster)) == ("waiting", [])


def test_jobs_of_both_schedulers_are_diagnosed_in_one_pass(cluster: Cluster, tmp_path: Path) -> None:
    failed_pod(cluster)
    cluster.api.tell("GET", POD_LOG, 200, b"CUDA out of memory\n")
    cluster.api.put(JOB, test_kubernetes_jobs.server_job())
    tools = cluster.site.tools(cluster.client, state_dir=str(tmp_path))
    works = [work_of("diagnose", "42", "requeue_job", incident=8), rerun_work("diagnose")]
    first, second = cluster.site.act(*works, tools=tools)
    assert "Slurm has forgotten the job" in first.why
    assert second.remember["diagnosis"]["why"] == "cuda_oom"
