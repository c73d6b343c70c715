# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recovery may do in a Kubernetes cluster: exactly the verbs that it uses, as data. Pure.

The installer makes the ClusterRole from it, a check asks the server for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner

NAME = "mission-control-job-recovery"


@dataclass(frozen=True)
class Grant:
    """One resource (with its sub-resource after a slash) of one API group, its verbs, and what they are for."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str


def of_owners(own: Sequence[JobOwner] = ()) -> tuple[Grant, ...]:
    """What it takes to see the work of owners whose objects are read, those of the site's rows included."""
    places = dict.fromkeys((row.group, row.resource) for row in owners.watched(own))
    return tuple(Grant(*place, ("list", "watch"), "see work that lost pods and is not made whole") for place in places)


# Detection only looks; a site that only observes needs no more.
OBSERVE: tuple[Grant, ...] = (
    Grant("", "nodes", ("get", "list", "watch"), "see nodes that are not ready"),
    Grant("", "pods", ("list", "watch"), "see what ended the pods of a Job, and pods that never end"),
    Grant("batch", "jobs", ("get", "list", "watch"), "see Jobs that failed"),
    Grant("", "events", ("list",), "see what became of a Job's pods that are gone"),
    *of_owners(),
)

# Only in the namespaces that recovery may act on.
IN_SCOPE: tuple[Grant, ...] = (
    Grant("batch", "jobs", ("create", "patch"), "run a failed Job again, mark the old one"),
    Grant("", "pods/log", ("get",), "say why a Job failed before it runs again"),
)

ACT: tuple[Grant, ...] = (
    Grant("", "nodes", ("patch",), "cordon, taint, uncordon"),
    Grant("coordination.k8s.io", "leases", ("get",), "see that a node's kubelet lives after its boot"),
    Grant("", "pods/eviction", ("create",), "drain within the disruption budgets"),
    Grant("", "pods", ("get",), "see whether a pod that was evicted is gone"),
    Grant("", "pods", ("delete",), "let go of pods on a node whose power is proved off"),
    *IN_SCOPE,
)

# What kubernetes_check reads beyond OBSERVE.
CHECK: tuple[Grant, ...] = (
    Grant("apps", "deployments", ("list",), "components"),
    Grant("apps", "daemonsets", ("list",), "components"),
    Grant("apps", "statefulsets", ("list",), "components"),
    Grant("", "configmaps", ("get", "list"), "Grafana's data sources, Promtail's and the provisioner's configuration"),
    Grant(
        "", "secrets", ("get", "list"), "Grafana's data sources, Promtail's configuration, an Ingress' password file"
    ),
    Grant("", "services", ("list",), "what an Ingress leads to"),
    Grant("networking.k8s.io", "ingresses", ("list",), "Loki's Ingress"),
    Grant("networking.k8s.io", "ingressclasses", ("list",), "which controller serves an Ingress"),
    Grant("storage.k8s.io", "storageclasses", ("list",), "storage"),
    Grant("apiregistration.k8s.io", "apiservices", ("list",), "the metrics APIs"),
    Grant("apiextensions.k8s.io", "customresourcedefinitions", ("get", "list"), "Prometheus Operator, Kyverno"),
    Grant("metrics.k8s.io", "nodes", ("list",), "whether Metrics Server really answers"),
    Grant("admissionregistration.k8s.io", "validatingwebhookconfigurations", ("list",), "Kyverno"),
    Grant("admissionregistration.k8s.io", "mutatingwebhookconfigurations", ("list",), "Kyverno"),
    Grant("monitoring.coreos.com", "prometheuses", ("list",), "Prometheus Operator"),
)

# What the installer makes for the service, and reads and changes when it runs again.
INSTALL: tuple[Grant, ...] = (
    Grant("", "namespaces", ("get", "create", "patch"), "the account's namespace"),
    Grant("", "serviceaccounts", ("get", "create", "patch"), "the account"),
    Grant("", "secrets", ("get", "create", "patch"), "its token"),
    Grant("rbac.authorization.k8s.io", "clusterroles", ("get", "create", "patch"), "its rights"),
    Grant("rbac.authorization.k8s.io", "clusterrolebindings", ("get", "create", "patch"), "its rights"),
    Grant("rbac.authorization.k8s.io", "rolebindings", ("get", "create", "patch"), "its rights in the scope"),
)


def cluster_role(grants: Iterable[Grant], name: str = NAME) -> dict[str, Any]:
    """The ClusterRole of these grants, one rule for each resource."""
    merged: dict[tuple[str, str], list[str]] = {}
    for grant in grants:
        verbs = merged.setdefault((grant.group, grant.resource), [])
        verbs.extend(verb for verb in grant.verbs if verb not in verbs)
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs} for (group, resource), verbs in merged.items()
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def cluster_role_binding(namespace: str, account: str = NAME, name: str = NAME) -> dict[str, Any]:
    """The ClusterRoleBinding that gives the ClusterRole `name` to a ServiceAccount."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def questions(grants: Iterable[Grant]) -> list[dict[str, str]]:
    """The resource attributes to ask the server for (`client.allowed`), one for each verb."""
    return [
        {"group": grant.group, "resource": resource, "subresource": sub, "verb": verb}
        for grant in grants
        for resource, _slash, sub in [grant.resource.partition("/")]
        for verb in grant.verbs
    ]
