# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job is not RUNNING and not COMPLETING: what is done to its nodes next finds no live step of it."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
    failed,
    over,
    poll,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import (
    read_jobs,
    read_parts,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job


class AwaitJobEnd(Plain):
    """Waits for: `job_not_active`; failed at the step's deadline.

    Proof: Slurm's state of the job; a job that Slurm has forgotten has ended.
    """

    name = plans.AWAIT_JOB_END

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all jobs, another for the components of those that are heterogeneous."""
        answers = Answers(works, tools)
        parts: dict[int, list[Job]] = {}
        try:
            poll(lambda: _look(answers, tools, parts))
        except RecoveryError as exc:
            answers.give_error(answers.open, exc)
        for work in answers.open:
            answers.give(still_active(work, tools, parts[work.incident]))
        return answers.all()


def still_active(work: Work, tools: Tools, components: Sequence[Job] = ()) -> Outcome:
    """The outcome of any step that must not touch a job which is on its nodes, or a component of which is."""
    why = "job %s is still on its nodes" % work.target.name
    if over(work, tools):
        return failed(work, why)
    if len(components) > 1:
        return waiting(work, why, waits.JOB_NOT_ACTIVE, {"jobs": [str(job.id) for job in components]})
    return waiting(work, why, waits.JOB_NOT_ACTIVE, {"job": work.target.name})


def _look(answers: Answers, tools: Tools, parts: dict[int, list[Job]]) -> bool:
    """Look once; true when it is no use to look again at once: only a job that completes soon has ended."""
    jobs = read_jobs(answers.open, tools)
    parts.clear()
    parts.update(read_parts(answers.open, jobs, tools))
    for work in answers.open:
        if work.incident not in jobs:
            answers.give(done(work, "Slurm has forgotten the job", proof={"job": work.target.name}))
        elif not any(job.on_nodes for job in parts[work.incident]):
            job = jobs[work.incident]
            answers.give(done(work, proof={"state": job.state, "restart_count": job.restart_count}))
    return not any(
        job.completing and not over(work, tools) for work in answers.open for job in parts[work.incident]
    )
