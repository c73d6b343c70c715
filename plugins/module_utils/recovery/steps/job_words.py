# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `slurm.job_state` answers, in words and as a step's outcome."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    failed,
    over,
    retry,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import outcome

_WORDS = {
    "purged": "Slurm has forgotten it (MinJobAge), so it cannot be requeued",
    "not_understood": "its state has parts that are not known here",
    "cancelled": "it was cancelled, and what a person ended stays ended",
    "completed": "it completed",
    "completing": "it is still on its nodes",
    "not_batch": "only batch jobs can be requeued",
    "not_het_leader": "only the leader of a heterogeneous job can be requeued",
    "requeue_disabled": "it was submitted with --no-requeue, or the site disables requeuing",
    "ended_again": "it was requeued and has ended again",
    "not_requeued_yet": "Slurm has not requeued it yet",
    "begin_time_of_user": "its user wants it to begin later",
    "unknown": "Slurm did not answer after the change",
}
_RETRY = ("unknown", "unreachable", "timeout", "not_requeued_yet", "not_released_yet")


def not_done(
    work: Work, tools: Tools, result: outcome.Outcome, remember: Optional[Mapping[str, Any]] = None
) -> Outcome:
    """The outcome of a job that is not where it should be: waited for, tried again, or failed."""
    why = "job %s: %s" % (work.target.name, _WORDS.get(result.why, result.why or "Slurm refuses"))
    if over(work, tools):
        return failed(work, why)
    if result.why == "completing":
        return waiting(work, why, waits.JOB_PENDING, {"job": work.target.name}, remember=remember)
    if result.why in _RETRY:
        return retry(work, tools, why)
    return failed(work, why)
