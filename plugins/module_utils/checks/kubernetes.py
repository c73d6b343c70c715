# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `kubernetes_check`: what the system wants of a Kubernetes cluster, as one table, and its judgement."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import (
    catalogue,
    components,
    evidence,
    facts,
    logs,
    rights,
    storage,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import verdict as verdicts
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient

Judge = Callable[[Cluster], verdicts.Verdict]


@dataclass(frozen=True)
class Requirement:
    """One row: what is required, who judges it, what helps. `wish` is the verdict that passes."""

    id: str
    title: str
    required: str
    judge: Judge
    hint: str
    wish: str = verdicts.PRESENT


SETTINGS: tuple[Requirement, ...] = (
    Requirement(
        "kyverno",
        "Kyverno",
        "Kyverno is absent until recovery is installed",
        components.kyverno,
        "uninstall Kyverno with its webhooks and resource types; install it again after recovery",
        wish=verdicts.ABSENT,
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


def of_component(component: evidence.Component) -> Requirement:
    """The row of an entry of the catalogue."""
    judged = functools.partial(evidence.judge, component)
    return Requirement(component.id, component.title, component.required, judged, component.hint)


REQUIREMENTS = (*(of_component(evidence.parse(entry)) for entry in catalogue.COMPONENTS), *SETTINGS)
IDS = tuple(one.id for one in REQUIREMENTS)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "only": {"type": "list", "elements": "str", "default": []},
        "recommended": {"type": "list", "elements": "str", "default": []},
        "nfs_provisioners": {"type": "list", "elements": "str", "default": []},
        "hardened": {"type": "bool", "default": False},
        "requirements": {"type": "list", "elements": "dict", "default": []},
        "facts": {"type": "bool", "default": False},
        "components": {"type": "bool", "default": True},
        "rights": {"type": "list", "elements": "str", "choices": list(rights.PURPOSES), "default": []},
        "namespaces": {"type": "list", "elements": "str", "default": []},
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
    """The module `kubernetes_check`. Reads only.

    Returns:
        `{"changed": false, "checks": [...]}`; with `facts` also `nodes` (see `facts.kubernetes_nodes`) and `storage`
        (see `storage.back_ends`), each empty where it may not be read.

    Raises:
        BadInput: an unknown id, or a requirement that is none.
    """
    requirements = merged(params["requirements"])
    ids = [one.id for one in requirements]
    strange = sorted(set(params["only"] + params["recommended"]) - set(ids))
    if strange:
        raise BadInput("kubernetes_check: unknown id %s" % ", ".join(strange), "known are %s" % ", ".join(ids))
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        cluster = Cluster(client)
        checks = [
            judge(_with(requirement, params), cluster, requirement.id in params["recommended"])
            for requirement in requirements
            if params["components"] and (not params["only"] or requirement.id in params["only"])
        ]
        checks += [rights.judge(client, purpose, params["namespaces"]) for purpose in params["rights"]]
        result: dict[str, Any] = {"changed": False, "checks": [check.as_dict() for check in checks]}
        if params["facts"]:
            result["nodes"] = _told(facts.kubernetes_nodes, cluster)
            result["storage"] = _told(storage.back_ends, cluster)
    finally:
        client.close()
    return result


def merged(more: Sequence[Mapping[str, Any]]) -> list[Requirement]:
    """All requirements: ours, and the site's, which take the place of ours of the same id.

    Raises:
        BadInput: an entry is wrong, or stands there twice.
    """
    rows = {one.id: one for one in REQUIREMENTS}
    seen: set[str] = set()
    for entry in more:
        component = evidence.parse(entry)
        if component.id in seen:
            raise BadInput("the requirement %s is given twice" % component.id)
        seen.add(component.id)
        rows[component.id] = of_component(component)
    return list(rows.values())


def _told(read: Callable[[Cluster], list[dict[str, Any]]], cluster: Cluster) -> list[dict[str, Any]]:
    """What reading gives; nothing where it may not be read, which the checks say already."""
    try:
        return read(cluster)
    except RecoveryError:
        return []


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


def _kyverno_afterwards(cluster: Cluster) -> verdicts.Verdict:
    """Recovery is installed and proved, so Kyverno may be there; what is left of it may still be in the way."""
    verdict = components.kyverno(cluster)
    if verdict.word == verdicts.ABSENT:
        return verdicts.Verdict(verdicts.PRESENT, "nothing of it")
    return verdict


def _status(verdict: verdicts.Verdict, wish: str) -> str:
    if verdict.word == wish:
        return PASSED
    return WARNING if verdict.word == verdicts.WARNING else FAILED
