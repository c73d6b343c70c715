# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a Job lost its nodes: one that brings down a node soon after its start, run again, brings down the next. Pure.

A Job on many nodes loses some of them by chance now and then. One that loses other nodes in the same way, each time
within half an hour of its start, is more likely the cause than the victim.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause

EARLY = 1800.0  # seconds; a lost node is noticed about six minutes late
_MOST_NODES = 5
# Somebody's decision, and no loss: the scheduler's, or whoever drains the node.
_DECISIONS = frozenset(("PreemptionByScheduler", "EvictionByEvictionAPI", "Preempting"))
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_WORD = re.compile(r"[A-Za-z]{1,64}\Z")


@dataclass(frozen=True)
class Loss:
    """What one run of a Job lost.

    Attributes:
        nodes: the first of them, by name.
        how: Kubernetes' word for it.
        after: seconds from the Job's start to the first loss.
    """

    nodes: tuple[str, ...]
    how: str
    after: float

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        return {"nodes": list(self.nodes), "how": self.how, "after": int(self.after)}


def parse(data: Any) -> Loss:
    """Read it back. Raises `ValueError` for anything that `as_data` does not make: users can write it, too."""
    nodes, how, after = (data.get(key) for key in ("nodes", "how", "after")) if isinstance(data, dict) else (0, 0, 0)
    named = isinstance(nodes, list) and 0 < len(nodes) <= _MOST_NODES
    if not named or not all(isinstance(node, str) and _NODE.match(node) for node in nodes):
        raise ValueError("nodes")
    if not isinstance(how, str) or not _WORD.match(how) or isinstance(after, bool) or not isinstance(after, int):
        raise ValueError("how, after")
    return Loss(tuple(nodes), how, float(max(0, after)))


def of_pods(started_at: Optional[float], pods: Sequence[Any]) -> Optional[Loss]:
    """What a run lost, by its pods that are still there (`models.PodView`); None where nothing, or nobody can tell."""
    lost = [
        pod
        for pod in pods
        if pod.cause is Cause.INFRASTRUCTURE
        and _NODE.match(pod.node)
        and not _DECISIONS.intersection((pod.disruption, pod.reason))
    ]
    moments = [moment for moment in (pod.disrupted_at or pod.ended_at for pod in lost) if moment is not None]
    if started_at is None or not moments:
        return None
    words = sorted({word for pod in lost for word in [pod.disruption or pod.reason or "lost"] if _WORD.match(word)})
    if not words:
        return None
    nodes = tuple(sorted({pod.node for pod in lost}))[:_MOST_NODES]
    return Loss(nodes, words[0], max(0.0, min(moments) - started_at))


def alike(before: Optional[Loss], now: Optional[Loss]) -> str:
    """Why two runs in a row speak against the Job and not against the nodes; the empty text where they do not."""
    if before is None or now is None or before.how != now.how or set(before.nodes) & set(now.nodes):
        return ""
    if before.after > EARLY or now.after > EARLY:
        return ""
    return "it lost %s and, run again, %s in the same way (%s), both times within %.0f minutes of its start" % (
        ", ".join(before.nodes),
        ", ".join(now.nodes),
        now.how,
        EARLY / 60,
    )
