# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A look at what comes after a job of Slurm: jobs that depend on it, and a successor that its user holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping, Optional, TypeVar

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import looks, opt_in
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Tools
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import dependencies
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JOB_ENDED, Job

Name = TypeVar("Name")


def with_followers(found: Mapping[Name, JobLook], tools: Tools) -> dict[Name, JobLook]:
    """These looks, with dependents and successor of those jobs that have ended. One call for the dependents of all."""
    ended = {name: look for name, look in found.items() if look.job is not None and look.job.state in JOB_ENDED}
    made = with_dependents(ended, tools)
    return {**found, **{name: _with_successor(look, tools) for name, look in made.items()}}


def with_dependents(ended: Mapping[Name, JobLook], tools: Tools) -> dict[Name, JobLook]:
    """These looks at jobs that have ended, with their dependents; one call for all."""
    jobs = {name: look.job for name, look in ended.items() if look.job is not None}
    known = {name: job for name, job in jobs.items() if job.uid is not None and job.end_time}
    why = "Slurm does not say whose it is and when it ended"
    submitted = []
    if known:
        try:
            since = min(job.end_time or 0 for job in known.values())
            submitted = tools.slurm.submissions({job.uid for job in known.values()}, since)
        except RecoveryError as exc:
            known, why = {}, str(exc)
    return {
        name: replace(look, dependents=dependencies.started_behind(known[name], submitted))
        if name in known
        else replace(look, unknown={**look.unknown, looks.DEPENDENTS: why})
        for name, look in ended.items()
    }


def _with_successor(look: JobLook, tools: Tools) -> JobLook:
    job = look.job
    if job is None or job.uid is None or opt_in.parse(job.comment).mode != opt_in.SINGLETON:
        return look
    try:
        waiting = tools.slurm.waiting_jobs(job.uid)
    except RecoveryError as exc:
        return replace(look, unknown={**look.unknown, looks.SUCCESSOR: str(exc)})
    return replace(look, successor=first_successor(job, waiting))


def first_successor(job: Job, waiting: list[Job]) -> Optional[Job]:
    """The oldest job that its user holds to follow this one, and says so itself. Pure.

    A job that is held under the same name for another purpose is left alone: the successor's own comment must ask for
    this way of recovery, or its dependency still be on record.
    """
    found = [
        other
        for other in waiting
        if dependencies.is_successor(job, other)
        and (opt_in.parse(other.comment).mode == opt_in.SINGLETON or "singleton" in (other.dependency or ""))
    ]
    return min(found, key=lambda other: other.id, default=None)
