# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that stay ContainerCreating because their node makes no sandbox for them.

The kubelet mounts volumes, then has the sandbox made, and pulls images only after that. So a pod that waits for an
image has its sandbox, one that waits for a volume or for a missing Secret has no failed sandbox, and one that no quota
allows is never made. What is left is the node's container runtime or network; but a pod can also ask for a sandbox that
cannot be had (its runtime class, its network annotation), so pods of one owner alone prove nothing.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import PodView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import pods_on

ENOUGH = 2  # owners whose pods get no sandbox on a node
_ASKED = 4  # pods of one node whose events are read at most


def stuck(pods: Iterable[PodView], now: float, grace: float) -> list[PodView]:
    """Pods that were bound to their node at least `grace` seconds ago and have no sandbox yet. Pure."""
    return [pod for pod in pods if pod.creating_since is not None and now - pod.creating_since >= grace]


def candidates(pods: Iterable[PodView], now: float, grace: float) -> dict[str, list[PodView]]:
    """By node one stuck pod of each owner, where there are enough of them. Pure."""
    by_node: dict[str, dict[str, PodView]] = {}
    for pod in stuck(pods, now, grace):
        by_node.setdefault(pod.node, {}).setdefault(pod.owner_uid or pod.uid, pod)
    return {node: list(found.values())[:_ASKED] for node, found in by_node.items() if len(found) >= ENOUGH}


def no_sandbox(client: KubernetesClient, pods: Sequence[PodView]) -> int:
    """Of how many of these pods the kubelet says that their sandbox cannot be made.

    Raises:
        RecoveryError: events cannot be read.
    """
    return sum(_failed(client, pod) for pod in pods)


def on_node(client: KubernetesClient, name: str, now: float, grace: float) -> int:
    """Of how many owners a node makes no sandboxes for their pods; 0 where they are not enough to prove anything."""
    pods = candidates(pods_on(client, name), now, grace).get(name, [])
    found = no_sandbox(client, pods)
    return found if found >= ENOUGH else 0


def _failed(client: KubernetesClient, pod: PodView) -> bool:
    selector = "involvedObject.uid=%s,reason=FailedCreatePodSandBox" % pod.uid
    listing = client.list(path_of("v1", "events", pod.namespace), {"fieldSelector": selector})
    return any(_of_the_node(event) for event in listing.items)


def _of_the_node(event: Mapping[str, object]) -> bool:
    """Said by a kubelet, and not for an image: the sandbox's own image comes from a registry, too."""
    return reading.reporter(event) == "kubelet" and "image" not in reading.text(event, "message").lower()
