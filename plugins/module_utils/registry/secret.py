# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `registry_secret`: one pull secret in several namespaces."""

from __future__ import annotations

import time
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.outcome import (
    DONE,
    FAILED,
    REFUSED,
    Result,
    module_result,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import pull_secret
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import (
    NVIDIA_USER,
    Login,
    faults_of,
    is_nvidia,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.pull_secret import Plan, Wanted
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import parse_place

SPEC: dict[str, Any] = {
    "argument_spec": {
        "name": {"type": "str", "required": True},
        "namespaces": {"type": "list", "elements": "str", "required": True},
        "registry": {"type": "str", "required": True},
        "username": {"type": "str", "default": ""},
        "password": {"type": "str", "no_log": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "others": {"type": "str", "choices": ["keep", "remove"], "default": "keep"},
        "adopt": {"type": "bool", "default": False},
        "recreate": {"type": "bool", "default": False},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "required_if": [("state", "present", ("password",))],
    "supports_check_mode": True,
}

#: Plans are made again where the secret changed between the look and the write.
_ATTEMPTS = 3


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the secret of every namespace to what is wanted.

    Returns:
        `{changed, diff, results, warnings}`; results as `Result.as_dict`, with `found`, the faults of the secret as it
        was.

    Raises:
        BadInput: the registry's name or the form of the credentials cannot be right; nothing was asked.
        RecoveryError: at least one namespace is not done; the same data is in its fields.
    """
    place = parse_place(params["registry"])
    now = time.time()
    login = _login(params, place) if params["state"] == "present" else None
    warnings = [] if login is None else _judge(place, login, now)
    if not params["namespaces"]:
        raise BadInput("registry_secret: no namespace is named", "name those whose pods pull from %s" % place)
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        results = _all(client, params, place, login, now, check_mode)
    finally:
        client.close()
    return dict(module_result(results, tolerate=False), warnings=warnings)


def _login(params: dict[str, Any], place: str) -> Login:
    return Login(params["username"] or (NVIDIA_USER if is_nvidia(place) else ""), params["password"])


def _judge(place: str, login: Login, now: float) -> list[str]:
    """What is unusual about the form of the credentials. Raises BadInput for what cannot be right."""
    faults = faults_of(place, login, now)
    certain = [fault.text for fault in faults if fault.certain]
    if certain:
        raise BadInput("credentials for %s: %s" % (place, "; ".join(certain)), "correct them; nothing was changed")
    return ["credentials for %s: %s" % (place, fault.text) for fault in faults]


def _all(
    client: KubernetesClient, params: dict[str, Any], place: str, login: Optional[Login], now: float, check_mode: bool
) -> list[Result]:
    results: list[Result] = []
    lost = ""
    for namespace in dict.fromkeys(params["namespaces"]):
        if lost:  # every further one would wait for its whole deadline
            results.append(Result(namespace, FAILED, "not asked: %s" % lost, more={"found": []}))
            continue
        wanted = Wanted(
            params["name"],
            namespace,
            place,
            login,
            keep_others=params["others"] == "keep",
            adopt=params["adopt"],
            recreate=params["recreate"],
        )
        try:
            results.append(_one(client, wanted, now, check_mode))
        except RecoveryError as exc:
            lost = str(exc) if isinstance(exc, Unreachable) else ""
            results.append(Result(namespace, FAILED, _explained(client, namespace, exc), more={"found": []}))
    return results


def _one(client: KubernetesClient, wanted: Wanted, now: float, check_mode: bool) -> Result:
    path = path_of("v1", "secrets", wanted.namespace, wanted.name)
    for attempt in range(_ATTEMPTS):
        secret = client.find(path)
        plan = pull_secret.plan(secret, wanted, now)
        try:
            if not check_mode:
                _apply(client, wanted, plan, secret)
            elif plan.action == pull_secret.CREATE:
                _require_namespace(client, wanted.namespace)
        except (Conflict, Absent) as exc:
            # it changed, or went, since the look; of a creation it is the namespace that is absent
            if attempt + 1 == _ATTEMPTS or (secret is None and not isinstance(exc, Conflict)):
                raise
            continue
        status = REFUSED if plan.action == pull_secret.REFUSE else DONE
        why = "Secret %s/%s: %s" % (wanted.namespace, wanted.name, plan.why) if plan.why else ""
        return Result(wanted.namespace, status, why, plan.before, plan.after, {"found": list(plan.found)})
    raise AssertionError("not reached")


def _require_namespace(client: KubernetesClient, namespace: str) -> None:
    """In check mode, where no creation tells. Raises Absent; who may not look at namespaces is told nothing."""
    try:
        client.get(path_of("v1", "namespaces", name=namespace))
    except Forbidden:
        return


def _apply(client: KubernetesClient, wanted: Wanted, plan: Plan, secret: Optional[dict[str, Any]]) -> None:
    collection = path_of("v1", "secrets", wanted.namespace)
    path = path_of("v1", "secrets", wanted.namespace, wanted.name)
    if plan.action in (pull_secret.DELETE, pull_secret.RECREATE):
        uid = reading.text(reading.part(secret or {}, "metadata"), "uid")
        version = reading.text(reading.part(secret or {}, "metadata"), "resourceVersion")
        client.delete(path, {"preconditions": {"uid": uid, "resourceVersion": version}})
    if plan.action in (pull_secret.CREATE, pull_secret.RECREATE):
        client.create(collection, dict(plan.body))
    if plan.action == pull_secret.PATCH:
        client.patch(path, dict(plan.body))


def _explained(client: KubernetesClient, namespace: str, exc: RecoveryError) -> str:
    """Say what the API's answer to a creation means: it tells of a namespace, not of a secret."""
    if isinstance(exc, Absent):
        return "there is no namespace %s; create it first" % namespace
    if isinstance(exc, Forbidden):
        try:
            phase = reading.part(client.get(path_of("v1", "namespaces", name=namespace)), "status").get("phase")
        except RecoveryError:
            phase = None
        if phase == "Terminating":
            return "the namespace %s is being deleted" % namespace
    return str(exc)
