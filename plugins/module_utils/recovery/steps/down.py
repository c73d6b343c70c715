# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Down in Slurm: the jobs of a node that is proved off are given up at once, and those that may are requeued."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    failed,
    power_off_proved,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.slurm_state import set_state


class Down(Plain):
    """Never for a node that is merely silent: its tasks go on, and its jobs would run twice on one checkpoint.

    Proof: Slurm says DOWN with our reason; this incident's fence proved the power off before.
    """

    name = plans.DOWN

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all nodes."""
        answers = Answers(works, tools)
        for work in works:
            if not power_off_proved(work):
                answers.give(failed(work, "node %s is not proved off, so it is not set down" % work.target.name))
        set_state("down", answers, tools)
        return answers.all()
