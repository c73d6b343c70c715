# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that make the service's account in Kubernetes: who it is, what it may do and where. Pure.

Looking, and all that concerns nodes and their pods, is allowed everywhere: a node's pods belong to any namespace. Jobs
are made again, and logs of pods read, only in the namespaces that recovery may act on.
"""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner

_RBAC = "rbac.authorization.k8s.io"


def objects(
    namespace: str, account: str, scope: Sequence[str], own: Sequence[JobOwner] = ()
) -> list[dict[str, Any]]:
    """All objects, in the order in which they can be made.

    Args:
        namespace: the account's own namespace.
        account: its name.
        scope: the namespaces that recovery may act on.
        own: the site's rows of owners.
    """
    observe = [*rbac.OBSERVE, *(grant for grant in rbac.of_owners(own) if grant not in rbac.OBSERVE)]
    everywhere = [*observe, *(grant for grant in rbac.ACT if grant not in rbac.IN_SCOPE)]
    jobs = rbac.NAME + "-jobs"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace},
            "automountServiceAccountToken": False,
        },
        _token(namespace, account),
        rbac.cluster_role(everywhere),
        rbac.cluster_role_binding(namespace, account),
        rbac.cluster_role(rbac.IN_SCOPE, jobs),
        *(_role_binding(jobs, where, namespace, account) for where in scope),
    ]


def _token(namespace: str, account: str) -> dict[str, Any]:
    """A token that lasts, so that recovery does not depend on its own renewal; deleting the Secret revokes it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": account + "-token",
            "namespace": namespace,
            "annotations": {"kubernetes.io/service-account.name": account},
        },
    }


def _role_binding(role: str, where: str, namespace: str, account: str) -> dict[str, Any]:
    return {
        "apiVersion": _RBAC + "/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": where},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
