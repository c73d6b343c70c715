# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import workloads
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.helm import records

DEPLOYMENT = workloads.Workload("Deployment", "apps", "web")
READY = {"type": "Ready", "status": "True"}


def there(status, generation=2, **spec):
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"generation": generation}, "spec": {"selector": selector, **spec}, "status": status}


def pod(name="web-1", **status):
    return {"metadata": {"name": name, "namespace": "apps", "labels": {"app": "web"}}, "status": status}


def waiting(reason, message="", last=None):
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return dict(state, lastState={"terminated": last}) if last else state


def event(reason, message, name="web-1", kind="Pod", at="2026-11-30T12:00:00Z"):
    involved = {"kind": kind, "name": name}
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": involved, "lastTimestamp": at}


@pytest.mark.parametrize(
    ("kind", "thing", "expected"),
    [
        ("Deployment", there({}), (0, 1, False)),
        (
            "Deployment",
            there({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}),
            (1, 1, False),
        ),
        (
            "Deployment",
            there({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}),
            (1, 1, True),
        ),
        (
            "Deployment",
            there({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}, replicas=2),
            (1, 2, False),
        ),
        (
            "Deployment",
            there({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}, replicas=2),
            (2, 2, False),
        ),
        ("Deployment", there({"observedGeneration": 2}, replicas=0), (0, 0, True)),
        (
            "StatefulSet",
            there({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}, replicas=2),
            (2, 2, True),
        ),
        (
            "StatefulSet",
            there({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2}, replicas=2),
            (1, 2, False),
        ),
        (
            "StatefulSet",
            there(
                {"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 2},
                replicas=2,
                updateStrategy={"rollingUpdate": {"partition": 1}},
            ),
            (2, 2, True),
        ),
        (
            "StatefulSet",
            there({"observedGeneration": 2, "readyReplicas": 2}, replicas=2, updateStrategy={"type": "OnDelete"}),
            (2, 2, True),
        ),
        (
            "DaemonSet",
            there(
                {
                    "observedGeneration": 2,
                    "desiredNumberScheduled": 4,
                    "updatedNumberScheduled": 4,
                    "numberAvailable": 3,
                }
            ),
            (3, 4, False),
        ),
        (
            "DaemonSet",
            there(
                {
                    "observedGeneration": 2,
                    "desiredNumberScheduled": 4,
                    "updatedNumberScheduled": 4,
                    "numberAvailable": 4,
                }
            ),
            (4, 4, True),
        ),
        ("Job", there({"active": 1}), (0, 1, False)),
        ("Job", there({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}), (1, 1, True)),
        ("Pod", there({"phase": "Running", "conditions": [READY]}), (1, 1, True)),
        ("Pod", there({"phase": "Pending"}), (0, 1, False)),
        ("Pod", there({"phase": "Succeeded"}), (1, 1, True)),
        ("PersistentVolumeClaim", there({"phase": "Pending"}), (0, 1, False)),
        ("PersistentVolumeClaim", there({"phase": "Bound"}), (1, 1, True)),
        ("Deployment", {"metadata": None, "spec": {"replicas": "two"}, "status": []}, (0, 1, False)),
    ],
)
def test_progress(kind, thing, expected):
    assert workloads.progress(kind, thing) == expected


QUOTA = 'pods "web-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
POLICY = "pods \"web-x\" is forbidden: ValidatingAdmissionPolicy 'no' with binding 'no' denied request: never"
UNBOUND = "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def failed_to_create(message):
    return there({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]})


@pytest.mark.parametrize(
    ("thing", "pods", "events", "cause", "words"),
    [
        (
            {},
            [pod(containerStatuses=[waiting("ImagePullBackOff", "Back-off pulling image x")])],
            [],
            "image",
            "Back-off pulling",
        ),
        ({}, [pod(containerStatuses=[waiting("InvalidImageName")])], [], "image", "InvalidImageName"),
        (
            {},
            [pod(initContainerStatuses=[waiting("CrashLoopBackOff", "back-off", {"exitCode": 3, "reason": "Error"})])],
            [],
            "crash",
            "container main: exit code 3",
        ),
        (
            {},
            [pod(containerStatuses=[waiting("CrashLoopBackOff", "", {"exitCode": 137, "reason": "OOMKilled"})])],
            [],
            "crash",
            "exit code 137 OOMKilled",
        ),
        (
            {},
            [pod(containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": 1}}}])],
            [],
            "crash",
            "exit code 1",
        ),
        (
            {},
            [pod(containerStatuses=[waiting("CreateContainerConfigError", 'secret "account" not found')])],
            [],
            "settings",
            "not found",
        ),
        (
            {},
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/4 nodes: Insufficient cpu"}])],
            [],
            "scheduling",
            "Insufficient cpu",
        ),
        (
            {},
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": UNBOUND}])],
            [],
            "volume",
            "unbound",
        ),
        (
            {},
            [pod(containerStatuses=[waiting("ContainerCreating")])],
            [
                event("FailedMount", "older", at="2026-11-30T11:00:00Z"),
                event("FailedMount", 'configmap "x" not found'),
                event("FailedMount", "another pod's", name="web-2"),
            ],
            "volume",
            'configmap "x" not found',
        ),
        ({}, [pod(phase="Running")], [event("Unhealthy", "Readiness probe failed: 503")], "readiness", "503"),
        ({}, [pod(phase="Failed", reason="Evicted")], [], "crash", "Evicted"),
        (failed_to_create(QUOTA), [], [], "quota", "exceeded quota: small"),
        (failed_to_create(POLICY), [], [], "admission", "never"),
        ({}, [], [event("FailedCreate", QUOTA, kind="ReplicaSet", name="web-6c9d")], "quota", "exceeded"),
        ({}, [], [event("FailedCreate", QUOTA, kind="ReplicaSet", name="webshop-6c9d")], None, ""),
        ({}, [pod(conditions=[READY])], [], None, ""),
        ({}, [pod(containerStatuses=[waiting("ContainerCreating")])], [], None, ""),
        ({}, [], [], None, ""),
    ],
)
def test_why_it_is_not_ready(thing, pods, events, cause, words):
    found = list(workloads.troubles(DEPLOYMENT, thing, pods, events))
    assert [trouble.cause for trouble in found] == ([] if cause is None else [cause])
    for trouble in found:
        assert words in trouble.message
        assert trouble.as_dict()["object"] == "Deployment web"


@pytest.mark.parametrize(
    ("kind", "reason", "cause"),
    [("StatefulSet", "FailedCreate", "quota"), ("PersistentVolumeClaim", "ProvisioningFailed", "volume")],
)
def test_what_only_events_tell(kind, reason, cause):
    workload = workloads.Workload(kind, "apps", "web")
    message = QUOTA if cause == "quota" else "storageclass not found"
    (found,) = workloads.troubles(workload, {}, [], [event(reason, message, "web", kind)])
    assert (found.cause, found.pod) == (cause, "")


def test_pods_with_one_cause_are_told_once():
    pods = [pod("web-%d" % n, containerStatuses=[waiting("ErrImagePull", "web-%d: no" % n)]) for n in (1, 2)]
    pods.append(pod("web-3", containerStatuses=[waiting("CrashLoopBackOff", "back-off")]))
    assert [t.pod for t in workloads.troubles(DEPLOYMENT, {}, pods, [])] == ["web-1", "web-3"]


def test_what_the_cluster_says_is_made_harmless():
    pods = [pod(containerStatuses=[waiting("ErrImagePull", "\x1b[31m" + "x" * 5000)])]
    (found,) = workloads.troubles(DEPLOYMENT, {}, pods, [])
    assert "\x1b" not in found.message
    assert len(found.message) <= 400


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        (
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["x", "y"]},
                    {"key": "b", "operator": "Exists"},
                    {"key": "c", "operator": "DoesNotExist"},
                ]
            },
            "a in (x,y),b,!c",
        ),
        ({}, ""),
        (None, ""),
    ],
)
def test_selectors(selector, text):
    assert workloads.selector_of({"spec": {"selector": selector}}) == text


def test_what_belongs_to_a_release():
    manifest = records.MANIFEST + "---\n# only a comment\n---\nkind: Job\nmetadata: {name: j, namespace: other}\n"
    hook = "kind: Job\nmetadata: {name: before}\n"
    found = workloads.workloads_of(records.parsed(manifest=manifest, hooks=(hook, hook)))
    assert found == [
        DEPLOYMENT,
        workloads.Workload("Job", "other", "j"),
        workloads.Workload("Job", "apps", "before"),
    ]
    with pytest.raises(Unreadable, match="no YAML"):
        workloads.workloads_of(records.parsed(manifest="a: ["))


def test_looking(api, client):
    hook = "kind: Job\nmetadata: {name: before}\n"
    release = records.parsed(hooks=(hook,), manifest=records.MANIFEST.replace("Service", "StatefulSet"))
    api.put("/apis/apps/v1/namespaces/apps/deployments/web", there({}))
    api.put("/api/v1/namespaces/apps/pods/web-1", pod(containerStatuses=[waiting("ErrImagePull", "no")]))
    api.put("/api/v1/namespaces/apps/pods/other", {"metadata": {"labels": {"app": "other"}}})
    states = workloads.look(client, release)
    assert [(state.words, state.done) for state in states] == [
        ("Deployment web 0/1", False),
        ("StatefulSet web 0/1", False),
    ]
    assert [str(trouble) for state in states for trouble in state.troubles] == [
        "Deployment web, pod web-1: its image cannot be had (no)",
        "StatefulSet web: it does not start (it is not there)",
    ]
    assert workloads.unready(states) == states
    assert workloads.summary(states) == (
        "0 of 2 workloads ready; Deployment web 0/1: its image cannot be had (pod web-1); "
        "StatefulSet web 0/1: it does not start"
    )
    assert workloads.summary([]) == "nothing to wait for"
