# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failed Kubernetes Job runs again, under a new name."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs as kubernetes_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import outcome
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    failed,
    retry,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.kubernetes_state import (
    outcome_of,
)

_PODS_AGAIN = 10.0  # seconds


class Rerun(Plain):
    """The new Job's name follows from the first one's, and bears its uid: a repeated rerun finds it there.

    Waits while pods of the old Job may still run: on a lost node, until that is fenced or back, as the old and the new
    Job would write to the same files.
    Failed for a Job that loses its nodes alike again and again (see `kubernetes.losses`), unless a person asks for it.
    Proof: the new Job. Remembers: `rerun_as`, its `namespace/name`; while it waits, `loss`.
    """

    name = plans.RERUN

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All Jobs at once."""
        return each(works, tools, _rerun)


def _rerun(work: Work, tools: Tools) -> Outcome:
    if tools.kubernetes is None:
        return failed(work, "this site has no Kubernetes")
    result = kubernetes_jobs.rerun(
        tools.kubernetes,
        work.target.name,
        work.target.uid,
        guard=lambda: tools.guard(work),
        remembered=work.memory.get("loss"),
        insist=work.fault_kind == "requested",
    )
    if result.status == outcome.WAITING:
        loss = {"loss": result.more["loss"]} if result.more.get("loss") else {}
        return replace(retry(work, tools, "%s: %s" % (result.name, result.why), _PODS_AGAIN), remember=loss)
    if result.status != outcome.DONE:
        return outcome_of(work, tools, result)
    namespace = work.target.name.partition("/")[0]
    new = "%s/%s" % (namespace, result.more.get("new"))
    return done(work, result.why, {"rerun_as": new}, {"job": new, "before": dict(result.before)})
