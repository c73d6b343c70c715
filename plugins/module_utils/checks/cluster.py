# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the judgement of a cluster is made from: reads each kind of object once, when it is first asked for.

What may not be read raises `Forbidden` wherever it is asked for, so a check that does without it is not hindered.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)

Thing = Mapping[str, Any]

KINDS: dict[str, tuple[str, str]] = {
    "deployments": ("apps/v1", "deployments"),
    "daemonsets": ("apps/v1", "daemonsets"),
    "statefulsets": ("apps/v1", "statefulsets"),
    "services": ("v1", "services"),
    "ingresses": ("networking.k8s.io/v1", "ingresses"),
    "ingressclasses": ("networking.k8s.io/v1", "ingressclasses"),
    "storageclasses": ("storage.k8s.io/v1", "storageclasses"),
    "apiservices": ("apiregistration.k8s.io/v1", "apiservices"),
    "validatingwebhooks": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    "mutatingwebhooks": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    "prometheuses": ("monitoring.coreos.com/v1", "prometheuses"),
}
CRDS = "customresourcedefinitions"


class Cluster:
    """The objects of one cluster as they were when first asked for."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._read: dict[Any, Any] = {}

    def all(self, kind: str) -> list[Thing]:
        """All objects of a kind of `KINDS`; none where the cluster does not know the kind.

        Raises:
            Forbidden, Unreachable ...: nobody knows.
        """
        return self._at(path_of(*KINDS[kind]))

    def things(self, resource: str) -> list[Thing]:
        """All objects of a `GROUP/VERSION/PLURAL` (`VERSION/PLURAL` of the core); none where it is not known."""
        version, _slash, plural = resource.rpartition("/")
        return self._at(path_of(version, plural))

    def answer(self, path: str) -> Optional[Thing]:
        """What the server answers for a path; None where it says that there is nothing."""
        return self._once(("GET", path), lambda: self._client.find(path))

    def crd_names(self) -> list[str]:
        """The names of the CustomResourceDefinitions, without their schemas, which weigh megabytes."""
        return self._once(CRDS, self._crds)

    def labelled(self, kind: str, selector: str, namespace: str = "") -> list[Thing]:
        """ConfigMaps or Secrets (`configmaps`, `secrets`) by label, of one namespace or of all."""
        return self._once(
            (kind, selector, namespace),
            lambda: self._list(path_of("v1", kind, namespace), {"labelSelector": selector}),
        )

    def one(self, kind: str, namespace: str, name: str) -> Optional[Thing]:
        """One ConfigMap or Secret (`configmaps`, `secrets`), None where there is none."""
        return self._once((kind, namespace, "/", name), lambda: self._client.find(path_of("v1", kind, namespace, name)))

    def _at(self, path: str) -> list[Thing]:
        return self._once(path, lambda: self._list(path))

    def _list(self, path: str, params: Optional[Mapping[str, str]] = None) -> list[Thing]:
        try:
            return list(self._client.list(path, params).items)
        except Absent:
            return []

    def _crds(self) -> list[str]:
        things = self._client.list(path_of("apiextensions.k8s.io/v1", CRDS), metadata_only=True).items
        return [str(thing.get("metadata", {}).get("name", "")) for thing in things]

    def _once(self, key: Any, read: Any) -> Any:
        if key not in self._read:
            try:
                self._read[key] = read()
            except RecoveryError as exc:
                self._read[key] = exc
        if isinstance(self._read[key], RecoveryError):
            raise self._read[key]
        return self._read[key]
