# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes taken out of service and given back: cordon, drain, fence, uncordon.

A cordon is ours when the node bears our annotation and the server says that our write was the last one to cordon it.
Everything else is somebody's, and is left alone. Each write is made against the version that was just read, so whatever
slips in between makes it fail and be planned again.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    RecoveryError,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    FIELD_MANAGER,
    KubernetesClient,
    Throttled,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    HOLD_ANNOTATION,
    NODE_ANNOTATION,
    OUT_OF_SERVICE,
    NodeView,
    PodView,
    node_view,
    pod_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.outcome import (
    DONE,
    FAILED,
    REFUSED,
    WAITING,
    Result,
    module_result,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import epoch, printable

TAINT_VALUE = "job-recovery"
_WRITE_ATTEMPTS = 5
_PAUSE = 1.0
_NAMED_PODS = 5
_BUDGET = re.compile(r"disruption budget ([a-z0-9.-]{1,253})")

# Called right before each write; raises when this run may not write any more.
Guard = Callable[[], Any]

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "required": True, "choices": ["cordoned", "drained", "fenced", "uncordoned"]},
        "incident": {"type": "str", "default": ""},
        "timeout": {"type": "int", "default": 60},
        "unmanaged_pods": {"type": "str", "default": "refuse", "choices": ["refuse", "evict"]},
        "local_data": {"type": "str", "default": "evict", "choices": ["refuse", "evict"]},
        "power_off_proved": {"type": "bool", "default": False},
        "tolerate": {"type": "bool", "default": False},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}


@dataclass(frozen=True)
class Hold:
    """Our annotation on a node that we cordoned.

    Attributes:
        incident: whose hold it is; empty = made by hand.
        previous: whether the node was cordoned before (never, as we leave other cordons alone).
        since: epoch seconds by our clock.
    """

    incident: str
    previous: bool = False
    since: Optional[float] = None

    def as_text(self) -> str:
        """As it stands in the annotation."""
        moment = datetime.fromtimestamp(self.since or 0.0, tz=timezone.utc).isoformat(timespec="seconds")
        return json.dumps(
            {"incident": self.incident, "previous": {"unschedulable": self.previous}, "time": moment}, sort_keys=True
        )


class Standing(Enum):
    """Who holds a node out of service. `LIFTED`: we did, and somebody else uncordoned it."""

    FREE = "free"
    OURS = "ours"
    FOREIGN = "foreign"
    LIFTED = "lifted"


@dataclass(frozen=True)
class Plan:
    """What to do with one node: a merge patch to write (None = nothing), or why not."""

    status: str
    why: str = ""
    patch: Optional[dict[str, Any]] = None
    after: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Left:
    """A pod that keeps a node from being drained.

    Attributes:
        pod: `namespace/name`.
        why: for people.
        budget: the disruption budget that forbids its eviction at present, or the empty text.
        forbidden: the policy does not allow its eviction, so waiting does not help.
    """

    pod: str
    why: str
    budget: str = ""
    forbidden: bool = False

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
    """Which pods may be evicted although something of theirs is lost by it."""

    unmanaged: bool = False
    local_data: bool = True


@dataclass(frozen=True)
class Selection:
    """A node's pods, sorted.

    Attributes:
        evict: to be evicted, or under way to their end.
        forbidden: the policy does not allow to evict them.
        ignored: how many are none of a drain's business (DaemonSets, mirror pods, finished, newer than the cordon).
    """

    evict: tuple[PodView, ...] = ()
    forbidden: tuple[Left, ...] = ()
    ignored: int = 0


# ---- pure: who holds it, what to write -----------------------------------------------------------------------------


def hold_of(node: NodeView) -> Optional[Hold]:
    """Our hold on a node, or None where the annotation is absent or not what we write."""
    if node.ownership is None:
        return None
    try:
        data = json.loads(node.ownership)
        incident, previous, since = data["incident"], data["previous"]["unschedulable"], epoch(data["time"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(incident, str) or not isinstance(previous, bool):
        return None
    return Hold(incident, previous, since)


def standing(node: NodeView) -> Standing:
    """Who holds the node out of service."""
    hold = hold_of(node)
    if not node.unschedulable:
        return Standing.LIFTED if hold else Standing.FREE
    cordoned_again = bool(node.cordon_managers) and FIELD_MANAGER not in node.cordon_managers
    return Standing.FOREIGN if hold is None or cordoned_again else Standing.OURS


def plan_cordon(node: NodeView, incident: str, now: float) -> Plan:
    """Cordon it for `incident`, never over a cordon or against a wish of somebody else."""
    hold, state = hold_of(node), standing(node)
    if node.held:
        return Plan(REFUSED, "a person asks by the annotation %s to leave it alone" % HOLD_ANNOTATION)
    if state is Standing.FOREIGN:
        return Plan(REFUSED, "it was cordoned by somebody else (%s)" % _writers(node))
    if state is Standing.LIFTED and incident and hold is not None and hold.incident == incident:
        return Plan(REFUSED, "somebody uncordoned it since incident %s cordoned it" % printable(incident))
    if state is Standing.OURS and hold is not None and hold.incident == incident:
        return Plan(DONE)
    ours = Hold(incident, hold.previous if hold and state is Standing.OURS else False, now)
    patch = {"spec": {"unschedulable": True}, "metadata": {"annotations": {NODE_ANNOTATION: ours.as_text()}}}
    return Plan(DONE, patch=patch, after={"unschedulable": True, "incident": incident})


def plan_uncordon(node: NodeView, incident: str) -> Plan:
    """Give it back, if the cordon is ours (and of `incident`, where one is named); our taint goes with it."""
    hold, state = hold_of(node), standing(node)
    if state is Standing.FOREIGN:
        return Plan(REFUSED, "it was cordoned by somebody else (%s)" % _writers(node))
    if state is Standing.OURS and incident and hold is not None and hold.incident != incident:
        return Plan(REFUSED, "it is held by incident %s" % printable(hold.incident or "none (made by hand)"))
    patch: dict[str, Any] = {}
    after: dict[str, Any] = {}
    if state in (Standing.OURS, Standing.LIFTED):
        patch = {"spec": {"unschedulable": None}, "metadata": {"annotations": {NODE_ANNOTATION: None}}}
        after = {"unschedulable": False, "incident": None}
    if fenced_by_us(node):
        patch.setdefault("spec", {})["taints"] = _taints_without_ours(node)
        after["out_of_service"] = False
    return Plan(DONE, patch=patch or None, after=after)


def plan_fence(node: NodeView, power_off_proved: bool) -> Plan:
    """The out-of-service taint, which lets the cluster give up the node's pods and volumes at once.

    Raises:
        BadInput: nobody proved that the node is off: its pods may be running.
    """
    if power_off_proved is not True:
        raise BadInput(
            "node %s: no taint %s without proof that its power is off" % (node.name, OUT_OF_SERVICE),
            "its pods may still write to their volumes; prove the power off first",
        )
    if any(taint.key == OUT_OF_SERVICE and taint.effect == "NoExecute" for taint in node.taints):
        return Plan(DONE, "" if fenced_by_us(node) else "somebody else's taint is there already")
    taint = {"key": OUT_OF_SERVICE, "value": TAINT_VALUE, "effect": "NoExecute"}
    patch = {"spec": {"taints": [one.as_object() for one in node.taints] + [taint]}}
    return Plan(DONE, patch=patch, after={"out_of_service": True})


def plan_unfence(node: NodeView) -> Plan:
    """Take our out-of-service taint away; another's stays."""
    if not fenced_by_us(node):
        return Plan(DONE)
    return Plan(DONE, patch={"spec": {"taints": _taints_without_ours(node)}}, after={"out_of_service": False})


def fenced_by_us(node: NodeView) -> bool:
    """Whether our out-of-service taint is on it."""
    return any(taint.key == OUT_OF_SERVICE and taint.value == TAINT_VALUE for taint in node.taints)


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
        else:
            evict.append(pod)
    return Selection(tuple(evict), tuple(forbidden), ignored)


def shown(node: NodeView) -> dict[str, Any]:
    """What of a node is ours to change, as plain data."""
    hold = hold_of(node)
    return {
        "unschedulable": node.unschedulable,
        "incident": hold.incident if hold else None,
        "out_of_service": fenced_by_us(node),
    }


def _writers(node: NodeView) -> str:
    return printable(", ".join(node.cordon_managers) or "the server does not say who")


def _taints_without_ours(node: NodeView) -> list[dict[str, Any]]:
    kept = [one for one in node.taints if not (one.key == OUT_OF_SERVICE and one.value == TAINT_VALUE)]
    return [one.as_object() for one in kept]


# ---- with the API server -------------------------------------------------------------------------------------------


def read_node(client: KubernetesClient, name: str, lease: bool = False) -> NodeView:
    """One node, with its lease where asked for (None in the view where the node has none).

    Raises:
        Absent: there is no such node.
    """
    node = client.get(path_of("v1", "nodes", name=name))
    found = client.find(path_of("coordination.k8s.io/v1", "leases", "kube-node-lease", name)) if lease else None
    return node_view(node, found)


def pods_on(client: KubernetesClient, name: str) -> list[PodView]:
    """All pods that are bound to the node, of all namespaces."""
    listing = client.list(path_of("v1", "pods"), {"fieldSelector": "spec.nodeName=%s" % name})
    return [pod_view(pod) for pod in listing.items]


def cordon(
    client: KubernetesClient, name: str, incident: str, now: float, guard: Optional[Guard] = None, dry: bool = False
) -> Result:
    """Cordon one node as ours. Proof: the server's answer to the write."""
    return _change(client, name, lambda node: plan_cordon(node, incident, now), guard, dry)


def uncordon(
    client: KubernetesClient, name: str, incident: str, guard: Optional[Guard] = None, dry: bool = False
) -> Result:
    """Give one node back if it is ours; the out-of-service taint goes too."""
    return _change(client, name, lambda node: plan_uncordon(node, incident), guard, dry)


def fence(
    client: KubernetesClient, name: str, power_off_proved: bool, guard: Optional[Guard] = None, dry: bool = False
) -> Result:
    """Put the out-of-service taint on one node. Raises `BadInput` without the proof that its power is off."""
    return _change(client, name, lambda node: plan_fence(node, power_off_proved), guard, dry)


def unfence(client: KubernetesClient, name: str, guard: Optional[Guard] = None, dry: bool = False) -> Result:
    """Take our out-of-service taint from one node."""
    return _change(client, name, plan_unfence, guard, dry)


def drain_pass(client: KubernetesClient, name: str, policy: Policy, guard: Optional[Guard] = None) -> DrainPass:
    """One pass of a drain over one cordoned node: evict what can be evicted now."""
    node = read_node(client, name)
    selection = select(pods_on(client, name), node.cordoned_at, policy)
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


def stuck_terminating(pods: Sequence[PodView], now: float, grace: float = 0.0) -> list[PodView]:
    """Pods whose grace period is over since more than `grace` seconds and whose containers have not ended. Pure."""
    return [pod for pod in pods if pod.deleted_at is not None and not pod.finished and now - pod.deleted_at > grace]


def release_pods(
    client: KubernetesClient,
    name: str,
    power_off_proved: bool,
    now: float,
    guard: Optional[Guard] = None,
) -> list[str]:
    """Delete by force the pods that never end on a node that is off; returns their keys.

    The out-of-service taint makes the cluster do the same and detach volumes; this is for clusters without it.

    Raises:
        BadInput: nobody proved that the node is off.
    """
    if power_off_proved is not True:
        raise BadInput("node %s: no pod is deleted by force without proof that its power is off" % name)
    released = []
    for pod in stuck_terminating(pods_on(client, name), now):
        if guard is not None:
            guard()
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        try:
            client.delete(path_of("v1", "pods", pod.namespace, pod.name), options)
        except (Absent, Conflict):
            continue
        released.append(pod.key)
    return released


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
        name: _safely(name, lambda one=name: cordon(client, one, incident, time.time(), guard, dry)) for name in names
    }
    passes = {name: DrainPass() for name in names}
    pending = [name for name in names if results[name].status == DONE]
    while pending:
        for name in list(pending):
            try:
                latest = _foreseen(client, name, policy) if dry else drain_pass(client, name, policy, guard)
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


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module `kubernetes_node`: bring each of `names` to `state`.

    Returns:
        `{changed, diff, results: [{name, status, why, before, after, pods?}]}`.

    Raises:
        RecoveryError: not all are done and `tolerate` is false (the results are in its fields); wrong use.
    """
    names = list(dict.fromkeys(params["names"]))
    if not names or not all(names):
        raise BadInput("kubernetes_node: `names` is empty", "name at least one node")
    state, incident = params["state"], params["incident"]
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        if state == "drained":
            policy = Policy(params["unmanaged_pods"] == "evict", params["local_data"] == "evict")
            results = drain(client, names, incident, params["timeout"], policy, dry=check_mode)
        else:
            act = {
                "cordoned": lambda name: cordon(client, name, incident, time.time(), dry=check_mode),
                "fenced": lambda name: fence(client, name, params["power_off_proved"], dry=check_mode),
                "uncordoned": lambda name: uncordon(client, name, incident, dry=check_mode),
            }[state]
            results = [_safely(name, lambda one=name: act(one)) for name in names]
    finally:
        client.close()
    return module_result(results, params["tolerate"])


def _change(
    client: KubernetesClient, name: str, plan_for: Callable[[NodeView], Plan], guard: Optional[Guard], dry: bool
) -> Result:
    """Read, plan, write against what was read; again where something slipped in between."""
    for attempt in range(_WRITE_ATTEMPTS):
        node = read_node(client, name)
        plan = plan_for(node)
        before = shown(node)
        if plan.patch is None or dry:
            return Result(name, plan.status, plan.why, before, dict(before, **plan.after))
        if guard is not None:
            guard()
        patch = dict(plan.patch, metadata=dict(plan.patch.get("metadata", {}), resourceVersion=node.resource_version))
        try:
            after = shown(node_view(client.patch(path_of("v1", "nodes", name=name), patch)))
        except Conflict:
            if attempt + 1 == _WRITE_ATTEMPTS:
                raise
            continue
        wrong = {key: value for key, value in plan.after.items() if after.get(key) != value}
        if wrong:  # an admission webhook may change what we write
            return Result(name, FAILED, "the server did not keep %s" % ", ".join(sorted(wrong)), before, after)
        return Result(name, plan.status, plan.why, before, after)
    raise AssertionError("not reached")


def _safely(name: str, act: Callable[[], Result]) -> Result:
    """One target's trouble is its result; only wrong use stops all."""
    try:
        return act()
    except BadInput:
        raise
    except RecoveryError as exc:
        return Result(name, FAILED, str(exc))


def _foreseen(client: KubernetesClient, name: str, policy: Policy) -> DrainPass:
    selection = select(pods_on(client, name), None, policy)
    going = tuple(Left(pod.key, "would be evicted") for pod in selection.evict)
    return DrainPass(selection.forbidden + going, len(going))


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
