# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job that its user holds to follow a failed one may start (singleton_dependency)."""

from __future__ import annotations

from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JOB_ENDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    failed,
    poll,
    retry,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import dependencies
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job


class ReleaseSuccessor(Plain):
    """Only the job that the decision chose, only while it is held by the same user under the same name and has never
    started, and only as long as the failed job has not been started again.

    A successor that its user has released, or that has started, needs no release.
    Waits for: a short time, where Slurm does not answer.
    Failed: the successor is gone, cancelled or another's; the failed job runs again.
    Proof: the successor is not held any more.
    """

    name = plans.RELEASE_SUCCESSOR

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """Three calls for each: one look at both jobs, the release, a look at what it did."""
        return each(works, tools, _release)


def successor_of(work: Work) -> str:
    """The id of the successor that the decision chose; empty for an incident without one."""
    chosen = work.memory.get("successor")
    return str(chosen) if isinstance(chosen, int) else ""


def _release(work: Work, tools: Tools) -> Outcome:
    name = successor_of(work)
    jobs = _read(tools, work.target.name, name)
    before, successor = jobs.get(work.target.name), jobs.get(name)
    if successor is not None and not successor.held and _went_on(successor):
        return done(work, "its successor %s is not held" % name, {"did": "successor"}, {"state": successor.state})
    why = why_not(before, successor)
    if why:
        return failed(work, "successor %s of job %s is not released: %s" % (name or "?", work.target.name, why))
    tools.guard(work)
    tools.slurm.release(name)
    seen: list[Job] = []
    if not poll(lambda: _is_released(tools, name, seen)):
        return retry(work, tools, "job %s is not released yet" % name)
    return done(work, remember={"did": "successor"}, proof={"successor": name, "state": seen[-1].state})


def _went_on(successor: Job) -> bool:
    return successor.understood and successor.state in ("PENDING", "RUNNING", "COMPLETED")


def why_not(before: Optional[Job], successor: Optional[Job]) -> str:
    """Why the successor may not be released; the empty text where it may. Pure."""
    if before is None:
        return "Slurm has forgotten the job before it (MinJobAge)"
    if before.state not in JOB_ENDS or before.completing:
        return "the job before it is %s" % before.state
    if successor is None:
        return "there is no such job any more"
    if not dependencies.is_successor(before, successor):
        return "it is %s, and not held by the same user under the same name, or it has run" % successor.state
    return ""


def _read(tools: Tools, *names: str) -> dict[str, Job]:
    found = tools.slurm.jobs([name for name in names if name], missing_ok=True)
    return {name: job for name in names for job in found if name == str(job.id)}


def _is_released(tools: Tools, name: str, seen: list[Job]) -> bool:
    job = _read(tools, name).get(name)
    if job is not None:
        seen.append(job)
    return job is not None and not job.held
