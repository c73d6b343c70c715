# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import plan, release
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.helm.records import parsed

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
OURS = release.description([ONE])
WANTED = plan.Wanted("front", "1.0.0", frozenset([ONE]), {"a": 1})


@pytest.mark.parametrize(
    ("there", "wanted", "action", "because"),
    [
        (None, {}, plan.INSTALL, "there is no such release"),
        ({"status": "uninstalled"}, {}, plan.INSTALL, "there is no such release"),
        ({}, {}, plan.NOTHING, ""),
        ({"description": OURS}, {}, plan.NOTHING, ""),
        ({"description": OURS}, {"digests": frozenset([OTHER])}, plan.UPGRADE, "another content"),
        ({"description": OURS}, {"digests": frozenset([OTHER, ONE]), "pinned": True}, plan.NOTHING, ""),
        ({}, {"pinned": True}, plan.UPGRADE, "digest of what is deployed is not known"),
        ({}, {"version": "1.1.0"}, plan.UPGRADE, "version 1.0.0 becomes 1.1.0"),
        ({"values": {"a": 2}}, {}, plan.UPGRADE, "the values differ"),
        ({"status": "failed", "revision": 4}, {}, plan.UPGRADE, "revision 4 failed"),
        ({"status": "failed", "description": "Upgrade failed"}, {"pinned": True}, plan.UPGRADE, "revision 1 failed"),
        ({"chart": "back"}, {}, plan.REFUSE, "it is of the chart back, and front is wanted"),
        ({"status": "pending-install"}, {}, plan.REFUSE, "it is pending-install"),
        ({"status": "pending-upgrade"}, {}, plan.REFUSE, "it is pending-upgrade"),
        ({"status": "pending-rollback"}, {}, plan.REFUSE, "it is pending-rollback"),
        ({"status": "uninstalling"}, {}, plan.REFUSE, "it is uninstalling"),
        ({"status": "superseded"}, {}, plan.REFUSE, "it is superseded, from which Helm does not go on"),
        ({"status": "of-tomorrow"}, {}, plan.REFUSE, "it is of-tomorrow"),
    ],
)
def test_present(there, wanted, action, because):
    release_there = None if there is None else parsed(**{"values": {"a": 1}, **there})
    made = plan.plan_present(replace(WANTED, **wanted), release_there)
    assert made.action == action
    assert because in "; ".join(made.because)
    assert bool(made.because) is (action != plan.NOTHING)


@pytest.mark.parametrize(
    ("there", "only_own", "action"),
    [
        (None, False, plan.NOTHING),
        ({"status": "uninstalled"}, False, plan.NOTHING),
        ({}, False, plan.UNINSTALL),
        ({}, True, plan.NOTHING),
        ({"own": True}, True, plan.UNINSTALL),
        ({"own": True, "status": "pending-install"}, True, plan.UNINSTALL),
    ],
)
def test_absent(there, only_own, action):
    assert plan.plan_absent(None if there is None else parsed(**there), only_own).action == action


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (None, {}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 12345678901234567890}, {"a": 1.2345678901234567e19}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": None}, {"a": ""}, False),
        ({"a": [1, {"b": "x"}]}, {"a": (1, {"b": "x"})}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": {}}, {}, False),
    ],
)
def test_values_are_compared_as_helm_keeps_them(one, other, same):
    for left, right in ((one, other), (other, one)):
        assert plan.same_values(left, right) is same


NOW = 1796040000.0  # the moment at which the record was made


@pytest.mark.parametrize(
    ("seconds", "helms", "created", "why"),
    [
        (601, [], "2026-11-30T12:00:00Z", ""),
        (599, [], "2026-11-30T12:00:00Z", "try again in 2 s"),
        (601, [4711], "2026-11-30T12:00:00Z", "helm works on it on this machine (process 4711)"),
        (601, [], None, "does not say since when"),
        (-50, [], "2026-11-30T12:00:00Z", "try again in"),
    ],
)
def test_what_may_still_be_going_on_is_not_repaired(seconds, helms, created, why):
    there = parsed(status="pending-upgrade", created=created)
    said = plan.refuse_repair(there, NOW + seconds, helms, 600)
    assert bool(said) is bool(why)
    assert why in said


TOKEN = 'nva$pi-"quo\\te-0123456789'
BASIC = base64.b64encode(b"user:" + TOKEN.encode()).decode()


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ({}, []),
        ({"existingSecret": "registry", "number": 3, "no": None, "list": [True]}, []),
        ({"a": {"b": ["x", "before " + TOKEN + " after"]}}, ["a.b[1]"]),
        ({"a": base64.b64encode(TOKEN.encode()).decode()}, ["a"]),
        ({"a": BASIC}, ["a"]),
        ({TOKEN: 1}, ["."]),
        ({"a": '{"auths": {"x": {"auth": "%s"}}}' % BASIC}, ["a"]),
        ({"key": "nvapi-" + "x" * 40}, ["key"]),
        ({"key": "-----BEGIN PRIVATE KEY-----\nabc"}, ["key"]),
        ({"note": "nvapi-"}, []),
    ],
)
def test_credentials_in_values_are_found(values, places):
    assert plan.secrets_in(values, [TOKEN, BASIC]) == places


def test_a_password_of_three_letters_is_not_looked_for():
    assert plan.secrets_in({"image": "abc"}, ["abc"]) == []
