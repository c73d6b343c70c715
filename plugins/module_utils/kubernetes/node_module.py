# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `kubernetes_node`: nodes brought to a state."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.drain import Policy, drain
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import (
    cordon,
    fence,
    safely,
    uncordon,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.outcome import module_result

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "required": True, "choices": ["cordoned", "drained", "fenced", "uncordoned"]},
        "incident": {"type": "str", "default": ""},
        "timeout": {"type": "int", "default": 60},
        "unmanaged_pods": {"type": "str", "default": "refuse", "choices": ["refuse", "evict"]},
        "local_data": {"type": "str", "default": "evict", "choices": ["refuse", "evict"]},
        "power_off_proved": {"type": "bool", "default": False},
        "tolerate": {"type": "bool", "default": False},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module `kubernetes_node`: bring each of `names` to `state`.

    Returns:
        `{changed, diff, results: [{name, status, why, before, after, pods?}]}`.

    Raises:
        RecoveryError: not all are done and `tolerate` is false (the results are in its fields); wrong use.
    """
    names = list(dict.fromkeys(params["names"]))
    if not names or not all(names):
        raise BadInput("kubernetes_node: `names` is empty", "name at least one node")
    state, incident = params["state"], params["incident"]
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        if state == "drained":
            policy = Policy(params["unmanaged_pods"] == "evict", params["local_data"] == "evict")
            results = drain(client, names, incident, params["timeout"], policy, dry=check_mode)
        else:
            act = {
                "cordoned": lambda name: cordon(client, name, incident, time.time(), dry=check_mode),
                "fenced": lambda name: fence(client, name, params["power_off_proved"], dry=check_mode),
                "uncordoned": lambda name: uncordon(client, name, incident, dry=check_mode),
            }[state]
            results = [safely(name, lambda one=name: act(one)) for name in names]
    finally:
        client.close()
    return module_result(results, params["tolerate"])
