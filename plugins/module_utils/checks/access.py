# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `kubernetes_access_check`: would the cluster let the service do what recovery does.

RBAC is asked (SelfSubjectAccessReview). Admission policies and webhooks (Kyverno's among them) cannot be asked; they
judge real requests. So each kind of write is tried as a dry run, with the service's own account: the API server does
all of it, admission included, and keeps nothing. A webhook that has effects elsewhere and does not say that a dry run
spares them is not called: the server refuses the dry run, and nobody knows.
https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import rights
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes, rbac, reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    ADMISSION,
    KubernetesClient,
    Throttled,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.jobs import new_job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    NODE_ANNOTATION,
    Origin,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "nodes": {"type": "list", "elements": "str", "default": []},
        "namespaces": {"type": "list", "elements": "str", "required": True},
        "image": {"type": "str", "default": "registry.k8s.io/pause:3.10"},
        "most_nodes": {"type": "int", "default": 20},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}

# What one trial came to: None = let through, else what refused it or why nobody knows.
Outcome = Optional[RecoveryError]
_Trials = Mapping[str, Outcome]

_EXCEPT = "let the policy except the service's account (namespace and name of controller_kubernetes_account)"
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_PROBE = "job-recovery-probe"
_SHOWN = 5


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, checks: [...]}`. Every write is a dry run.

    Raises:
        BadInput: no namespace, or less than one node.
    """
    if not params["namespaces"] or params["most_nodes"] < 1:
        raise BadInput(
            "kubernetes_access_check: name the namespaces that recovery may act on, and try at least one node"
        )
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        checks = [
            rights_check(client, params["namespaces"]),
            nodes_check(client, params["nodes"], params["most_nodes"]),
            jobs_check(client, params["namespaces"], params["image"]),
            *pods_checks(client, params["namespaces"]),
        ]
    finally:
        client.close()
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def rights_check(client: KubernetesClient, namespaces: Sequence[str]) -> Check:
    """Does RBAC allow every verb that recovery uses; those on Jobs in the namespaces of its scope."""
    questions = rights.questions((*rbac.OBSERVE, *rbac.ACT), namespaces)
    title, required = "The service's rights", "RBAC allows every verb that recovery uses"
    try:
        missing = [_worded(one) for one in rights.missing(client, questions)]
    except RecoveryError as exc:
        return Check("kubernetes_rights", title, required, str(exc), UNKNOWN, "look whether the API server runs")
    found = "%d of %d" % (len(questions) - len(missing), len(questions))
    if missing:
        return Check(
            "kubernetes_rights", title, required, "%s: not %s" % (found, _some(missing)), FAILED, "run site.yml"
        )
    return Check("kubernetes_rights", title, required, found, PASSED)


def nodes_check(client: KubernetesClient, names: Sequence[str], most: int) -> Check:
    """May nodes be cordoned, marked and fenced: these, or the cluster's workers where none is named."""
    trials: dict[str, Outcome]
    try:
        chosen = list(names or _workers(client))[:most]
    except RecoveryError as exc:
        trials = {"all": exc}
    else:
        trials = {name: _tried(lambda name=name: _cordon(client, name)) for name in chosen}
    return judge("kubernetes_admits_nodes", "Nodes may be cordoned", trials, "not tried: there is no worker node")


def jobs_check(client: KubernetesClient, namespaces: Sequence[str], image: str) -> Check:
    """May Jobs be made: the newest of each namespace once more, or a small one where there is none."""
    trials = {name: _tried(lambda name=name: _job(client, name, image)) for name in namespaces}
    return judge("kubernetes_admits_jobs", "Jobs may be run again", trials, "no namespace is known")


def pods_checks(client: KubernetesClient, namespaces: Sequence[str]) -> list[Check]:
    """May pods be evicted, and be deleted: tried with one pod of each namespace that has any."""
    evicted: dict[str, Outcome] = {}
    deleted: dict[str, Outcome] = {}
    for namespace in namespaces:
        try:
            pod = _pod(client, namespace)
        except RecoveryError as exc:
            evicted[namespace] = deleted[namespace] = exc
            continue
        if pod is not None:
            evicted[namespace] = _tried(lambda pod=pod: _evict(client, pod))
            deleted[namespace] = _tried(lambda pod=pod: _delete(client, pod))
    none = "not tried: no pod is in %s" % ", ".join(namespaces)
    return [
        judge("kubernetes_admits_evictions", "Pods may be evicted", evicted, none),
        judge("kubernetes_admits_deletions", "Pods of dead nodes may be let go", deleted, none),
    ]


def judge(number: str, title: str, trials: _Trials, untried: str) -> Check:
    """One check over the trials of one kind. Pure."""
    required = "a dry run passes RBAC and admission"
    if not trials:
        return Check(number, title, required, untried, WARNING, "try again when there is one")
    refused = {name: error for name, error in trials.items() if error is not None and refuses(error)}
    unknown = {name: error for name, error in trials.items() if error is not None and not refuses(error)}
    found = "%d of %d" % (len(trials) - len(refused) - len(unknown), len(trials))
    if refused:
        return Check(number, title, required, "%s: not %s" % (found, _told(refused)), FAILED, _EXCEPT)
    if unknown:
        hint = "look whether the API server and its admission webhooks answer"
        return Check(number, title, required, "%s: unknown for %s" % (found, _told(unknown)), UNKNOWN, hint)
    return Check(number, title, required, found, PASSED)


def refuses(error: RecoveryError) -> bool:
    """Whether somebody said no, and not only that nobody knows; a webhook that fails closed says no by that. Pure."""
    text = str(error)
    if isinstance(error, Forbidden):
        return True
    if isinstance(error, (Conflict, BadInput)):
        return bool(ADMISSION.search(text)) and "dry run" not in text
    return isinstance(error, Unreachable) and "failed calling webhook" in text


# ---- the trials ----


def _tried(act: Callable[[], Any]) -> Outcome:
    try:
        act()
    except Throttled as exc:  # a disruption budget speaks after admission has
        return None if exc.budget else exc
    except RecoveryError as exc:
        return exc
    return None


def _workers(client: KubernetesClient) -> list[str]:
    things = client.list(path_of("v1", "nodes"), metadata_only=True).items
    every = [reading.part(thing, "metadata") for thing in things]
    return [reading.text(one, "name") for one in every if not set(_CONTROL_PLANE) & set(reading.part(one, "labels"))]


def _cordon(client: KubernetesClient, name: str) -> None:
    path = path_of("v1", "nodes", "", name)
    taints = reading.items(reading.part(client.get(path), "spec"), "taints")
    ours = {"key": nodes.OUT_OF_SERVICE, "value": nodes.TAINT_VALUE, "effect": "NoExecute"}
    others = [dict(taint) for taint in taints if taint.get("key") != nodes.OUT_OF_SERVICE]
    patch = {
        "spec": {"unschedulable": True, "taints": [*others, ours]},
        "metadata": {"annotations": {NODE_ANNOTATION: nodes.Hold(_PROBE, since=time.time()).as_text()}},
    }
    client.patch(path, patch, dry=True)


def _job(client: KubernetesClient, namespace: str, image: str) -> None:
    path = path_of("batch/v1", "jobs", namespace)
    newest = _newest(client, path)
    uid = reading.text(reading.part(newest or {}, "metadata"), "uid") or "none"
    origin = Origin(uid, _PROBE, uid, 1)
    template = newest if newest is not None else _small_job(namespace, image)
    client.create(path, new_job(template, "%s-%d" % (_PROBE, int(time.time())), origin), dry=True)


def _small_job(namespace: str, image: str) -> dict[str, Any]:
    """A Job that the strictest of Kubernetes' own pod security levels allows."""
    container = {
        "name": "probe",
        "image": image,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    return {"metadata": {"namespace": namespace}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


def _evict(client: KubernetesClient, pod: Mapping[str, Any]) -> None:
    metadata = reading.part(pod, "metadata")
    namespace, name = reading.text(metadata, "namespace"), reading.text(metadata, "name")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": _options(metadata),
    }
    _unless_gone(lambda: client.create(path_of("v1", "pods", namespace, name, "eviction"), body, dry=True))


def _delete(client: KubernetesClient, pod: Mapping[str, Any]) -> None:
    metadata = reading.part(pod, "metadata")
    path = path_of("v1", "pods", reading.text(metadata, "namespace"), reading.text(metadata, "name"))
    _unless_gone(lambda: client.delete(path, _options(metadata)))


def _options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    # of a DELETE with options in its body the server reads the dry run there
    return {"dryRun": ["All"], "preconditions": {"uid": reading.text(metadata, "uid")}}


def _unless_gone(act: Callable[[], Any]) -> None:
    try:
        act()
    except Absent:  # the pod ended meanwhile; admission of a deletion comes after it is found
        pass


def _pod(client: KubernetesClient, namespace: str) -> Optional[Mapping[str, Any]]:
    """A pod to try with: one that has ended where there is any, for which nobody would mind."""
    pods = client.list(path_of("v1", "pods", namespace)).items
    ended = [pod for pod in pods if reading.text(reading.part(pod, "status"), "phase") in ("Succeeded", "Failed")]
    return next(iter(ended or pods), None)


def _newest(client: KubernetesClient, path: str) -> Optional[Mapping[str, Any]]:
    """The newest object of a collection, None where there is none."""
    things = client.list(path).items
    return max(things, key=_created, default=None)


def _created(thing: Mapping[str, Any]) -> str:
    return reading.text(reading.part(thing, "metadata"), "creationTimestamp")


# ---- words ----


def _worded(question: Mapping[str, str]) -> str:
    resource = question["resource"] + ("/" + question["subresource"] if question.get("subresource") else "")
    where = " in " + question["namespace"] if question.get("namespace") else ""
    return "%s %s%s" % (question["verb"], resource, where)


def _told(errors: Mapping[str, RecoveryError]) -> str:
    return _some(["%s (%s)" % (name, error) for name, error in errors.items()])


def _some(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (" and %d more" % rest if rest > 0 else "")
