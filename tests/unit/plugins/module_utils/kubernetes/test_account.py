# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.account import objects
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner


def by_kind(found, kind):
    return [each for each in found if each["kind"] == kind]


def test_jobs_are_made_in_the_scope_only():
    found = objects("ns", "robot", ["default", "training"])
    everywhere, in_scope = by_kind(found, "ClusterRole")
    assert not [rule for rule in everywhere["rules"] if rule["resources"] == ["jobs"] and "create" in rule["verbs"]]
    assert not [rule for rule in everywhere["rules"] if rule["resources"] == ["pods/log"]]
    assert in_scope["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    bindings = by_kind(found, "RoleBinding")
    assert [each["metadata"]["namespace"] for each in bindings] == ["default", "training"]
    assert {each["roleRef"]["name"] for each in bindings} == {in_scope["metadata"]["name"]}
    (binding,) = by_kind(found, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == everywhere["metadata"]["name"]


def test_no_secret_may_be_read_and_nothing_is_a_wildcard():
    rules = [rule for role in by_kind(objects("ns", "robot", ["default"]), "ClusterRole") for rule in role["rules"]]
    for rule in rules:
        assert not {"secrets", "configmaps", "*"} & set(rule["resources"])
        assert "*" not in rule["verbs"] + rule["apiGroups"]


def test_every_binding_is_for_the_account():
    found = objects("ns", "robot", ["default"])
    subjects = [each["subjects"] for each in found if "subjects" in each]
    assert subjects == [[{"kind": "ServiceAccount", "name": "robot", "namespace": "ns"}]] * 2
    assert by_kind(found, "Secret")[0]["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "robot"}


def test_the_work_of_a_sites_own_operators_may_be_seen_and_no_more():
    own = [JobOwner("FluxJob", "watch", group="flux.io", resource="fluxjobs"), JobOwner("PyTorchJob", "watch", 9.0)]
    rules = by_kind(objects("ns", "robot", ["default"], own), "ClusterRole")[0]["rules"]
    there = [(rule["apiGroups"][0], rule["resources"][0]) for rule in rules]
    assert len(set(there)) == len(there)
    assert {"apiGroups": ["flux.io"], "resources": ["fluxjobs"], "verbs": ["list", "watch"]} in rules
    without = by_kind(objects("ns", "robot", ["default"]), "ClusterRole")[0]["rules"]
    assert [rule for rule in rules if rule not in without] == [rules[there.index(("flux.io", "fluxjobs"))]]
