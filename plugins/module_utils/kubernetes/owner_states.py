# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the owner of pods or Jobs says of the state of its work, in the fields and words of each kind. Pure.

An owner that says Running may have said so before it lost a pod, so where it counts its pods, they count, too. A word
that is not known is `UNKNOWN`, which is neither running nor failed.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Iterable, Mapping, NamedTuple, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    condition,
    epoch,
    items,
    part,
    text,
)

Object = Mapping[str, Any]


class State(Enum):
    """What becomes of the work of an owner."""

    RUNNING = "running"  # all of it
    WAITING = "waiting"  # it starts, or starts again, or a part of it is missing
    SUSPENDED = "suspended"  # by somebody who will resume it
    COMPLETE = "complete"
    FAILED = "failed"  # for good, as its owner says
    UNKNOWN = "unknown"


class Reading(NamedTuple):
    """A state and since when (epoch seconds; None: the owner does not say)."""

    state: State
    since: Optional[float] = None


# Types of conditions, in the order in which they count.
_USUAL = (
    ("Failed", State.FAILED),
    ("Succeeded", State.COMPLETE),
    ("Complete", State.COMPLETE),
    ("Completed", State.COMPLETE),
    ("Suspended", State.SUSPENDED),
    ("Restarting", State.WAITING),
    ("Running", State.RUNNING),
    ("Created", State.WAITING),
)
_VOLCANO = {
    "Pending": State.WAITING,
    "Aborting": State.WAITING,
    "Aborted": State.FAILED,  # stays so until somebody resumes it
    "Running": State.RUNNING,
    "Restarting": State.WAITING,
    "Completing": State.RUNNING,
    "Completed": State.COMPLETE,
    "Terminating": State.WAITING,
    "Terminated": State.FAILED,
    "Failed": State.FAILED,
}
_RAY_JOB = {
    "": State.WAITING,
    "Initializing": State.WAITING,
    "Running": State.RUNNING,
    "Retrying": State.WAITING,
    "Failed": State.FAILED,
    "Suspending": State.SUSPENDED,
    "Suspended": State.SUSPENDED,
    "Waiting": State.SUSPENDED,  # for the user to submit something
    "Scheduling": State.SUSPENDED,  # for its time
    "Scheduled": State.SUSPENDED,
}
_RAY_CLUSTER = {"ready": State.RUNNING, "suspended": State.SUSPENDED, "failed": State.FAILED}


def usual(thing: Object) -> Reading:
    """By the types of conditions that most kinds have."""
    status = part(thing, "status")
    for kind, state in _USUAL:
        found = condition(status, kind)
        if found.get("status") == "True":
            return Reading(state, epoch(found.get("lastTransitionTime")))
    return Reading(State.UNKNOWN)


def training(thing: Object) -> Reading:
    """Kubeflow's PyTorchJob, MPIJob and kin: by conditions, and by the pods that it counts of each replica type."""
    read = usual(thing)
    counted = part(thing, "status", "replicaStatuses")
    if read.state is not State.RUNNING or not counted:
        return read
    specs = [types for key, types in part(thing, "spec").items() if key.endswith("ReplicaSpecs")]
    wanted = sum(_number(spec.get("replicas"), 1) for types in specs for spec in _parts(types))
    there = sum(_number(one.get("active")) + _number(one.get("succeeded")) for one in _parts(counted))
    return Reading(State.WAITING) if there < wanted else read


def by_jobs(thing: Object) -> Reading:
    """JobSet and TrainJob: by conditions; neither has one for running, but both count their Jobs that are ready."""
    read = usual(thing)
    if read.state is not State.UNKNOWN:
        return read
    status = part(thing, "status")
    counted = items(status, "replicatedJobsStatus") or items(status, "jobsStatus")
    if not counted:
        return Reading(State.WAITING)
    ready = sum(_number(one.get("ready")) + _number(one.get("succeeded")) for one in counted)
    short = any(_number(one.get("active")) > _number(one.get("ready")) for one in counted)
    return Reading(State.RUNNING if ready and not short else State.WAITING)


def volcano(thing: Object) -> Reading:
    """Volcano's Job: by its phase."""
    found = part(thing, "status", "state")
    since = epoch(found.get("lastTransitionTime"))
    return Reading(_VOLCANO.get(text(found, "phase") or "Pending", State.UNKNOWN), since)


def ray_job(thing: Object) -> Reading:
    """RayJob: by the state of its deployment. What older versions of KubeRay call Complete may have failed."""
    status = part(thing, "status")
    phase = text(status, "jobDeploymentStatus")
    since = epoch(status.get("endTime"))
    if phase == "Complete":
        return Reading(State.FAILED if text(status, "jobStatus") == "FAILED" else State.COMPLETE, since)
    state = _RAY_JOB.get(phase, State.UNKNOWN)
    return Reading(state, since if state is State.FAILED else None)


def ray_cluster(thing: Object) -> Reading:
    """RayCluster: its head is ready (before KubeRay 1.3: it is called ready) and so are all its workers."""
    status = part(thing, "status")
    if any(condition(status, "RayCluster" + kind).get("status") == "True" for kind in ("Suspending", "Suspended")):
        return Reading(State.SUSPENDED)
    head = condition(status, "HeadPodReady").get("status")
    phase = text(status, "state")
    state = State.RUNNING if head == "True" else _RAY_CLUSTER.get(phase, State.WAITING)
    if state is State.FAILED:
        return Reading(state, epoch(part(status, "stateTransitionTimes").get(phase)))
    if state is not State.RUNNING:
        return Reading(state)
    ready = status.get("readyWorkerReplicas", status.get("availableWorkerReplicas"))
    missing = head == "False" or _number(ready) < _number(status.get("desiredWorkerReplicas"))
    return Reading(State.WAITING if missing else State.RUNNING)


def _parts(thing: Any) -> Iterable[Object]:
    values = thing.values() if isinstance(thing, Mapping) else ()
    return [value for value in values if isinstance(value, Mapping)]


def _number(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
