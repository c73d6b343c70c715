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
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import job_state, models

NOW = 100_000.0


def job(state: str, count: int = 0, **fields: Any) -> models.Job:
    base, flags = models.split_job_state(state.split("+"))
    defaults: dict[str, Any] = {"batch": True, "requeue": True, "priority": 1}
    return models.Job(id=7, state=base, flags=flags, restart_count=count, **{**defaults, **fields})


REQUEUE = ("requeue", "done", "")


@pytest.mark.parametrize(("found", "recorded", "verdict"), [
    (job("RUNNING"), 0, REQUEUE),
    (job("RUNNING"), None, REQUEUE),
    (job("FAILED"), 0, REQUEUE),
    (job("NODE_FAIL"), 0, REQUEUE),
    (job("TIMEOUT"), 0, REQUEUE),
    (job("OUT_OF_MEMORY"), 0, REQUEUE),
    (job("FAILED+COMPLETING"), 0, REQUEUE),
    (job("RUNNING", het_job_id=7), 0, REQUEUE),
    (job("RUNNING", 1), 2, REQUEUE),
    (job("CANCELLED"), 0, ("", "refused", "cancelled")),
    (job("CANCELLED+COMPLETING"), 0, ("", "refused", "cancelled")),
    (job("CANCELLED"), None, ("", "refused", "cancelled")),
    (job("COMPLETING"), 0, ("", "waiting", "completing")),
    (job("COMPLETED"), 0, ("", "refused", "completed")),
    (job("PENDING"), 0, ("", "done", "pending")),
    (job("RUNNING", batch=False), 0, ("", "refused", "not_batch")),
    (job("RUNNING", requeue=False), 0, ("", "refused", "requeue_disabled")),
    (job("RUNNING", het_job_id=6), 0, ("", "refused", "not_het_leader")),
    (job("FROBNICATED"), 0, ("", "refused", "not_understood")),
    (job("RUNNING+FROBNICATED"), 0, ("", "refused", "not_understood")),
    (None, 0, ("", "refused", "purged")),
    # requeued already
    (job("RUNNING", 1), 0, ("", "done", "")),
    (job("PENDING", 1), 0, ("", "done", "")),
    (job("PENDING", 1, priority=0), 0, ("", "done", "held")),
    (job("PENDING+COMPLETING", 1), 0, ("", "waiting", "completing")),
    (job("CANCELLED", 1), 0, ("", "refused", "cancelled")),
    (job("FAILED", 1), 0, ("", "refused", "ended_again")),
    (job("COMPLETED", 1), 0, ("", "refused", "ended_again")),
])
def test_requeue(found: models.Job, recorded: int, verdict: tuple) -> None:
    judged = job_state.judge("requeued", found, recorded, NOW)
    assert (judged.act, judged.status, judged.why) == verdict


def test_completed_job_runs_again_only_on_request() -> None:
    assert job_state.judge("requeued", job("COMPLETED"), 0, NOW, completed=True).act == "requeue"
    assert job_state.judge("requeued", job("CANCELLED"), 0, NOW, completed=True).act == ""


@pytest.mark.parametrize(("found", "verdict"), [
    (job("PENDING", begin_time=int(NOW) + 120), ("start", "done", "")),
    (job("PENDING", begin_time=int(NOW) - 1), ("", "done", "")),
    (job("PENDING"), ("", "done", "")),
    (job("PENDING", begin_time=int(NOW) + 3600), ("", "refused", "begin_time_of_user")),
    (job("PENDING", priority=0), ("release", "done", "")),
    (job("PENDING", state_reason="JobHeldUser"), ("release", "done", "")),
    (job("PENDING+REQUEUE_HOLD"), ("release", "done", "")),
    (job("RUNNING"), ("", "done", "")),
    (job("PENDING+COMPLETING", begin_time=int(NOW) + 120), ("", "waiting", "completing")),
    (job("CANCELLED"), ("", "refused", "cancelled")),
    (job("COMPLETED"), ("", "refused", "completed")),
    (job("FROBNICATED"), ("", "refused", "not_understood")),
    (None, ("", "refused", "purged")),
])
def test_release(found: models.Job, verdict: tuple) -> None:
    judged = job_state.judge("released", found, None, NOW)
    assert (judged.act, judged.status, judged.why) == verdict


def entry(job_id: int = 7, state: str = "RUNNING", count: int = 0, **fields: Any) -> dict[str, Any]:
    return {"job_id": job_id, "job_state": state.split("+"), "restart_cnt": count, "batch_flag": True, "requeue": True,
            "priority": 1, "comment": "{{ lookup('pipe','id') }}", "name": "$(id)", "nodes": "n1", **fields}


def change(fake: Any, check_mode: bool = False, **params: Any) -> dict[str, Any]:
    return job_state.run({"bin_dir": fake.bin_dir, "tolerate": True, **params}, check_mode)


def brief(result: dict[str, Any]) -> dict[str, tuple]:
    return {each["name"]: (each["status"], each["why"], each["changed"]) for each in result["results"]}


def world(fake: Any, *jobs: dict[str, Any], **more: Any) -> None:
    fake.world({"nodes": {}, "jobs": {str(job["job_id"]): job for job in jobs}, **more})


def test_requeue_and_its_proof(fake: Any) -> None:
    world(fake, entry(7), entry(8, "CANCELLED"), entry(9, count=1))
    result = change(fake, jobs=["7", "8", "9", "10"], state="requeued", restart_counts={"7": 0, "8": "0", 9: 0})
    assert brief(result) == {"7": ("done", "", True), "8": ("refused", "cancelled", False), "9": ("done", "", False),
                             "10": ("refused", "purged", False)}
    assert fake.calls("requeue") == [["scontrol", "requeue", "7"]]
    assert result["diff"]["before"]["7"]["restart_count"] == 0
    assert result["diff"]["after"]["7"]["restart_count"] == 1
    assert "lookup" not in str(result)


def test_requeue_twice_is_once(fake: Any) -> None:
    world(fake, entry(7, becomes=["RUNNING"]))
    params = {"jobs": ["7"], "state": "requeued", "restart_counts": {"7": 0}}
    assert change(fake, **params)["changed"]
    assert not change(fake, **params)["changed"]
    assert len(fake.calls("requeue")) == 1


def test_requeue_of_a_completing_job_waits(fake: Any) -> None:
    world(fake, entry(7, "FAILED+COMPLETING", becomes=["PENDING", "COMPLETING"]))
    started = time.monotonic()
    result = change(fake, jobs=["7"], state="requeued")
    assert brief(result) == {"7": ("waiting", "completing", True)}
    assert time.monotonic() - started < job_state.PROOF_SECONDS + 2
    assert len(fake.calls("requeue")) == 1


def test_proof_that_comes_a_little_later(fake: Any) -> None:
    settled = {"jobs": {"7": {"job_state": ["PENDING"]}}}
    world(fake, entry(7, becomes=["PENDING", "COMPLETING"]), hooks={"after squeue 2": settled})
    assert brief(change(fake, jobs=["7"], state="requeued")) == {"7": ("done", "", True)}
    assert len(fake.calls("squeue")) == 3


def test_cancelled_between_look_and_proof(fake: Any) -> None:
    world(fake, entry(7), hooks={"after requeue": {"jobs": {"7": {"job_state": ["CANCELLED"]}}}})
    assert brief(change(fake, jobs=["7"], state="requeued")) == {"7": ("refused", "cancelled", True)}


@pytest.mark.parametrize(("refusal", "status", "why"), [
    ("Requested operation is presently disabled", "refused", "requeue_disabled"),
    ("Only batch jobs are accepted or processed", "refused", "not_batch"),
    ("Job is pending execution", "refused", "pending"),
    ("Access/permission denied", "failed", "forbidden"),
    ("Invalid job id specified", "failed", "absent"),
    ("Something else", "failed", "failed"),
])
def test_slurm_refuses(fake: Any, refusal: str, status: str, why: str) -> None:
    world(fake, entry(7, refuse=refusal), entry(8))
    result = change(fake, jobs=["7", "8"], state="requeued")
    assert brief(result) == {"7": (status, why, False), "8": ("done", "", True)}


def test_error_of_slurm_carries_the_results(fake: Any) -> None:
    world(fake, entry(7, refuse="Access/permission denied"), entry(8))
    with pytest.raises(Forbidden) as caught:
        change(fake, jobs=["7", "8"], state="requeued", tolerate=False)
    assert [each["status"] for each in caught.value.fields["results"]] == ["failed", "done"]
    world(fake, entry(7, "CANCELLED"))
    with pytest.raises(Conflict, match=r"7 \(refused: cancelled\)"):
        change(fake, jobs=["7"], state="requeued", tolerate=False)


def test_last_task_of_an_array_bears_the_number_of_the_array(fake: Any) -> None:
    world(fake, entry(20, array_job_id=20, array_task_id=2), entry(21, array_job_id=20, array_task_id=1))
    fake_world = fake.now
    fake_world["jobs"]["20_2"] = fake_world["jobs"]["20"]
    fake.world(fake_world)
    change(fake, jobs=["20_2"], state="requeued")
    assert fake.calls("requeue") == [["scontrol", "requeue", "20_2"]]


def test_release_clears_begin_times_and_holds(fake: Any) -> None:
    soon = int(time.time()) + 120
    world(fake, entry(7, "PENDING", eligible_time=soon), entry(8, "PENDING", priority=0), entry(9, "RUNNING"))
    result = change(fake, jobs=["7", "8", "9"], state="released")
    assert brief(result) == {"7": ("done", "", True), "8": ("done", "", True), "9": ("done", "", False)}
    assert fake.calls("update") == [["scontrol", "update", "JobId=7", "StartTime=now"]]
    assert fake.calls("release") == [["scontrol", "release", "8"]]
    assert not change(fake, jobs=["7", "8", "9"], state="released")["changed"]


def test_released_job_that_ended_before_the_proof(fake: Any) -> None:
    world(fake, entry(7, "PENDING", priority=0), hooks={"after release": {"jobs": {"7": {"job_state": ["FAILED"]}}}})
    assert brief(change(fake, jobs=["7"], state="released")) == {"7": ("done", "ended", True)}


@pytest.mark.parametrize("state", ["requeued", "released"])
def test_check_mode(fake: Any, state: str) -> None:
    world(fake, entry(7), entry(8, "PENDING", priority=0), entry(9, "CANCELLED"))
    foreseen = change(fake, True, jobs=["7", "8", "9"], state=state)
    assert not fake.calls("requeue")
    assert not fake.calls("release")
    assert brief(foreseen) == brief(change(fake, jobs=["7", "8", "9"], state=state))


@pytest.mark.parametrize("params", [
    {"jobs": []}, {"jobs": ["x"]}, {"jobs": ["7;other"]}, {"jobs": ["7"], "restart_counts": {"7": "many"}},
    {"jobs": ["7"], "restart_counts": {"7": -1}}, {"jobs": ["7"], "restart_counts": {"seven": 1}}])
def test_wrong_use_asks_nothing(fake: Any, params: dict) -> None:
    with pytest.raises(BadInput):
        change(fake, state="requeued", **params)
    assert fake.calls() == []
