# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions and taints by which others (node-problem-detector and the like) say that a node is sick. Pure.

Which of them count, and what is done about each, the site says (`settings.NodeSign`). What a node's agents said last
means nothing while its kubelet is silent: then the Ready condition is the fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import NodeView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NodeSign


@dataclass(frozen=True)
class Shown:
    """A sign that a node shows, and since when (None: the server does not say)."""

    sign: NodeSign
    since: Optional[float] = None

    def lasts(self, now: float) -> bool:
        """Whether its grace time is over. Without a time no grace is; one in the future counts as now."""
        return self.sign.grace <= 0 or (self.since is not None and now - self.since >= self.sign.grace)


def shown(node: NodeView, signs: Sequence[NodeSign]) -> Optional[Shown]:
    """The first of `signs` that the node shows, None for none. Of a node that is not Ready nothing is known."""
    if node.ready != "True":
        return None
    conditions = {condition.kind: condition for condition in node.conditions}  # asked for every node once a second
    for sign in signs:
        condition = conditions.get(sign.condition) if sign.condition else None
        if condition is not None and condition.status == sign.status:
            return Shown(sign, condition.since)
        if sign.taint and any(taint.key == sign.taint for taint in node.taints):
            return Shown(sign)
    return None
