# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the state of each kind of owner's work is read from the fields and words of its own API."""

from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owner_states, owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State

SINCE = "2026-11-30T11:00:00Z"
EPOCH = 1796036400.0


def true(*kinds):
    return [{"type": kind, "status": "True", "lastTransitionTime": SINCE} for kind in kinds]


def false(*kinds):
    return [{"type": kind, "status": "False", "lastTransitionTime": SINCE} for kind in kinds]


def pytorch(conditions, active=None, succeeded=0, workers=3):
    counted = {} if active is None else {"Master": {"active": 1}, "Worker": {"active": active, "succeeded": succeeded}}
    spec = {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": workers}}}
    return {"spec": spec, "status": {"conditions": conditions, "replicaStatuses": counted}}


def jobset(conditions=(), *counted, key="replicatedJobsStatus"):
    return {"status": {"conditions": list(conditions), key: list(counted)}}


def phase(name):
    return {"status": {"state": {"phase": name, "lastTransitionTime": SINCE}}}


def ray_job(deployment, job=""):
    return {"status": {"jobDeploymentStatus": deployment, "jobStatus": job, "endTime": SINCE}}


def ray_cluster(conditions, ready=2, state="ready", **more):
    status = {"conditions": conditions, "state": state, "desiredWorkerReplicas": 2, "readyWorkerReplicas": ready}
    return {"status": {**status, **more}}


@pytest.mark.parametrize(
    ("kind", "thing", "state"),
    [
        ("PyTorchJob", pytorch(true("Created")), State.WAITING),
        ("PyTorchJob", pytorch([*true("Created", "Running")], 3), State.RUNNING),
        ("PyTorchJob", pytorch(true("Created", "Running")), State.RUNNING),  # it counts nothing yet
        ("PyTorchJob", pytorch(true("Created", "Running"), 2), State.WAITING),  # a worker is missing
        ("PyTorchJob", pytorch(true("Created", "Running"), 1, succeeded=2), State.RUNNING),
        ("PyTorchJob", pytorch(true("Running"), 3, workers="many"), State.RUNNING),
        ("PyTorchJob", pytorch([*true("Created", "Restarting"), *false("Running")], 2), State.WAITING),
        ("PyTorchJob", pytorch([*true("Created", "Failed"), *false("Running")], 0), State.FAILED),
        ("PyTorchJob", pytorch([*true("Created", "Succeeded"), *false("Running")], 0), State.COMPLETE),
        ("PyTorchJob", pytorch(true("Suspended"), 0), State.SUSPENDED),
        ("PyTorchJob", pytorch([*false("Suspended"), *true("Running")], 3), State.RUNNING),
        ("PyTorchJob", {}, State.UNKNOWN),
        ("PyTorchJob", {"spec": [], "status": "Running"}, State.UNKNOWN),
        ("MPIJob", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}},
                    "status": {"conditions": true("Running"), "replicaStatuses": {"Worker": {"active": 1}}}},
         State.WAITING),
        ("JobSet", jobset(), State.WAITING),
        ("JobSet", jobset((), {"ready": 2, "active": 2}), State.RUNNING),
        ("JobSet", jobset((), {"ready": 1, "active": 2}), State.WAITING),
        ("JobSet", jobset((), {"ready": 2, "active": 2}, {"active": 1}), State.WAITING),
        ("JobSet", jobset((), {"succeeded": 2}), State.RUNNING),
        ("JobSet", jobset((), {"ready": 0, "active": 0}), State.WAITING),  # between two of its restarts
        ("JobSet", jobset(true("StartupPolicyCompleted"), {"ready": 2, "active": 2}), State.RUNNING),
        ("JobSet", jobset(true("Failed")), State.FAILED),
        ("JobSet", jobset(true("Completed"), {"ready": 1, "active": 2}), State.COMPLETE),
        ("JobSet", jobset(true("Suspended")), State.SUSPENDED),
        ("TrainJob", jobset((), {"ready": 1, "active": 1}, key="jobsStatus"), State.RUNNING),
        ("TrainJob", jobset(true("Complete"), key="jobsStatus"), State.COMPLETE),
        ("TrainJob", jobset(true("Failed"), key="jobsStatus"), State.FAILED),
        *(("Job.batch.volcano.sh", phase(name), state) for name, state in owner_states._VOLCANO.items()),
        ("Job.batch.volcano.sh", phase("Unheard"), State.UNKNOWN),
        ("Job.batch.volcano.sh", {}, State.WAITING),
        ("RayJob", ray_job("Running"), State.RUNNING),
        ("RayJob", ray_job("Retrying"), State.WAITING),
        ("RayJob", ray_job("Complete", "SUCCEEDED"), State.COMPLETE),
        ("RayJob", ray_job("Complete", "FAILED"), State.FAILED),  # as KubeRay before 1.1 says it
        ("RayJob", ray_job("Complete", "STOPPED"), State.COMPLETE),
        ("RayJob", ray_job("Failed", "FAILED"), State.FAILED),
        ("RayJob", ray_job("Suspended"), State.SUSPENDED),
        ("RayJob", ray_job("Unheard"), State.UNKNOWN),
        ("RayCluster", ray_cluster(true("HeadPodReady")), State.RUNNING),
        ("RayCluster", ray_cluster(true("HeadPodReady"), ready=1), State.WAITING),
        ("RayCluster", ray_cluster(false("HeadPodReady")), State.WAITING),  # its state stays ready
        ("RayCluster", ray_cluster([]), State.RUNNING),  # KubeRay before 1.3
        ("RayCluster", ray_cluster([], ready=1), State.WAITING),
        ("RayCluster", ray_cluster([], state=""), State.WAITING),
        ("RayCluster", ray_cluster([], state="failed", stateTransitionTimes={"failed": SINCE}), State.FAILED),
        ("RayCluster", ray_cluster([], state="suspended"), State.SUSPENDED),
        ("RayCluster", ray_cluster(true("RayClusterSuspended", "HeadPodReady")), State.SUSPENDED),
    ],
)  # fmt: skip
def test_states(kind, thing, state):
    read = owners.owner_of(kind + "/x").read(thing)
    assert read.state is state
    assert read.since in (None, EPOCH)
    if state is State.FAILED:
        assert read.since == EPOCH


def test_every_owner_is_read_somewhere_or_only_by_its_jobs():
    for row in owners.OWNERS:
        assert bool(row.group) == bool(row.resource)
        assert row.resource or row.read is owner_states.usual
    places = [(row.group, row.resource) for row in owners.watched()]
    assert len(set(places)) == len(places) == 11
