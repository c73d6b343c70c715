# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uncordon in Kubernetes, and our out-of-service taint goes too."""

from __future__ import annotations

from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import outcome, signs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_boot import (
    LEASE_RENEWED,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    failed,
    kubernetes_name,
    over,
    poll,
    recorded_boot_id,
    retry,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.kubernetes_state import (
    outcome_of,
)


class Uncordon(Plain):
    """Only a cordon of this incident, and only of a node whose kubelet is Ready, with its present boot.

    Ready stays for some 40 seconds when the kubelet is dead again, so after a boot it must have renewed its Lease, too.

    Waits for: `kubernetes_node_ready`, while it is not; then until the condition or taint that was repaired is gone.
    Failed at the step's deadline.
    Proof: the server's answer to the write. A cordon that is somebody else's by now stays, and the step is done.
    """

    name = plans.UNCORDON

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        return each(works, tools, _uncordon)


def _uncordon(work: Work, tools: Tools) -> Outcome:
    name = kubernetes_name(work, tools)
    if not name:
        return done(work, "the node is not in Kubernetes")
    booted = work.memory.get("new_boot_id")
    old = recorded_boot_id(work) if booted and booted != recorded_boot_id(work) else ""
    if not poll(lambda: _is_ready(name, old, tools)):
        why = "the kubelet of %s is not Ready yet" % name
        if over(work, tools):
            return failed(work, why)
        return waiting(work, why, waits.KUBERNETES_NODE_READY, {"node": name, **({"boot_id": old} if old else {})})
    seen = work.memory.get(LEASE_RENEWED)
    if seen and not poll(lambda: kubernetes_nodes.lease_renewed(tools.kubernetes, name) not in ("", seen)):
        return retry(work, tools, "the kubelet of %s has not renewed its Lease since the boot" % name)
    found = _still_sick(work, tools, name)
    if found is not None:
        sign = found.sign.condition or found.sign.taint
        return retry(work, tools, "%s still shows %s" % (name, printable(sign)))
    result = kubernetes_nodes.uncordon(tools.kubernetes, name, str(work.incident), lambda: tools.guard(work))
    if result.status == outcome.REFUSED:
        return done(work, "its cordon stays: %s" % result.why, {"foreign_cordon": True})
    return outcome_of(work, tools, result)


def _still_sick(work: Work, tools: Tools, name: str) -> Optional[signs.Shown]:
    """The sign of the fault that is repaired, if the node shows it still: its agents start after the kubelet."""
    if work.fault_kind != "kubernetes_node_condition":
        return None
    return signs.shown(kubernetes_nodes.read_node(tools.kubernetes, name), tools.settings.kubernetes.node_signs)


def _is_ready(name: str, old_boot_id: str, tools: Tools) -> bool:
    node = kubernetes_nodes.read_node(tools.kubernetes, name)
    return node.ready == "True" and (not old_boot_id or node.boot_id not in ("", old_boot_id))
