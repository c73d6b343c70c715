# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause, job_cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    Condition,
    JobState,
    Origin,
    PodView,
    job_view,
    node_view,
    origin_of,
    pod_view,
)

T0 = 1796000000.0


def disruption(reason):
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


def ended(reason, code, **more):
    return {"containerStatuses": [{"state": {"terminated": dict(reason=reason, exitCode=code, **more)}}]}


def waits(reason):
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}


PODS = [
    # infrastructure
    (disruption("PreemptionByScheduler"), Cause.INFRASTRUCTURE),
    (disruption("DeletionByTaintManager"), Cause.INFRASTRUCTURE),
    (disruption("EvictionByEvictionAPI"), Cause.INFRASTRUCTURE),
    (disruption("DeletionByPodGC"), Cause.INFRASTRUCTURE),
    (dict(disruption("TerminationByKubelet"), reason="Terminated", **ended("Error", 143)), Cause.INFRASTRUCTURE),
    ({"phase": "Failed", "reason": "NodeLost"}, Cause.INFRASTRUCTURE),
    ({"phase": "Failed", "reason": "NodeShutdown"}, Cause.INFRASTRUCTURE),
    (
        {
            "phase": "Failed",
            "reason": "Terminated",
            "message": "Pod was terminated in response to imminent node shutdown.",
        },
        Cause.INFRASTRUCTURE,
    ),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, Cause.INFRASTRUCTURE),
    (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "},
        Cause.INFRASTRUCTURE,
    ),
    # seen on the lab after a reboot (containerd 1.7), and by kubelets that lost the container
    (dict(ended("Unknown", 255), phase="Failed"), Cause.INFRASTRUCTURE),
    (dict(ended("ContainerStatusUnknown", 137), phase="Failed"), Cause.INFRASTRUCTURE),
    # application
    (
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit",
        },
        Cause.APPLICATION,
    ),
    (dict(ended("Error", 255), phase="Failed"), Cause.APPLICATION),
    (dict(ended("Error", 1), phase="Failed"), Cause.APPLICATION),
    (dict(ended("OOMKilled", 137), phase="Failed"), Cause.APPLICATION),
    (dict(waits("ImagePullBackOff"), phase="Pending"), Cause.APPLICATION),
    (dict(waits("CrashLoopBackOff"), phase="Running"), Cause.APPLICATION),
    ({"phase": "Pending", "initContainerStatuses": waits("ErrImagePull")["containerStatuses"]}, Cause.APPLICATION),
    # nothing wrong, or nobody knows
    (dict(ended("Completed", 0), phase="Succeeded"), None),
    (dict(waits("ContainerCreating"), phase="Pending"), None),
    ({"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}]}, None),
    ({"phase": "Failed"}, Cause.UNKNOWN),
    ({}, None),
    ({"phase": 7, "conditions": "x", "containerStatuses": [None, {"state": []}]}, None),
    # several at once: the node's loss explains what the containers say
    (dict(ended("OOMKilled", 137), phase="Failed", **disruption("DeletionByTaintManager")), Cause.INFRASTRUCTURE),
    (dict(disruption("OfTomorrow"), phase="Failed"), Cause.INFRASTRUCTURE),
    (dict(ended("Error", 1), phase="Failed", initContainerStatuses=ended("Completed", 0)["containerStatuses"]),
     Cause.APPLICATION),
    (dict(ended("ContainerStatusUnknown", 137), initContainerStatuses=ended("Error", 1)["containerStatuses"]),
     Cause.INFRASTRUCTURE),
    ({"phase": "Failed", "reason": "Evicted", "message": "The node had condition: [DiskPressure]. "},
     Cause.INFRASTRUCTURE),
    ({"phase": "Failed", "reason": "Evicted"}, Cause.APPLICATION),
    ({"phase": "Failed", "reason": "Preempting"}, Cause.INFRASTRUCTURE),
    ({"phase": "Failed", "reason": "OfTomorrow"}, Cause.UNKNOWN),
    (waits("InvalidImageName"), Cause.APPLICATION),
    (waits("ErrImageNeverPull"), Cause.APPLICATION),
    (waits("CreateContainerConfigError"), Cause.APPLICATION),
    (waits("PodInitializing"), None),
]


@pytest.mark.parametrize(("pod_status", "cause"), PODS)
def test_what_ended_a_pod(pod_status, cause):
    pod = {"metadata": {"name": "p", "namespace": "a"}, "spec": {}, "status": pod_status}
    assert pod_view(pod).cause is cause


def infra(at=T0):
    return PodView("a", "i", cause=Cause.INFRASTRUCTURE, disrupted_at=at)


def own(at):
    return PodView("a", "o", cause=Cause.APPLICATION, ended_at=at)


JOBS = [
    ("BackoffLimitExceeded", 0, [infra()], Cause.INFRASTRUCTURE),
    ("BackoffLimitExceeded", 0, [own(T0)], Cause.APPLICATION),
    ("BackoffLimitExceeded", 0, [], Cause.UNKNOWN),
    ("BackoffLimitExceeded", 6, [PodView("a", "p", cause=Cause.UNKNOWN)], Cause.UNKNOWN),
    # a gang: the peers of the lost pod fail before the loss is noticed, and after it
    ("BackoffLimitExceeded", 0, [own(T0 - 300), infra(), own(T0 + 900)], Cause.INFRASTRUCTURE),
    # it had failed by itself more often than it bears, long before and long after
    ("BackoffLimitExceeded", 0, [own(T0 - 3600), infra()], Cause.APPLICATION),
    ("BackoffLimitExceeded", 1, [own(T0 - 3600), infra(), own(T0 + 7200)], Cause.APPLICATION),
    # it bears its own failures, the disruption was one too many
    ("BackoffLimitExceeded", 1, [own(T0 - 3600), infra()], Cause.INFRASTRUCTURE),
    ("BackoffLimitExceeded", 0, [own(None), infra()], Cause.APPLICATION),
    # the Job's own terms
    ("DeadlineExceeded", 6, [infra()], Cause.APPLICATION),
    ("PodFailurePolicy", 6, [infra()], Cause.APPLICATION),
    # by index: the failed index of the application would fail again
    ("FailedIndexes", 6, [own(T0 - 3600), infra()], Cause.APPLICATION),
    ("MaxFailedIndexesExceeded", 6, [infra()], Cause.INFRASTRUCTURE),
    ("MaxFailedIndexesExceeded", 6, [own(T0 - 3600)], Cause.APPLICATION),
    ("FailedIndexes", 6, [infra(), infra(T0 + 60)], Cause.INFRASTRUCTURE),
    ("FailedIndexes", 6, [], Cause.UNKNOWN),
    ("DeadlineExceeded", 0, [], Cause.APPLICATION),
    # a reason of a later version, or none
    ("OfTomorrow", 0, [infra()], Cause.INFRASTRUCTURE),
    ("", 0, [own(T0)], Cause.APPLICATION),
    ("", 0, [PodView("a", "p")], Cause.UNKNOWN),
]


@pytest.mark.parametrize(("reason", "limit", "pods", "cause"), JOBS)
def test_whose_fault_the_failure_of_a_job_was(reason, limit, pods, cause):
    assert job_cause(reason, limit, pods) is cause


def creating(sandbox="False", bound="True", phase="Pending", **metadata):
    since = {"lastTransitionTime": "2026-11-30T11:00:00Z"}
    conditions = [{"type": "PodReadyToStartContainers", "status": sandbox}] if sandbox else []
    conditions += [{"type": "PodScheduled", "status": bound, **since}]
    metadata = {"name": "p", "namespace": "a", **metadata}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase, "conditions": conditions}}


@pytest.mark.parametrize(
    ("pod", "waits_for_it"),
    [
        (creating(), True),
        (creating(sandbox="True"), False),  # it has one: it waits for its image, or runs
        (creating(sandbox=""), False),  # an old kubelet does not say
        (creating(bound="False"), False),
        (creating(phase="Running"), False),  # its sandbox is made anew
        (creating(deletionTimestamp="2026-11-30T11:00:00Z"), False),
    ],
)
def test_a_pod_that_waits_for_its_sandbox(pod, waits_for_it):
    assert pod_view(pod).creating_since == (1796036400.0 if waits_for_it else None)


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({}, ""),
        ({"nodeset.slinky.slurm.net/pod-hostname": "gpu-0"}, "gpu-0"),
        ({"app.kubernetes.io/name": "slurmd"}, "p"),
        ({"app.kubernetes.io/name": "slurmd", "nodeset.slinky.slurm.net/pod-hostname": "gpu-0"}, "gpu-0"),
        ({"app.kubernetes.io/name": "slurmctld"}, ""),
        ({"nodeset.slinky.slurm.net/pod-hostname": "-v"}, ""),
        ({"nodeset.slinky.slurm.net/pod-hostname": 7}, ""),
    ],
)
def test_the_slurm_node_that_runs_in_a_pod(labels, node):
    pod = {"metadata": {"name": "p", "namespace": "a", "labels": labels}, "spec": {}, "status": {}}
    assert pod_view(pod).slurm_node == node


def job(conditions=(), metadata=None, spec=None):
    return {
        "metadata": dict({"name": "train", "namespace": "a", "uid": "u1"}, **(metadata or {})),
        "spec": spec or {},
        "status": {"conditions": [{"type": kind, "status": "True", "reason": "R"} for kind in conditions]},
    }


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ((), JobState.RUNNING),
        (("FailureTarget",), JobState.FAILING),
        (("FailureTarget", "Failed"), JobState.FAILED),
        (("SuccessCriteriaMet",), JobState.COMPLETE),
        (("SuccessCriteriaMet", "Complete"), JobState.COMPLETE),
        (("Suspended",), JobState.SUSPENDED),
    ],
)
def test_the_state_of_a_job(conditions, state):
    assert job_view(job(conditions)).state is state


def test_a_condition_that_is_not_true_says_nothing():
    thing = job()
    thing["status"]["conditions"] = [{"type": "Failed", "status": "False"}]
    assert job_view(thing).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("metadata", "spec", "owner"),
    [
        ({}, {}, ""),
        ({"ownerReferences": [{"kind": "CronJob", "name": "nightly", "controller": True}]}, {}, "CronJob/nightly"),
        ({"ownerReferences": [{"kind": "Workflow", "name": "w"}]}, {}, "Workflow/w"),
        ({"ownerReferences": [{"kind": "JobSet", "name": "s", "controller": True}]}, {}, "JobSet/s"),
        ({"ownerReferences": [{"kind": "PyTorchJob", "name": "p", "controller": True}]}, {}, "PyTorchJob/p"),
        ({"ownerReferences": [{"kind": "MPIJob", "name": "m", "controller": True}]}, {}, "MPIJob/m"),
        (
            {"ownerReferences": [{"kind": "ConfigMap", "name": "c"}, {"kind": "Job", "name": "v", "controller": True}]},
            {},
            "Job/v",  # Volcano's is a Job too
        ),
        ({"ownerReferences": [{"kind": "Unheard", "name": "of", "controller": "true"}]}, {}, "Unheard/of"),
        ({"labels": {"kueue.x-k8s.io/queue-name": ""}}, {}, ""),
        ({"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}, {}, "Kueue/gpu"),
        ({}, {"managedBy": "kueue.x-k8s.io/multikueue"}, "managedBy/kueue.x-k8s.io/multikueue"),
        ({}, {"managedBy": "kubernetes.io/job-controller"}, ""),
        ({}, {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}, "managedBy/jobset.sigs.k8s.io/jobset-controller"),
    ],
)
def test_who_owns_a_job(metadata, spec, owner):
    assert job_view(job(metadata=metadata, spec=spec)).owner == owner


def test_the_chain_of_reruns_comes_back_from_its_text():
    origin = Origin("u0", "train", "u1", 2, "train-abc-r3")
    assert origin_of(job_view(job(metadata={"annotations": {JOB_ANNOTATION: origin.as_text()}}))) == origin
    assert origin_of(job_view(job())) == Origin("u1", "train")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"origin": "u", "name": "n", "attempt": -1}',
        '{"origin": "u", "name": "n", "attempt": true}',
        '{"origin": "u", "name": "n", "attempt": 1e3}',
        '{"origin": "u", "name": "n", "attempt": 9999999}',
        '{"origin": "u", "name": "{{ lookup() }}", "attempt": 1}',
        '{"origin": "u", "name": "n", "attempt": 1, "rerun_as": "$(id)"}',
        '{"origin": 7, "name": "n", "attempt": 1}',
        "[" * 100000,
    ],
)
def test_a_chain_that_a_user_wrote_is_not_believed(text):
    with pytest.raises(Unreadable):
        origin_of(job_view(job(metadata={"annotations": {JOB_ANNOTATION: text}})))


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], "True"),
        ([{"type": "Ready", "status": "Unknown"}], "Unknown"),
        ([{"type": "MemoryPressure", "status": "True"}], None),
        ([], None),
        (None, None),
    ],
)
def test_readiness(conditions, ready):
    assert node_view({"metadata": {"name": "n"}, "status": {"conditions": conditions}}).ready == ready


def test_what_others_say_of_a_node():
    kinds = [{"type": "Ready", "status": "True"}, {"type": "Sick", "status": "True"}, {"type": 7}, "x"]
    metadata = {"name": "n", "deletionTimestamp": "2026-11-30T11:00:00Z"}
    view = node_view({"metadata": metadata, "status": {"conditions": kinds}})
    assert view.conditions == (Condition("Sick", "True"), Condition("", ""))
    assert view.deleted
    assert not node_view({"metadata": {"name": "n"}}).deleted


def test_a_node_without_a_name_is_none():
    with pytest.raises(Unreadable):
        node_view({"metadata": {}})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-30T11:07:00Z", 1796036820.0),
        ("2026-11-30T12:07:00.500000+01:00", 1796036820.5),
        ("2026-11-30T11:07:00", None),
        ("yesterday", None),
        (None, None),
        (7, None),
    ],
)
def test_times(text, seconds):
    assert reading.epoch(text) == seconds
