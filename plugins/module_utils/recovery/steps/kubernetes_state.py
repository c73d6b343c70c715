# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the functions of `kubernetes` answer, as a step's outcome."""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import outcome
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    done,
    failed,
    retry,
)


def outcome_of(work: Work, tools: Tools, result: outcome.Result) -> Outcome:
    """Done with what was before and after as proof; a refusal is a failure, as asking again does not change it."""
    if result.status == outcome.DONE:
        proof = {"name": result.name, "before": dict(result.before), "after": dict(result.after)}
        return done(work, result.why, proof=proof)
    why = "%s: %s" % (result.name, result.why)
    return retry(work, tools, why) if result.status == outcome.WAITING else failed(work, why)
