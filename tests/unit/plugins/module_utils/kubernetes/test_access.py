# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.access import (
    Rights,
    Subject,
    Wish,
    who_can,
)

READ = Wish(frozenset(("get", "list")), "secrets", name="grafana")


def role(name, verbs=("get",), resources=("secrets",), groups=("",), names=None):
    rule = {"verbs": list(verbs), "resources": list(resources), "apiGroups": list(groups)}
    if names is not None:
        rule["resourceNames"] = names
    return {"metadata": {"name": name}, "rules": [rule]}


def binding(name, to, kind="ClusterRole", *subjects):
    return {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": to}, "subjects": list(subjects)}


BOB = {"kind": "User", "name": "bob"}
ROBOT = {"kind": "ServiceAccount", "name": "robot", "namespace": "x"}


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        (role("r"), True),
        (role("r", verbs=["*"], resources=["*"], groups=["*"]), True),
        (role("r", verbs=["watch"]), False),
        (role("r", resources=["secrets/status"]), False),
        (role("r", resources=["configmaps"]), False),
        (role("r", groups=["apps"]), False),
        (role("r", names=["grafana"]), True),
        (role("r", names=["another"]), False),
        (role("r", names=[]), True),
        ({"metadata": {"name": "r"}, "rules": None}, False),
        ({"metadata": {"name": "r"}, "rules": [{"verbs": "get"}]}, False),
        ({"metadata": {"name": "r"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}]}, False),
    ],
)
def test_rules(made, allowed):
    rights = Rights("ns", cluster_roles=[made], cluster_bindings=[binding("b", "r", "ClusterRole", BOB)])
    assert bool(who_can(rights, READ)) is allowed


def test_bindings_of_both_kinds():
    rights = Rights(
        "ns",
        cluster_roles=[role("reader")],
        cluster_bindings=[binding("all", "reader", "ClusterRole", BOB)],
        roles=[role("reader", names=["another"]), role("local")],
        bindings=[
            binding("here", "reader", "ClusterRole", ROBOT, BOB),
            binding("none", "reader", "Role", {"kind": "User", "name": "eve"}),  # the Role of this name, not the other
            binding("own", "local", "Role", {"kind": "ServiceAccount", "name": "grafana"}),
            binding("gone", "no-such-role", "ClusterRole", {"kind": "User", "name": "eve"}),
        ],
    )
    assert who_can(rights, READ) == {
        Subject("ServiceAccount", "grafana", "ns"): ["RoleBinding own"],
        Subject("ServiceAccount", "robot", "x"): ["RoleBinding here"],
        Subject("User", "bob"): ["ClusterRoleBinding all", "RoleBinding here"],
    }


@pytest.mark.parametrize(
    ("subject", "built_in", "everybody"),
    [
        (Subject("Group", "system:masters"), True, False),
        (Subject("User", "system:kube-controller-manager"), True, False),
        (Subject("ServiceAccount", "generic-garbage-collector", "kube-system"), True, False),
        (Subject("ServiceAccount", "system:masters", "x"), False, False),
        (Subject("Group", "system:authenticated"), False, True),
        (Subject("Group", "system:serviceaccounts:x"), False, True),
        (Subject("User", "bob"), False, False),
    ],
)
def test_who_counts_as_whom(subject, built_in, everybody):
    assert (subject.built_in, subject.everybody) == (built_in, everybody)
