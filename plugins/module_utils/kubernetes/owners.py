# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns Jobs and pods, who recovers what its infrastructure ended, and how to tell. Pure.

A Job without an owner is ours to run again. What has an owner is left to it: one that recovers by itself is not even
watched, one that usually does is watched with a deadline, and a person is told where nothing came of it. Nobody knows
what an unknown owner does, so it is told at once. A site's own rows come before these.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owner_states
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobState, JobView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import Reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LEFT,
    REPORT,
    WATCH,
    JobOwner,
)

_SOON, _LATER = 300.0, 900.0  # an operator that only makes Jobs anew; one that first waits for its whole gang to end
_KUBEFLOW, _KUBEFLOW_LABEL = "kubeflow.org", "training.kubeflow.org/job-name"
_JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True)
class Owner:
    """One kind of owner of Jobs or pods.

    Attributes:
        kind: as in an owner reference; of a Job that is not batch's with its API group behind.
        care: one of `settings.OWNER_CARES`.
        after: seconds that it has, where it is watched.
        group, resource: where its objects are read; empty where nothing is read but the Jobs that it makes.
        read: makes the state of its work of such an object.
        label: of its pods; the value is its name.
    """

    kind: str
    care: str = REPORT
    after: float = _SOON
    group: str = ""
    resource: str = ""
    read: Callable[[Mapping[str, Any]], Reading] = owner_states.usual
    label: str = ""


def _training(kind: str) -> Owner:
    resource = kind.lower() + "s"
    return Owner(kind, WATCH, _LATER, _KUBEFLOW, resource, owner_states.training, _KUBEFLOW_LABEL)


# By the kind of the controller's owner reference; Kueue by its label, managedBy by the Job's own field.
OWNERS: tuple[Owner, ...] = (
    Owner("CronJob", LEFT),  # the next one comes by its schedule
    *(Owner(kind, LEFT) for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node")),
    # makes all its Jobs anew while failurePolicy.maxRestarts lasts
    Owner("JobSet", WATCH, _SOON, "jobset.x-k8s.io", "jobsets", owner_states.by_jobs, _JOBSET_LABEL),
    # Kubeflow Trainer, by a JobSet of the same name
    Owner("TrainJob", WATCH, _SOON, "trainer.kubeflow.org", "trainjobs", owner_states.by_jobs, _JOBSET_LABEL),
    _training("MPIJob"),  # its launcher may be a Job
    _training("PyTorchJob"),
    _training("TFJob"),
    _training("XGBoostJob"),
    _training("PaddleJob"),
    _training("JAXJob"),
    # by its policies; without any, nothing is made again
    Owner(
        "Job.batch.volcano.sh", WATCH, _LATER, "batch.volcano.sh", "jobs", owner_states.volcano, "volcano.sh/job-name"
    ),
    Owner("RayJob", WATCH, _LATER, "ray.io", "rayjobs", owner_states.ray_job),  # by a new RayCluster
    Owner("RayCluster", WATCH, _LATER, "ray.io", "rayclusters", owner_states.ray_cluster, "ray.io/cluster"),
    Owner("RayService", LEFT),  # makes a new RayCluster
    Owner("Workflow", WATCH, _LATER),  # Argo, by its retryStrategy
    Owner("AppWrapper", WATCH, _LATER),
    Owner("Kueue", WATCH, _SOON),  # queues again what it evicted itself, not what failed
    Owner("managedBy", WATCH, _LATER),  # MultiKueue and the like
)


def table(own: Sequence[JobOwner] = ()) -> tuple[Owner, ...]:
    """All rows, the site's first. A site's row for a kind that is known is read like that one, if it does not say."""
    return _table(tuple(own))


@functools.lru_cache(maxsize=4)  # asked for each failed Job once a second
def _table(own: tuple[JobOwner, ...]) -> tuple[Owner, ...]:
    known = {row.kind: row for row in OWNERS}
    made = []
    for row in own:
        usual = known.get(row.kind, Owner(row.kind))
        group, resource = (row.group, row.resource) if row.resource else (usual.group, usual.resource)
        read = owner_states.usual if row.resource else usual.read
        made.append(Owner(row.kind, row.care, row.after, group, resource, read, row.label or usual.label))
    taken = {row.kind for row in own}
    return (*made, *(row for row in OWNERS if row.kind not in taken))


def watched(own: Sequence[JobOwner] = ()) -> tuple[Owner, ...]:
    """The rows whose objects are read."""
    return tuple(row for row in table(own) if row.resource and row.care != LEFT)


def owner_of(text: str, own: Sequence[JobOwner] = ()) -> Owner:
    """The row for an owner `Kind/name`; of an unknown one a row that reports.

    Args:
        own: the site's rows, which come first.
    """
    kind = text.partition("/")[0]
    return next((row for row in table(own) if row.kind == kind), Owner(kind))


def is_known(text: str, own: Sequence[JobOwner] = ()) -> bool:
    """Whether there is a row for an owner `Kind/name`."""
    kind = text.partition("/")[0]
    return any(row.kind == kind for row in table(own))


def is_left(job: JobView, own: Sequence[JobOwner] = ()) -> bool:
    """Whether the Job has an owner that recovers by itself."""
    return bool(job.owner) and owner_of(job.owner, own).care == LEFT


def unrecovered(
    jobs: Sequence[JobView], wanted: Iterable[JobView], own: Sequence[JobOwner], now: float
) -> list[JobView]:
    """Of `wanted`, failed Jobs with an owner, those that a person should know of: their owner's time is over.

    Args:
        jobs: all; one of the same owner that was made after the failed one and has not failed replaces it.
        now: epoch seconds.
    """
    found = []
    for job in wanted:
        row = owner_of(job.owner, own)
        if is_left(job, own) or job.state is not JobState.FAILED or job.failed_at is None:
            continue
        after = row.after if row.care == WATCH else 0.0
        if now - job.failed_at >= after and not any(_replaces(other, job) for other in jobs):
            found.append(job)
    return found


def _replaces(other: JobView, job: JobView) -> bool:
    if (other.namespace, other.owner) != (job.namespace, job.owner) or other.uid == job.uid:
        return False
    if other.state in (JobState.FAILED, JobState.FAILING) or other.deleted:
        return False
    return other.created_at is not None and job.failed_at is not None and other.created_at >= job.failed_at
