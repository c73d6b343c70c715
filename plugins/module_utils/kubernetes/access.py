# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do a thing in Kubernetes, by RBAC's roles and bindings. Pure, but for one function that reads them.

The API server answers "may I" (SelfSubjectAccessReview), never "who may"; so its rules are applied here: a rule matches
by verb, API group, resource and name, each with `*` for all; a ClusterRoleBinding counts everywhere, a RoleBinding in
its namespace only. Other authorizers (Node, webhooks) are not seen.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)

Thing = Mapping[str, Any]

_GROUP = "rbac.authorization.k8s.io/v1"
_EVERYBODY = frozenset(("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:anonymous"))
_CONTROL_PLANE_NAMESPACE = "kube-system"


@dataclass(frozen=True)
class Wish:
    """One thing that somebody may want to do: any of these verbs on a resource of an API group, maybe of one name."""

    verbs: frozenset[str]
    resource: str
    group: str = ""
    name: str = ""


@dataclass(frozen=True)
class Subject:
    """A User, a Group or a ServiceAccount (which alone has a namespace)."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return "%s %s" % (self.kind, "%s/%s" % (self.namespace, self.name) if self.namespace else self.name)

    @property
    def everybody(self) -> bool:
        """Whether that is every account, every pod of the cluster or of a namespace, or even nobody in particular."""
        return self.name in _EVERYBODY or self.name.startswith("system:serviceaccounts:")

    @property
    def built_in(self) -> bool:
        """Whether it is the control plane, or its all-powerful group, which may do everything whatever RBAC says."""
        if self.kind == "ServiceAccount":
            return self.namespace == _CONTROL_PLANE_NAMESPACE
        return self.name == "system:masters" or self.name.startswith("system:kube-")


@dataclass(frozen=True)
class Rights:
    """The roles and bindings of a cluster, and of one namespace of it."""

    namespace: str
    cluster_roles: Sequence[Thing] = ()
    cluster_bindings: Sequence[Thing] = ()
    roles: Sequence[Thing] = ()
    bindings: Sequence[Thing] = ()


def read_rights(client: KubernetesClient, namespace: str) -> Rights:
    """Read the roles and bindings that count in a namespace. Raises `Forbidden` and kin: then nobody knows."""
    return Rights(
        namespace,
        client.list(path_of(_GROUP, "clusterroles")).items,
        client.list(path_of(_GROUP, "clusterrolebindings")).items,
        client.list(path_of(_GROUP, "roles", namespace)).items,
        client.list(path_of(_GROUP, "rolebindings", namespace)).items,
    )


def who_can(rights: Rights, wish: Wish) -> dict[Subject, list[str]]:
    """Everybody who may do it in the namespace, each with the bindings that say so, in the order of their names."""
    allowing = {("ClusterRole", _name(role)) for role in rights.cluster_roles if _allows(role, wish)}
    allowing |= {("Role", _name(role)) for role in rights.roles if _allows(role, wish)}
    found: dict[Subject, list[str]] = {}
    for kind, bindings in (("ClusterRoleBinding", rights.cluster_bindings), ("RoleBinding", rights.bindings)):
        for binding in bindings:
            reference = reading.part(binding, "roleRef")
            if (reading.text(reference, "kind"), reading.text(reference, "name")) in allowing:
                for subject in _subjects(binding, rights.namespace):
                    found.setdefault(subject, []).append("%s %s" % (kind, _name(binding)))
    return dict(sorted(found.items(), key=lambda pair: str(pair[0])))


def _allows(role: Thing, wish: Wish) -> bool:
    return any(_matches(rule, wish) for rule in reading.items(role, "rules"))


def _matches(rule: Thing, wish: Wish) -> bool:
    verbs, groups, resources = (_words(rule, key) for key in ("verbs", "apiGroups", "resources"))
    names = _words(rule, "resourceNames")
    return (
        bool(verbs & (wish.verbs | {"*"}))
        and bool(groups & {wish.group, "*"})
        and bool(resources & {wish.resource, "*"})
        and (not names or (bool(wish.name) and wish.name in names))
    )


def _subjects(binding: Thing, namespace: str) -> Iterator[Subject]:
    for entry in reading.items(binding, "subjects"):
        kind, name = reading.text(entry, "kind"), reading.printable(reading.text(entry, "name"))
        account = kind == "ServiceAccount"
        yield Subject(kind, name, (reading.text(entry, "namespace") or namespace) if account else "")


def _name(thing: Thing) -> str:
    return reading.text(reading.part(thing, "metadata"), "name")


def _words(rule: Thing, key: str) -> set[str]:
    value = rule.get(key)
    return {word for word in value if isinstance(word, str)} if isinstance(value, list) else set()
