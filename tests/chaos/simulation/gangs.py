# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a story's Kubernetes Jobs are, and what the simulation reads in objects. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import FIELD_MANAGER
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    NODE_ANNOTATION,
)

CORDONED = "cordoned by alice"

Object = dict[str, Any]


@dataclass(frozen=True)
class Gang:
    """A Job: on how many nodes, for how long, how often its user lets it run again."""

    number: int
    pods: int = 2
    seconds: float = 90.0
    allowed: int = 3


def ended(job: Object) -> bool:
    """Whether it is over, or about to be."""
    return bool(job["status"].get("conditions"))


def spec_of(gang: Gang) -> Object:
    return {
        "backoffLimit": 0, "completionMode": "Indexed", "completions": gang.pods, "parallelism": gang.pods,
        "template": {"metadata": {}, "spec": {"restartPolicy": "Never"}},
    }  # fmt: skip


def owner_of(pod: Object) -> Object:
    return pod["metadata"]["ownerReferences"][0]


def number_of(job: Object) -> int:
    """Of the gang that the first Job of the chain is."""
    record = job["metadata"].get("annotations", {}).get(JOB_ANNOTATION)
    return int((json.loads(record)["name"] if record else job["metadata"]["name"]).removeprefix("gang"))


def whose_cordon(node: Object) -> str:
    """Whose the cordon is, in the words of a hold."""
    managers = [entry["manager"] for entry in node["metadata"].get("managedFields", [])]
    note = node["metadata"].get("annotations", {}).get(NODE_ANNOTATION)
    if FIELD_MANAGER in managers and note:
        return "job-recovery #%s cordon" % json.loads(note)["incident"]
    return CORDONED
