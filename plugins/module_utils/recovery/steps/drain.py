# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain in Slurm: the node gets no new job. With it goes on record what the repair needs to know of it later."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import observe, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    slurm_name,
    slurm_nodes,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.slurm_state import set_state
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

_ACTIVE = ("RUNNING", "SUSPENDED")
_MAX_JOBS = 1000  # of one node, kept on record


class Drain:
    """A reason of Slurm's own is replaced (and remembered), somebody else's never.

    Proof: Slurm says DRAIN with our reason. Whether the node's jobs have ended is `await_drained`'s question.
    Remembers: `slurm_before` (reason, boot_time, slurmd_start_time, cpus, memory_mb, state), `jobs`, the ids of the
    jobs that were on the node, and `job_nodes`, how many nodes the widest of them had.
    """

    name = plans.DRAIN

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """The node before we touch it, and its jobs: a dead node's are gone from it a moment later.

        What cannot be read is left out; the step itself then finds that Slurm does not answer.
        """
        names = {work.incident: slurm_name(work, tools) for work in works}
        try:
            nodes = slurm_nodes(works, tools)
            wanted = sorted({name for name in names.values() if name})
            jobs, widths = _jobs_by_node(wanted, tools), observe.widths(tools, wanted)
        except RecoveryError:
            return {work.incident: {} for work in works}
        return {
            incident: {
                "slurm_before": _before(nodes.get(incident)),
                "jobs": jobs.get(name, [])[:_MAX_JOBS],
                "job_nodes": widths.get(name, 0),
            }
            for incident, name in names.items()
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all nodes."""
        answers = Answers(works, tools)
        set_state("drained", answers, tools, lambda work: dict(work.intent))
        return answers.all()


def _jobs_by_node(names: Sequence[str], tools: Tools) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    if not names:
        return found
    for job in tools.slurm.job_states(nodes=names):
        if job.state in _ACTIVE or "COMPLETING" in job.flags:
            for name in set(names).intersection(job.nodes):
                found.setdefault(name, []).append(job.id)
    return found


def _before(node: Optional[Node]) -> dict[str, Any]:
    if node is None:
        return {}
    return {
        "state": node.state,
        "reason": reasons.clean_text(node.reason or ""),
        "boot_time": node.boot_time,
        "slurmd_start_time": node.slurmd_start_time,
        "cpus": node.cpus,
        "memory_mb": node.memory_mb,
    }
