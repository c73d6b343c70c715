# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cordoned node's pods moved elsewhere by the Eviction API, within the disruption budgets.

Only while the node is cordoned by whoever drains it: a person who uncordons it in the middle, or a node that was
deleted and added again under its name, ends the drain, and nothing more is evicted.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Callable, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Conflict,
    RecoveryError,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    Throttled,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import NodeView, PodView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import (
    Guard,
    cordon,
    not_held,
    pods_on,
    read_node,
    safely,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.outcome import (
    DONE,
    FAILED,
    WAITING,
    Result,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable

_PAUSE = 1.0
_NAMED_PODS = 5
SlurmDrained = Callable[[Sequence[str]], frozenset[str]]

_BUDGET = re.compile(r"disruption budget ([a-z0-9.-]{1,253})")


@dataclass(frozen=True)
class Left:
    """A pod that keeps a node from being drained.

    Attributes:
        pod: `namespace/name`.
        why: for people.
        budget: the disruption budget that forbids its eviction at present, or the empty text.
        slurm_node: the Slurm node that runs in it and is not drained, or the empty text.
        forbidden: the policy does not allow its eviction, so waiting does not help.
    """

    pod: str
    why: str
    budget: str = ""
    forbidden: bool = False
    slurm_node: str = ""

    def as_dict(self) -> dict[str, str]:
        """As it stands in a result."""
        return {"pod": self.pod, "why": self.why, "budget": self.budget}


@dataclass(frozen=True)
class DrainPass:
    """What one pass of a drain came to: pods left (none = drained), evictions accepted, seconds until a next pass."""

    left: tuple[Left, ...] = ()
    evicted: int = 0
    pause: float = 1.0


@dataclass(frozen=True)
class Policy:
    """Which pods may be evicted although something of theirs is lost by it.

    Attributes:
        slurm_drained: Slurm nodes that are drained; a pod in which another one runs is not evicted: its jobs would end.
    """

    unmanaged: bool = False
    local_data: bool = True
    slurm_drained: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Selection:
    """A node's pods, sorted.

    Attributes:
        evict: to be evicted, or under way to their end.
        forbidden: the policy does not allow to evict them (at present, where a Slurm node runs in them).
        ignored: how many are none of a drain's business (DaemonSets, mirror pods, finished, newer than the cordon).
    """

    evict: tuple[PodView, ...] = ()
    forbidden: tuple[Left, ...] = ()
    ignored: int = 0


# ---- pure ----------------------------------------------------------------------------------------------------------


def select(pods: Sequence[PodView], cordoned_at: Optional[float], policy: Policy) -> Selection:
    """Sort a node's pods for a drain.

    Args:
        cordoned_at: by the server's clock, as the pods' creation is; pods made later are not this drain's. None = all.
    """
    evict, forbidden, ignored = [], [], 0
    for pod in pods:
        newer = cordoned_at is not None and pod.created_at is not None and pod.created_at > cordoned_at
        if pod.mirror or pod.finished or newer or pod.owner.startswith(("DaemonSet/", "Node/")):
            ignored += 1
        elif pod.deleted_at is None and not pod.owner and not policy.unmanaged:
            forbidden.append(Left(pod.key, "no controller would make it again (unmanaged_pods)", forbidden=True))
        elif pod.deleted_at is None and pod.local_data and not policy.local_data:
            forbidden.append(Left(pod.key, "its emptyDir would be lost (local_data)", forbidden=True))
        elif pod.deleted_at is None and pod.slurm_node and pod.slurm_node not in policy.slurm_drained:
            why = "the Slurm node %s runs in it and is not drained" % pod.slurm_node
            forbidden.append(Left(pod.key, why, slurm_node=pod.slurm_node))
        else:
            evict.append(pod)
    return Selection(tuple(evict), tuple(forbidden), ignored)


def _left(pod: PodView, blocked: Optional[RecoveryError]) -> Left:
    if blocked is None:
        return Left(pod.key, "evicted, is ending")
    budget = ""
    if isinstance(blocked, Throttled) and blocked.budget:
        match = _BUDGET.search(blocked.detail)
        budget = match.group(1) if match else "unknown"
        return Left(pod.key, "disruption budget %s allows no eviction now" % budget, budget)
    return Left(pod.key, str(blocked))


def _terminating(node: NodeView, pod: PodView) -> str:
    if node.ready != "True":
        return "is ending, but the node's kubelet does not answer"
    if pod.finalizers:
        return "is ending, held by finalizer %s" % printable(", ".join(pod.finalizers))
    return "is ending"


def _drained(cordoned: Result, drained: DrainPass, dry: bool) -> Result:
    if cordoned.status != DONE:
        return cordoned
    forbidden = tuple(one for one in drained.left if one.forbidden)
    status = FAILED if forbidden else DONE if dry or not drained.left else WAITING
    named = ["%s (%s)" % (one.pod, one.why) for one in (forbidden or drained.left)[:_NAMED_PODS]]
    return replace(
        cordoned,
        status=status,
        why="%d pods left: %s" % (len(drained.left), ", ".join(named)) if drained.left else "",
        before=dict(cordoned.before, evicted=0),
        after=dict(cordoned.after, evicted=drained.evicted),
        more={"pods": [one.as_dict() for one in drained.left]},
    )


# ---- with the API server -------------------------------------------------------------------------------------------


def drain_pass(
    client: KubernetesClient,
    name: str,
    incident: str,
    policy: Policy,
    guard: Optional[Guard] = None,
    slurm_drained: SlurmDrained = lambda _names: frozenset(),
) -> DrainPass:
    """One pass of a drain over one node: evict what can be evicted now.

    Args:
        slurm_drained: which of some Slurm nodes are drained; asked only where the node has pods with slurmd in them.

    Raises:
        Conflict: the node is not cordoned for `incident` any more; nothing was evicted.
    """
    node = _held(client, name, incident)
    pods = pods_on(client, name)
    in_pods = sorted({pod.slurm_node for pod in pods if pod.slurm_node})
    if in_pods:
        policy = replace(policy, slurm_drained=slurm_drained(in_pods))
    selection = select(pods, node.cordoned_at, policy)
    left, pause, evicted = list(selection.forbidden), _PAUSE, 0
    for pod in selection.evict:
        if pod.deleted_at is not None:
            left.append(Left(pod.key, _terminating(node, pod)))
            continue
        if guard is not None:
            guard()
        blocked = evict(client, pod)
        if isinstance(blocked, Absent):
            continue
        evicted += blocked is None
        pause = max(pause, blocked.retry_after) if isinstance(blocked, Throttled) else pause
        left.append(_left(pod, blocked))
    return DrainPass(tuple(left), evicted, pause)


def forbidden(client: KubernetesClient, name: str, incident: str, policy: Policy) -> tuple[Left, ...]:
    """The pods of a node that the policy does not let go, looked at without evicting any. Raises as `drain_pass`."""
    node = _held(client, name, incident)
    return tuple(one for one in select(pods_on(client, name), node.cordoned_at, policy).forbidden if one.forbidden)


def evict(client: KubernetesClient, pod: PodView) -> Optional[RecoveryError]:
    """Ask for the eviction of exactly this pod (by uid): None = on its way, `Absent` = gone, else what holds it."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        client.create(path_of("v1", "pods", pod.namespace, pod.name, "eviction"), body)
    except Conflict:  # another pod bears the name by now
        return Absent("pod %s: gone" % pod.key)
    except RecoveryError as exc:
        return exc
    return None


def drain(
    client: KubernetesClient,
    names: Sequence[str],
    incident: str,
    timeout: float,
    policy: Policy,
    guard: Optional[Guard] = None,
    dry: bool = False,
) -> list[Result]:
    """Cordon the nodes and evict their pods, asking again until all are empty or `timeout` seconds are over.

    Nodes do not wait for each other. In check mode the pods that would be evicted are in `pods`.
    """
    deadline = time.monotonic() + timeout
    results = {
        name: safely(name, lambda one=name: cordon(client, one, incident, time.time(), guard, dry)) for name in names
    }
    passes = {name: DrainPass() for name in names}
    pending = [name for name in names if results[name].status == DONE]
    while pending:
        for name in list(pending):
            try:
                latest = _foreseen(client, name, policy) if dry else drain_pass(client, name, incident, policy, guard)
            except RecoveryError as exc:
                results[name] = replace(results[name], status=FAILED, why=str(exc))
                pending.remove(name)
                continue
            passes[name] = replace(latest, evicted=passes[name].evicted + latest.evicted)
            if dry or not latest.left:
                pending.remove(name)
        rest = deadline - time.monotonic()
        if not pending or rest <= 0:
            break
        time.sleep(min(rest, *(passes[name].pause for name in pending)))
    return [_drained(results[name], passes[name], dry) for name in names]


def _held(client: KubernetesClient, name: str, incident: str) -> NodeView:
    node = read_node(client, name)
    lost = not_held(node, incident)
    if lost:
        raise Conflict("node %s is not drained any further: %s" % (name, lost))
    return node


def _foreseen(client: KubernetesClient, name: str, policy: Policy) -> DrainPass:
    selection = select(pods_on(client, name), None, policy)
    going = tuple(Left(pod.key, "would be evicted") for pod in selection.evict)
    return DrainPass(selection.forbidden + going, len(going))
