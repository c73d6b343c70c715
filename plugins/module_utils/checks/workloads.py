# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployments, StatefulSets and DaemonSets: which software they run, and whether they run it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Optional, Pattern, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

KINDS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
_NAME_LABELS = ("app.kubernetes.io/name", "app", "k8s-app")
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


@dataclass(frozen=True)
class Software:
    """How to recognise a program in a workload, whatever it is called there.

    Attributes:
        images: matches the repository of one of its images, without tag and digest, mirrored or not.
        names: values of its name labels in its upstream charts and manifests.
        arguments: the beginning of an argument that only it is given.
        labels: labels that count beside a name, where others bear the same name.
    """

    images: Pattern[str]
    names: frozenset[str] = frozenset()
    arguments: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """One workload.

    Attributes:
        kind: Deployment, StatefulSet or DaemonSet.
        wanted: pods that should run; of a DaemonSet those of the nodes that it matches.
        ready: pods that are ready.
        labels: of the workload and, where they differ, of its pods.
        pod_labels: of its pods alone.
        pod: the pods' spec.
    """

    kind: str
    namespace: str
    name: str
    wanted: int
    ready: int
    labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "%s %s/%s %d/%d" % (self.kind, self.namespace, self.name, self.ready, self.wanted)

    @property
    def works(self) -> bool:
        """Whether any of its pods is ready: 0 of 0 is not working."""
        return self.ready > 0

    @property
    def complete(self) -> bool:
        """Whether all of its pods are ready."""
        return 0 < self.wanted <= self.ready

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Its pods' containers."""
        return reading.items(self.pod, "containers")

    @property
    def arguments(self) -> list[str]:
        """All words of all its containers' command lines."""
        return [
            str(word)
            for container in self.containers
            for key in ("command", "args")
            for word in container.get(key) or []
        ]

    @property
    def control_plane_only(self) -> bool:
        """Whether its pods are bound to control-plane nodes, so that no worker runs one."""
        return any(label in reading.part(self.pod, "nodeSelector") for label in _CONTROL_PLANE)

    def runs(self, software: Software) -> bool:
        """Whether it runs this program."""
        if any(software.images.search(repository(reading.text(one, "image"))) for one in self.containers):
            return True
        if software.arguments and any(word.startswith(software.arguments) for word in self.arguments):
            return True
        if any(self.labels.get(label) != value for label, value in software.labels.items()):
            return False
        return any(self.labels.get(label) in software.names for label in _NAME_LABELS)


def workloads(cluster: Cluster) -> list[Workload]:
    """All workloads of the cluster. Raises what reading them raises."""
    return [_workload(kind, thing) for kind, key in KINDS.items() for thing in cluster.all(key)]


def running(cluster: Cluster, software: Software, kinds: Sequence[str] = ()) -> list[Workload]:
    """The workloads that run a program, of these kinds only where named."""
    return [one for one in workloads(cluster) if one.runs(software) and (not kinds or one.kind in kinds)]


def services_of(cluster: Cluster, chosen: Sequence[Workload]) -> list[tuple[str, str]]:
    """(namespace, name) of the Services that lead to the pods of these workloads."""
    return [
        (reading.text(metadata, "namespace"), reading.text(metadata, "name"))
        for metadata, selector in _selectors(cluster)
        if any(_leads_to(reading.text(metadata, "namespace"), selector, one) for one in chosen)
    ]


def repository(image: str) -> str:
    """An image's name without digest and tag (a port of the registry is no tag)."""
    bare = image.split("@", 1)[0]
    head, slash, tail = bare.rpartition("/")
    return head + slash + tail.split(":", 1)[0]


def named(chosen: Sequence[Workload]) -> str:
    """Workloads in words."""
    return ", ".join(str(one) for one in chosen)


def image_pattern(*names: str) -> Pattern[str]:
    """Matches repositories that end with one of these names."""
    return re.compile("(?:^|/)(?:%s)$" % "|".join(names))


def _workload(kind: str, thing: Mapping[str, Any]) -> Workload:
    metadata, spec, status = reading.part(thing, "metadata"), reading.part(thing, "spec"), reading.part(thing, "status")
    template = reading.part(spec, "template")
    pod_labels = _labels(reading.part(template, "metadata"))
    if kind == "DaemonSet":
        wanted, ready = _number(status, "desiredNumberScheduled", 0), _number(status, "numberReady", 0)
    else:
        wanted, ready = _number(spec, "replicas", 1), _number(status, "readyReplicas", 0)
    return Workload(
        kind=kind,
        namespace=reading.text(metadata, "namespace"),
        name=reading.text(metadata, "name"),
        wanted=wanted or 0,
        ready=ready or 0,
        labels={**pod_labels, **_labels(metadata)},
        pod_labels=pod_labels,
        pod=reading.part(template, "spec"),
    )


def _selectors(cluster: Cluster) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for service in cluster.all("services"):
        selector = reading.part(service, "spec", "selector")
        if selector:
            yield reading.part(service, "metadata"), selector


def _leads_to(namespace: str, selector: Mapping[str, Any], one: Workload) -> bool:
    return namespace == one.namespace and all(one.pod_labels.get(key) == value for key, value in selector.items())


def _labels(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in reading.part(metadata, "labels").items()}


def _number(thing: Mapping[str, Any], key: str, otherwise: int) -> Optional[int]:
    value = thing.get(key, otherwise)
    return value if isinstance(value, int) else otherwise
