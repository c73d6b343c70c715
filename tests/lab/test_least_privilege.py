# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service's account on a real API server with RBAC: what it is granted is what it uses, no more and no less.

The account is made of the objects that the installer makes. As that account, the event source looks and every step
that works in Kubernetes acts once; then the API server's own audit log says which verbs were asked for. Needs the
lab's programs, and no lab.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import owner_kinds
import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import account, owners, rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import OPT_IN_ANNOTATION
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.sight import KubernetesSight
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    dispatch,
    observe,
    present,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import parse
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome
from ansible_collections.mission_control.job_recovery.tests.bare_api import ControlPlane
from ansible_collections.mission_control.job_recovery.tests.kubelet import Kubelet
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    NEW_BOOT,
    UUID,
    Site,
    probe,
    work_of,
)

WORK = "kubernetes_workload_unrecovered"
SCOPE, OUTSIDE = "training", "others"
NAMESPACE, ACCOUNT = "job-recovery", "job-recovery"
OPT_IN = '{"APS":{"auto_resume_mode":"requeue"}}'
LONG_AGO = "2026-01-01T00:00:00Z"
_SEEN_SECONDS = 60.0

Verb = tuple[str, str, str]  # API group, resource with its sub-resource, verb


class Service:
    """The recovery, as its own account."""

    def __init__(self, server: ControlPlane) -> None:
        for thing in account.objects(NAMESPACE, ACCOUNT, [SCOPE]):
            server.apply(thing)
        kubeconfig = server.kubeconfig("service", server.account_token(NAMESPACE, ACCOUNT))
        self.client = KubernetesClient(kubeconfig, timeout=30.0)
        self.site = Site()
        self.state_dir = str(server.folder / "state")
        self.machine = replace(self.site.add("node1", "IDLE", "DRAIN", reason="x"), kubernetes_name="k1")
        self.settings = parse(
            {
                "cluster": "bare",
                "scope": {"partitions": ["main"], "namespaces": [SCOPE, OUTSIDE]},
                "kubernetes": {"kubeconfig": kubeconfig, "timeout": 30.0, "creating_grace": 1.0},
            }
        )

    def node(self, step: str, plan: str = "reboot_by_power", **fields: Any) -> Outcome:
        return self.site.act_one(work_of(step, self.machine, plan, **fields), self.site.tools(self.client))

    def job(self, step: str, key: str, **fields: Any) -> Outcome:
        work = work_of(step, key, "rerun_kubernetes_job", fault_kind="kubernetes_job_failed", **fields)
        return self.site.act_one(work, self.site.tools(self.client, state_dir=self.state_dir))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    server = ControlPlane(tmp_path_factory.mktemp("api"))
    try:
        for name in (SCOPE, OUTSIDE, "kube-node-lease"):
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        owner_kinds.serve(server)
        add_node(server, "k1", "True")
        add_node(server, "k2", "Unknown")
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def service(server: ControlPlane) -> Iterator[Service]:
    service = Service(server)
    yield service
    service.client.close()


def add_node(server: ControlPlane, name: str, ready: str) -> None:
    condition = {
        "type": "Ready", "status": ready, "lastHeartbeatTime": LONG_AGO, "lastTransitionTime": LONG_AGO,
        "reason": "x", "message": "x",
    }  # fmt: skip
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}, {"conditions": [condition]})


def add_pod(server: ControlPlane, name: str, node: str, owner: dict[str, Any], **status: Any) -> None:
    server.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": SCOPE, "labels": {"controller-uid": owner["uid"]},
                "ownerReferences": [{"apiVersion": "v1", "controller": True, **owner}],
            },
            "spec": {
                "nodeName": node, "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
                "terminationGracePeriodSeconds": 1,
            },
        },
        {"phase": "Running", **status},
    )  # fmt: skip


def add_failed_job(server: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    moment = "2026-01-02T00:00:00Z"
    failed = {"status": "True", "reason": "BackoffLimitExceeded", "message": "x", "lastTransitionTime": moment}
    return server.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "annotations": {OPT_IN_ANNOTATION: OPT_IN}},
            "spec": {
                "backoffLimit": 0,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
            },
        },
        {
            "startTime": LONG_AGO,
            "failed": 1,
            "conditions": [{"type": "FailureTarget", **failed}, {"type": "Failed", **failed}],
        },
    )


def used(server: ControlPlane, decision: str) -> set[Verb]:
    """What the account asked for with this decision; what every account may ask (who am I, which APIs) left out."""
    found = set()
    for line in server.asked():
        where = line.get("objectRef") or {}
        if line["annotations"].get("authorization.k8s.io/decision") == decision and where.get("resource"):
            resource = "/".join(filter(None, (where["resource"], where.get("subresource"))))
            found.add((where.get("apiGroup", ""), resource, line["verb"]))
    return found


def granted() -> set[Verb]:
    return {(one.group, one.resource, verb) for one in (*rbac.OBSERVE, *rbac.ACT) for verb in one.verbs}


def eventually(look: Callable[[], bool]) -> bool:
    until = time.monotonic() + _SEEN_SECONDS
    while not look():
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def look(service: Service, server: ControlPlane) -> None:
    """The event source, until it has seen a lost node, a Job that lost its pod, one whose pods are gone, and work of
    every owner that lost pods; each of that is looked at again."""
    job = add_failed_job(server, SCOPE, "lost")
    owner = {"kind": "Job", "apiVersion": "batch/v1", "name": "lost", "uid": job["metadata"]["uid"]}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    ended = {"name": "c", "state": {"terminated": {"exitCode": 139, "finishedAt": LONG_AGO}}}
    containers = [{**ended, "image": "i", "imageID": "", "ready": False, "restartCount": 0}]
    add_pod(server, "lost-0", "k2", owner, phase="Failed", conditions=[disrupted], containerStatuses=containers)
    add_failed_job(server, SCOPE, "traceless")
    work = owner_kinds.add_all(server, SCOPE)
    kinds: set[str] = set()
    told: dict[str, str] = {}
    sight = KubernetesSight()

    def seen() -> bool:
        try:
            faults = [event["fault"] for event in sight.look(service.settings)]
        except RecoveryError:  # the mirrors are not filled yet
            return False
        kinds.update(fault["kind"] for fault in faults)
        told.update((one["job"], one["uid"]) for fault in faults if fault["kind"] == WORK for one in fault["targets"])
        traced = ("", "events", "list") in used(server, "allow")
        return traced and {"kubernetes_node_not_ready", "kubernetes_job_failed"} <= kinds and set(work) <= set(told)

    try:
        assert eventually(seen), (kinds, set(work) - set(told))
    finally:
        sight.close()
    assert told == work
    look_again(service, work)


def look_again(service: Service, work: dict[str, str]) -> None:
    targets = {Target("job", key, uid): WORK for key, uid in work.items()}
    other = Target("job", SCOPE + "/alone", "another-uid")
    tools = replace(service.site.tools(service.client), settings=service.settings)
    looks = observe.look_at_jobs({**targets, other: WORK}, "kubernetes", tools, lambda _names: {})
    assert looks.pop(other).absent
    assert all(present.state_of(WORK, "kubernetes", look).there for look in looks.values())
    kinds = {row.kind for row in owners.watched()}
    assert {look.workload.kind for look in looks.values()} == {*kinds, "Pod"}


def repair(service: Service, server: ControlPlane) -> None:
    """A node's way: cordoned, its pod evicted, fenced, what is left let go, given back."""
    owner = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "r", "uid": "u"}
    add_pod(server, "p1", "k1", owner)
    assert service.node("cordon").status == "done"
    outcome = service.node("await_drained", "reboot_over_ssh")
    assert (outcome.status, outcome.wait.kind) == ("waiting", "pods_gone"), outcome.why
    wanted = waits.Wanted(pods=frozenset({SCOPE + "/p1"}))
    assert dispatch.cheap_look(service.site.tools(service.client), wanted).pods == {SCOPE + "/p1": True}
    time.sleep(2.5)  # its grace period; no kubelet will ever end it
    service.site.bmc[service.machine.bmc_url] = PowerState("Off", UUID)
    released = service.node("release_pods", memory={"power_off_proved": True})
    assert (released.status, released.proof["released"]) == ("done", [SCOPE + "/p1"])
    assert dispatch.cheap_look(service.site.tools(service.client), wanted).pods == {SCOPE + "/p1": False}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "k1"}}
    lease["metadata"]["namespace"] = "kube-node-lease"
    server.apply({**lease, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    service.site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    alone = work_of("await_boot", replace(service.machine, slurm_name=""), "return_node", memory={"boot_id": NEW_BOOT})
    booted = service.site.act_one(alone, service.site.tools(service.client)).remember
    assert booted == {"new_boot_id": NEW_BOOT, "lease_renewed": "2026-01-01T00:00:00.000000Z"}
    assert "has not renewed its Lease" in service.node("uncordon", memory=booted | {"boot_id": NEW_BOOT}).why
    renewed = {"spec": {"renewTime": "2026-01-01T00:00:10.000000Z"}}
    server.admin.patch(path_of("coordination.k8s.io/v1", "leases", "kube-node-lease", "k1"), renewed)
    assert service.node("uncordon", memory=booted | {"boot_id": NEW_BOOT}).status == "done"
    assert service.node("confirm").status == "done"
    node = server.admin.get(path_of("v1", "nodes", name="k1"))
    assert not node["spec"].get("unschedulable")
    assert not [taint for taint in node["spec"].get("taints", []) if "out-of-service" in taint["key"]]


def run_again(service: Service, server: ControlPlane) -> None:
    """A failed Job's pod is asked for its log, which its node's kubelet tells; then the Job is made again."""
    with Kubelet(server.folder) as kubelet:
        server.admin.patch(path_of("v1", "nodes", name="k2", sub="status"), {"status": kubelet.where})
        outcome = service.job("diagnose", SCOPE + "/lost")
    assert outcome.remember["diagnosis"]["why"] == "segfault", outcome.why
    assert kubelet.asked == ["/containerLogs/%s/lost-0/c?limitBytes=4194304&tailLines=5000" % SCOPE]
    outcome = service.job("diagnose", SCOPE + "/lost")
    assert (outcome.status, outcome.remember) == ("done", {})
    assert "the job's log was not read: Kubernetes API: get pods/log lost-0 in training: " in outcome.why
    outcome = service.job("rerun", SCOPE + "/lost")
    assert outcome.status == "done", outcome.why
    assert service.job("confirm", SCOPE + "/lost", memory=outcome.remember).status == "done"


def test_what_is_granted_is_used_and_what_is_used_is_granted(service: Service, server: ControlPlane) -> None:
    look(service, server)
    repair(service, server)
    run_again(service, server)
    assert used(server, "forbid") == set()
    assert used(server, "allow") == granted()


def test_no_job_is_made_outside_the_scope(service: Service, server: ControlPlane) -> None:
    add_failed_job(server, OUTSIDE, "theirs")
    outcome = service.job("rerun", OUTSIDE + "/theirs")
    assert (outcome.status, "we may not do that" in outcome.why) == ("failed", True)
    assert len(server.admin.list(path_of("batch/v1", "jobs", OUTSIDE)).items) == 1
    assert used(server, "forbid") == {("batch", "jobs", "create")}


@pytest.mark.parametrize(
    ("group", "resource", "sub", "verb", "namespace"),
    [
        ("", "secrets", "", "list", SCOPE),
        ("", "pods", "exec", "create", SCOPE),
        ("", "pods", "log", "get", OUTSIDE),
        ("", "nodes", "", "delete", SCOPE),
        ("", "nodes", "status", "patch", SCOPE),
        ("", "nodes", "proxy", "get", SCOPE),
        ("batch", "jobs", "", "delete", SCOPE),
        ("apps", "statefulsets", "", "patch", SCOPE),
        ("", "serviceaccounts", "token", "create", SCOPE),
        ("rbac.authorization.k8s.io", "clusterroles", "", "bind", SCOPE),
    ],
)
def test_what_an_attacker_would_want_is_not_granted(
    service: Service, server: ControlPlane, group: str, resource: str, sub: str, verb: str, namespace: str
) -> None:
    wanted = {"group": group, "resource": resource, "subresource": sub, "verb": verb, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:%s:%s" % (NAMESPACE, ACCOUNT),
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": wanted,
        },
    }
    answer = server.admin.create(path_of("authorization.k8s.io/v1", "subjectaccessreviews"), body)
    assert answer["status"]["allowed"] is False
