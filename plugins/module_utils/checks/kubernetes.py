# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `kubernetes_check`: what the system wants of a Kubernetes cluster, as one table, and its judgement."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import components, logs, storage
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.components import (
    ABSENT,
    PRESENT,
    Verdict,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient

Judge = Callable[[Cluster], Verdict]


@dataclass(frozen=True)
class Requirement:
    """One row: what is required, who judges it, what helps. `wish` is the verdict that passes."""

    id: str
    title: str
    required: str
    judge: Judge
    hint: str
    wish: str = PRESENT


REQUIREMENTS: tuple[Requirement, ...] = (
    Requirement(
        "prometheus_operator",
        "Prometheus Operator stack",
        "Prometheus Operator runs and keeps a Prometheus",
        components.prometheus_operator,
        "install the chart kube-prometheus-stack (in Base Command Manager: cm-kubernetes-setup)",
    ),
    Requirement(
        "prometheus_adapter",
        "Prometheus Adapter",
        "Prometheus Adapter serves custom or external metrics",
        components.prometheus_adapter,
        "install the chart prometheus-adapter; kubectl describe apiservice tells why one does not answer",
    ),
    Requirement(
        "promtail",
        "Grafana Promtail",
        "Promtail runs on the worker nodes",
        components.promtail,
        "install the chart promtail",
    ),
    Requirement(
        "metrics_server",
        "Metrics Server",
        "Metrics Server answers for metrics.k8s.io",
        components.metrics_server,
        "install the chart metrics-server; kubectl describe apiservice v1beta1.metrics.k8s.io tells why it is silent",
    ),
    Requirement(
        "kube_state_metrics",
        "kube-state-metrics",
        "kube-state-metrics runs",
        components.kube_state_metrics,
        "install the chart kube-state-metrics",
    ),
    Requirement(
        "ingress_nginx",
        "ingress-nginx",
        "an ingress-nginx controller runs and serves an IngressClass",
        components.ingress_nginx,
        "install the chart ingress-nginx",
    ),
    Requirement(
        "kyverno",
        "Kyverno",
        "Kyverno is absent until recovery is installed",
        components.kyverno,
        "uninstall Kyverno with its webhooks and resource types; install it again after recovery",
        wish=ABSENT,
    ),
    Requirement(
        "storage_local_path",
        "Local path storage",
        "a StorageClass of local-path-provisioner is served",
        storage.storage_local_path,
        "install local-path-provisioner with its StorageClass",
    ),
    Requirement(
        "storage_nfs_default",
        "Default storage on NFS",
        "the default StorageClass is on NFS",
        storage.storage_nfs_default,
        "make exactly one StorageClass the default, and let it be served over NFS",
    ),
    Requirement(
        "loki_datasource",
        "Loki in Grafana",
        "Grafana has Loki as a data source",
        logs.loki_datasource,
        "add a data source of type loki to the values of Grafana's chart (one made in Grafana's own pages is not seen)",
    ),
    Requirement(
        "loki_ingress_auth",
        "Loki's Ingress",
        "an Ingress leads to Loki's API and wants credentials",
        logs.loki_ingress_auth,
        "make an Ingress to Loki with auth-type basic, an auth-secret and TLS",
    ),
    Requirement(
        "promtail_no_var_log",
        "Promtail's sources",
        "Promtail does not collect /var/log of the workers",
        logs.promtail_no_var_log,
        "take /var/log out of Promtail's scrape configuration; the recovery reads what it needs by itself",
    ),
)
IDS = tuple(one.id for one in REQUIREMENTS)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "only": {"type": "list", "elements": "str", "default": []},
        "recommended": {"type": "list", "elements": "str", "default": []},
        "nfs_provisioners": {"type": "list", "elements": "str", "default": []},
        "hardened": {"type": "bool", "default": False},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}


def judge(requirement: Requirement, cluster: Cluster, recommended: bool = False) -> Check:
    """Judge one requirement. What cannot be read is unknown, never passed.

    Args:
        recommended: unmet it is a warning, not a failure.
    """
    try:
        verdict = requirement.judge(cluster)
    except RecoveryError as exc:
        found, status = "unknown: %s" % exc, UNKNOWN
    else:
        found, status = str(verdict), _status(verdict, requirement.wish)
        if recommended and status == FAILED:
            status = WARNING
    hint = "" if status == PASSED else requirement.hint
    return Check(requirement.id, requirement.title, requirement.required, found, status, hint)


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module `kubernetes_check`: `{changed: false, checks: [...]}`. Reads only.

    Raises:
        BadInput: an unknown id.
    """
    strange = sorted(set(params["only"] + params["recommended"]) - set(IDS))
    if strange:
        raise BadInput("kubernetes_check: unknown id %s" % ", ".join(strange), "known are %s" % ", ".join(IDS))
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        cluster = Cluster(client)
        checks = [
            judge(_with(requirement, params), cluster, requirement.id in params["recommended"])
            for requirement in REQUIREMENTS
            if not params["only"] or requirement.id in params["only"]
        ]
    finally:
        client.close()
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def _with(requirement: Requirement, params: dict[str, Any]) -> Requirement:
    """A requirement with what the site says of it."""
    if requirement.id == "kyverno" and params.get("hardened"):
        return Requirement(
            requirement.id,
            requirement.title,
            "Kyverno, installed after recovery, works or is absent",
            _kyverno_afterwards,
            "look at its pods and webhooks, or uninstall it with both; then run harden.yml again",
        )
    if requirement.id != "storage_nfs_default":
        return requirement
    judged = functools.partial(storage.storage_nfs_default, nfs_provisioners=params["nfs_provisioners"])
    return Requirement(
        requirement.id, requirement.title, requirement.required, judged, requirement.hint, requirement.wish
    )


def _kyverno_afterwards(cluster: Cluster) -> Verdict:
    """Recovery is installed and proved, so Kyverno may be there; what is left of it may still be in the way."""
    verdict = components.kyverno(cluster)
    return Verdict(PRESENT, "nothing of it") if verdict.word == ABSENT else verdict


def _status(verdict: Verdict, wish: str) -> str:
    if verdict.word == wish:
        return PASSED
    return WARNING if verdict.word == components.WARNING else FAILED
