# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May an account of Kubernetes do what recovery does: the server is asked for every verb (SelfSubjectAccessReview)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Iterable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    allowed,
)

_WORKERS = 8
_GRANTED = (*rbac.OBSERVE, *rbac.ACT)
# Who holds these may give away what it has not itself; else a ClusterRole can only be made of what one holds.
_ESCALATION = (rbac.Grant("rbac.authorization.k8s.io", "clusterroles", ("escalate", "bind"), "give away rights"),)
PURPOSES: Mapping[str, tuple[str, Sequence[rbac.Grant], str]] = {
    "observe": (
        "see nodes, pods and Jobs",
        rbac.OBSERVE,
        "bind the ClusterRole that the lookup mission_control.job_recovery.kubernetes_account prints",
    ),
    "act": (
        "cordon, drain and run Jobs again",
        rbac.ACT,
        "bind the roles that the lookup mission_control.job_recovery.kubernetes_account prints",
    ),
    "check": (
        "read what the checks judge",
        rbac.CHECK,
        "use an administrator's kubeconfig for pre-flight (job_recovery_kubernetes_admin_kubeconfig)",
    ),
    "install": (
        "make the service's account and give it its rights",
        rbac.INSTALL,
        "use an administrator's kubeconfig, or let an administrator make the account and set controller_kubeconfig",
    ),
}

Question = Mapping[str, str]


def judge(client: KubernetesClient, purpose: str, namespaces: Sequence[str]) -> Check:
    """Ask for every verb of a purpose. What cannot be asked is unknown.

    Args:
        purpose: of `PURPOSES`.
        namespaces: those that Jobs are made again in; empty: everywhere.
    """
    what, grants, hint = PURPOSES[purpose]
    check_id, title = "kubernetes_rights_%s" % purpose, "Rights in Kubernetes: %s" % what
    asked = questions(grants, namespaces)
    required = "all of %d rights" % len(asked)
    try:
        lacking = missing(client, asked)
        if purpose == "install" and missing(client, rbac.questions(_ESCALATION)):
            lacking += [one for one in missing(client, questions(_GRANTED, namespaces)) if one not in lacking]
    except RecoveryError as exc:
        return Check(check_id, title, required, "unknown: %s" % exc, UNKNOWN, "check the kubeconfig and the API server")
    if lacking:
        found = "may not %s" % "; ".join(described(lacking))
        return Check(check_id, title, required, found, FAILED, hint)
    return Check(check_id, title, required, "may do all", PASSED)


def questions(grants: Iterable[rbac.Grant], namespaces: Sequence[str]) -> list[Question]:
    """What to ask the server; for what is only granted in the scope's namespaces, in each of them."""
    asked: list[Question] = []
    for grant in grants:
        for question in rbac.questions([grant]):
            in_scope = grant in rbac.IN_SCOPE and namespaces
            asked += [{**question, "namespace": name} for name in namespaces] if in_scope else [question]
    return asked


def described(lacking: Sequence[Question]) -> list[str]:
    """`create, patch jobs.batch in training`, one for each resource and namespace."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for one in lacking:
        resource = one["resource"] + ("/" + one["subresource"] if one.get("subresource") else "")
        if one["group"]:
            resource += "." + one["group"]
        verbs.setdefault((resource, one.get("namespace", "")), []).append(one["verb"])
    return [
        "%s %s%s" % (", ".join(dict.fromkeys(names)), resource, " in %s" % namespace if namespace else "")
        for (resource, namespace), names in verbs.items()
    ]


def missing(client: KubernetesClient, asked: Sequence[Question]) -> list[Question]:
    """Those of the questions that the server answers with no.

    Raises:
        RecoveryError: it cannot be asked.
    """
    with ThreadPoolExecutor(_WORKERS) as pool:
        answers = list(pool.map(lambda question: allowed(client, [question])[0], asked))
    return [question for question, answer in zip(asked, answers) if not answer]
