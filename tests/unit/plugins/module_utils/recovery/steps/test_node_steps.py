# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on nodes: Slurm, the helper and the BMC."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import STEPS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    NEW_BOOT,
    OLD_BOOT,
    OPTED_IN,
    REASON,
    UUID,
    Site,
    late,
    probe,
    work_of,
)

PROVED_OFF = {"power_off_proved": True, "boot_id": OLD_BOOT}
BMC = "https://bmc/node1"


@pytest.fixture(name="site")
def _site() -> Site:
    site = Site()
    site.add("node1")
    return site


def test_every_step_of_every_plan_exists() -> None:
    assert set(STEPS) == set(plans.ORDER)
    assert all(step.name == name for name, step in STEPS.items())


# ---- what all steps have in common ---------------------------------------------------------------------------------

WRITING = ("drain", "down", "resume", "fence", "power_on", "reboot", "clean_spool", "restart_daemon")


def prepared(site: Site, step: str) -> Any:
    """A work at a step that would write now."""
    site.helper.update(
        {
            ("ssh-node1", "reboot"): lambda _words: site.writes.append("reboot") or {"rebooting": True},
            ("ssh-node1", "spool-clean"): lambda _words: site.writes.append("clean") or {"removed": [], "stale": []},
            ("ssh-node1", "restart"): lambda _words: site.writes.append("restart") or {"changed": ["slurmd.service"]},
        }
    )
    if step == "resume":
        site.node("node1", "DOWN", "DRAIN", reason=REASON)
    if step == "power_on":
        site.bmc[BMC] = replace(site.bmc[BMC], state="Off")
    return work_of(step, site.machines["node1"], memory=PROVED_OFF)


@pytest.mark.parametrize("step", WRITING)
def test_a_run_that_lost_its_claim_writes_nothing(site: Site, step: str) -> None:
    work = prepared(site, step)
    site.lost.add(work.incident)
    outcome = site.act_one(work)
    assert site.writes == []
    assert (outcome.status, outcome.wait.kind) == ("waiting", "time")


@pytest.mark.parametrize("step", ["drain", "down", "resume"])
def test_a_run_that_slept_between_look_and_write_writes_nothing(site: Site, step: str) -> None:
    work = replace(prepared(site, step), intent={"slurm_before": {}})
    site.sleeps_in_look.add(work.incident)
    assert site.act_one(work).status == "waiting"
    assert site.writes == []


@pytest.mark.parametrize("step", WRITING)
def test_a_run_that_has_its_claim_writes_once(site: Site, step: str) -> None:
    outcome = site.act_one(prepared(site, step))
    assert len(site.writes) == 1
    assert outcome.status == ("waiting" if step == "restart_daemon" else "done")


@pytest.mark.parametrize("step", ["drain", "down", "resume", "await_drained", "await_boot", "verify", "confirm"])
@pytest.mark.parametrize(
    ("trouble", "status"),
    [(TimedOut("no answer"), "waiting"), (Unreachable("refused"), "waiting"), (Forbidden("no"), "failed")],
)
def test_slurm_that_does_not_answer_is_asked_again(site: Site, step: str, trouble: Any, status: str) -> None:
    site.trouble = trouble
    outcome = site.act_one(work_of(step, site.machines["node1"], memory=PROVED_OFF))
    assert outcome.status == status
    assert site.act_one(late(work_of(step, site.machines["node1"], memory=PROVED_OFF))).status == "failed"
    assert site.writes == []


def test_one_targets_trouble_is_its_own(site: Site) -> None:
    second, third = site.add("node2"), site.add("node3")
    site.node("node2", "IDLE", "DRAIN", reason="ticket 4711")
    site.lost.add(3)
    works = [
        work_of("drain", machine, incident=number, reason="incident %d" % number)
        for number, machine in enumerate((site.machines["node1"], second, third), 1)
    ]
    assert [outcome.status for outcome in site.act(*works)] == ["done", "failed", "waiting"]
    assert site.writes == [("node1", "DRAIN", "incident 1")]


# ---- drain, down, resume -------------------------------------------------------------------------------------------


def test_drain_keeps_what_is_needed_later(site: Site) -> None:
    site.node("node1", "MIXED", reason="Not responding")
    site.job(11, "RUNNING", nodes=("node1", "node2"))
    site.job(12, "RUNNING", nodes=("node2",))
    site.job(13, "PENDING")
    outcome = site.act_one(work_of("drain", site.machines["node1"]))
    assert outcome.status == "done"
    assert outcome.remember["jobs"] == [11]
    assert outcome.remember["slurm_before"]["reason"] == "Not responding"
    assert outcome.remember["slurm_before"]["slurmd_start_time"] == 1010
    assert outcome.remember["job_nodes"] == 2
    assert site.nodes_now["node1"].reason == REASON


def test_a_repeated_drain_keeps_the_first_look(site: Site) -> None:
    first = STEPS["drain"].intend([work_of("drain", site.machines["node1"])], site.tools())[7]
    site.node("node1", "IDLE", "DRAIN", reason=REASON)
    outcome = site.act_one(work_of("drain", site.machines["node1"], intent=first))
    assert (outcome.status, outcome.remember["slurm_before"]["state"]) == ("done", "IDLE")
    assert site.writes == []


def test_a_persons_drain_is_left_alone(site: Site) -> None:
    site.node("node1", "IDLE", "DRAIN", reason="ADMIN SHUTDOWN")
    outcome = site.act_one(work_of("drain", site.machines["node1"]))
    assert (outcome.status, site.writes) == ("failed", [])
    assert "a person's" in outcome.why


def test_whom_a_request_overrides_is_replaced_word_for_word(site: Site) -> None:
    site.node("node1", "IDLE", "DRAIN", reason="bob: disk")
    asked = replace(work_of("drain", site.machines["node1"]), overridden=("owner",))
    asked = replace(asked, intent={"slurm_before": {"reason": "bob: disk"}})
    site.node("node1", "IDLE", "DRAIN", reason="carol: disk")  # somebody else's since the request
    assert (site.act_one(asked).status, site.writes) == ("failed", [])
    site.node("node1", "IDLE", "DRAIN", reason="bob: disk")
    assert site.act_one(asked).status == "done"
    assert site.nodes_now["node1"].reason == REASON


def test_down_only_with_the_fences_proof(site: Site) -> None:
    site.node("node1", "MIXED", "DRAIN", reason=REASON)
    outcome = site.act_one(work_of("down", site.machines["node1"]))
    assert (outcome.status, site.writes) == ("failed", [])
    assert site.act_one(work_of("down", site.machines["node1"], memory=PROVED_OFF)).status == "done"
    assert site.nodes_now["node1"].base_state == "DOWN"
    assert site.act_one(work_of("down", site.machines["node1"], memory=PROVED_OFF)).status == "done"
    assert len(site.writes) == 1


def test_resume_waits_for_the_registration(site: Site) -> None:
    site.node("node1", "DOWN", "DRAIN", "NOT_RESPONDING", reason=REASON)
    outcome = site.act_one(work_of("resume", site.machines["node1"]))
    assert (outcome.status, outcome.wait.kind, site.writes) == ("waiting", "node_registered", [])
    assert site.act_one(late(work_of("resume", site.machines["node1"]))).status == "failed"
    site.node("node1", "DOWN", "DRAIN", reason=REASON)
    assert site.act_one(work_of("resume", site.machines["node1"])).status == "done"
    assert site.act_one(work_of("resume", site.machines["node1"])).status == "done"
    assert len(site.writes) == 1


@pytest.mark.parametrize("reason", ["ticket 4711", REASON + ", Kill task failed", "NHC: gpu", None])
def test_resume_only_what_is_ours(site: Site, reason: Any) -> None:
    site.node("node1", "IDLE", "DRAIN", reason=reason)
    assert site.act_one(work_of("resume", site.machines["node1"])).status == "failed"
    assert site.writes == []


@pytest.mark.parametrize("step", ["drain", "down", "resume"])
def test_a_state_that_slurm_does_not_know_itself_yet_is_asked_for_again(site: Site, step: str) -> None:
    site.node("node1", "UNKNOWN", reason=REASON)
    work = work_of(step, site.machines["node1"], memory=PROVED_OFF)
    assert site.act_one(work).status == "waiting"
    assert site.act_one(late(work)).status == "failed"
    assert site.writes == []


def test_nodes_that_are_not_in_slurm_are_done(site: Site) -> None:
    machine = replace(site.machines["node1"], slurm_name="")
    for step in ("drain", "resume", "clean_spool"):
        assert site.act_one(work_of(step, machine)).status == "done"
    assert site.writes == []


# ---- await_drained -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "flags", "status"),
    [
        ("MIXED", ("DRAIN",), "waiting"),
        ("IDLE", ("COMPLETING", "DRAIN"), "waiting"),
        ("IDLE", ("DRAIN",), "done"),
        ("DOWN", ("DRAIN", "NOT_RESPONDING"), "done"),
        ("IDLE", (), "failed"),
    ],
)
def test_await_drained(site: Site, base: str, flags: tuple, status: str) -> None:
    site.node("node1", base, *flags, reason=REASON)
    outcome = site.act_one(work_of("await_drained", site.machines["node1"], "reboot_over_ssh"))
    assert outcome.status == status
    assert status != "waiting" or outcome.wait.kind == "node_drained"


@pytest.mark.parametrize(
    ("base", "flags", "under_jobs", "status", "why"),
    [
        ("MIXED", (), False, "failed", "not rebooted under them"),
        ("ALLOCATED", ("COMPLETING",), False, "failed", "not rebooted under them"),
        ("MIXED", (), True, "done", "time is over"),
        ("IDLE", ("COMPLETING",), False, "done", "time is over"),  # a reboot is what ends it
    ],
)
def test_a_drain_that_takes_too_long_ends(
    site: Site, base: str, flags: tuple, under_jobs: bool, status: str, why: str
) -> None:
    site.node("node1", base, "DRAIN", *flags, reason=REASON)
    tools = site.tools(limits={"reboot_under_jobs": under_jobs})
    outcome = site.act_one(late(work_of("await_drained", site.machines["node1"], "reboot_over_ssh")), tools)
    assert outcome.status == status
    assert why in outcome.why


@pytest.mark.parametrize(
    ("plan", "base", "others", "status"),
    [
        ("reboot_over_ssh", "IDLE", [], "done"),
        ("reboot_over_ssh", "IDLE", [("RUNNING", None)], "waiting"),
        ("reboot_over_ssh", "IDLE", [("COMPLETING", 10)], "waiting"),  # it may yet end by itself
        ("reboot_over_ssh", "MIXED", [], "waiting"),
        ("clean_spool", "IDLE", [], "waiting"),  # no reboot would follow
    ],
)
def test_a_job_that_does_not_end_is_not_waited_for(
    site: Site, plan: str, base: str, others: list, status: str
) -> None:
    site.node("node1", base, "COMPLETING", "DRAIN", reason=REASON)
    now = int(time.time())
    site.job(1, "COMPLETING", "COMPLETING", nodes=("node1",), end_time=now - 1000)
    for number, (state, ago) in enumerate(others, 2):
        flags = ("COMPLETING",) if state == "COMPLETING" else ()
        site.job(number, state, *flags, nodes=("node1",), end_time=now - ago if ago else None)
    assert site.act_one(work_of("await_drained", site.machines["node1"], plan)).status == status


MINE = {"comment": OPTED_IN}
ONCE = '{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}}'
OTHERS = {"comment": None}


@pytest.mark.parametrize(
    ("limits", "plan", "jobs", "status"),
    [
        ({"drain_policy": "end"}, "reboot_over_ssh", [MINE], "waiting"),
        ({"drain_policy": "deadline"}, "reboot_over_ssh", [MINE], "waiting"),
        ({"drain_policy": "deadline", "reboot_under_jobs": True}, "reboot_over_ssh", [MINE], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [MINE], "done"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [MINE, OTHERS], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [OTHERS], "waiting"),
        ({"drain_policy": "now", "reboot_under_jobs": True}, "reboot_over_ssh", [MINE, OTHERS], "done"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [{**MINE, "requeue": False}], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [{"comment": ONCE}], "done"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [{"comment": ONCE, "restart_count": 1}], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [{**MINE, "restart_count": None}], "waiting"),
        ({"drain_policy": "now", "default_attempts": 2}, "reboot_over_ssh", [{**MINE, "restart_count": 2}], "waiting"),
        ({"drain_policy": "now", "max_attempts": 1}, "reboot_over_ssh", [{**MINE, "restart_count": 1}], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [{**MINE, "batch": False}], "waiting"),
        ({"drain_policy": "now"}, "reboot_over_ssh", [], "waiting"),  # Slurm says MIXED and tells of no job
        ({"drain_policy": "now", "reboot_under_jobs": True}, "reboot_over_ssh", [], "waiting"),
        ({"drain_policy": "now"}, "clean_spool", [MINE], "waiting"),
    ],
)
def test_jobs_are_waited_for_as_the_policy_says(
    site: Site, limits: dict[str, Any], plan: str, jobs: list, status: str
) -> None:
    site.node("node1", "MIXED", "DRAIN", reason=REASON)
    for number, fields in enumerate(jobs, 1):
        site.job(number, "RUNNING", nodes=("node1",), **fields)
    outcome = site.act_one(work_of("await_drained", site.machines["node1"], plan), site.tools(limits=limits))
    assert outcome.status == status
    assert site.writes == []


@pytest.mark.parametrize(("policy", "status"), [("end", "waiting"), ("deadline", "failed"), ("now", "failed")])
def test_a_job_of_others_that_runs_on_and_on(site: Site, policy: str, status: str) -> None:
    site.node("node1", "MIXED", "DRAIN", reason=REASON)
    site.job(1, "RUNNING", nodes=("node1",), comment=None)
    tools = site.tools(limits={"drain_policy": policy, "drain_timeout": 300})
    begun = time.time() - 400
    seconds = decide.step_seconds("await_drained", tools.settings.limits)
    work = work_of("await_drained", site.machines["node1"], "reboot_over_ssh", first_started_at=begun)
    outcome = site.act_one(replace(work, deadline=begun + seconds), tools)
    assert outcome.status == status
    assert outcome.wait is None or outcome.wait.until == pytest.approx(time.time() + 600, abs=5)


def test_while_nobody_can_tell_whose_jobs_run_there_they_are_awaited(site: Site) -> None:
    site.node("node1", "MIXED", "DRAIN", reason=REASON)
    site.job(1, "RUNNING", nodes=("node1",))
    site.jobs_trouble = TimedOut("no answer")
    tools = site.tools(limits={"drain_policy": "now"})
    assert site.act_one(work_of("await_drained", site.machines["node1"], "reboot_over_ssh"), tools).status == "waiting"


def test_while_nobody_can_tell_which_jobs_are_stuck_the_drain_is_awaited(site: Site) -> None:
    site.node("node1", "IDLE", "COMPLETING", "DRAIN", reason=REASON)
    site.job(1, "COMPLETING", "COMPLETING", nodes=("node1",), end_time=1)
    site.conf = {}
    assert site.act_one(work_of("await_drained", site.machines["node1"], "reboot_over_ssh")).status == "waiting"


# ---- reboot and await_boot -----------------------------------------------------------------------------------------


def test_reboot_asks_for_the_boot_on_record(site: Site) -> None:
    site.helper["ssh-node1", "reboot"] = {"rebooting": True, "boot_id": OLD_BOOT}
    outcome = site.act_one(work_of("reboot", site.machines["node1"]))
    assert (outcome.status, outcome.remember["boot_id"]) == ("done", OLD_BOOT)
    assert site.asked[-1][:4] == ("ssh-node1", "reboot", "--if-boot-id", OLD_BOOT)
    assert "--if-machine-id" in site.asked[-1]


def test_reboot_proves_the_boot_when_none_is_on_record(site: Site) -> None:
    machine = replace(site.machines["node1"], boot_id="")
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    site.helper["ssh-node1", "reboot"] = {"rebooting": True, "boot_id": NEW_BOOT}
    assert site.act_one(work_of("reboot", machine)).remember["boot_id"] == NEW_BOOT
    site.helper["ssh-node1", "probe"] = probe("Welcome")
    outcome = site.act_one(work_of("reboot", machine))
    assert outcome.status == "failed"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"rebooting": False, "boot_id": NEW_BOOT}, "done"),  # it rebooted already
        ({"rebooting": False, "boot_id": OLD_BOOT}, "waiting"),
        ({"rebooting": False, "boot_id": "garbage"}, "waiting"),
        ({}, "waiting"),
        (TimedOut("no answer"), "waiting"),
        (Unreachable("refused"), "waiting"),
        (Forbidden("permission denied"), "failed"),
        (Conflict("another machine"), "failed"),
        (Absent("no helper"), "failed"),
    ],
)
def test_answers_to_a_reboot(site: Site, answer: Any, status: str) -> None:
    site.helper["ssh-node1", "reboot"] = answer
    assert site.act_one(work_of("reboot", site.machines["node1"])).status == status


def boot_work(site: Site, plan: str = "reboot_by_power", **memory: Any) -> Any:
    before = {"slurmd_start_before": 1010, "boot_id": OLD_BOOT}
    return work_of("await_boot", site.machines["node1"], plan, memory={**before, **memory})


def booted(site: Site, **fields: Any) -> None:
    now = int(time.time())
    facts = {"boot_time": now - 5, "slurmd_start_time": now - 3, "reason": REASON, **fields}
    site.node("node1", "DOWN", "DRAIN", **facts)


def test_a_new_boot_that_has_registered(site: Site) -> None:
    booted(site)
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    outcome = site.act_one(boot_work(site))
    assert (outcome.status, outcome.remember) == ("done", {"new_boot_id": NEW_BOOT})


def test_before_the_registration_nobody_is_asked(site: Site) -> None:
    site.node("node1", "DOWN", "DRAIN", "NOT_RESPONDING")
    outcome = site.act_one(boot_work(site))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "node_registered")
    assert outcome.wait.args == {"node": "node1", "slurmd_start_time": 1010}
    assert site.asked == []


@pytest.mark.parametrize(
    "told",
    [
        probe(OLD_BOOT),
        probe("Welcome to node1"),
        probe(NEW_BOOT.upper() + "x"),
        probe(""),
        probe(NEW_BOOT, uptime=-4000.0),  # Slurm's BootTime is of an earlier boot than this one
        Unreachable("sshd is not up yet"),
    ],
    ids=["same boot", "banner", "malformed", "empty", "stale registration", "no ssh"],
)
def test_only_a_proved_boot_counts(site: Site, told: Any) -> None:
    booted(site)
    site.helper["ssh-node1", "probe"] = told
    outcome = site.act_one(boot_work(site))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "time")
    assert site.act_one(late(boot_work(site))).status == "failed"


def test_slurmd_that_was_only_restarted_is_no_boot(site: Site) -> None:
    site.node("node1", "DOWN", "DRAIN", slurmd_start_time=1010, reason=REASON)
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    assert site.act_one(boot_work(site)).status == "waiting"


def test_without_a_boot_on_record_a_reboot_is_not_proved(site: Site) -> None:
    booted(site)
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    site.machines["node1"] = replace(site.machines["node1"], boot_id="")
    assert site.act_one(boot_work(site, boot_id="")).status == "waiting"


def test_a_node_that_came_back_may_have_the_same_boot(site: Site) -> None:
    site.helper["ssh-node1", "probe"] = probe(OLD_BOOT)
    outcome = site.act_one(boot_work(site, "return_node"))
    assert (outcome.status, outcome.remember["new_boot_id"]) == ("done", OLD_BOOT)
    site.node("node1", "DOWN", "DRAIN", "NOT_RESPONDING")
    assert site.act_one(boot_work(site, "return_node")).wait.args == {"node": "node1"}


@pytest.mark.parametrize("step", ["reboot", "fence"])
def test_a_second_reboot_of_an_incident_ends_the_boot_that_it_proved(site: Site, step: str) -> None:
    site.helper["ssh-node1", "reboot"] = {"rebooting": True, "boot_id": NEW_BOOT}
    memory = {"boot_id": OLD_BOOT, "new_boot_id": NEW_BOOT}
    outcome = site.act_one(work_of(step, site.machines["node1"], memory=memory))
    assert (outcome.remember["boot_id"], outcome.remember["new_boot_id"]) == (NEW_BOOT, "")


# ---- fence and power_on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "heard"), [((), True), (("NOT_RESPONDING",), False)])
def test_fence_powers_no_node_off_that_answers_again(site: Site, flags: tuple, heard: bool) -> None:
    site.helper["ssh-node1", "probe"] = {"boot_id": OLD_BOOT}
    site.node("node1", "ALLOCATED", *flags)
    outcome = site.act_one(work_of("fence", site.machines["node1"]))
    assert (outcome.status, site.writes) == ("failed", [])
    assert outcome.proof == {plans.ANSWERS_AGAIN: heard}


@pytest.mark.parametrize("word", ["banner", "refused", "silent"])
def test_fence_leaves_a_node_alone_that_slurm_hears_and_that_answers_in_any_way(site: Site, word: str) -> None:
    site.ports["ssh-node1"] = word
    site.node("node1", "ALLOCATED")
    outcome = site.act_one(work_of("fence", site.machines["node1"], memory={plans.BY_PROBES: True}))
    assert (outcome.status, site.writes) == ("failed", [])
    assert outcome.proof == {plans.ANSWERS_AGAIN: True}


def test_fence_ends_a_node_that_slurm_hears_and_that_does_not_answer(site: Site) -> None:
    site.helper["ssh-node1", "probe"] = {"boot_id": OLD_BOOT}  # it would be an answer, and nobody waits for it
    outcome = site.act_one(work_of("fence", site.machines["node1"], memory={plans.BY_PROBES: True}))
    assert (outcome.status, site.writes) == ("done", [(BMC, "Off")])


@pytest.mark.parametrize("memory", [{}, {plans.BY_PROBES: True}, {"reboot_at": 1.0}], ids=["verdict", "probes", "told"])
@pytest.mark.parametrize(
    ("others", "status"),
    [
        ([], "done"),  # a cluster of one: there is no witness
        (["banner"], "done"),
        (["no route"], "waiting"),
        (["silent", "no route"], "waiting"),
        (["refused", "silent", "no route"], "done"),
        (["unknown", "unknown", "banner"], "waiting"),
        (["no route"] * 3, "waiting"),
        (["banner"] * 60 + ["no route"] * 240, "waiting"),
        (["banner"] * 240 + ["no route"] * 60, "done"),
    ],
)
def test_fence_powers_no_node_off_while_most_others_are_silent(
    site: Site, others: list[str], status: str, memory: dict[str, Any]
) -> None:
    site.node("node1", "DOWN", "NOT_RESPONDING")
    for number, word in enumerate(others, 2):
        site.add("node%d" % number)
        site.ports["ssh-node%d" % number] = word
    work = work_of("fence", site.machines["node1"], memory=memory)
    outcome = site.act_one(work)
    assert (outcome.status, bool(site.writes)) == (status, status == "done")
    if status == "waiting":
        assert "cut off" in outcome.why
        assert site.act_one(late(work)).status == "failed"
        assert site.act_one(replace(work, overridden=("common_cause",))).status == "done"


def test_all_nodes_of_one_run_bear_witness_of_each_other(site: Site) -> None:
    machines = [site.machines["node1"], *(site.add("node%d" % number) for number in (2, 3, 4))]
    works = [replace(work_of("fence", machine), incident=number) for number, machine in enumerate(machines, 1)]
    assert {outcome.status for outcome in site.act(*works)} == {"waiting"}
    assert site.writes == []


def test_a_node_that_is_off_is_dead_whatever_the_others_do(site: Site) -> None:
    site.add("node2")
    site.bmc[BMC] = replace(site.bmc[BMC], state="Off")
    assert site.act_one(work_of("fence", site.machines["node1"])).status == "done"
    site.bmc[BMC] = replace(site.bmc[BMC], uuid="00000000-0000-4000-8000-00000000000f")
    assert site.act_one(work_of("fence", site.machines["node1"])).status == "waiting"


def test_fence_waits_where_nobody_can_ask(site: Site) -> None:
    site.ports["ssh-node1"] = "unknown"
    with pytest.raises(Unreachable):
        site.act_one(work_of("fence", site.machines["node1"], memory={plans.BY_PROBES: True}))
    assert site.writes == []


@pytest.mark.parametrize(
    "error",
    [Forbidden("SSH says permission denied"), Absent("ssh cannot be run"), Unreadable("no JSON"), Conflict("host key")],
)
def test_a_helper_that_cannot_be_asked_is_no_silence(site: Site, error: RecoveryError) -> None:
    site.helper["ssh-node1", "probe"] = error
    site.ports["ssh-node1"] = "banner"
    second = site.add("node2")
    first, other = site.act(
        work_of("fence", site.machines["node1"]), replace(work_of("fence", second), incident=8)
    )
    assert (first.status, other.status) == ("waiting", "done")
    assert site.writes == [("https://bmc/node2", "Off")]
    assert site.act_one(late(work_of("fence", site.machines["node1"]))).status == "failed"


def test_where_nobody_can_ask_for_an_address_nobody_is_silent(site: Site) -> None:
    site.ports["ssh-node1"] = "unknown"
    with pytest.raises(Unreachable):
        site.act_one(work_of("fence", site.machines["node1"]))
    assert site.writes == []


def test_fence_ends_a_node_that_would_not_reboot(site: Site) -> None:
    site.helper["ssh-node1", "probe"] = {"boot_id": OLD_BOOT}
    work = work_of("fence", site.machines["node1"], memory={"reboot_at": 1.0})
    assert site.act_one(work).status == "done"


def test_fence_waits_for_slurm_where_a_node_answers_again(site: Site) -> None:
    site.helper["ssh-node1", "probe"] = {"boot_id": OLD_BOOT}
    site.trouble = Unreachable("slurmctld is down")
    with pytest.raises(Unreachable):
        site.act_one(work_of("fence", site.machines["node1"]))
    assert site.writes == []


def test_fence_proves_off(site: Site) -> None:
    outcome = site.act_one(work_of("fence", site.machines["node1"]))
    assert outcome.status == "done"
    assert outcome.remember["power_off_proved"] is True
    assert outcome.remember["boot_id"] == OLD_BOOT
    assert outcome.remember["slurmd_start_before"] == 1010
    assert site.act_one(work_of("fence", site.machines["node1"])).status == "done"
    assert site.writes == [(BMC, "Off")]


@pytest.mark.parametrize(
    "change",
    [
        {"bmc_url": ""},
        {"smbios_uuid": ""},
        {"smbios_uuid": "00000000-0000-0000-0000-000000000000"},
        {"smbios_uuid": UUID[:-1] + "0"},
    ],
)
def test_fence_never_touches_a_doubtful_bmc(site: Site, change: dict[str, str]) -> None:
    outcome = site.act_one(work_of("fence", replace(site.machines["node1"], **change)))
    assert (outcome.status, site.writes) == ("failed", [])


def test_off_that_does_not_come(site: Site) -> None:
    site.bmc_obeys = False
    work = work_of("fence", site.machines["node1"])
    outcome = site.act_one(work)
    assert (outcome.status, outcome.wait.kind) == ("waiting", "time")
    assert "power_off_proved" not in outcome.remember
    assert site.act_one(replace(work, first_started_at=time.time() - 61)).status == "failed"


def test_a_bmc_that_is_busy_is_asked_again(site: Site) -> None:
    del site.bmc[BMC]
    for step in ("fence", "power_on"):
        assert site.act_one(work_of(step, site.machines["node1"])).status == "waiting"
        assert site.act_one(late(work_of(step, site.machines["node1"]))).status == "failed"


def test_power_on_is_a_level(site: Site) -> None:
    for state, asked in (("Off", 1), ("On", 0), ("PoweringOn", 0)):
        site.writes.clear()
        site.bmc[BMC] = replace(site.bmc[BMC], state=state)
        outcome = site.act_one(work_of("power_on", site.machines["node1"]))
        assert (outcome.status, outcome.remember["power_off_proved"]) == ("done", False)
        assert len(site.writes) == asked


# ---- restart_daemon, clean_spool, verify, confirm -------------------------------------------------------------------


def restart_work(site: Site, **fields: Any) -> Any:
    return work_of("restart_daemon", site.machines["node1"], "restart_daemon", fault_kind="daemon_down", **fields)


STARTED = {"changed": ["slurmd.service"], "units": {}}
NOTHING = {"changed": [], "units": {}}


def test_a_dead_slurmd_is_started_and_registers(site: Site) -> None:
    def start(_words: Any) -> dict[str, Any]:
        site.node("node1", "IDLE", slurmd_start_time=2000)
        return STARTED

    site.helper["ssh-node1", "restart"] = start
    outcome = site.act_one(restart_work(site))
    assert (outcome.status, outcome.proof["started"]) == ("done", ["slurmd.service"])
    (asked,) = site.asked
    assert asked[:3] == ("ssh-node1", "restart", "slurmd.service")
    assert {"--if-boot-id", OLD_BOOT, "--if-machine-id"} < set(asked)  # never on another boot or machine


def test_a_started_slurmd_that_has_not_registered_is_awaited(site: Site) -> None:
    site.helper["ssh-node1", "restart"] = STARTED
    outcome = site.act_one(restart_work(site))
    assert (outcome.status, outcome.wait.kind) == ("waiting", "node_registered")
    assert outcome.wait.args["slurmd_start_time"] == 1010
    site.helper["ssh-node1", "restart"] = NOTHING
    again = restart_work(site, intent={"slurmd_start_time": 1010}, memory=outcome.remember)
    assert site.act_one(again).status == "waiting"
    assert site.act_one(late(again)).status == "failed"
    site.node("node1", "IDLE", slurmd_start_time=2000)
    assert site.act_one(again).status == "done"


def test_nothing_is_restarted_that_is_active(site: Site) -> None:
    site.helper["ssh-node1", "restart"] = NOTHING
    outcome = site.act_one(restart_work(site))
    assert (outcome.status, outcome.proof) == ("done", {"started": []})


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (Unreachable("x"), "waiting"),
        (TimedOut("systemctl did not end"), "waiting"),
        (Conflict("another boot"), "failed"),
        (Absent("no such unit"), "failed"),
        (Forbidden("x"), "failed"),
    ],
)
def test_a_node_that_cannot_be_asked(site: Site, told: Any, status: str) -> None:
    site.helper["ssh-node1", "restart"] = told
    assert site.act_one(restart_work(site)).status == status


def test_clean_spool_of_a_node_acts_on_the_proved_boot_only(site: Site) -> None:
    site.helper["ssh-node1", "spool-clean"] = {"removed": ["/s/pmix.7.0"], "stale": []}
    outcome = site.act_one(work_of("clean_spool", site.machines["node1"], memory={"new_boot_id": NEW_BOOT}))
    assert outcome.proof == {"nodes": ["node1"], "removed": {"node1": ["/s/pmix.7.0"]}}
    assert site.asked == [("ssh-node1", "spool-clean", "--if-boot-id", NEW_BOOT)]


def test_what_is_left_in_the_spool_is_not_clean(site: Site) -> None:
    site.helper["ssh-node1", "spool-clean"] = {"removed": [], "stale": ["/s/pmix.7.0"]}
    assert site.act_one(work_of("clean_spool", site.machines["node1"])).status == "waiting"
    assert site.act_one(late(work_of("clean_spool", site.machines["node1"]))).status == "failed"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "done"),
        ({"cpus": 3}, "failed"),
        ({"memory_mb": 1000}, "failed"),
        ({"cpus": 8}, "done"),
        ({"reason": "Low RealMemory (reported:1900 < 100.00% of configured:2000)"}, "failed"),
        ({"flags": ("DRAIN", "INVALID_REG")}, "failed"),
        ({"flags": ("DRAIN", "NOT_RESPONDING")}, "waiting"),
    ],
)
def test_verify(site: Site, fields: dict[str, Any], status: str) -> None:
    site.nodes_now["node1"] = replace(site.nodes_now["node1"], **{"flags": ("DRAIN",), "reason": REASON, **fields})
    before = {"slurm_before": {"cpus": 4, "memory_mb": 2000}}
    assert site.act_one(work_of("verify", site.machines["node1"], memory=before)).status == status


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"fit": True, "rc": 0}, "done"),
        ({"fit": False, "rc": 1, "output": "GPU 3\x1b[31m is gone\n"}, "failed"),
        ({}, "failed"),
        (Absent("no health command"), "failed"),
        (TimedOut("x"), "waiting"),
    ],
)
def test_the_sites_health_command(site: Site, answer: Any, status: str) -> None:
    site.helper["ssh-node1", "health"] = answer
    tools = site.tools(nodes={"health_command": "/usr/local/sbin/fit"})
    outcome = site.act_one(work_of("verify", site.machines["node1"]), tools)
    assert outcome.status == status
    assert outcome.why.isprintable()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"passed": True, "rc": 0}, "done"),
        ({"passed": False, "rc": 1, "output": "srun: error: task 0\x1b[31m launch failed\n"}, "failed"),
        ({"passed": False, "rc": 0}, "failed"),
        ({}, "failed"),
        (Absent("no srun"), "failed"),
        (TimedOut("x"), "waiting"),
        (Conflict("this is another boot"), "failed"),
    ],
)
def test_the_test_step(site: Site, answer: Any, status: str) -> None:
    site.helper["ssh-node1", "test-step"] = answer
    tools = site.tools(nodes={"test_step": "pmix"})
    outcome = site.act_one(work_of("verify", site.machines["node1"]), tools)
    assert outcome.status == status
    assert outcome.why.isprintable()
    assert status != "done" or outcome.proof["test_step"] == 0


def test_no_test_step_on_a_node_that_is_not_fit_or_not_slurms(site: Site) -> None:
    site.helper["ssh-node1", "test-step"] = {"passed": True, "rc": 0}
    site.helper["ssh-node1", "health"] = {"fit": False, "rc": 1, "output": "no"}
    tools = site.tools(nodes={"test_step": "pmix", "health_command": "/usr/local/sbin/fit"})
    assert site.act_one(work_of("verify", site.machines["node1"]), tools).status == "failed"
    site.helper["ssh-node1", "health"] = {"fit": True, "rc": 0}
    of_kubernetes = replace(site.machines["node1"], slurm_name="")
    assert "test_step" not in site.act_one(work_of("verify", of_kubernetes), tools).proof
    assert not [asked for asked in site.asked if "test-step" in asked]


@pytest.mark.parametrize(
    ("base", "flags", "reason", "plan", "status"),
    [
        ("IDLE", (), None, "reboot_by_power", "done"),
        ("MIXED", (), None, "reboot_by_power", "done"),
        ("IDLE", ("NOT_RESPONDING",), None, "reboot_by_power", "waiting"),
        ("IDLE", ("DRAIN",), REASON, "reboot_by_power", "waiting"),
        ("DOWN", (), "Node unexpectedly rebooted", "return_node", "waiting"),
        ("IDLE", ("FROBNICATED",), None, "return_node", "waiting"),
        ("IDLE", ("DRAIN",), "ticket 4711", "return_node", "done"),  # a person drained it meanwhile
        ("IDLE", ("DRAIN",), "ticket 4711", "restart_daemon", "done"),
        ("DOWN", ("DRAIN",), "ticket 4711", "restart_daemon", "done"),
        ("DOWN", (), "Not responding", "restart_daemon", "waiting"),
    ],
)
def test_confirm_a_node(site: Site, base: str, flags: tuple, reason: Any, plan: str, status: str) -> None:
    site.node("node1", base, *flags, reason=reason)
    outcome = site.act_one(work_of("confirm", site.machines["node1"], plan))
    assert outcome.status == status
    assert status == "done" or outcome.wait.kind == "node_in_service"
    if status == "waiting":
        assert site.act_one(late(work_of("confirm", site.machines["node1"], plan))).status == "failed"


# ---- free_jobs -----------------------------------------------------------------------------------------------------


def free_work(site: Site, jobs: tuple = (), plan: str = "reboot_by_power", **memory: Any) -> Any:
    proof = PROVED_OFF if plan == "reboot_by_power" else {}
    return work_of("free_jobs", site.machines["node1"], plan, memory={**proof, "jobs": list(jobs), **memory})


def soon(seconds: float = 110) -> int:
    return int(time.time() + seconds)


def test_opted_in_jobs_that_were_requeued_begin_now(site: Site) -> None:
    site.job(1, "PENDING", begin_time=soon())
    site.job(2, "PENDING", begin_time=soon(), comment=None)  # not opted in
    site.job(3, "PENDING", begin_time=soon(86400))  # its user's own --begin
    site.job(4, "PENDING", begin_time=soon(), priority=0, state_reason="JobHeldUser")
    site.job(5, "CANCELLED")
    site.job(6, "COMPLETED")
    site.job(7, "RUNNING", nodes=("node9",))  # runs elsewhere already
    outcome = site.act_one(free_work(site, (1, 2, 3, 4, 5, 6, 7, 8)))
    assert (outcome.status, outcome.proof) == ("done", {"jobs": {"1": "begins now"}})
    assert site.writes == [("start", "1")]


def test_a_hold_that_comes_while_other_nodes_are_looked_at_stays(site: Site) -> None:
    site.job(1, "PENDING", begin_time=soon(), state_reason="Priority")
    accounting = site.accounting

    def held_meanwhile(*asked: Any) -> Any:
        site.job(1, "PENDING", begin_time=soon(), priority=0, state_reason="JobHeldUser")
        return accounting(*asked)

    site.accounting = held_meanwhile  # type: ignore[method-assign]
    outcome = site.act_one(free_work(site, (1,)))
    assert (outcome.status, outcome.proof) == ("done", {"jobs": {"1": "held"}})
    assert site.writes == []


def test_all_jobs_where_the_site_says_so(site: Site) -> None:
    site.job(2, "PENDING", begin_time=soon(), comment=None)
    site.act_one(free_work(site, (2,)), site.tools(jobs="all"))
    assert site.writes == [("start", "2")]


def test_a_job_that_is_slow_to_come_off_is_awaited_a_little(site: Site) -> None:
    site.job(1, "PENDING", "COMPLETING", nodes=("node1", "node2"), begin_time=soon())
    outcome = site.act_one(free_work(site, (1,)))
    assert (outcome.status, outcome.wait.kind, outcome.wait.args) == ("waiting", "job_pending", {"job": "1"})
    assert outcome.wait.until <= time.time() + 60
    late_one = replace(free_work(site, (1,)), first_started_at=time.time() - 61)
    assert site.act_one(late_one).status == "done"
    assert site.writes == []


@pytest.mark.parametrize("memory", [{}, {"same_boot": True}])
def test_jobs_of_a_node_that_may_still_run_them_are_not_hurried(site: Site, memory: dict[str, Any]) -> None:
    site.job(1, "PENDING", begin_time=soon())
    outcome = site.act_one(free_work(site, (1,), "return_node", **memory))
    assert (outcome.status, site.writes) == ("done", [])


@pytest.mark.parametrize("plan", ["return_node", "reboot_by_power"])
def test_jobs_that_died_on_a_node_that_is_off_or_came_back(site: Site, plan: str) -> None:
    site.add("node2")
    for number, reason in ((1, "BeginTime"), (2, None), (3, "Priority"), (4, "BeginTime")):
        site.job(number, "PENDING", begin_time=soon(), state_reason=reason)
    site.runs = [
        AccountingRecord(1, "NODE_FAIL", nodes=("node1", "node2"), start_time=50),
        AccountingRecord(2, "NODE_FAIL", nodes=("node1",), start_time=50),
        AccountingRecord(3, "NODE_FAIL", nodes=("node1",), start_time=50),
        AccountingRecord(4, "NODE_FAIL", nodes=("node1",), start_time=50),
        AccountingRecord(4, "NODE_FAIL", nodes=("node5",), start_time=90),  # its last run was elsewhere
    ]
    outcome = site.act_one(free_work(site, (), plan, same_boot=False))
    assert outcome.proof == {"jobs": {"1": "begins now", "2": "begins now"}}


@pytest.mark.parametrize(
    ("base", "flags", "freed"),
    [
        ("IDLE", (), True),
        ("DOWN", (), True),  # it is heard: Slurm has ended the job there
        ("IDLE", ("NOT_RESPONDING",), False),
        ("DOWN", ("NOT_RESPONDING",), False),
    ],
)
def test_a_job_that_may_live_on_another_silent_node_is_not_hurried(
    site: Site, base: str, flags: tuple[str, ...], freed: bool
) -> None:
    site.add("node2", base, *flags)
    site.job(1, "PENDING", begin_time=soon())
    site.runs = [AccountingRecord(1, "NODE_FAIL", nodes=("node1", "node2"), start_time=50)]
    outcome = site.act_one(free_work(site, (1,)))
    assert outcome.status == "done"
    assert outcome.proof["jobs"]["1"].startswith("begins now" if freed else "left to Slurm: it ran on node2 too")
    assert site.writes == ([("start", "1")] if freed else [])


def test_a_job_of_two_nodes_that_are_both_proved_off_is_hurried(site: Site) -> None:
    other = site.add("node2", "DOWN", "NOT_RESPONDING")
    site.job(1, "PENDING", begin_time=soon())
    site.runs = [AccountingRecord(1, "NODE_FAIL", nodes=("node1", "node2"), start_time=50)]
    second = work_of("free_jobs", other, memory={**PROVED_OFF, "jobs": []}, incident=8)
    outcomes = site.act(free_work(site, (1,)), second)
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert site.writes == [("start", "1")]


def test_a_lost_claim_frees_nothing(site: Site) -> None:
    site.job(1, "PENDING", begin_time=soon())
    site.lost.add(7)
    assert site.act_one(free_work(site, (1,))).status == "waiting"
    assert site.writes == []
