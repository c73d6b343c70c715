# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns a Job, and what that means for a Job that its infrastructure ended. Pure.

A Job without an owner is ours to run again. What has an owner is left to it: one that recovers by itself is not even
watched, one that usually does is watched with a deadline, and a person is told where nothing came of it. Nobody knows
what an unknown owner does, so it is told at once. A site's own rows come before these.
"""

from __future__ import annotations

from typing import Iterable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobState, JobView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LEFT,
    REPORT,
    WATCH,
    JobOwner,
)

_SOON, _LATER = 300.0, 900.0  # an operator that only makes Jobs anew; one that first waits for its whole gang to end

# By the kind of the controller's owner reference; Kueue by its label, managedBy by the Job's own field.
OWNERS: tuple[JobOwner, ...] = (
    JobOwner("CronJob", LEFT),  # the next one comes by its schedule
    JobOwner("JobSet", WATCH, _SOON),  # makes all its Jobs anew while failurePolicy.maxRestarts lasts
    JobOwner("TrainJob", WATCH, _SOON),  # Kubeflow Trainer, by a JobSet
    JobOwner("MPIJob", WATCH, _LATER),  # Kubeflow: its launcher is a Job
    JobOwner("PyTorchJob", WATCH, _LATER),
    JobOwner("TFJob", WATCH, _LATER),
    JobOwner("XGBoostJob", WATCH, _LATER),
    JobOwner("PaddleJob", WATCH, _LATER),
    JobOwner("JAXJob", WATCH, _LATER),
    JobOwner("RayJob", WATCH, _LATER),  # its submitter is a Job
    JobOwner("Workflow", WATCH, _LATER),  # Argo, by its retryStrategy
    JobOwner("AppWrapper", WATCH, _LATER),
    JobOwner("Kueue", WATCH, _SOON),  # queues again what it evicted itself, not what failed
    JobOwner("managedBy", WATCH, _LATER),  # MultiKueue and the like
)


def owner_of(text: str, own: Sequence[JobOwner] = ()) -> JobOwner:
    """The row for an owner `Kind/name`; of an unknown one a row that reports.

    Args:
        own: the site's rows, which come first.
    """
    kind = text.partition("/")[0]
    return next((row for row in (*own, *OWNERS) if row.kind == kind), JobOwner(kind, REPORT))


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
