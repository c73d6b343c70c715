# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster gives up the pods and volumes of a node that is proved off."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import outcome
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import (
    check_identity,
    proves_off,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    failed,
    kubernetes_name,
    power_off_proved,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.kubernetes_state import (
    outcome_of,
)


class ReleasePods(Plain):
    """The out-of-service taint, and the end by force of pods that are past their grace period.

    Without the proof that the node is off, its pods may still write to their volumes: the step fails. So it does for a
    node that is not cordoned for this incident any more: one that was deleted and added again has a kubelet that lives.
    The proof is asked for again right before: this run may come long after the fence. Where somebody has switched the
    node on meanwhile, its kubelet starts the pods that are bound to it, and nothing is given up; the step is done.
    Proof: the server's answer to the write. Nothing is waited for: the garbage collector ends the other pods, and the
    node's own kubelet does when it comes back earlier.
    """

    name = plans.RELEASE_PODS

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        return each(works, tools, _release)


def _release(work: Work, tools: Tools) -> Outcome:
    name = kubernetes_name(work, tools)
    if not name:
        return done(work, "the node is not in Kubernetes")
    if not power_off_proved(work):
        return failed(work, "node %s is not proved off, so its pods are not given up" % name)
    if not _is_off(work, tools):
        return done(work, "node %s has power again: its pods are left to its own kubelet" % name)
    result = kubernetes_nodes.fence(
        tools.kubernetes, name, True, lambda: tools.guard(work), incident=str(work.incident)
    )
    if result.status != outcome.DONE:
        return outcome_of(work, tools, result)
    released = kubernetes_nodes.release_pods(tools.kubernetes, name, True, tools.now(), lambda: tools.guard(work))
    return done(work, result.why, proof={"after": dict(result.after), "released": released[:50]})


def _is_off(work: Work, tools: Tools) -> bool:
    """Whether the BMC of this very machine says Off now. Raises `RecoveryError` where nobody can tell."""
    machine = work.machine
    if machine is None or tools.power is None:
        return False
    state = tools.power.read(machine.bmc_url)
    check_identity(machine.bmc_url, state, machine.smbios_uuid)
    return proves_off(state, machine.smbios_uuid)
