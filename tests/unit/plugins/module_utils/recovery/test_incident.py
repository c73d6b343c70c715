# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person may ask for, and how it must be asked."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import incident
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Scope, Settings

SETTINGS = Settings("lab", scope=Scope(("main",)))
FAULT = {
    "kind": "node_not_responding",
    "scheduler": "slurm",
    "cluster": "lab",
    "source": "slurm",
    "targets": [{"node": "n1"}],
    "seen_at": "2026-11-30T11:00:00Z",
    "suggested": "reboot_node",
    "evidence_ref": 0,
}


def params(**changes: Any) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(("fault", "due", "nodes", "jobs", "reason", "remediation", "requested_by"))
    return {**empty, "override": [], **changes}


def names(**changes: Any) -> list[str]:
    fault, _request = incident._wish(SETTINGS, params(**changes))
    return [target.name for target in fault.targets]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"nodes": ["n1"]}, ["n1"]),
        ({"nodes": ["n[1-3]"]}, ["n1", "n2", "n3"]),
        ({"nodes": ["n[1", "3]", "m1"]}, ["n1", "n3", "m1"]),  # as Ansible splits n[1,3],m1
        ({"jobs": ["12", "12_3", "12+1"]}, ["12", "12_3", "12+1"]),
        ({"jobs": ["default/train"]}, ["default/train"]),
    ],
)
def test_targets(asked: dict[str, Any], expected: list[str]) -> None:
    assert names(remediation="reboot_node", reason="because", **asked) == expected


def test_who_asks_is_kept() -> None:
    asked = params(nodes=["n1"], remediation="reboot_node", reason=" disk ", override=["cooldown"], requested_by="bob")
    fault, request = incident._wish(SETTINGS, asked)
    assert (fault.kind, fault.source) == ("requested", "person")
    assert (request.by, request.reason, request.override) == ("bob", "disk", ("cooldown",))
    assert incident.caller()


def test_gates_as_a_shell_hands_them_over() -> None:
    asked = params(nodes=["n1"], remediation="reboot_node", reason="disk", override=["[cooldown", " 'owner']"])
    _fault, request = incident._wish(SETTINGS, asked)
    assert request.override == ("cooldown", "owner")


def test_a_rules_remediation_counts() -> None:
    fault, request = incident._wish(SETTINGS, params(fault=FAULT, remediation="clean_spool"))
    assert (fault.suggested, request.by) == ("clean_spool", "")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "nothing to do"),
        ({"nodes": ["n1"], "remediation": "reboot_node"}, "a reason is needed"),
        ({"nodes": ["n1"], "remediation": "reboot_node", "reason": " "}, "a reason is needed"),
        ({"nodes": ["n1"], "reason": "x"}, "a remediation is needed"),
        ({"nodes": ["n1"], "remediation": "reboot_node", "reason": "x", "override": ["scope"]}, "cannot be overridden"),
        ({"nodes": ["n1"], "remediation": "reboot_node", "reason": "x", "override": ["all"]}, "no gate is named"),
        ({"nodes": ["{{ 7 }}"], "remediation": "reboot_node", "reason": "x"}, "not the name|not a|is no"),
        ({"nodes": ["ALL"], "remediation": "reboot_node", "reason": "x"}, "not the name"),
        ({"nodes": ["n[0-99999999]"], "remediation": "reboot_node", "reason": "x"}, "more than the limit"),
        ({"jobs": ["12;id"], "remediation": "requeue_job", "reason": "x"}, "is no name"),
        ({"fault": {**FAULT, "cluster": "other"}}, "of cluster other"),
        ({"fault": {**FAULT, "kind": "requested"}}, "cannot ask"),
        ({"fault": {**FAULT, "targets": [{"node": "{{ x }}"}]}}, "no target"),
    ],
)
def test_what_is_refused_before_anything_is_claimed(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        incident._wish(SETTINGS, params(**asked))
