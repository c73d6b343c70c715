# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes taken out of service and given back: cordon, fence, uncordon.

A cordon is ours when the node bears our annotation and the server says that our write was the last one to cordon it.
Everything else is somebody's, and is left alone. Each write is made against the version that was just read, so whatever
slips in between makes it fail and be planned again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    RecoveryError,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    FIELD_MANAGER,
    KubernetesClient,
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
    Result,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    epoch,
    part,
    printable,
    text,
)

TAINT_VALUE = "job-recovery"
_NODE_LEASES = "kube-node-lease"
_WRITE_ATTEMPTS = 5

# Called right before each write; raises when this run may not write any more.
Guard = Callable[[], Any]


@dataclass(frozen=True)
class Hold:
    """Our annotation on a node that we cordoned.

    Attributes:
        incident: whose hold it is; empty = made by hand.
        previous: whether the node was cordoned before (never, as we leave other cordons alone).
        since: epoch seconds by our clock.
        uid: of the Node object that it was written on; empty in annotations of earlier versions.
    """

    incident: str
    previous: bool = False
    since: Optional[float] = None
    uid: str = ""

    def as_text(self) -> str:
        """As it stands in the annotation."""
        moment = datetime.fromtimestamp(self.since or 0.0, tz=timezone.utc).isoformat(timespec="seconds")
        made = {"incident": self.incident, "previous": {"unschedulable": self.previous}, "time": moment}
        return json.dumps(dict(made, uid=self.uid) if self.uid else made, sort_keys=True)


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


# ---- pure: who holds it, what to write -----------------------------------------------------------------------------


def hold_of(node: NodeView) -> Optional[Hold]:
    """Our hold on a node, or None where the annotation is absent, not what we write, or copied from another object.

    Whoever restores a deleted node from a manifest brings the annotation back, and it says nothing of the new node.
    """
    if node.ownership is None:
        return None
    try:
        data = json_text.loads(node.ownership)
        incident, previous, since = data["incident"], data["previous"]["unschedulable"], epoch(data["time"])
        uid = data.get("uid", "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not isinstance(incident, str) or not isinstance(previous, bool) or uid not in ("", node.uid):
        return None
    return Hold(incident, previous, since, uid)


def standing(node: NodeView) -> Standing:
    """Who holds the node out of service."""
    hold = hold_of(node)
    if not node.unschedulable:
        return Standing.LIFTED if hold else Standing.FREE
    cordoned_again = bool(node.cordon_managers) and FIELD_MANAGER not in node.cordon_managers
    return Standing.FOREIGN if hold is None or cordoned_again else Standing.OURS


def taken_by(node: NodeView, keys: Sequence[str]) -> str:
    """By which taint another controller says that it repairs, replaces or removes the node; empty for none.

    Args:
        keys: of taints; one that ends with a slash stands for all that begin so.
    """
    if node.deleted:
        return "its deletion"
    for taint in node.taints:
        if taint.key in keys or taint.key.startswith(tuple(key for key in keys if key.endswith("/"))):
            return printable(taint.key)
        if taint.key == OUT_OF_SERVICE and taint.value != TAINT_VALUE:
            return printable(taint.key)
    return ""


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
    ours = Hold(incident, hold.previous if hold and state is Standing.OURS else False, now, node.uid)
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


def not_held(node: NodeView, incident: str) -> str:
    """Why the node is not (any more) cordoned for `incident`, or the empty text. A node that was deleted and added
    again under its name is another one, and bears no hold."""
    hold, state = hold_of(node), standing(node)
    if state is Standing.LIFTED:
        return "somebody uncordoned it"
    if state is Standing.FOREIGN:
        return "it was cordoned by somebody else (%s)" % _writers(node)
    if state is Standing.FREE or hold is None:
        return "it does not bear our cordon (given back, or deleted and added again)"
    if hold.incident != incident:
        return "it is held by incident %s" % printable(hold.incident or "none (made by hand)")
    return ""


def plan_fence(node: NodeView, power_off_proved: bool, incident: Optional[str] = None) -> Plan:
    """The out-of-service taint, which lets the cluster give up the node's pods and volumes at once.

    Args:
        incident: only while the node is cordoned for it; None = whoever holds it.

    Raises:
        BadInput: nobody proved that the node is off: its pods may be running.
    """
    if power_off_proved is not True:
        raise BadInput(
            "node %s: no taint %s without proof that its power is off" % (node.name, OUT_OF_SERVICE),
            "its pods may still write to their volumes; prove the power off first",
        )
    lost = not_held(node, incident) if incident is not None else ""
    if lost:
        return Plan(REFUSED, lost)
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


def read_node(client: KubernetesClient, name: str) -> NodeView:
    """One node.

    Raises:
        Absent: there is no such node.
    """
    return node_view(client.get(path_of("v1", "nodes", name=name)))


def lease_renewed(client: KubernetesClient, name: str) -> str:
    """When the node's kubelet renewed its Lease last, as that says by its own clock; empty: it has none.

    Only whether it changes is to be trusted: the clocks of a node and of a controller may differ.
    """
    lease = client.find(path_of("coordination.k8s.io/v1", "leases", _NODE_LEASES, name))
    return text(part(lease or {}, "spec"), "renewTime")


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
    client: KubernetesClient,
    name: str,
    power_off_proved: bool,
    guard: Optional[Guard] = None,
    dry: bool = False,
    incident: Optional[str] = None,
) -> Result:
    """Put the out-of-service taint on one node, see `plan_fence`."""
    return _change(client, name, lambda node: plan_fence(node, power_off_proved, incident), guard, dry)


def unfence(client: KubernetesClient, name: str, guard: Optional[Guard] = None, dry: bool = False) -> Result:
    """Take our out-of-service taint from one node."""
    return _change(client, name, plan_unfence, guard, dry)


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


def safely(name: str, act: Callable[[], Result]) -> Result:
    """One target's trouble is its result; only wrong use stops all."""
    try:
        return act()
    except BadInput:
        raise
    except RecoveryError as exc:
        return Result(name, FAILED, str(exc))
