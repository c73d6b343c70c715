# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's user is told what was done, in the job's AdminComment (`scontrol show job`, `sacct -o admincomment`)."""

from __future__ import annotations

from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import job_runs, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    Lost,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
    trouble,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import read_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.release_successor import (
    successor_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

_BETWEEN = " | "
_MOST = 2000  # characters of a comment; what is there already is never shortened for ours


class Tell(Plain):
    """One sentence for each incident, behind what stands there already. It says the incident's number, and where that
    stands nothing is said again. slurmctld changes no job that has ended; of such a job the accounting tells it (there
    Slurm itself makes backquotes of double quotes).

    Waits for: nothing. A comment that cannot be written is named and holds nothing up.
    """

    name = plans.TELL

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One look for all jobs, a call for each that is told."""
        answers = Answers(works, tools)
        try:
            jobs = _jobs(works, tools)
        except RecoveryError as exc:
            for work in works:
                answers.give(done(work, "the job's user is not told: %s" % exc))
            return answers.all()
        for work in answers.open:
            answers.give(_tell(work, tools, jobs.get(work.incident)))
        return answers.all()


def _jobs(works: Sequence[Work], tools: Tools) -> dict[int, Job]:
    """By incident the job whose user reads it: the successor, where one was released in place of the job."""
    followed = {work.incident: successor_of(work) for work in works if successor_of(work)}
    jobs = read_jobs([work for work in works if work.incident not in followed], tools)
    found = tools.slurm.jobs(sorted(followed.values()), missing_ok=True) if followed else []
    by_id = {str(job.id): job for job in found}
    return {**jobs, **{incident: by_id[name] for incident, name in followed.items() if name in by_id}}


def _tell(work: Work, tools: Tools, job: Optional[Job]) -> Outcome:
    if job is None:
        return done(work, "Slurm has forgotten the job")
    try:
        before = tools.slurm.accounted_comment(job.id) if job.finished else job.admin_comment
        comment = comment_of(before, work)
        if not comment:
            return done(work, "the job's user is told already, or the comment is full")
        tools.guard(work)
        if job.finished:
            tools.slurm.update_finished_job(job.id, comment)
        else:
            tools.slurm.update_job(job.argument, admin_comment=comment)
    except Lost as exc:
        return trouble(work, tools, exc)
    except RecoveryError as exc:
        return done(work, "the job's user is not told: %s" % exc)
    return done(work, proof={"told": job_runs.sentence(work.fault_kind, work.memory)})


def comment_of(before: Optional[str], work: Work) -> str:
    """The comment with our sentence; the empty text where it stands there already or has no room. Pure."""
    mark = "job-recovery #%d:" % work.incident
    if mark in (before or ""):
        return ""
    sentence = "%s %s" % (mark, job_runs.sentence(work.fault_kind, work.memory))
    comment = before + _BETWEEN + sentence if before else sentence
    return comment if len(comment) <= _MOST else ""
