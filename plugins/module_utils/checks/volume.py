# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a claim really get a volume that a pod can write to: the one check that makes something, and takes it away.

It runs only where a site asks for it. What it makes bears a name of its own each time and the label of this collection,
and is deleted whatever happens; what could not be deleted is named.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    FIELD_MANAGER,
    KubernetesClient,
    path_of,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "image": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "default"},
        "storage_class": {"type": "str", "default": ""},
        "size_gb": {"type": "int", "default": 1},
        "timeout": {"type": "int", "default": 60},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}

_CLAIMS = "persistentvolumeclaims"
_PODS = "pods"
_POLL = 1.0
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
_SCRIPT = 'echo job-recovery > /volume/probe && [ "$(cat /volume/probe)" = job-recovery ] && rm /volume/probe'


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Make a claim and a pod, wait until the pod has written, delete both.

    Returns:
        `{"changed", "checks": [...]}`; changed only when something is left because it could not be deleted.

    Raises:
        BadInput: the namespace is no name, or a number is not positive.
    """
    if not _NAME.match(params["namespace"]) or params["size_gb"] < 1 or params["timeout"] < 1:
        raise BadInput("volume_check: namespace, size_gb or timeout cannot be used")
    if check_mode:
        return {"changed": False, "checks": [_check("not tried in check mode", UNKNOWN).as_dict()]}
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        probe = Probe(client, params)
        found, status = probe.run()
        left = probe.remove()
    finally:
        client.close()
    if left:
        found, status = "%s; could not delete %s" % (found, ", ".join(left)), FAILED
    return {"changed": bool(left), "checks": [_check(found, status, left).as_dict()]}


class Probe:
    """One claim and one pod of the same name."""

    def __init__(self, client: KubernetesClient, params: Mapping[str, Any]) -> None:
        self._client = client
        self._params = params
        self._name = "job-recovery-probe-" + secrets.token_hex(4)
        self._begun: list[str] = []

    def run(self) -> tuple[str, str]:
        """What came of it, and its status. Never raises for what the cluster does."""
        until = time.monotonic() + self._params["timeout"]
        try:
            self._make(_CLAIMS, self._claim())
            self._make(_PODS, self._pod())
            while True:
                pod = self._client.get(self._path(_PODS))
                phase = reading.text(reading.part(pod, "status"), "phase")
                if phase == "Succeeded":
                    return "a pod wrote to a new volume of %s" % self._class, PASSED
                if phase == "Failed" or time.monotonic() > until:
                    return self._why(pod, phase), FAILED
                time.sleep(_POLL)
        except RecoveryError as exc:
            return "unknown: %s" % exc, UNKNOWN

    def remove(self) -> list[str]:
        """Delete what was begun; what is left, as `kind namespace/name`. After a time-out it may exist all the same."""
        left = []
        for kind in reversed(self._begun):
            try:
                self._client.delete(self._path(kind), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
            except Absent:
                pass
            except RecoveryError:
                left.append("%s %s/%s" % (kind, self._params["namespace"], self._name))
        return left

    @property
    def _class(self) -> str:
        return "class %s" % self._params["storage_class"] if self._params["storage_class"] else "the default class"

    def _path(self, kind: str, name: Optional[str] = None) -> str:
        return path_of("v1", kind, self._params["namespace"], self._name if name is None else name)

    def _make(self, kind: str, body: dict[str, Any]) -> None:
        self._begun.append(kind)
        self._client.create(path_of("v1", kind, self._params["namespace"]), body)

    def _metadata(self) -> dict[str, Any]:
        return {"name": self._name, "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}}

    def _claim(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "%dG" % self._params["size_gb"]}},
        }
        if self._params["storage_class"]:
            spec["storageClassName"] = self._params["storage_class"]
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": self._metadata(), "spec": spec}

    def _pod(self) -> dict[str, Any]:
        container = {
            "name": "probe",
            "image": self._params["image"],
            "command": ["sh", "-c", _SCRIPT],
            "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            # should we be killed before we delete it, the pod ends all the same
            "activeDeadlineSeconds": self._params["timeout"] + 60,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": self._name}}],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(), "spec": spec}

    def _why(self, pod: Mapping[str, Any], phase: str) -> str:
        claim = self._client.get(self._path(_CLAIMS))
        bound = reading.text(reading.part(claim, "status"), "phase") or "Pending"
        said = "no pod wrote to a new volume of %s within %d s: the claim is %s, the pod %s" % (
            self._class,
            self._params["timeout"],
            bound,
            phase or "Pending",
        )
        status = reading.part(pod, "status")
        waiting = [
            reading.text(reading.part(one, "state", "waiting"), "reason")
            for one in reading.items(status, "containerStatuses")
        ]
        scheduled = reading.condition(status, "PodScheduled")
        reasons = [*waiting, reading.text(scheduled, "message") if scheduled.get("status") == "False" else ""]
        why = "; ".join(reason for reason in reasons if reason)
        return reading.printable("%s (%s)" % (said, why) if why else said, 600)


def _check(found: str, status: str, left: Optional[list[str]] = None) -> Check:
    hint = "" if status == PASSED else "kubectl describe pvc, and the provisioner's log, tell why a claim stays Pending"
    if left:
        hint = "delete by hand what is named, with kubectl"
    return Check("volume_probe", "A volume for a claim", "a pod writes to a new volume", found, status, hint)
