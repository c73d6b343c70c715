# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirrors of what operators own: only of what is served, and none of them hinders anything else."""

from __future__ import annotations

import contextlib
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Forbidden,
    RecoveryError,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owner_watch, owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.sight import KubernetesSight
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner, parse
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"
KUBEFLOW = "/apis/kubeflow.org/v1"
FAILED = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-30T11:00:00Z"}]}
DONE = {"conditions": [{"type": "Completed", "status": "True"}]}


def serve(api, *groups):
    """Have the server tell of these groups: each with its versions, the preferred one first, and their resources."""
    told = []
    for group, versions in groups:
        names = [{"groupVersion": "%s/%s" % (group, version), "version": version} for version in sorted(versions)]
        preferred = {"groupVersion": "%s/%s" % (group, next(iter(versions)))}
        told.append({"name": group, "versions": names, "preferredVersion": preferred})
        for version, resources in versions.items():
            path = "/apis/%s/%s" % (group, version)
            api.tell("GET", path, 200, {"resources": [{"name": name} for name in resources]}, times=100)
    api.tell("GET", "/apis", 200, {"groups": told}, times=100)


def put(api, kind, name, said, **metadata):
    path = {"JobSet": JOBSETS, "PyTorchJob": KUBEFLOW}[kind]
    thing = {"kind": kind, "metadata": {"uid": "u-" + name, **metadata}, "status": said}
    api.put("%s/namespaces/a/%ss/%s" % (path, kind.lower(), name), thing)


def until(look, wanted):
    deadline = time.monotonic() + 5
    while not wanted(look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return look()


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def mirrors(client, clock):
    made = owner_watch.OwnerMirrors(client, lambda: clock[0])
    yield made
    made.close()


def test_only_what_is_served_is_asked_for(api, client):
    serve(
        api,
        ("kubeflow.org", {"v2beta1": ["mpijobs"], "v1": ["mpijobs", "pytorchjobs", "pytorchjobs/status"]}),
        ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}),
        ("apps", {"v1": ["deployments"]}),
    )
    found = {path: (row.kind, version) for path, (row, version) in owner_watch.served(client, owners.watched()).items()}
    assert found == {
        JOBSETS + "/jobsets": ("JobSet", "jobset.x-k8s.io/v1alpha2"),
        "/apis/kubeflow.org/v2beta1/mpijobs": ("MPIJob", "kubeflow.org/v2beta1"),
        KUBEFLOW + "/pytorchjobs": ("PyTorchJob", "kubeflow.org/v1"),
    }
    assert not [request for request in api.requests if "apps" in request]


def test_what_is_not_complete_is_seen_and_followed(api, mirrors):
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}))
    put(api, "JobSet", "lost", FAILED)
    put(api, "JobSet", "done", DONE)
    work, unread = until(lambda: mirrors.look(()), lambda seen: seen[0])
    assert ([(one.kind, one.key, one.state) for one in work], unread) == ([("JobSet", "a/lost", State.FAILED)], set())
    put(api, "JobSet", "lost", DONE)
    assert until(lambda: mirrors.look(()), lambda seen: not seen[0]) == ([], set())
    assert len([request for request in api.requests if request == "GET /apis"]) == 1  # not with every look


def test_a_kind_that_may_not_be_read_hinders_no_other_and_is_not_waited_for(api, mirrors):
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}), ("kubeflow.org", {"v1": ["pytorchjobs"]}))
    api.tell("GET", KUBEFLOW + "/pytorchjobs", 403, status(403, "Forbidden"), times=1000)
    put(api, "JobSet", "lost", FAILED)
    work, unread = until(lambda: mirrors.look(()), lambda seen: seen[0] and not seen[1])
    assert ([one.kind for one in work], unread) == (["JobSet"], set())


def test_a_kind_that_does_not_answer_is_waited_for_only_at_first(api, mirrors, clock):
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}))
    api.tell("GET", JOBSETS + "/jobsets", 500, status(500), times=1000)
    assert mirrors.look(()) == ([], {"JobSet"})
    clock[0] += 61  # a conversion webhook that is gone, perhaps
    assert mirrors.look(()) == ([], set())


def test_an_operator_that_comes_later_is_seen_and_one_that_goes_is_forgotten(api, mirrors, clock):
    serve(api)
    put(api, "JobSet", "lost", FAILED)
    assert mirrors.look(()) == ([], set())
    api.clear()
    put(api, "JobSet", "lost", FAILED)
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}))
    assert mirrors.look(()) == ([], set())
    clock[0] += owner_watch.SERVED_EVERY
    assert until(lambda: mirrors.look(()), lambda seen: seen[0])[0]
    api.clear()
    serve(api)
    clock[0] += owner_watch.SERVED_EVERY
    assert mirrors.look(()) == ([], set())


def test_a_site_adds_and_removes_a_kind(api, mirrors):
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}))
    put(api, "JobSet", "lost", FAILED)
    own = (JobOwner("Other", "watch", 1.0, "jobset.x-k8s.io", "jobsets"), JobOwner("JobSet", "leave"))
    work, _unread = until(lambda: mirrors.look(own), lambda seen: seen[0])
    assert [one.kind for one in work] == ["Other"]
    assert mirrors.look((JobOwner("JobSet", "leave"),)) == ([], set())


@pytest.mark.parametrize("code", [404, 403, 500])
def test_a_server_that_does_not_say_what_it_serves_has_no_operators(api, mirrors, code):
    api.tell("GET", "/apis", code, status(code), times=1000)
    assert mirrors.look(()) == ([], set())


def lost_pod(api, name, kind, phase="Running"):
    owner = {"kind": kind, "name": "train", "uid": "u-train", "controller": True, "apiVersion": "x/v1"}
    lost = {"conditions": [{"type": "DisruptionTarget", "status": "True"}], "phase": phase}
    metadata = {"ownerReferences": [owner], "labels": {"training.kubeflow.org/job-name": "train"}}
    thing = {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}, "status": lost}
    api.put("/api/v1/namespaces/a/pods/" + name, thing)


@pytest.mark.parametrize(("phase", "state"), [("Running", State.WAITING), ("Failed", State.RUNNING)])
def test_what_runs_with_a_pod_on_a_lost_node_does_not_run(api, client, phase, state):
    serve(api, ("kubeflow.org", {"v1": ["pytorchjobs"]}))
    put(api, "PyTorchJob", "train", {"conditions": [{"type": "Running", "status": "True"}]})
    lost_pod(api, "train-worker-0", "PyTorchJob", phase)
    assert owner_watch.find(client, "a/train", "u-train", ()).state is state


def test_another_one_of_that_name_is_not_meant_and_a_kind_that_cannot_be_read_is_not_absent(api, client):
    serve(api, ("kubeflow.org", {"v1": ["pytorchjobs"]}))
    put(api, "PyTorchJob", "train", FAILED)
    with pytest.raises(Absent):
        owner_watch.find(client, "a/train", "u-other", ())
    api.tell("GET", KUBEFLOW + "/namespaces/a/pytorchjobs", 403, status(403, "Forbidden"))
    with pytest.raises(Forbidden):
        owner_watch.find(client, "a/train", "u-train", ())


def test_the_pods_of_what_is_in_trouble_are_asked_for_three_times(api, mirrors, clock):
    serve(api, ("kubeflow.org", {"v1": ["pytorchjobs"]}))
    put(api, "PyTorchJob", "train", FAILED)
    lost_pod(api, "train-worker-0", "PyTorchJob")
    work, _unread = until(lambda: mirrors.look(()), lambda seen: seen[0])
    assert mirrors.lost_pods(work, lambda _one: False) == []
    assert [pod.name for pod in mirrors.lost_pods(work, lambda _one: True)] == ["train-worker-0"]
    assert mirrors.lost_pods(work, lambda _one: True) == []  # not with every look
    for _time in range(5):
        clock[0] += 31
        mirrors.lost_pods(work, lambda _one: True)
    assert len([request for request in api.requests if "labelSelector" in request]) == 3


@pytest.mark.parametrize(
    ("annotations", "allowed", "told"),
    [
        ({"mission-control/auto-resume": "{}"}, 200, {("kubernetes_workload_unrecovered", "a/set")}),
        ({}, 200, {("kubernetes_job_unrecovered", "a/set-w-0")}),  # only the Job that it makes opted in
        ({"mission-control/auto-resume": "{}"}, 403, {("kubernetes_job_unrecovered", "a/set-w-0")}),
    ],
)
def test_a_job_of_an_owner_that_is_judged_is_not_told_of_as_well(api, kubeconfig, annotations, allowed, told):
    serve(api, ("jobset.x-k8s.io", {"v1alpha2": ["jobsets"]}))
    if allowed != 200:
        api.tell("GET", JOBSETS + "/jobsets", allowed, status(allowed, "Forbidden"), times=1000)
    put(api, "JobSet", "set", FAILED, annotations=annotations)
    owner = {"kind": "JobSet", "name": "set", "uid": "u-set", "controller": True, "apiVersion": "jobset.x-k8s.io/v1"}
    metadata = {"uid": "j1", "annotations": {"mission-control/auto-resume": "{}"}, "ownerReferences": [owner]}
    failed = {"conditions": [{**FAILED["conditions"][0], "reason": "BackoffLimitExceeded"}]}
    api.put("/apis/batch/v1/namespaces/a/jobs/set-w-0", {"kind": "Job", "metadata": metadata, "status": failed})
    job = {"kind": "Job", "name": "set-w-0", "uid": "j1", "controller": True, "apiVersion": "batch/v1"}
    lost = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-11-30T11:00:00Z"}
    pod = {"kind": "Pod", "metadata": {"ownerReferences": [job]}, "status": {"phase": "Failed", "conditions": [lost]}}
    api.put("/api/v1/namespaces/a/pods/set-w-0-x", pod)
    settings = parse(
        {"cluster": "c", "scope": {"namespaces": ["a"]}, "slurm": {"enabled": False},
         "kubernetes": {"kubeconfig": kubeconfig, "timeout": 5.0}}
    )  # fmt: skip
    sight, seen = KubernetesSight(), set()
    until_time = time.monotonic() + 5
    settled = None
    while time.monotonic() < (settled or until_time):
        with contextlib.suppress(RecoveryError):
            for event in sight.look(settings):
                seen.update((event["fault"]["kind"], one["job"]) for one in event["fault"]["targets"])
        if seen and settled is None:
            settled = time.monotonic() + 0.5  # what else would be told is told with the next looks
        time.sleep(0.02)
    sight.close()
    assert seen == told
