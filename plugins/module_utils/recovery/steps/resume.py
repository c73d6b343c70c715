# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resume in Slurm: the node is given back, if it is still ours to give back."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import Answers, Plain
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.slurm_state import set_state


class Resume(Plain):
    """Only a node that bears our reason and whose slurmd has registered; earlier it makes a second fault.

    Waits for: `node_registered`, while it has not; failed at the step's deadline.
    Proof: Slurm shows it in service, and no drain of somebody else slipped in (one that did is put back, and the step
    fails). A node that is in service already is done.
    """

    name = plans.RESUME

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all nodes."""
        answers = Answers(works, tools)
        set_state("resumed", answers, tools)
        return answers.all()
