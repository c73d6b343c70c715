# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on Slurm's jobs: their end, what is left of them, and their next run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Forbidden,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    UUID,
    Site,
    late,
    work_of,
)

NONE = {"count": 0, "jobs": {}, "processes": []}


def run(job: int = 11, *nodes: str, start: int = 100) -> AccountingRecord:
    return AccountingRecord(job, "FAILED", nodes=nodes or ("node1", "node2"), start_time=start)


def left(job: int, *pids: int) -> dict[str, Any]:
    """What `orphans` answers."""
    processes = [
        {"pid": pid, "start": 5, "job": job, "name": "rank", "uid": 1000, "how": "environment"} for pid in pids
    ]
    return {"count": len(pids), "jobs": {str(job): len(pids)}, "processes": processes}


OF_11, OF_12 = ("11", "--owner", "11.1000"), ("12", "--owner", "12.1000")


@pytest.fixture(name="site")
def _site() -> Site:
    """Job 11 failed on node1 and node2; nothing of it is left there."""
    site = Site()
    for name in ("node1", "node2", "node3"):
        site.add(name)
        site.helper["ssh-" + name, "orphans"] = NONE
        site.helper["ssh-" + name, "spool-clean"] = {"removed": [], "stale": []}
    site.job(11, "FAILED")
    site.runs = [run()]
    return site


def at(step: str, name: str = "11", **fields: Any) -> Work:
    return work_of(step, name, "requeue_job", **fields)


# ---- await_job_end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "flags", "status"),
    [
        ("RUNNING", (), "waiting"),
        ("SUSPENDED", (), "waiting"),
        ("PENDING", ("COMPLETING",), "waiting"),
        ("FAILED", ("COMPLETING",), "waiting"),
        ("PENDING", (), "done"),
        ("FAILED", (), "done"),
        ("CANCELLED", (), "done"),
    ],
)
def test_await_job_end(site: Site, state: str, flags: tuple, status: str) -> None:
    site.job(11, state, *flags)
    outcome = site.act_one(at("await_job_end"))
    assert outcome.status == status
    assert status == "done" or (outcome.wait.kind, outcome.wait.args) == ("job_not_active", {"job": "11"})
    assert status == "done" or site.act_one(late(at("await_job_end"))).status == "failed"


def test_a_forgotten_job_has_ended(site: Site) -> None:
    assert site.act_one(at("await_job_end", "99")).status == "done"


# ---- end_orphans ---------------------------------------------------------------------------------------------------


def ending(site: Site, address: str, job: int, after: dict[str, Any]) -> None:
    def end(words: tuple) -> dict[str, Any]:
        site.writes.append(words)
        return {"ended": 2, **after}

    site.helper[address, "end-orphans"] = end
    site.helper[address, "orphans"] = left(job, 501, 502)


def test_orphans_of_an_opted_in_job_are_ended_by_name(site: Site) -> None:
    ending(site, "ssh-node2", 11, NONE)
    outcome = site.act_one(at("end_orphans"))
    assert site.writes == [("end-orphans", *OF_11, "--process", "501.5", "--process", "502.5")]
    assert outcome.status == "done"
    assert outcome.proof == {"nodes": ["node1", "node2"], "silent": [], "ended": {"node2": 2}, "left": 0}


def test_nothing_left_needs_no_write(site: Site) -> None:
    site.lost.add(7)
    assert site.act_one(at("end_orphans")).status == "done"


def test_orphans_that_do_not_end(site: Site) -> None:
    ending(site, "ssh-node2", 11, left(11, 501))
    assert site.act_one(at("end_orphans")).status == "waiting"
    assert site.act_one(late(at("end_orphans"))).status == "failed"


def test_orphans_of_a_job_that_is_not_opted_in(site: Site) -> None:
    ending(site, "ssh-node2", 11, NONE)
    site.job(11, "FAILED", comment="{}")
    outcome = site.act_one(at("end_orphans"))
    assert (outcome.status, site.writes) == ("failed", [])
    assert "2 on node2" in outcome.why
    assert site.act_one(at("end_orphans"), site.tools(jobs="all")).status == "done"


def test_a_job_that_has_started_again_keeps_its_processes(site: Site) -> None:
    ending(site, "ssh-node2", 11, NONE)
    site.job(11, "RUNNING", restart_count=1, nodes=("node2",))
    assert site.act_one(at("end_orphans")).wait.kind == "job_not_active"
    site.job(11, "FAILED")

    def starts_meanwhile(_words: tuple) -> dict[str, Any]:
        site.job(11, "RUNNING", restart_count=1, nodes=("node2",))
        return left(11, 777)

    site.helper["ssh-node2", "orphans"] = starts_meanwhile
    assert site.act_one(at("end_orphans")).status == "waiting"

    def has_run_meanwhile(_words: tuple) -> dict[str, Any]:
        site.job(11, "PENDING", restart_count=2)
        return left(11, 777)

    site.job(11, "FAILED", restart_count=1)
    site.helper["ssh-node2", "orphans"] = has_run_meanwhile
    assert site.act_one(at("end_orphans")).status == "waiting"
    assert site.writes == []


def test_a_lost_claim_ends_nothing(site: Site) -> None:
    ending(site, "ssh-node2", 11, NONE)
    site.lost.add(7)
    assert site.act_one(at("end_orphans")).status == "waiting"
    assert site.writes == []


@pytest.mark.parametrize(
    ("trouble", "status"), [(Unreachable("x"), "waiting"), (TimedOut("x"), "waiting"), (Forbidden("x"), "failed")]
)
@pytest.mark.parametrize("step", ["end_orphans", "clean_spool"])
def test_a_silent_node_of_the_last_run_is_not_clean(site: Site, trouble: Any, status: str, step: str) -> None:
    verb = {"end_orphans": "orphans", "clean_spool": "spool-clean"}[step]
    site.helper["ssh-node2", verb] = trouble
    assert site.act_one(at(step)).status == status
    assert site.act_one(late(at(step))).status == "failed"


@pytest.mark.parametrize("step", ["end_orphans", "clean_spool"])
def test_a_silent_node_of_an_earlier_run_is_named_only(site: Site, step: str) -> None:
    site.runs = [run(11, "node3", start=50), run(11, "node1", "node2", start=100)]
    site.helper["ssh-node3", "orphans"] = site.helper["ssh-node3", "spool-clean"] = Unreachable("off")
    outcome = site.act_one(at(step))
    assert outcome.status == "done"
    assert "node3" in outcome.why


@pytest.mark.parametrize(
    ("state", "power", "status", "word"),
    [
        (("IDLE",), None, "done", ""),  # Slurm hears slurmd and has ended the job there
        (("DOWN",), None, "done", ""),
        (("DOWN", "NOT_RESPONDING"), None, "waiting", "node3"),
        (("ALLOCATED", "NOT_RESPONDING"), ("On", UUID), "waiting", "node3"),
        (("DOWN", "NOT_RESPONDING"), ("Off", UUID), "done", ""),
        (("DOWN", "NOT_RESPONDING"), ("Off", "0f0e0d0c-0b0a-0908-0706-050403020100"), "waiting", "node3"),
        (("DOWN", "NOT_RESPONDING"), ("Off", ""), "waiting", "node3"),
        (("DOWN", "NOT_RESPONDING"), ("PoweringOff", UUID), "waiting", "node3"),
        (None, None, "waiting", "node3"),  # Slurm has never heard of it
    ],
)
def test_an_earlier_run_may_live_on_where_nobody_hears_it(site: Site, state: Any, power: Any, status: str, word: str):
    site.runs = [run(11, "node3", start=50), run(11, "node1", "node2", start=100)]
    site.helper["ssh-node3", "orphans"] = Unreachable("frozen")
    if state is None:
        del site.nodes_now["node3"]
    else:
        site.node("node3", *state)
    site.bmc.pop("https://bmc/node3", None)
    if power is not None:
        site.bmc["https://bmc/node3"] = PowerState(*power, "/reset", ("On", "ForceOff"))
    outcome = site.act_one(at("end_orphans"))
    assert (outcome.status, site.writes) == (status, [])
    assert word in outcome.why
    assert site.act_one(late(at("end_orphans"))).status == ("done" if status == "done" else "failed")


def test_two_jobs_on_one_node_are_one_question(site: Site) -> None:
    site.job(12, "FAILED")
    site.runs.append(run(12, "node2"))
    works = [at("end_orphans", incident=7), at("end_orphans", "12", incident=8)]
    assert [outcome.status for outcome in site.act(*works)] == ["done", "done"]
    assert sorted(site.asked) == [("ssh-node1", "orphans", *OF_11), ("ssh-node2", "orphans", *OF_11, *OF_12)]


def test_a_task_of_an_array_is_looked_for_by_its_own_number(site: Site) -> None:
    site.job(15, "FAILED", array_job_id=11, array_task_id=4)
    del site.jobs_now[11]
    site.runs = [run(15, "node1")]
    assert site.act_one(at("end_orphans", "11_4")).status == "done"
    assert site.asked == [("ssh-node1", "orphans", "15", "--owner", "15.1000")]


@pytest.fixture(name="het")
def _het(site: Site) -> Site:
    """Job 11 has the components 11 on node1 and 12 on node2; an earlier run had 12 on node3."""
    site.job(11, "FAILED", het_job_id=11, het_job_offset=0, het_jobs=(11, 12))
    site.job(12, "FAILED", het_job_id=11, het_job_offset=1, het_jobs=(11, 12))
    site.runs = [
        run(11, "node1", start=50),
        run(12, "node3", start=50),
        run(11, "node1", start=100),
        run(12, "node2", start=100),
    ]
    return site


@pytest.mark.parametrize(
    ("step", "words"),
    [("end_orphans", ("orphans", *OF_11, *OF_12)), ("clean_spool", ("spool-clean", "--job", "11", "--job", "12"))],
)
def test_a_heterogeneous_job_is_cleaned_on_the_nodes_of_all_components(het: Site, step: str, words: tuple) -> None:
    assert het.act_one(at(step)).status == "done"
    assert sorted(het.asked) == [(f"ssh-node{number}", *words) for number in (1, 2, 3)]


@pytest.mark.parametrize("step", ["end_orphans", "clean_spool"])
def test_a_silent_node_of_any_component_is_not_clean(het: Site, step: str) -> None:
    for verb in ("orphans", "spool-clean"):
        het.helper["ssh-node2", verb] = Unreachable("off")
    assert het.act_one(at(step)).status == "waiting"


def test_orphans_of_another_component_are_ended(het: Site) -> None:
    ending(het, "ssh-node2", 12, NONE)
    assert het.act_one(at("end_orphans")).status == "done"
    assert het.writes == [("end-orphans", *OF_11, *OF_12, "--process", "501.5", "--process", "502.5")]


@pytest.mark.parametrize("step", ["await_job_end", "end_orphans", "clean_spool"])
@pytest.mark.parametrize("state", [("RUNNING",), ("FAILED", "COMPLETING")])
def test_a_component_that_is_on_its_nodes_is_awaited(het: Site, step: str, state: tuple) -> None:
    het.job(12, *state, het_job_id=11, het_job_offset=1, het_jobs=(11, 12), nodes=("node2",))
    outcome = het.act_one(at(step))
    assert (outcome.wait.kind, outcome.wait.args) == ("job_not_active", {"jobs": ["11", "12"]})
    assert het.asked == []


def test_a_node_that_the_ledger_does_not_know_is_reached_by_slurms_address(site: Site) -> None:
    del site.machines["node2"]
    site.helper["nodeaddr-node2", "orphans"] = NONE
    assert site.act_one(at("end_orphans")).status == "done"
    assert ("nodeaddr-node2", "orphans", *OF_11) in site.asked


def test_a_job_that_never_ran_has_nothing_to_clean(site: Site) -> None:
    site.runs = []
    for step in ("end_orphans", "clean_spool"):
        assert site.act_one(at(step)).status == "done"
    assert site.asked == []


# ---- clean_spool ---------------------------------------------------------------------------------------------------


def test_clean_spool_of_a_job_and_of_a_node(site: Site) -> None:
    site.helper["ssh-node1", "spool-clean"] = {"removed": ["/s/pmix.11.0"], "stale": []}
    node = work_of("clean_spool", site.machines["node3"], "clean_spool", incident=8)
    job, whole = site.act(at("clean_spool"), node)
    assert job.proof == {"nodes": ["node1", "node2"], "removed": {"node1": ["/s/pmix.11.0"]}}
    assert whole.status == "done"
    assert ("ssh-node1", "spool-clean", "--job", "11") in site.asked


def test_the_spool_of_a_job_that_runs_is_left_alone(site: Site) -> None:
    site.job(11, "RUNNING", nodes=("node1",))
    assert site.act_one(at("clean_spool")).wait.kind == "job_not_active"
    assert site.asked == []


# ---- requeue -------------------------------------------------------------------------------------------------------


def test_requeue_and_begin_now(site: Site) -> None:
    outcome = site.act_one(at("requeue"))
    assert (outcome.status, outcome.remember) == ("done", {"restart_count": 1, "did": "requeued"})
    assert site.writes == [("requeue", "11"), ("start", "11")]
    assert site.jobs_now[11].begin_time < time.time()


def test_a_requeue_that_has_happened_is_not_repeated(site: Site) -> None:
    site.act_one(at("requeue"))
    site.writes.clear()
    site.job(11, "RUNNING", restart_count=1, nodes=("node1",))
    outcome = site.act_one(at("requeue", intent={"restart_count": 0}))
    assert (outcome.status, site.writes) == ("done", [])
    assert outcome.remember["did"] == "requeued"


def test_a_job_that_its_script_requeued_only_begins_now(site: Site) -> None:
    site.job(11, "PENDING", restart_count=1, begin_time=int(time.time()) + 110)
    outcome = site.act_one(at("requeue"))
    assert (outcome.status, outcome.remember) == ("done", {"restart_count": 1, "did": "released"})
    assert site.writes == [("start", "11")]


@pytest.mark.parametrize(
    ("now", "another"),
    [({"uid": 5}, False), ({"uid": 5, "restart_count": 2}, False), ({"uid": 6}, True), ({"restart_count": 0}, True)],
)
def test_another_job_that_got_the_number_is_not_requeued(site: Site, now: dict[str, Any], another: bool) -> None:
    site.job(11, "FAILED", **{"restart_count": 1, **now})
    outcome = site.act_one(at("requeue", memory={"job_seen": {"restart_count": 1, "uid": 5}}))
    assert (outcome.status == "failed") is another
    assert (site.writes == []) is another


@pytest.mark.parametrize(
    ("began", "fields", "overridden", "status"),
    [
        (None, {}, (), "done"),  # it waits still
        (0, {}, (), "failed"),
        (-100, {}, (), "done"),  # before this one ended: it waited for something else
        (0, {}, ("dependents",), "done"),
        (0, {"end_time": None}, (), "waiting"),
        (0, {"uid": None}, (), "waiting"),
    ],
)
def test_a_job_that_another_one_began_behind_meanwhile_is_not_requeued(
    site: Site, began: Optional[int], fields: dict[str, Any], overridden: tuple[str, ...], status: str
) -> None:
    now = int(time.time())
    site.job(11, "FAILED", **{"end_time": now - 5, **fields})
    line = "sbatch --dependency=afterany:11 next.sh"
    start = None if began is None else now + began
    site.submitted = [AccountingRecord(12, "RUNNING", start_time=start, submit_line=line)]
    outcome = site.act_one(at("requeue", overridden=overridden))
    assert outcome.status == status, outcome.why
    assert (("requeue", "11") in site.writes) is (status == "done")


FAILED_ON_1 = {"failed_run": {"state": "FAILED", "exit_code": "1:0", "nodes": "node1"}}


@pytest.mark.parametrize(
    ("most", "fields", "expected"),
    [
        (0, {}, None),
        (1, {}, ("node1",)),
        (1, {"excluded_nodes": ("node9",)}, ("node1", "node9")),  # what its user excludes stays
        (1, {"required_nodes": ("node1",)}, None),
        (1, {"het_job_id": 11}, None),
    ],
)
def test_the_next_run_is_kept_off_the_suspect_node(site: Site, most: int, fields: dict, expected: Any) -> None:
    site.job(11, "FAILED", partition="main", **fields)
    outcome = site.act_one(at("requeue", memory=FAILED_ON_1), site.tools(limits={"exclude_nodes": most}))
    assert outcome.status == "done"
    written = [write for write in site.writes if write[0] == "exclude"]
    assert written == ([("exclude", "11", *expected)] if expected else [])
    assert outcome.remember.get("excluded") == ("node1" if expected else None)
    # before it may begin
    assert site.writes[-1] == ("start", "11")


def test_the_last_node_is_not_excluded(site: Site) -> None:
    for name in ("node2", "node3"):
        site.node(name, "DOWN")
    site.job(11, "FAILED", partition="main")
    site.act_one(at("requeue", memory=FAILED_ON_1), site.tools(limits={"exclude_nodes": 1}))
    assert site.writes == [("requeue", "11"), ("start", "11")]


# ---- release_successor ---------------------------------------------------------------------------------------------


@pytest.fixture(name="chain")
def _chain(site: Site) -> Site:
    """Job 11 failed, and job 12 is held by its user to follow it."""
    known = {"uid": 5, "name": "train", "partition": "main"}
    site.job(11, "FAILED", **known)
    site.job(12, "PENDING", priority=0, state_reason="JobHeldUser", **known)
    return site


FOLLOWS = {"successor": 12, "attempt": [1, 3], **FAILED_ON_1}


def releasing(**fields: Any) -> Work:
    return work_of("release_successor", "11", "release_successor", **{"memory": FOLLOWS, **fields})


def test_the_successor_is_released_and_told(chain: Site) -> None:
    outcome = chain.act_one(releasing())
    assert (outcome.status, outcome.remember, outcome.proof["successor"]) == ("done", {"did": "successor"}, "12")
    assert chain.writes == [("release", "12")]
    assert chain.act_one(releasing()).status == "done"  # it was killed before it could say so
    assert chain.writes == [("release", "12")]
    told = work_of("tell", "11", "release_successor", memory={**FOLLOWS, "did": "successor"})
    assert chain.act_one(told).status == "done"
    sentence = "job-recovery #7: released to follow the job before it (1 of 3) after FAILED 1:0 on node1"
    assert chain.writes[1:] == [("tell", "12", sentence)]
    assert chain.act_one(work_of("confirm", "11", "release_successor", memory=FOLLOWS)).status == "done"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_a_successor_that_has_started_needs_no_release(chain: Site, state: str) -> None:
    chain.job(12, state, uid=5, name="train", partition="main")
    assert (chain.act_one(releasing()).status, chain.writes) == ("done", [])


@pytest.mark.parametrize(
    ("number", "state", "fields", "word"),
    [
        (12, "CANCELLED", {}, "CANCELLED"),
        (12, "PENDING", {"uid": 6}, "same user"),
        (12, "PENDING", {"name": "other"}, "same name"),
        (12, "PENDING", {"state_reason": "JobHeldAdmin"}, "held by the same user"),
        (11, "RUNNING", {}, "the job before it is RUNNING"),
        (11, "CANCELLED", {}, "the job before it is CANCELLED"),
        (11, "PENDING", {}, "the job before it is PENDING"),
    ],
)
def test_what_is_not_released_is_named(chain: Site, number: int, state: str, fields: dict, word: str) -> None:
    known = {"uid": 5, "name": "train", "partition": "main"}
    held = {"priority": 0, "state_reason": "JobHeldUser"} if number == 12 else {}
    chain.job(number, state, **{**known, **held, **fields})
    outcome = chain.act_one(releasing())
    assert (outcome.status, chain.writes) == ("failed", [])
    assert word in outcome.why


def test_a_release_without_the_claim_or_without_slurm(chain: Site) -> None:
    chain.lost.add(7)
    assert chain.act_one(releasing()).status == "waiting"
    chain.lost.clear()
    chain.trouble = TimedOut("squeue did not end within 10 s")
    assert chain.act_one(releasing()).status == "waiting"
    assert chain.writes == []
    chain.trouble = None
    del chain.jobs_now[12]
    assert "no such job" in chain.act_one(releasing()).why
    assert chain.act_one(releasing(memory={})).status == "failed"


# ---- tell ----------------------------------------------------------------------------------------------------------

DONE_IT = {**FAILED_ON_1, "did": "requeued", "attempt": [1, 3]}
SENTENCE = "job-recovery #7: requeued (1 of 3) after FAILED 1:0 on node1"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, SENTENCE),
        ("see ticket 4", "see ticket 4 | " + SENTENCE),
        ("{{ 1 }} $(id) ' \" \n\x1b[2J", "{{ 1 }} $(id) ' \" \n\x1b[2J | " + SENTENCE),
        ("job-recovery #6: requeued", "job-recovery #6: requeued | " + SENTENCE),
        ("job-recovery #77: requeued", "job-recovery #77: requeued | " + SENTENCE),
        ("x | " + SENTENCE, None),  # told already
        ("y" * 1990, None),  # no room, and what stands there stays
    ],
)
def test_the_user_is_told_once_and_nothing_is_lost(site: Site, before: Any, after: Any) -> None:
    site.job(11, "PENDING", admin_comment=before)
    assert site.act_one(at("tell", memory=DONE_IT)).status == "done"
    assert site.writes == ([("tell", "11", after)] if after else [])
    assert site.act_one(at("tell", memory=DONE_IT)).status == "done"
    assert len(site.writes) == bool(after)


@pytest.mark.parametrize(("before", "after"), [(None, SENTENCE), ("x", "x | " + SENTENCE), ("x | " + SENTENCE, None)])
def test_the_user_of_a_job_that_has_ended_is_told_in_the_accounting(site: Site, before: Any, after: Any) -> None:
    if before:
        site.accounted[11] = before
    for _again in range(2):
        assert site.act_one(at("tell", memory=DONE_IT)).status == "done"
        assert site.writes == ([("account", "11", after)] if after else [])


@pytest.mark.parametrize("trouble", [Forbidden("access denied"), TimedOut("did not end")])
def test_a_comment_that_cannot_be_written_holds_nothing_up(site: Site, trouble: Any) -> None:
    site.update_trouble = trouble
    outcome = site.act_one(at("tell", memory=DONE_IT))
    assert outcome.status == "done"
    assert str(trouble) in outcome.why
    assert site.act_one(at("tell", "99")).status == "done"
    site.update_trouble, site.trouble = None, trouble
    assert site.act_one(at("tell", memory=DONE_IT)).status == "done"


def test_nobody_is_told_without_the_claim(site: Site) -> None:
    site.lost.add(7)
    assert site.act_one(at("tell", memory=DONE_IT)).status == "waiting"
    assert site.writes == []


@pytest.mark.parametrize(
    ("state", "fields", "word"),
    [
        ("CANCELLED", {}, "cancelled"),
        ("COMPLETED", {}, "completed"),
        ("FAILED", {"requeue": False}, "--no-requeue"),
        ("FAILED", {"batch": False}, "batch"),
        ("FAILED", {"het_job_id": 10}, "leader"),
    ],
)
def test_what_may_not_be_requeued_is_named(site: Site, state: str, fields: dict[str, Any], word: str) -> None:
    site.job(11, state, **fields)
    outcome = site.act_one(at("requeue"))
    assert (outcome.status, site.writes) == ("failed", [])
    assert word in outcome.why


def test_a_forgotten_job_cannot_be_requeued(site: Site) -> None:
    outcome = site.act_one(at("requeue", "99"))
    assert outcome.status == "failed"
    assert "MinJobAge" in outcome.why


def test_a_script_may_have_hidden_a_failed_launch(site: Site) -> None:
    site.job(11, "COMPLETED")
    work = at("requeue", fault_kind="stale_spool", intent={"restart_count": 0}, memory={"completed_run": 0})
    assert site.act_one(work).status == "done"
    assert ("requeue", "11") in site.writes


@pytest.mark.parametrize(
    ("kind", "intent", "memory"),
    [
        ("stale_spool", {"restart_count": 1}, {"completed_run": 0}),  # another run than the one that was looked at
        ("stale_spool", {"restart_count": 1}, {}),  # it ran, or waited, when it was looked at
        ("stale_spool", {}, {}),
        ("job_failed", {"restart_count": 0}, {"completed_run": 0}),
    ],
)
def test_a_run_that_completed_is_never_thrown_away(site: Site, kind: str, intent: dict, memory: dict) -> None:
    site.job(11, "COMPLETED", restart_count=intent.get("restart_count", 0))
    outcome = site.act_one(at("requeue", fault_kind=kind, intent=intent, memory=memory))
    assert (outcome.status, site.writes) == ("failed", [])


def test_a_completing_job_is_waited_for(site: Site) -> None:
    site.job(11, "PENDING", "COMPLETING", restart_count=1)
    outcome = site.act_one(at("requeue", intent={"restart_count": 0}))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "job_pending")


@pytest.mark.parametrize(
    ("reason", "released"),
    [
        ("JobHeldUser", False),
        ("JobHeldAdmin", False),
        ("job_requeued_in_held_state", False),
        ("launch_failed_requeued_held", True),
        ("launch failed requeued held", True),
    ],
)
def test_only_a_hold_of_slurms_own_is_released(site: Site, reason: str, released: bool) -> None:
    site.job(11, "PENDING", "REQUEUE_HOLD", priority=0, state_reason=reason)
    outcome = site.act_one(at("requeue", fault_kind="job_launch_held"))
    assert outcome.status == "done"
    assert (("release", "11") in site.writes) is released


def test_a_hold_that_comes_while_other_nodes_are_looked_for_stays(site: Site) -> None:
    site.job(11, "FAILED", partition="main")
    nodes = site.nodes

    def held_meanwhile(*names: Any) -> Any:
        site.jobs_now[11] = replace(site.jobs_now[11], priority=0, state_reason="JobHeldUser")
        return nodes(*names)

    site.nodes = held_meanwhile  # type: ignore[method-assign]
    outcome = site.act_one(at("requeue", memory=FAILED_ON_1), site.tools(limits={"exclude_nodes": 1}))
    assert (outcome.status, "held" in outcome.why) == ("done", True)
    assert site.jobs_now[11].held
    assert ("release", "11") not in site.writes


def test_a_begin_time_of_the_user_is_kept(site: Site) -> None:
    site.job(11, "PENDING", begin_time=int(time.time()) + 86400)
    outcome = site.act_one(at("requeue"))
    assert (outcome.status, site.writes) == ("done", [])
    assert "begin" in outcome.why


def test_requeue_without_the_claim(site: Site) -> None:
    site.lost.add(7)
    assert site.act_one(at("requeue")).status == "waiting"
    assert site.writes == []


def test_a_run_that_slept_between_look_and_requeue_requeues_nothing(site: Site) -> None:
    site.sleeps_in_look.add(7)
    assert site.act_one(at("requeue", intent={"restart_count": 0})).status == "waiting"
    assert site.writes == []


def test_slurm_that_hangs_is_asked_again(site: Site) -> None:
    site.trouble = TimedOut("scontrol did not end within 10 s")
    for step in ("await_job_end", "end_orphans", "clean_spool", "requeue", "confirm"):
        assert site.act_one(at(step)).status == "waiting"
        assert site.act_one(late(at(step))).status == "failed"


# ---- confirm -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda job: replace(job, state="PENDING", restart_count=1), "done"),
        (lambda job: replace(job, state="RUNNING", restart_count=1), "done"),
        (lambda job: replace(job, state="RUNNING", restart_count=2), "done"),
        (lambda job: replace(job, state="COMPLETED", restart_count=1), "done"),
        (lambda job: replace(job, state="FAILED", restart_count=1), "done"),  # a new fault, with an incident of its own
        (lambda job: replace(job, state="PENDING", restart_count=0), "waiting"),
        (lambda job: replace(job, state="PENDING", flags=("COMPLETING",), restart_count=1), "waiting"),
    ],
)
def test_confirm_a_job(site: Site, change: Callable[[Any], Any], status: str) -> None:
    site.jobs_now[11] = change(site.jobs_now[11])
    assert site.act_one(at("confirm", memory={"restart_count": 1})).status == status


def test_confirm_a_job_that_is_forgotten(site: Site) -> None:
    assert site.act_one(at("confirm", "99", memory={"restart_count": 1})).status == "done"
