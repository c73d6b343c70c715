# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cordon in Kubernetes, as ours."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    kubernetes_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.kubernetes_state import (
    outcome_of,
)


class Cordon(Plain):
    """Never over somebody else's cordon, and not against a person's hold annotation.

    Proof: the server's answer to the write, with our annotation. A node that is not in Kubernetes is done.
    """

    name = plans.CORDON

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        return each(works, tools, _cordon)


def _cordon(work: Work, tools: Tools) -> Outcome:
    name = kubernetes_name(work, tools)
    if not name:
        return done(work, "the node is not in Kubernetes")
    result = kubernetes_nodes.cordon(tools.kubernetes, name, str(work.incident), tools.now(), lambda: tools.guard(work))
    return outcome_of(work, tools, result)
