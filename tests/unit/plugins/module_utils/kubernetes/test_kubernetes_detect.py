# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import dataclasses
import threading
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import detect, owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import FIELD_MANAGER
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.detect import CauseMemory, Seen
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    Condition,
    JobState,
    JobView,
    NodeView,
    Origin,
    PodView,
    Taint,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import Hold
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.sight import (
    KubernetesSight,
    events,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import parse_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner, NodeSign
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.test_kubernetes_creating import (  # noqa: E501
    put_pod,
)

NOW = 1796036820.0
OURS = {"unschedulable": True, "ownership": Hold("7", False, NOW).as_text(), "cordon_managers": (FIELD_MANAGER,)}


@pytest.mark.parametrize(
    ("ready", "since", "grace", "fault"),
    [
        ("True", NOW - 999, 0, False),
        (None, None, 0, False),
        ("Maybe", NOW - 999, 0, False),
        ("False", NOW, 0, True),
        ("Unknown", NOW, 0, True),
        ("Unknown", None, 0, True),
        ("Unknown", NOW + 30, 0, True),  # the server's clock is ahead
        ("Unknown", NOW + 30, 10, False),
        ("Unknown", NOW - 9, 10, False),
        ("Unknown", NOW - 10, 10, True),
    ],
)
def test_nodes_that_are_not_ready(ready, since, grace, fault):
    node = NodeView("n", ready=ready, ready_since=since)
    assert bool(detect.node_faults([node], NOW, grace)) is fault


def test_a_cordon_of_others_is_for_the_gates_and_our_repair_is_no_fault():
    down = NodeView("n", ready="Unknown", ready_since=NOW)
    assert detect.node_faults([dataclasses.replace(down, unschedulable=True)], NOW, 0)
    assert not detect.node_faults([dataclasses.replace(down, **OURS)], NOW, 0)


SIGNS = (
    NodeSign(taint="vendor.example/broken", remediation="quarantine_node"),
    NodeSign(condition="KernelDeadlock", remediation="reboot_node", grace=60),
    NodeSign(condition="StorageReady", status="False"),
)


@pytest.mark.parametrize(
    ("fields", "suggested"),
    [
        ({}, None),
        ({"conditions": (Condition("KernelDeadlock", "True", NOW - 60),)}, "reboot_node"),
        ({"conditions": (Condition("KernelDeadlock", "True", NOW - 59),)}, None),
        ({"conditions": (Condition("KernelDeadlock", "True", NOW + 60),)}, None),  # the server's clock is ahead
        ({"conditions": (Condition("KernelDeadlock", "True"),)}, None),  # since when is not known
        ({"conditions": (Condition("KernelDeadlock", "False", NOW - 99),)}, None),
        ({"conditions": (Condition("KernelDeadlock", "Unknown", NOW - 99),)}, None),
        ({"conditions": (Condition("MemoryPressure", "True", NOW - 99),)}, None),  # not in the list
        ({"conditions": (Condition("StorageReady", "False"),)}, "report"),
        ({"conditions": (Condition("StorageReady", "False"), Condition("KernelDeadlock", "True", 1.0))}, "reboot_node"),
        ({"taints": (Taint("vendor.example/broken", "gpu", "NoSchedule"),)}, "quarantine_node"),
        ({"taints": (Taint("vendor.example/other", "", "NoExecute"),)}, None),
        ({"conditions": (Condition("", "True", NOW - 99),)}, None),  # without a type it says nothing
        # what agents of a node said last is old when its kubelet is silent
        ({"ready": "Unknown", "conditions": (Condition("StorageReady", "False"),)}, None),
        ({"ready": None, "conditions": (Condition("StorageReady", "False"),)}, None),
        # a cordon of others is for the gates, and our own repair is no fault
        ({"unschedulable": True, "conditions": (Condition("StorageReady", "False"),)}, "report"),
        (dict(OURS, conditions=(Condition("StorageReady", "False"),)), None),
    ],
)
def test_nodes_that_others_call_sick(fields, suggested):
    node = NodeView("n", **{"ready": "True", **fields})
    seen = detect.sick_nodes([node], SIGNS, NOW)
    assert [fault.suggested for fault in seen] == ([suggested] if suggested else [])
    assert detect.sick_nodes([node], (), NOW) == []


@pytest.mark.parametrize(
    ("ready", "pod", "fault"),
    [
        ("Unknown", {"deleted_at": NOW - 31}, True),
        ("Unknown", {"deleted_at": NOW - 29}, False),
        ("Unknown", {"deleted_at": None}, False),
        ("Unknown", {"deleted_at": NOW - 31, "phase": "Failed"}, False),  # held by a finalizer
        ("True", {"deleted_at": NOW - 31}, False),  # its process or a finalizer, not the node
        ("Unknown", {"deleted_at": NOW - 31, "node": "gone"}, False),
    ],
)
def test_pods_that_never_end(ready, pod, fault):
    node = NodeView("n", ready=ready, ready_since=NOW - 100)
    view = PodView(**dict({"namespace": "a", "name": "p", "node": "n", "phase": "Running"}, **pod))
    expected = [Seen(detect.POD_STUCK, "n", episode=str(NOW - 100))] if fault else []
    assert detect.pod_faults([node], [view, view], NOW, 30) == expected


FAILED = JobView("a", "train", "u1", state=JobState.FAILED, reason="BackoffLimitExceeded", opt_in="{}", backoff_limit=0)
LOST = PodView("a", "train-0", "p0", job_uid="u1", cause=Cause.INFRASTRUCTURE, disrupted_at=NOW)
CRASHED = PodView("a", "train-1", "p1", job_uid="u1", cause=Cause.APPLICATION, ended_at=NOW - 7200)


@pytest.mark.parametrize(
    ("change", "pods", "everybody", "fault"),
    [
        ({}, [LOST], False, True),
        ({"state": JobState.FAILING}, [LOST], False, True),
        ({}, [], False, False),
        ({}, [CRASHED], False, False),
        ({"opt_in": None}, [LOST], False, False),
        ({"opt_in": None}, [LOST], True, True),
        ({"opt_in": "{{ x }}"}, [LOST], False, True),  # the gate refuses it and says why
        ({"owner": "CronJob/c"}, [LOST], False, False),
        ({"owner": "Unheard/of"}, [LOST], False, False),
        ({"deleted": True}, [LOST], False, False),
        ({"state": JobState.COMPLETE}, [LOST], False, False),
        ({"state": JobState.RUNNING}, [LOST], False, False),
        ({"record": Origin("u1", "train", rerun_as="train-x-r1").as_text()}, [LOST], False, False),
        ({"record": Origin("u0", "train", "u0", 1).as_text()}, [LOST], False, True),
        ({"record": "nonsense"}, [LOST], False, True),
    ],
)
def test_jobs_that_failed_by_the_infrastructure(change, pods, everybody, fault):
    job = dataclasses.replace(FAILED, **change)
    memory = CauseMemory()
    for pod in pods:
        memory.note(pod)
    expected = [Seen(detect.JOB_FAILED, "a/train", "u1")] if fault else []
    assert detect.job_faults([job], memory.look([job], pods, everybody), everybody) == expected


OWNED = dataclasses.replace(FAILED, owner="JobSet/s", failed_at=NOW - 300, created_at=NOW - 900)
YOUNGER = JobView("a", "other", "u9", state=JobState.RUNNING, owner="JobSet/s", created_at=NOW - 300)


@pytest.mark.parametrize(
    ("change", "other", "own", "told"),
    [
        ({}, {}, (), True),
        ({"failed_at": NOW - 299}, {}, (), False),  # its owner still has time
        ({"failed_at": None}, {}, (), False),
        ({"state": JobState.FAILING}, {}, (), False),  # its pods have not ended yet
        ({"owner": "CronJob/c"}, {}, (), False),  # the next one comes by its schedule
        ({"owner": "Kueue/q"}, {}, (), True),
        ({"owner": "Workflow/w"}, {}, (), False),
        ({"owner": "Workflow/w", "failed_at": NOW - 900}, {}, (), True),
        ({"owner": "Unheard/of", "failed_at": NOW}, {}, (), True),
        ({"owner": "Unheard/of"}, {}, (JobOwner("Unheard", "leave"),), False),
        ({"owner": "Unheard/of"}, {}, (JobOwner("Unheard", "watch", 301),), False),
        ({}, {}, (JobOwner("JobSet", "watch", 301),), False),  # the site's row comes first
        ({"owner": "CronJob/c"}, {}, (JobOwner("CronJob", "report"),), True),
        ({"owner": ""}, {}, (), False),  # ours to run again
        ({"opt_in": None}, {}, (), False),
        # replaced by another one of the same owner
        ({}, YOUNGER, (), False),
        ({}, dataclasses.replace(YOUNGER, state=JobState.COMPLETE), (), False),
        ({}, dataclasses.replace(YOUNGER, state=JobState.SUSPENDED), (), False),
        ({}, dataclasses.replace(YOUNGER, state=JobState.FAILED), (), True),
        ({}, dataclasses.replace(YOUNGER, deleted=True), (), True),
        ({}, dataclasses.replace(YOUNGER, created_at=NOW - 301), (), True),  # it was there before
        ({}, dataclasses.replace(YOUNGER, created_at=None), (), True),
        ({}, dataclasses.replace(YOUNGER, owner="JobSet/t"), (), True),
        ({}, dataclasses.replace(YOUNGER, namespace="b"), (), True),
    ],
)
def test_jobs_that_their_owner_does_not_replace(change, other, own, told):
    job = dataclasses.replace(OWNED, **change)
    jobs = [job, *([other] if other else [])]
    memory = CauseMemory()
    memory.note(LOST)
    causes = memory.look(jobs, [], False)
    expected = [Seen(detect.JOB_UNRECOVERED, "a/train", "u1")] if told else []
    assert detect.unrecovered_jobs(jobs, causes, False, own, NOW) == expected


def test_a_job_of_an_owner_that_failed_by_itself_is_the_owners_alone():
    assert detect.unrecovered_jobs([OWNED], {"u1": Cause.APPLICATION}, False, (), NOW) == []


def test_every_owner_is_known_once():
    kinds = [row.kind for row in owners.OWNERS]
    assert sorted(set(kinds)) == sorted(kinds)
    assert {row.care for row in owners.OWNERS} <= set(settings.OWNER_CARES)


def test_a_pod_that_is_gone_when_its_job_fails_is_remembered():
    memory = CauseMemory()
    running = dataclasses.replace(FAILED, state=JobState.RUNNING)
    memory.note(LOST)  # seen before its Job
    memory.look([], [], False)
    memory.look([running], [], False)
    assert memory.look([FAILED], [], False) == {"u1": Cause.INFRASTRUCTURE}


def test_a_remembered_disruption_does_not_excuse_the_application_for_ever():
    memory = CauseMemory()
    memory.note(LOST)
    later = dataclasses.replace(CRASHED, ended_at=NOW + 7200)
    assert memory.look([FAILED], [later], False) == {"u1": Cause.APPLICATION}


def test_pods_of_jobs_that_are_gone_are_forgotten():
    memory = CauseMemory()
    memory.note(LOST)
    for _look in range(2):
        memory.look([], [], False)
    assert memory.look([FAILED], [], False) == {"u1": Cause.UNKNOWN}


def test_one_event_for_each_kind_and_no_text_that_is_no_name():
    seen = [
        Seen(detect.NODE_NOT_READY, "n1"),
        Seen(detect.NODE_NOT_READY, "n2"),
        Seen(detect.NODE_NOT_READY, "n1", episode="2"),
        Seen(detect.NODE_NOT_READY, "{{ lookup('pipe','id') }}"),
        Seen(detect.JOB_FAILED, "a/train", "u1"),
        Seen(detect.JOB_FAILED, "a/$(id)", "u2"),
        Seen(detect.NODE_CONDITION, "n3", suggested="reboot_node"),
        Seen(detect.NODE_CONDITION, "n4", suggested="report"),
        Seen(detect.NODE_CONDITION, "n5", suggested="reboot_node"),
    ]
    made = [parse_event(event) for event in events(seen, "lab", NOW)]
    assert [(fault.kind, [target.name for target in fault.targets]) for fault in made] == [
        (detect.NODE_NOT_READY, ["n1", "n2"]),
        (detect.JOB_FAILED, ["a/train"]),
        (detect.NODE_CONDITION, ["n3", "n5"]),
        (detect.NODE_CONDITION, ["n4"]),
    ]
    assert (made[1].targets[0].uid, made[1].suggested, made[0].seen_at) == ("u1", "rerun_kubernetes_job", NOW)


# ---- the whole sight against a server ----


def site(kubeconfig, **more):
    scope = {"namespaces": ["a"]}
    kubernetes = {"kubeconfig": kubeconfig, "timeout": 5}
    return settings.parse(
        {"cluster": "lab", "slurm": {"enabled": False}, "scope": scope, "kubernetes": kubernetes, **more}
    )


def looked(sight, chosen, seconds=5.0):
    """Look until the mirrors know, and something is seen."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = sight.look(chosen)
        except RecoveryError:
            found = []
        if found or time.monotonic() > deadline:
            return [(event["fault"]["kind"], event["fault"]["targets"]) for event in found]
        time.sleep(0.02)


def put_node(api, ready, **others):
    since = {"lastTransitionTime": "2026-11-30T11:00:00Z"}
    conditions = [{"type": kind, "status": state, **since} for kind, state in {"Ready": ready, **others}.items()]
    api.put("/api/v1/nodes/n1", {"kind": "Node", "status": {"conditions": conditions}})


@pytest.mark.parametrize("remediation", ["report", "quarantine_node", "reboot_node"])
def test_a_condition_that_the_site_names_is_sent_with_its_remediation(api, kubeconfig, remediation):
    put_node(api, "True", KernelDeadlock="True", MemoryPressure="True")
    sight = KubernetesSight()
    sign = {"condition": "KernelDeadlock", "remediation": remediation}
    chosen = site(kubeconfig)
    chosen = dataclasses.replace(
        chosen, kubernetes=dataclasses.replace(chosen.kubernetes, node_signs=(NodeSign(**sign),))
    )
    deadline = time.monotonic() + 5
    found = []
    while not found and time.monotonic() < deadline:
        with contextlib.suppress(RecoveryError):
            found = sight.look(chosen)
    assert [parse_event(event).suggested for event in found] == [remediation]
    assert parse_event(found[0]).kind == detect.NODE_CONDITION
    sight.close()


def test_what_is_wrong_is_sent_at_once_and_again_once_a_minute(api, kubeconfig):
    put_node(api, "Unknown")
    clock = [100.0]
    sight = KubernetesSight(steady=lambda: clock[0])
    first = [(detect.NODE_NOT_READY, [{"node": "n1"}])]
    assert looked(sight, site(kubeconfig)) == first
    assert looked(sight, site(kubeconfig), 0.3) == []
    clock[0] += 61
    assert looked(sight, site(kubeconfig)) == first
    put_node(api, "True")
    time.sleep(0.5)  # until the watch has told it
    clock[0] += 61
    assert looked(sight, site(kubeconfig), 0.3) == []
    sight.close()


def test_a_job_that_lost_its_node_is_seen_although_its_pod_is_gone(api, kubeconfig):
    job = {"kind": "Job", "metadata": {"uid": "u1", "annotations": {"mission-control/auto-resume": "{}"}}, "spec": {}}
    pod = {
        "kind": "Pod",
        "metadata": {"ownerReferences": [{"kind": "Job", "uid": "u1", "controller": True}]},
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]},
    }
    api.put("/apis/batch/v1/namespaces/a/jobs/train", job)
    api.put("/api/v1/namespaces/a/pods/train-0", {"kind": "Pod", "metadata": pod["metadata"]})
    sight = KubernetesSight()
    assert looked(sight, site(kubeconfig), 0.5) == []
    api.put("/api/v1/namespaces/a/pods/train-0", pod)
    api.take("/api/v1/namespaces/a/pods/train-0")
    job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
    api.put("/apis/batch/v1/namespaces/a/jobs/train", job)
    assert looked(sight, site(kubeconfig)) == [(detect.JOB_FAILED, [{"job": "a/train", "uid": "u1"}])]
    sight.close()


def put_lost_pod(api, name, node="n1", deleted=True, **spec):
    metadata = {"deletionTimestamp": "2026-11-30T11:00:30Z"} if deleted else {}
    body = {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "restartPolicy": "Always", **spec}}
    api.put("/api/v1/namespaces/a/pods/" + name, {**body, "status": {"phase": "Running"}})


def test_pods_that_never_end_are_looked_for_on_lost_nodes_alone(api, kubeconfig):
    put_node(api, "Unknown")
    put_lost_pod(api, "web-0")
    put_lost_pod(api, "web-1", node="n2")
    sight = KubernetesSight()
    found = looked(sight, site(kubeconfig))
    assert (detect.POD_STUCK, [{"node": "n1"}]) in found
    pods = [request for request in api.requests if request.startswith("GET /api/v1/pods?")]
    assert all("restartPolicy%21%3DAlways" in request for request in pods if "nodeName" not in request)
    asked = [request for request in pods if "nodeName" in request]
    assert len(asked) == 1
    assert "nodeName%3Dn1" in asked[0]
    looked(sight, site(kubeconfig), 0.3)
    assert len([request for request in api.requests if "nodeName" in request]) == 1  # not with every look
    sight.close()


@pytest.mark.parametrize(
    ("ready", "message", "events_of", "told"),
    [
        ("True", "failed to setup network for sandbox", 200, True),
        ("True", "failed to pull image for the sandbox", 200, False),
        ("True", "failed to setup network for sandbox", 403, False),
        ("Unknown", "failed to setup network for sandbox", 200, False),  # the whole node is silent
    ],
)
def test_a_node_that_makes_no_sandboxes_is_told_of(api, kubeconfig, ready, message, events_of, told):
    put_node(api, ready)
    for name, owner in (("p", "u1"), ("q", "u2")):
        put_pod(api, name, owner, message)
    if events_of != 200:
        api.tell("GET", "/api/v1/namespaces/a/events", events_of, status(events_of), times=100)
    sight = KubernetesSight()
    seen = looked(sight, site(kubeconfig), 5 if told or ready != "True" else 0.6)
    assert [fault for fault in seen if fault[0] == detect.POD_CREATING] == (
        [(detect.POD_CREATING, [{"node": "n1"}])] if told else []
    )
    sight.close()


def test_a_list_of_a_lost_nodes_pods_that_fails_hinders_nothing(api, kubeconfig):
    put_node(api, "Unknown")
    mirrored = threading.Event()

    def only_the_mirrors():
        mirrored.set()

    sight = KubernetesSight()
    looked(sight, site(kubeconfig), 0.0)
    deadline = time.monotonic() + 5
    while not any("/api/v1/pods" in request and "watch" in request for request in api.requests):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    api.tell("GET", "/api/v1/pods", 500, status(500), times=100, before=only_the_mirrors)
    assert looked(sight, site(kubeconfig)) == [(detect.NODE_NOT_READY, [{"node": "n1"}])]
    assert mirrored.is_set()
    sight.close()


def put_event(api, name, involved, reason, reporter, message=""):
    event = {"kind": "Event", "involvedObject": involved, "reason": reason, "message": message}
    stamps = {"lastTimestamp": "2026-11-30T11:00:00Z", "source": {"component": reporter}}
    api.put("/api/v1/namespaces/a/events/" + name, {**event, **stamps})


def put_failed_job(api):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    metadata = {"uid": "u1", "annotations": {"mission-control/auto-resume": "{}"}}
    job = {"kind": "Job", "metadata": metadata, "spec": {}, "status": {"conditions": [failed]}}
    api.put("/apis/batch/v1/namespaces/a/jobs/train", job)
    message = "Created pod: train-x7x"
    put_event(api, "e1", {"kind": "Job", "uid": "u1"}, "SuccessfulCreate", "job-controller", message)


@pytest.mark.parametrize(
    ("reason", "reporter", "fault"),
    [
        ("TaintManagerEviction", "taint-eviction-controller", True),
        ("NodeNotReady", "node-controller", True),
        ("Preempted", "default-scheduler", True),
        ("TaintManagerEviction", "somebody", False),
        ("BackOff", "kubelet", False),
    ],
)
def test_a_job_that_failed_before_anybody_looked_is_explained_by_events(api, kubeconfig, reason, reporter, fault):
    put_failed_job(api)
    put_event(api, "e2", {"kind": "Pod", "name": "train-x7x"}, reason, reporter)
    sight = KubernetesSight()
    expected = [(detect.JOB_FAILED, [{"job": "a/train", "uid": "u1"}])] if fault else []
    assert looked(sight, site(kubeconfig), 5 if fault else 0.6) == expected
    assert len([request for request in api.requests if "/events?" in request]) == 2
    sight.close()


def test_events_that_may_not_be_read_hinder_nothing(api, kubeconfig):
    put_failed_job(api)
    put_node(api, "Unknown")
    api.tell("GET", "/api/v1/namespaces/a/events", 403, status(403, "Forbidden"), times=100)
    sight = KubernetesSight()
    assert looked(sight, site(kubeconfig)) == [(detect.NODE_NOT_READY, [{"node": "n1"}])]
    sight.close()


def test_without_a_kubeconfig_there_is_no_kubernetes(api, kubeconfig):
    put_node(api, "Unknown")
    sight = KubernetesSight()
    assert sight.look(site("")) == []
    assert looked(sight, site(kubeconfig))  # the settings are followed
    assert sight.look(site("")) == []
    sight.close()


def test_an_outage_is_an_error_and_no_recovery_of_the_nodes(api, kubeconfig):
    put_node(api, "Unknown")
    sight = KubernetesSight()
    looked(sight, site(kubeconfig))
    api.close()
    assert until_error(sight, site(kubeconfig))
    sight.close()


def until_error(sight, chosen):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            sight.look(chosen)
        except RecoveryError:
            return True
        time.sleep(0.02)
    return False
