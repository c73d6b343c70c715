# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose fault it was: the infrastructure's or the application's. Pure.

Infrastructure: eviction by the node's pressure, the API or a taint, preemption, a node that was deleted or lost, a
graceful node shutdown, containers whose end nobody saw because the node went down under them. Application: its own exit
code, its own memory limit, images that cannot be pulled, its own limits and deadlines. Unknown is neither.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Iterator, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading


class Cause(Enum):
    """Whose fault a failure was."""

    INFRASTRUCTURE = "infrastructure"
    APPLICATION = "application"
    UNKNOWN = "unknown"


# A lost node is seen late: node-monitor-grace-period (50 s) and tolerationSeconds (300 s) by default, and the peers of
# a lost pod fail from the first moment on until their own time-outs are over (30 minutes for collectives). Failures of
# the application so long before and after a disruption was noticed may be its consequence.
BEFORE_DISRUPTION = 600.0
AFTER_DISRUPTION = 1800.0

# Words of kubelets and controllers in status.reason of a pod.
_LOST_PODS = frozenset(
    (
        "NodeLost",  # node controller, before taint-based eviction
        "NodeShutdown",  # graceful node shutdown, before 1.22
        "Shutdown",  # 1.20
        "Terminated",  # since 1.22: "Pod was terminated in response to imminent node shutdown."
        "Preempting",  # the kubelet made room for a critical pod
        "UnexpectedAdmissionError",  # devices gone after the kubelet's restart
        "NodeAffinity",  # labels not there yet after the node's restart
    )
)
# An evicted pod is the node's fault only where the node was in need; the rest broke limits of its own.
_NODE_IN_NEED = ("The node was low on resource", "The node had condition")
_LOST_CONTAINERS = frozenset(("ContainerStatusUnknown", "Unknown"))
_WAITING_FOR_EVER = frozenset(
    (
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    )
)
# The Job's own terms, whatever became of its pods: its deadline, and its policy that says which failures are final.
_OWN_TERMS = frozenset(("DeadlineExceeded", "PodFailurePolicy"))
_BY_INDEX = frozenset(("FailedIndexes", "MaxFailedIndexesExceeded"))


def pod_cause(status: Mapping[str, Any]) -> Optional[Cause]:
    """What ended (or hinders) a pod, by its status; None where nothing went wrong."""
    if reading.condition(status, "DisruptionTarget").get("status") == "True":
        return Cause.INFRASTRUCTURE
    reason = reading.text(status, "reason")
    if reason in _LOST_PODS:
        return Cause.INFRASTRUCTURE
    if reason == "Evicted":
        in_need = reading.text(status, "message").startswith(_NODE_IN_NEED)
        return Cause.INFRASTRUCTURE if in_need else Cause.APPLICATION
    causes = [_container_cause(state) for state in _states(status)]
    for cause in (Cause.INFRASTRUCTURE, Cause.APPLICATION):
        if cause in causes:
            return cause
    return Cause.UNKNOWN if reading.text(status, "phase") == "Failed" else None


def ended_at(status: Mapping[str, Any]) -> Optional[float]:
    """When the last of a pod's containers ended, as far as the kubelet knows."""
    times = [reading.epoch(reading.part(state, "terminated").get("finishedAt")) for state in _states(status)]
    return max((moment for moment in times if moment), default=None)  # a lost container's is 1970 or null


def job_cause(reason: str, backoff_limit: int, pods: Sequence[Any]) -> Cause:
    """Whose fault the failure of a Job was.

    A Job that would have failed by its application alone is the application's: it had more failures of its own than
    it bears, none of them near a disruption.

    Args:
        reason: of its Failed or FailureTarget condition.
        backoff_limit: the failures that it bears.
        pods: `models.PodView` of all its pods that are still there.
    """
    if reason in _OWN_TERMS:
        return Cause.APPLICATION
    disrupted = [pod for pod in pods if pod.cause is Cause.INFRASTRUCTURE]
    own = [pod for pod in pods if pod.cause is Cause.APPLICATION]
    if not disrupted:
        return Cause.APPLICATION if own else Cause.UNKNOWN
    moments = [moment for moment in (pod.disrupted_at or pod.ended_at or pod.deleted_at for pod in disrupted) if moment]
    independent = [pod for pod in own if not _near(pod.ended_at, moments)]
    bearable = 0 if reason in _BY_INDEX else backoff_limit
    return Cause.APPLICATION if len(independent) > bearable else Cause.INFRASTRUCTURE


def _near(ended: Optional[float], disruptions: Sequence[float]) -> bool:
    return ended is not None and any(
        moment - BEFORE_DISRUPTION <= ended <= moment + AFTER_DISRUPTION for moment in disruptions
    )


def _states(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in reading.items(status, kind):
            yield reading.part(container, "state")


def _container_cause(state: Mapping[str, Any]) -> Optional[Cause]:
    terminated, waiting = reading.part(state, "terminated"), reading.part(state, "waiting")
    if terminated:
        if reading.text(terminated, "reason") in _LOST_CONTAINERS:
            return Cause.INFRASTRUCTURE
        return Cause.APPLICATION if terminated.get("exitCode") != 0 else None
    if reading.text(waiting, "reason") in _WAITING_FOR_EVER:
        return Cause.APPLICATION
    return None
