# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import models, node_state

OURS = "job_recovery: node_not_responding (7)"
NEWER = "job_recovery: quarantined (8)"
PERSON = "ADMIN SHUTDOWN"


def node(state: str, reason: str | None = None, boot_time: int | None = 1000) -> models.Node:
    base, flags = models.split_node_state(state.split("+"))
    return models.Node(name="n1", base_state=base, flags=flags, reason=reason, boot_time=boot_time)


WRITE = (True, "done", "")


@pytest.mark.parametrize("state", ["drained", "down"])
@pytest.mark.parametrize(("present", "reason", "verdict"), [
    ("IDLE", None, WRITE),
    ("ALLOCATED", None, WRITE),
    ("DOWN+NOT_RESPONDING", "Not responding", WRITE),
    ("IDLE+DRAIN", "Kill task failed (JobId=7 StepId=0)", WRITE),
    ("IDLE+DRAIN", "Low CPUs, Low RealMemory (reported:1900 < 100.00% of configured:2000)", WRITE),
    ("IDLE+DRAIN", OURS, WRITE),  # an earlier text of ours: the newer one says more
    ("IDLE+DRAIN", OURS + ", Kill task failed", WRITE),
    ("IDLE+DRAIN", OURS + ", leave it", (False, "refused", "owner_person")),
    ("IDLE+DRAIN", PERSON, (False, "refused", "owner_person")),
    ("IDLE", PERSON, (False, "refused", "owner_person")),
    ("DOWN", PERSON, (False, "refused", "owner_person")),
    ("DOWN+DRAIN+NOT_RESPONDING", PERSON, (False, "refused", "owner_person")),
    ("IDLE+DRAIN", "Kill task failed, ask Bob", (False, "refused", "owner_person")),
    ("IDLE+DRAIN", "NHC: check_hw", (False, "refused", "owner_tool")),
    ("IDLE+DRAIN", None, (False, "refused", "owner_unknown")),
    ("IDLE+REBOOT_REQUESTED", None, (False, "refused", "rebooting")),
    ("DOWN+DRAIN+REBOOT_ISSUED", OURS + " : reboot issued", (False, "refused", "rebooting")),
    ("IDLE+?", None, (False, "refused", "not_understood")),
    ("IDLE+DRAIN+FROBNICATED", OURS, (False, "refused", "not_understood")),
    ("UNKNOWN", None, (False, "refused", "not_understood")),
])
def test_withdrawing(state: str, present: str, reason: str, verdict: tuple) -> None:
    request = node_state.Request(state, NEWER, {"n1": OURS})
    found = node_state.judge(request, node(present, reason))
    assert (found.write, found.status, found.why) == verdict


@pytest.mark.parametrize(("state", "present", "verdict"), [
    ("drained", "IDLE+DRAIN", (False, "done", "")),
    ("drained", "DOWN+DRAIN", (False, "done", "")),
    ("drained", "DOWN", WRITE),
    ("drained", "MIXED+DRAIN", (False, "waiting", "draining")),
    ("drained", "IDLE+DRAIN+COMPLETING", (False, "waiting", "draining")),
    ("drained", "DOWN+DRAIN+REBOOT_ISSUED", (False, "done", "")),
    ("down", "DOWN", (False, "done", "")),
    ("down", "DOWN+DRAIN", (False, "done", "")),
    ("down", "IDLE+DRAIN", WRITE),
])
def test_withdrawing_again(state: str, present: str, verdict: tuple) -> None:
    found = node_state.judge(node_state.Request(state, NEWER, {}), node(present, NEWER))
    assert (found.write, found.status, found.why) == verdict


@pytest.mark.parametrize(("present", "reason", "boot_time", "verdict"), [
    ("DOWN+DRAIN", OURS, 1000, WRITE),
    ("IDLE+DRAIN", OURS + " : reboot complete", 1000, WRITE),
    ("DOWN", OURS, 1000, WRITE),
    ("IDLE", None, 1000, (False, "done", "")),
    ("ALLOCATED", None, 1000, (False, "done", "")),
    ("IDLE+DRAIN", PERSON, 1000, (False, "refused", "owner_person")),
    ("IDLE+DRAIN", OURS + ", Kill task failed", 1000, (False, "refused", "owner_slurm")),
    ("IDLE+DRAIN", OURS + ", leave it", 1000, (False, "refused", "owner_person")),
    ("DOWN", "Node unexpectedly rebooted", 1000, (False, "refused", "owner_slurm")),
    ("IDLE+DRAIN", "k8s: cordoned", 1000, (False, "refused", "owner_tool")),
    ("IDLE+DRAIN", None, 1000, (False, "refused", "owner_unknown")),
    ("DOWN+DRAIN+NOT_RESPONDING", OURS, 1000, (False, "waiting", "not_registered")),
    ("DOWN+DRAIN", OURS, None, (False, "waiting", "not_registered")),
    ("DOWN+DRAIN+REBOOT_ISSUED", OURS + " : reboot issued", 1000, (False, "waiting", "rebooting")),
    ("IDLE+DRAIN+POWERING_UP", OURS, 1000, (False, "waiting", "powering")),
    ("DOWN+DRAIN", OURS, 800, (False, "waiting", "not_booted")),
    ("DOWN+DRAIN", OURS, 950, WRITE),
    ("DOWN+DRAIN+INVALID_REG", OURS, 1000, (False, "refused", "misconfigured")),
    ("DOWN+DRAIN+?", OURS, 1000, (False, "refused", "not_understood")),
])
def test_giving_back(present: str, reason: str, boot_time: int, verdict: tuple) -> None:
    request = node_state.Request("resumed", None, {"n1": OURS}, booted_after=1000)
    found = node_state.judge(request, node(present, reason, boot_time))
    assert (found.write, found.status, found.why) == verdict


def test_absent_node() -> None:
    found = node_state.judge(node_state.Request("drained", NEWER), None)
    assert (found.write, found.status, found.why) == (False, "failed", "absent")


def entry(state: str, reason: str = "", user: str = "root") -> dict[str, Any]:
    return {"state": state.split("+"), "reason": reason, "reason_set_by_user": user if reason else "",
            "reason_changed_at": 5 if reason else 0, "boot_time": 1000}


def change(fake: Any, check_mode: bool = False, **params: Any) -> dict[str, Any]:
    return node_state.run({"bin_dir": fake.bin_dir, "tolerate": True, **params}, check_mode)


def brief(result: dict[str, Any]) -> dict[str, tuple]:
    return {each["name"]: (each["status"], each["why"], each["changed"]) for each in result["results"]}


WORLD = {"n1": entry("IDLE"), "n2": entry("MIXED"), "n3": entry("IDLE+DRAIN", PERSON, "bob"),
         "n4": entry("IDLE+DRAIN", "Kill task failed", "slurm"), "n5": entry("IDLE+DRAIN", NEWER)}


def test_draining_many_by_one_call(fake: Any) -> None:
    fake.world({"nodes": WORLD})
    result = change(fake, names=["n[1-5]", "n9"], state="drained", reason=NEWER)
    assert brief(result) == {
        "n1": ("done", "", True), "n2": ("waiting", "draining", True), "n3": ("refused", "owner_person", False),
        "n4": ("done", "", True), "n5": ("done", "", False), "n9": ("failed", "absent", False)}
    assert result["changed"]
    assert fake.calls("update") == [["scontrol", "update", "NodeName=n[1-2,4]", "State=DRAIN", "Reason=" + NEWER]]
    assert fake.now["nodes"]["n3"] == WORLD["n3"]
    by_name = {each["name"]: each for each in result["results"]}
    assert by_name["n4"]["before"]["reason"] == "Kill task failed"
    assert by_name["n4"]["after"]["reason"] == NEWER
    assert sorted(result["diff"]["before"]) == sorted(result["diff"]["after"]) == ["n1", "n2", "n4"]


def test_a_second_run_changes_nothing(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("IDLE")}})
    change(fake, names=["n1"], state="drained", reason=NEWER)
    result = change(fake, names=["n1"], state="drained", reason=NEWER)
    assert not result["changed"]
    assert len(fake.calls("update")) == 1


@pytest.mark.parametrize(("state", "params"), [
    ("drained", {"reason": NEWER}), ("down", {"reason": NEWER}), ("resumed", {"ours": OURS})])
def test_check_mode_foresees_and_writes_nothing(fake: Any, state: str, params: dict) -> None:
    world = {"n1": entry("DOWN+DRAIN", OURS), "n3": entry("IDLE+DRAIN", PERSON)}
    fake.world({"nodes": world})
    foreseen = change(fake, True, names=["n[1,3]"], state=state, **{"ours": OURS, **params})
    assert fake.calls("update") == []
    done = change(fake, names=["n[1,3]"], state=state, **{"ours": OURS, **params})
    assert brief(foreseen) == brief(done)
    for field in ("base_state", "flags", "reason"):
        assert foreseen["diff"]["after"]["n1"][field] == done["diff"]["after"]["n1"][field]


def test_check_mode_knows_that_a_busy_node_drains(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("MIXED")}})
    foreseen = change(fake, True, names=["n1"], state="drained", reason=NEWER)
    assert brief(foreseen) == {"n1": ("waiting", "draining", True)}


def test_refusal_fails_unless_tolerated(fake: Any) -> None:
    fake.world({"nodes": WORLD})
    with pytest.raises(Conflict, match=r"n3 \(refused: owner_person\)") as caught:
        change(fake, names=["n[1,3]"], state="drained", reason=NEWER, tolerate=False)
    assert caught.value.fields["changed"]
    assert len(caught.value.fields["results"]) == 2


def test_giving_back_two_with_their_own_texts(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS), "n2": entry("IDLE+DRAIN", NEWER)}, "events": []})
    result = change(fake, names=["n[1-2]"], state="resumed", ours_by_name={"n1": OURS, "n2": NEWER})
    assert brief(result) == {"n1": ("done", "", True), "n2": ("done", "", True)}
    assert fake.calls("update") == [["scontrol", "update", "NodeName=n[1-2]", "State=RESUME"]]
    assert fake.now["nodes"]["n1"]["state"] == ["IDLE"]


def test_text_of_another_incident_is_not_ours(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}})
    result = change(fake, names=["n1"], state="resumed", ours=NEWER)
    assert brief(result) == {"n1": ("refused", "owner_person", False)}


def test_drain_that_came_after_ours_stays(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}, "events": [], "hooks": {
        "after RESUME": {"nodes": {"n1": {"state": ["IDLE", "DRAIN"], "reason": PERSON}}}}})
    result = change(fake, names=["n1"], state="resumed", ours=OURS)
    assert brief(result) == {"n1": ("refused", "owner_person", True)}
    assert fake.now["nodes"]["n1"]["reason"] == PERSON
    assert len(fake.calls("update")) == 1


@pytest.mark.parametrize(("user", "reason", "why"), [
    ("bob(1000)", PERSON, "owner_person"), ("root(0)", "NHC: check | hw\nmore", "owner_tool")])
def test_drain_that_our_resume_wiped_out_is_put_back(fake: Any, user: str, reason: str, why: str) -> None:
    event = ["n1", "DRAIN", user, str(int(time.time())), reason]
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}, "hooks": {"before RESUME": {"events": [event]}},
                "events": [["n1", "DOWN", "bob(1000)", "1000", "older drain"],
                           ["n1", "DOWN", "root(0)", str(int(time.time())), OURS]]})
    result = change(fake, names=["n1"], state="resumed", ours=OURS)
    assert brief(result) == {"n1": ("refused", why, True)}
    assert fake.now["nodes"]["n1"]["state"] == ["IDLE", "DRAIN"]
    assert fake.now["nodes"]["n1"]["reason"] == reason


def test_reason_that_outlived_the_resume_is_put_back(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}, "events": None, "hooks": {
        "after RESUME": {"nodes": {"n1": {"reason": PERSON}}}}})
    result = change(fake, names=["n1"], state="resumed", ours=OURS)
    assert brief(result) == {"n1": ("refused", "owner_person", True)}
    assert fake.now["nodes"]["n1"]["state"] == ["IDLE", "DRAIN"]
    assert fake.now["nodes"]["n1"]["reason"] == PERSON


@pytest.mark.parametrize(("refusal", "error", "why"), [
    ("Access/permission denied", Forbidden, "forbidden"),
    ("Invalid node state specified", Conflict, "invalid_node_state"),
    ("Something else", RecoveryError, "failed")])
def test_slurm_refuses_the_write(fake: Any, refusal: str, error: type[RecoveryError], why: str) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}, "refuse_update": refusal})
    params = {"names": ["n1"], "state": "resumed", "ours": OURS}
    assert brief(change(fake, **params)) == {"n1": ("failed", why, False)}
    with pytest.raises(error) as caught:
        change(fake, tolerate=False, **params)
    assert caught.value.fields["results"][0]["why"] == why


@pytest.mark.parametrize(("present", "reason"), [("IDLE", None), ("DOWN", "Not responding")])
def test_slurm_did_not_take_a_drain(fake: Any, present: str, reason: Any) -> None:
    """The node is as it was: that is no wish of somebody else, and the write may be tried again."""
    fake.world({"nodes": {"n1": entry(present, reason)}, "refuse_update": "Unable to contact slurm controller"})
    params = {"names": ["n1"], "state": "drained", "reason": NEWER}
    assert brief(change(fake, **params)) == {"n1": ("failed", "unreachable", False)}


def test_resume_that_somebody_else_did_first(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("DOWN+DRAIN", OURS)}, "refuse_update": "Invalid node state specified",
                "hooks": {"before RESUME": {"nodes": {"n1": entry("IDLE")}}}})
    assert brief(change(fake, names=["n1"], state="resumed", ours=OURS)) == {"n1": ("done", "", True)}


def test_silence_after_the_write_is_unknown(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("IDLE")}, "hooks": {"after DRAIN": {"says": {"scontrol": {"sleep": 5}}}}})
    params = {"names": ["n1"], "state": "drained", "reason": NEWER, "timeout": 1}
    assert brief(change(fake, **params)) == {"n1": ("failed", "unknown", True)}
    fake.world({"nodes": {"n1": entry("IDLE")}, "hooks": {"after DRAIN": {"says": {"scontrol": {"sleep": 5}}}}})
    with pytest.raises(TimedOut):
        change(fake, tolerate=False, **params)


@pytest.mark.parametrize("params", [
    {"names": [], "state": "drained", "reason": NEWER}, {"names": ["n[1"], "state": "drained", "reason": NEWER},
    {"names": ["ALL"], "state": "down", "reason": NEWER}, {"names": ["n1"], "state": "drained", "reason": " \n"},
    {"names": ["n[0-99999999]"], "state": "down", "reason": NEWER}])
def test_wrong_use_asks_nothing(fake: Any, params: dict) -> None:
    with pytest.raises(BadInput):
        change(fake, **params)
    assert fake.calls() == []


def test_reason_is_one_clean_line(fake: Any) -> None:
    fake.world({"nodes": {"n1": entry("IDLE")}})
    result = change(fake, names=["n1"], state="drained", reason='a\n"b"\x1b[31m ' + "x" * 500)
    assert brief(result) == {"n1": ("done", "", True)}
    reason = fake.now["nodes"]["n1"]["reason"]
    assert reason.startswith("a 'b' [31m xxx")
    assert len(reason) == 200
