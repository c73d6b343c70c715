# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import math

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import models, values


def node(state: str, **fields: object) -> models.Node:
    base, flags = models.split_node_state(state.split("+"))
    return models.Node(name="n1", base_state=base, flags=flags, **fields)


def job(state: str, **fields: object) -> models.Job:
    base, flags = models.split_job_state(state.split("+"))
    return models.Job(id=7, state=base, flags=flags, **fields)


@pytest.mark.parametrize("base", sorted(models.NODE_BASES))
@pytest.mark.parametrize("flag", sorted(models.NODE_FLAGS))
def test_every_base_with_every_flag(base: str, flag: str) -> None:
    assert models.split_node_state([base.lower(), flag.lower()]) == (base, (flag,))
    assert models.split_node_state([flag, base]) == (base, (flag,))


@pytest.mark.parametrize(("words", "expected"), [
    (["idle*"], ("IDLE", ("NOT_RESPONDING",))),
    (["DOWN*", "DRAIN"], ("DOWN", ("DRAIN", "NOT_RESPONDING"))),
    (["idle~"], ("IDLE", ("POWERED_DOWN",))),
    (["mix@"], ("MIXED", ("REBOOT_REQUESTED",))),
    (["ALLOCATED", "MAINT"], ("ALLOCATED", ("MAINTENANCE",))),
    (["IDLE", "?"], ("IDLE", ("?",))),
    (["IDLE", "FROBNICATED"], ("IDLE", ("FROBNICATED",))),
    (["FROBNICATED"], ("UNKNOWN", ("FROBNICATED",))),
    (["IDLE?"], ("UNKNOWN", ("IDLE?",))),
    (["down*~"], ("DOWN", ("NOT_RESPONDING", "POWERED_DOWN"))),
    (["drain"], ("UNKNOWN", ("DRAIN",))),  # sinfo's short form: its base is lost
    (["draining"], ("UNKNOWN", ("DRAINING",))),
    (["drng*"], ("UNKNOWN", ("DRNG", "NOT_RESPONDING"))),
    (["maint"], ("UNKNOWN", ("MAINTENANCE",))),
    (["*"], ("UNKNOWN", ("*",))),
    (["IDLE DRAIN"], ("UNKNOWN", ("IDLE DRAIN",))),
    (["IDLE", "*" * 100_000], ("IDLE", ("*", "NOT_RESPONDING"))),
    (["IDLE", "DOWN"], ("IDLE", ("DOWN",))),
    ([], ("UNKNOWN", ())),
])
def test_split_node_state(words: list[str], expected: tuple) -> None:
    assert models.split_node_state(words) == expected


@pytest.mark.parametrize(("state", "understood"), [
    ("IDLE", True), ("DOWN+DRAIN+NOT_RESPONDING", True), ("IDLE+?", False), ("IDLE+FROBNICATED", False),
    ("UNKNOWN", False), ("INVALID", False), ("FROBNICATED", False), ("IDLE+DOWN", False), ("drain", False),
    ("draining", False), ("maint", False), ("idle+drain+?", False), ("", False), ("IDLE DRAIN", False),
])
def test_understood(state: str, understood: bool) -> None:
    assert node(state).understood is understood


@pytest.mark.parametrize(("state", "drained"), [
    ("IDLE+DRAIN", True), ("DOWN+DRAIN", True), ("IDLE+DRAIN+COMPLETING", False), ("MIXED+DRAIN", False),
    ("ALLOCATED+DRAIN", False), ("IDLE", False), ("DOWN", False), ("DOWN+DRAIN+COMPLETING", False),
])
def test_is_drained(state: str, drained: bool) -> None:
    assert node(state).is_drained is drained


@pytest.mark.parametrize(("state", "boot_time", "registered"), [
    ("DOWN+DRAIN", 1, True), ("IDLE", 1, True), ("DOWN+DRAIN", None, False), ("DOWN+DRAIN+NOT_RESPONDING", 1, False),
    ("IDLE+POWERED_DOWN", 1, False), ("IDLE+POWERING_UP", 1, False), ("DOWN+REBOOT_ISSUED", 1, False),
])
def test_registered(state: str, boot_time: int, registered: bool) -> None:
    assert node(state, boot_time=boot_time).registered is registered


@pytest.mark.parametrize(("state", "rebooting", "powering", "maintenance", "out"), [
    ("IDLE", False, False, False, False),
    ("IDLE+REBOOT_REQUESTED", True, False, False, False),
    ("DOWN+REBOOT_ISSUED", True, False, False, True),
    ("IDLE+POWERED_DOWN+CLOUD", False, True, False, False),
    ("IDLE+POWER_UP", False, True, False, False),
    ("IDLE+MAINTENANCE", False, False, True, False),
    ("IDLE+RESERVED", False, False, True, False),
    ("IDLE+FAIL", False, False, False, True),
    ("ERROR", False, False, False, True),
])
def test_other_rules(state: str, rebooting: bool, powering: bool, maintenance: bool, out: bool) -> None:
    found = node(state)
    assert (found.rebooting, found.powering, found.in_maintenance, found.out_of_service) == (
        rebooting, powering, maintenance, out)


@pytest.mark.parametrize(("state", "understood", "finished", "on_nodes"), [
    ("PENDING", True, False, False), ("RUNNING", True, False, True), ("COMPLETED", True, True, False),
    ("COMPLETED+COMPLETING", True, False, True), ("CANCELLED", True, True, False), ("COMPLETING", False, False, True),
    ("PENDING+REQUEUED", True, False, False), ("FROBNICATED", False, False, False), ("NODE_FAIL", True, True, False),
])
def test_job_rules(state: str, understood: bool, finished: bool, on_nodes: bool) -> None:
    found = job(state)
    assert (found.understood, found.finished, found.on_nodes) == (understood, finished, on_nodes)


@pytest.mark.parametrize(("found", "held"), [
    (job("PENDING", priority=0), True), (job("PENDING", priority=1, state_reason="JobHeldAdmin"), True),
    (job("PENDING", priority=1, state_reason="JobHeldUser"), True), (job("PENDING+REQUEUE_HOLD", priority=1), True),
    (job("PENDING", priority=1, state_reason="launch_failed_requeued_held"), True),
    (job("PENDING", priority=1, state_reason="BeginTime"), False), (job("RUNNING", priority=0), False),
])
def test_held(found: models.Job, held: bool) -> None:
    assert found.held is held


@pytest.mark.parametrize(("value", "expected"), [
    (None, None), (7, 7), (4294967294, None), (18446744073709551614, None), (4294967295, math.inf),
    ({"set": False, "infinite": False, "number": 0}, None), ({"set": True, "infinite": True, "number": 0}, math.inf),
    ({"set": True, "infinite": False, "number": 9}, 9), ({"set": True, "infinite": False, "number": 4294967294}, None),
    ({"set": True, "infinite": False, "number": 0}, 0), ({"set": False, "infinite": False, "number": 9}, None),
    ({"set": False, "infinite": True, "number": 9}, math.inf), ({"set": True, "number": 9}, 9), (0, 0), (7.5, 7.5),
    ({"set": True, "infinite": False, "number": None}, None), (18446744073709551615, math.inf), (-2, None),
    (-1, math.inf), (1e400, math.inf),
])
def test_json_number(value: object, expected: object) -> None:
    assert values.number(value) == expected


@pytest.mark.parametrize("value", ["7", {}, {"set": True}, [1], True, [], -7, float("nan"), -math.inf, {"number": 7},
                                   {"set": "false", "infinite": False, "number": 7}, {"set": 1, "number": 7},
                                   {"set": True, "infinite": "no", "number": 7}, {"set": None, "number": 7},
                                   {"set": True, "infinite": False, "number": {"set": True, "number": 7}}])
def test_json_number_that_is_none(value: object) -> None:
    with pytest.raises(Unreadable):
        values.number(value)


@pytest.mark.parametrize("value", [7.5, 1e-9, {"set": True, "infinite": False, "number": 0.5}])
def test_half_a_number_is_no_whole_one(value: object) -> None:
    with pytest.raises(Unreadable):
        values.integer(value)


@pytest.mark.parametrize(("value", "expected"), [(7.0, 7), (None, None), (4294967295, None), (10**300, 10**300)])
def test_whole_numbers(value: object, expected: object) -> None:
    assert values.integer(value) == expected


@pytest.mark.parametrize("word", ["", "NONE", "N/A", "None", "Unknown", "(null)", "n/a", "UNLIMITED", "INFINITE",
                                  "Partition_Limit", "UNKNOWN", " N/A ", "  "])
def test_words_for_nothing(word: str) -> None:
    assert values.text(word) is None
    assert values.text_time(word) is None
    assert values.text_integer(word, "x") is None


@pytest.mark.parametrize(("word", "epoch"), [
    ("1758466931", 1758466931), ("0", None), ("2025-09-21T15:02:11", 1758466931),
])
def test_text_time(word: str, epoch: int) -> None:
    assert values.text_time(word) == epoch


@pytest.mark.parametrize("word", ["2025-07-21 14:35:22.UTC", "2025-07-21", "Tomorr 08:00", "15:02:11", "-5", "1e9"])
def test_ambiguous_times_are_refused(word: str) -> None:
    with pytest.raises(Unreadable):
        values.text_time(word)


@pytest.mark.parametrize(("text", "ref"), [
    ("7", values.JobRef(7)), (7, values.JobRef(7)), ("57829110_[5-100]", values.JobRef(57829110, tasks="5-100")),
    ("123456_[9201-10000%500]", values.JobRef(123456, tasks="9201-10000%500")),
    ("715219_23.batch", values.JobRef(715219, task=23, step="batch")), ("123+1", values.JobRef(123, het_offset=1)),
    ("123;clusterA", values.JobRef(123, cluster="clusterA")), ("12.0", values.JobRef(12, step="0")),
    ("12_[1,3,5-7:2]", values.JobRef(12, tasks="1,3,5-7:2")), ("12_*", values.JobRef(12, tasks="*")),
    ("12_[1-9,...]", values.JobRef(12, tasks="1-9,...")), ("12_0", values.JobRef(12, task=0)),
    (" 7 ", values.JobRef(7)),
    ("123+0.batch", values.JobRef(123, het_offset=0, step="batch")), ("7.extern", values.JobRef(7, step="extern")),
    ("12_3;clusterA", values.JobRef(12, task=3, cluster="clusterA")), ("0007", values.JobRef(7)),
])
def test_job_ref(text: object, ref: values.JobRef) -> None:
    assert values.job_ref(text) == ref


@pytest.mark.parametrize("text", ["", "0", "-1", "7;rm -rf /", "7 8", "7_", "7_[", "a", "7\n8", "7,8", None,
                                  "99999999999999", "7_[]", "7_[1]x", "7+", "7+x", "7_1_2", "7_1+2", "7.", "7;",
                                  "7;a;b", True, "\u0667", "7_\u0661", "0x7", "7e3", "[1-3]", "%7", "7_[1\n2]",
                                  "9" * 5000, "7.batch --all", "{{ 7 }}", "$(id)"])
def test_not_a_job_id(text: object) -> None:
    with pytest.raises(BadInput):
        values.job_ref(text)


def test_as_dict_is_plain_data() -> None:
    plain = models.as_dict(node("IDLE+DRAIN", partitions=("a",)))
    assert plain["flags"] == ["DRAIN"]
    assert plain["partitions"] == ["a"]
    assert plain["boot_time"] is None
