# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claim, steps, record, release: the engine over a real MariaDB."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    decide,
    gates,
    incident,
    plans,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.claim import Claimer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.frame import Frame, Guard
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.report import report
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    DONE,
    FAILED,
    WAITING,
    Lost,
    Outcome,
    Tools,
    Wait,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord, Job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation

from .world import (
    BOOT,
    NEW_BOOT,
    OTHER_UUID,
    ScriptedStep,
    World,
    fault_of,
    job_fault,
    opened,
    probe,
    settings_of,
)

OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":2}}'


def failed_job(**fields: Any) -> Job:
    known: dict[str, Any] = {"id": 7, "restart_count": 0, "uid": 1000, "nodes": (), "comment": OPT_IN, **fields}
    return Job(state="FAILED", partition="main", requeue=True, batch=True, **{"end_time": int(time.time()), **known})


class Engine:
    """One controller: each method does what one task of a playbook does, with a session of its own."""

    def __init__(self, ledger: LedgerSettings, settings: Settings, world: World) -> None:
        self.ledger, self.settings, self.world = ledger, settings, world

    def claim(self, fault: Fault, request: Optional[Request] = None) -> dict[str, Any]:
        with opened(self.ledger) as store:
            return self._claimer(store).fault(fault, request or Request()).as_dict()

    def due(self, *numbers: int, dispatch: int = 0) -> dict[str, Any]:
        with opened(self.ledger) as store:
            return self._claimer(store).due(numbers, dispatch).as_dict()

    def step(self, token: str, step: ScriptedStep) -> list[dict[str, Any]]:
        with opened(self.ledger) as store:
            guard = Guard(store, self.settings, token)
            return Frame(store, self.settings, token, self.world.tools(self.settings, guard)).run(step)

    def release(self, token: str) -> dict[str, Any]:
        with opened(self.ledger) as store:
            return incident.release(store, token)

    def run(self, claimed: dict[str, Any], outcomes: Optional[dict[str, Callable]] = None) -> dict[str, ScriptedStep]:
        """All steps of a claim; those not named in `outcomes` are done."""
        steps = {}
        for name in claimed["steps"]:
            steps[name] = ScriptedStep(name)
            if outcomes and name in outcomes:
                steps[name].outcome = outcomes[name]
            self.step(claimed["token"], steps[name])
        self.release(claimed["token"])
        return steps

    def _claimer(self, store: Store) -> Claimer:
        token = store.claims.begin("test", "test", self.settings.limits.lease)
        tools = self.world.tools(self.settings, lambda work: pytest.fail("acted while looking"))
        return Claimer(store, self.settings, tools, token)


@pytest.fixture
def world(store: Store) -> World:
    made = World()
    for name in ("node1", "node2", "node3"):
        store.machines.put(made.add(name))
    return made


@pytest.fixture
def engine(ledger: LedgerSettings, world: World, tmp_path: Any) -> Iterator[Engine]:
    return Engine(ledger, settings_of(ledger, str(tmp_path)), world)


def gate(answer: dict[str, Any]) -> list[str]:
    return [refused["gate"] for refused in answer["refused"]]


def end_leases(store: Store) -> None:
    """All leases that run are over."""
    for table in ("claims", "runs"):
        store.database.write("UPDATE %s SET lease_until = lease_until - 3600" % table)


def test_a_frozen_node_from_claim_to_close(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    assert claimed["incidents"] == [
        {"incident": number, "target": "node1", "plan": "reboot_by_power", "step": "drain"}
    ]
    assert claimed["steps"] == list(plans.PLANS["reboot_by_power"])
    steps = engine.run(claimed)
    assert [work.incident for work in steps["fence"].acted] == [number]
    work = steps["drain"].acted[0]
    assert work.reason == "job-recovery #%d node_not_responding" % number
    assert work.machine is not None
    assert work.memory["boot_id"] == BOOT
    closed = store.incidents.get(number)
    assert closed is not None
    assert (closed.state, closed.step, closed.acted) == ("closed", "", True)
    assert [row.step for row in store.steps.of([number])] == list(plans.PLANS["reboot_by_power"])
    assert store.machines.get(["node1"])["node1"].boot_seen_at is None  # it does not answer in this world


def test_a_wait_and_its_continuation(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    wait = Wait("node_registered", {"node": "node1"}, 2e9)
    engine.run(claimed, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    waiting = store.incidents.get(number)
    assert waiting is not None
    assert (waiting.state, waiting.step, waiting.wait) == ("waiting", "await_boot", wait)
    # while it waits other faults of the same machine attach
    engine.world.state("node1", "DOWN", reason="Node unexpectedly rebooted")
    again = engine.claim(fault_of("node1", kind="node_rebooted", suggested="return_node"))
    assert again["attached"] == [{"target": "node1", "incident": number}]
    engine.world.state("node1", "DOWN", "DRAIN", reason=waiting.reason)
    engine.world.banners["ssh-node1"] = "banner"
    engine.world.probes["ssh-node1"] = probe(NEW_BOOT)
    claimed = engine.due(number)
    assert claimed["incidents"][0]["step"] == "await_boot"
    steps = engine.run(claimed)
    assert "drain" not in steps
    closed = store.incidents.get(number)
    assert closed is not None
    assert closed.state == "closed"
    assert store.machines.get(["node1"])["node1"].boot_id == NEW_BOOT


def test_a_killed_run_is_repeated_with_its_first_intent(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]

    class Killed(BaseException):
        pass

    def die(work: Work, tools: Tools) -> Outcome:
        raise Killed

    with pytest.raises(Killed):
        engine.step(claimed["token"], ScriptedStep("drain", die, {"boot": "first"}))
    assert engine.due(number)["refused"][0]["gate"] == "duplicate"  # the dead run's lease
    end_leases(store)
    assert store.incidents.idle() == {number}
    claimed = engine.due(number)
    again = ScriptedStep("drain", intent={"boot": "second"})
    engine.step(claimed["token"], again)
    assert again.acted[0].intent == {"boot": "first"}


def test_a_run_that_sleeps_over_its_lease_may_do_nothing(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    deeds: list[str] = []

    def sleep_then_act(work: Work, tools: Tools) -> Outcome:
        end_leases(store)  # SIGSTOP for longer than the lease
        other = engine.due(number)  # somebody takes over
        engine.step(other["token"], ScriptedStep("drain"))
        try:
            tools.guard(work)
            deeds.append("acted")
        except Lost:
            deeds.append("lost")
        return Outcome(work.incident, FAILED, "what a stale run says")

    results = engine.step(claimed["token"], ScriptedStep("drain", sleep_then_act))
    assert deeds == ["lost"]
    assert results[0]["status"] == "lost"
    present = store.incidents.get(number)
    assert present is not None
    assert (present.state, present.step) == ("open", "cordon")
    with pytest.raises(incident.Incomplete, match="taken over by another run: 1"):
        engine.release(claimed["token"])


def test_thirty_duplicates_at_once_make_one_incident(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    engine.world.freeze("node2")
    answers: list[dict[str, Any]] = []
    names = ["node1"] * 30 + ["node2"]

    def claim(name: str) -> None:
        answers.append(engine.claim(fault_of(name)))

    threads = [threading.Thread(target=claim, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun = [incident["target"] for answer in answers for incident in answer["incidents"]]
    assert sorted(begun) == ["node1", "node2"]
    assert len(answers) == 31
    assert len(store.incidents.report()) == 2


def test_the_emergency_stop_before_and_between_steps(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    engine.step(claimed["token"], ScriptedStep("drain"))
    with open(engine.settings.stop_file, "w", encoding="utf-8"):
        pass
    cordon = ScriptedStep("cordon")
    results = engine.step(claimed["token"], cordon)
    assert [result["status"] for result in results] == ["stopped"]
    assert cordon.acted == []
    engine.world.freeze("node2")
    assert gate(engine.claim(fault_of("node2"))) == ["stopped"]
    engine.release(claimed["token"])
    os.unlink(engine.settings.stop_file)
    store.control.put("stop", "", "alice")
    assert gate(engine.claim(fault_of("node2"))) == ["stopped"]
    store.control.remove("stop")
    assert engine.claim(fault_of("node2"))["incidents"]


def test_the_stop_in_the_middle_of_an_act(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))

    def act(work: Work, tools: Tools) -> Outcome:
        store.control.put("stop", "", "alice")
        tools.guard(work)
        return Outcome(work.incident, DONE)

    results = engine.step(claimed["token"], ScriptedStep("drain", act))
    assert [(result["status"], result["why"]) for result in results] == [
        ("stopped", "stopped by 'alice' in the ledger")
    ]
    present = store.incidents.get(claimed["incidents"][0]["incident"])
    assert present is not None
    assert (present.state, present.step) == ("open", "drain")


def test_another_scheduler_name_is_the_same_machine(engine: Engine, store: Store) -> None:
    machine = store.machines.get(["node1"])["node1"]
    store.machines.put(type(machine)(**{**machine.__dict__, "kubernetes_name": "k8s-1"}))
    engine.world.freeze("node1")
    number = engine.claim(fault_of("node1"))["incidents"][0]["incident"]
    fault = fault_of("k8s-1", kind="kubernetes_node_not_ready")
    fault = type(fault)(**{**fault.__dict__, "scheduler": "kubernetes", "source": "kubernetes"})
    assert engine.claim(fault)["attached"] == [{"target": "k8s-1", "incident": number}]
    assert [(row["kind"], row["source"]) for row in store.records.evidence([number])] == [
        ("decision", "recovery"),
        ("kubernetes_node_not_ready", "kubernetes"),
    ]


def test_what_the_gates_said_is_kept_with_the_incident_and_the_faults_evidence_is_told_as_its_own(
    engine: Engine, store: Store
) -> None:
    engine.world.freeze("node1")
    row = store.records.keep("node:node1", "kernel_fault", "node_agent", {"code": "mce"})
    number = engine.claim(replace(fault_of("node1"), evidence_ref=row))["incidents"][0]["incident"]
    decided, told = report(store)["incidents"][0]["evidence"]
    assert decided["body"]["overridden"] == {}
    assert set(decided["body"]["passed"]) == set(gates.GATES)
    assert decided["body"]["decided"]
    assert (told["incident"], told["kind"], told["body"]) == (number, "kernel_fault", {"code": "mce"})


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda engine: engine.world.state("node1", "IDLE"), "gone"),
        (lambda engine: engine.world.state("node1", "IDLE", "DRAIN", "NOT_RESPONDING", reason="bob: no"), "owner"),
        (lambda engine: engine.world.state("node1", "IDLE", "NOT_RESPONDING", "MAINTENANCE"), "maintenance"),
        (lambda engine: engine.world.state("node1", "IDLE", "NOT_RESPONDING", "?"), "gone"),
        (lambda engine: setattr(engine.world, "slurm_trouble", Unreachable("slurmctld is down")), "scope"),
        (
            lambda engine: engine.world.powers.update(
                {"https://bmc/node1": type(engine.world.powers["https://bmc/node1"])("On", OTHER_UUID)}
            ),
            "identity",
        ),
    ],
)
def test_refusals_have_names_and_are_counted(
    engine: Engine, store: Store, spoil: Callable[[Engine], None], expected: str
) -> None:
    engine.world.freeze("node1")
    spoil(engine)
    for _turn in range(2):
        answer = engine.claim(fault_of("node1"))
        assert gate(answer) == [expected]
        assert answer["incidents"] == []
    assert [(row["gate"], row["times"]) for row in store.records.refusals(["node1"])] == [(expected, 2)]
    assert store.incidents.report() == []
    assert store.claims.going() <= 2  # released by the caller


def test_a_node_is_left_to_the_maintenance_that_begins_soon(engine: Engine, store: Store) -> None:
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    soon = int(time.time()) + 600
    engine.world.reserved = [Reservation("bios", ("node1",), ("MAINT",), soon, soon + 3600)]
    answer = engine.claim(fault_of("node1", "node2"))
    assert [(refused["target"], refused["gate"]) for refused in answer["refused"]] == [("node1", "maintenance")]
    assert [found["target"] for found in answer["incidents"]] == ["node2"]


def test_an_unknown_node_is_refused_and_delays_nobody(engine: Engine) -> None:
    engine.world.freeze("node1")
    answer = engine.claim(fault_of("stranger", "node1"))
    assert [(refused["target"], refused["gate"]) for refused in answer["refused"]] == [("stranger", "scope")]
    assert [found["target"] for found in answer["incidents"]] == ["node1"]


def test_observing_writes_what_acting_would_do(engine: Engine, store: Store) -> None:
    engine.settings = settings_of(
        engine.ledger, engine.settings.state_dir, mode="observe", limits={"blast_radius_nodes": 1}
    )
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    assert gate(engine.claim(fault_of("node1"))) == ["mode"]
    assert gate(engine.claim(fault_of("node2"))) == ["blast_radius"]  # acting would hold node1 by now
    first = store.records.refusals(["node1"])[0]
    assert first["plan"] == "reboot_by_power"


def test_without_a_proved_bmc_slurms_verdict_is_awaited(engine: Engine, store: Store) -> None:
    machine = store.machines.get(["node1"])["node1"]
    store.machines.put(type(machine)(**{**machine.__dict__, "bmc_url": ""}))
    engine.world.freeze("node1")
    answer = engine.claim(fault_of("node1"))
    assert (answer["incidents"], len(answer["waiting"])) == ([], 1)
    number = answer["waiting"][0]["incident"]
    engine.world.state("node1", "DOWN", "NOT_RESPONDING", reason="Not responding")
    claimed = engine.due(number)
    assert claimed["incidents"][0]["plan"] == "return_node"


def test_an_incident_that_never_acted_ends_when_the_fault_is_gone(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    engine.world.powers.clear()
    number = engine.claim(fault_of("node1"))["waiting"][0]["incident"]
    engine.world.state("node1", "IDLE")
    answer = engine.due(number)
    assert answer["ended"][0]["incident"] == number
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "closed"


def test_the_next_way_after_a_failure(engine: Engine, store: Store) -> None:
    engine.world.state("node1", "DOWN", "NOT_RESPONDING", reason="Not responding")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    assert claimed["incidents"][0]["plan"] == "reboot_over_ssh"
    steps = engine.run(claimed, {"reboot": lambda work, tools: Outcome(work.incident, FAILED, "sshd is gone")})
    assert [work.plan for work in steps["fence"].acted] == ["reboot_by_power"]
    assert len(steps["drain"].acted) == 1
    closed = store.incidents.get(number)
    assert closed is not None
    assert (closed.state, closed.round) == ("closed", 1)


@pytest.mark.parametrize(("gone", "state"), [(True, "closed"), (False, "escalated")])
def test_a_node_whose_pods_may_not_go(engine: Engine, store: Store, gone: bool, state: str) -> None:
    engine.world.state("node1", "DOWN", "NOT_RESPONDING", reason="Not responding")
    claimed = engine.claim(fault_of("node1"))
    proof = {plans.FAULT_GONE: True} if gone else {}
    held_up = {"await_drained": lambda work, tools: Outcome(work.incident, FAILED, "budget web", proof=proof)}
    steps = engine.run(claimed, held_up)
    found = store.incidents.get(claimed["incidents"][0]["incident"])
    assert found is not None
    assert (found.state, bool(steps["reboot"].acted)) == (state, False)


def test_a_node_is_rebooted_once_in_the_window(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    engine.run(engine.claim(fault_of("node1")))
    claimed = engine.claim(fault_of("node1"))
    assert claimed["incidents"][0]["plan"] == "quarantine_node"
    number = claimed["incidents"][0]["incident"]
    engine.run(claimed)
    escalated = store.incidents.get(number)
    assert escalated is not None
    assert escalated.state == "escalated"
    assert engine.claim(fault_of("node1"))["attached"]
    # a person may have it rebooted all the same, and the incident goes on
    request = Request("alice", "new board", ("cooldown",))
    asked = fault_of("node1", kind="requested")
    again = engine.claim(asked, request)
    assert (again["incidents"][0]["incident"], again["incidents"][0]["plan"]) == (number, "reboot_by_power")


def test_an_escalated_incident_ends_when_a_person_gave_the_node_back(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    engine.run(claimed, {"verify": lambda work, tools: Outcome(work.incident, FAILED, "a GPU is missing")})
    escalated = store.incidents.get(number)
    assert escalated is not None
    assert (escalated.state, escalated.why) == ("escalated", "verify failed: a GPU is missing")
    engine.world.state("node1", "IDLE", "DRAIN", reason=escalated.reason)
    assert engine.due(number)["ended"] == []
    engine.world.state("node1", "IDLE")
    assert engine.due(number)["ended"][0]["incident"] == number


def test_what_is_only_reported_is_reported_once(engine: Engine, store: Store) -> None:
    engine.world.state("node1", "IDLE", "INVALID_REG")
    fault = fault_of("node1", kind="node_misconfigured", suggested="report")
    number = engine.claim(fault)["ended"][0]["incident"]
    assert engine.claim(fault)["attached"]
    assert engine.due(number)["ended"] == []
    engine.world.state("node1", "IDLE")
    assert engine.due(number)["ended"][0]["incident"] == number


def test_what_is_only_reported_does_not_hinder_the_repair_of_another_fault(engine: Engine, store: Store) -> None:
    engine.world.state("node1", "IDLE", "INVALID_REG")
    number = engine.claim(fault_of("node1", kind="node_misconfigured", suggested="report"))["ended"][0]["incident"]
    assert engine.claim(fault_of("node1", kind="node_back", suggested="report"))["attached"]
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    assert claimed["incidents"][0]["incident"] != number
    told = store.incidents.get(number)
    assert told is not None
    assert (told.state, told.why) == ("closed", "only reported; node_not_responding is there now")


def test_a_fault_that_may_not_be_repaired_does_not_end_a_report(engine: Engine, store: Store) -> None:
    engine.world.state("node1", "IDLE", "INVALID_REG")
    number = engine.claim(fault_of("node1", kind="node_misconfigured", suggested="report"))["ended"][0]["incident"]
    engine.settings = replace(engine.settings, mode="observe")
    engine.world.freeze("node1")
    assert gate(engine.claim(fault_of("node1"))) == ["mode"]
    told = store.incidents.get(number)
    assert told is not None
    assert told.state == "escalated"


def test_a_person_may_go_on_at_once_with_what_was_left_to_him(engine: Engine, store: Store) -> None:
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits={"cooldown": 300.0})
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    engine.run(
        claimed,
        {"verify": lambda work, tools: Outcome(work.incident, FAILED, "a GPU is missing", remember={"left": True})},
    )
    asked = engine.claim(fault_of("node1", kind="requested", suggested="return_node"), Request("bob", "GPU is back"))
    number = claimed["incidents"][0]["incident"]
    assert asked["incidents"][0]["incident"] == number
    found = store.incidents.get(number)
    assert found is not None
    assert (found.request.by, found.request.reason, found.round) == ("bob", "GPU is back", 1)
    assert "left" not in found.memory  # what the repair before remembered holds no longer


@pytest.fixture(name="asked_again")
def _asked_again(engine: Engine) -> int:
    """An incident that was left to a person after steps, and that he asked to go on with; by now the node is silent and
    nobody can prove its BMC, so it waits."""
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    engine.run(claimed, {"verify": lambda work, tools: Outcome(work.incident, FAILED, "a GPU is missing")})
    engine.world.powers.clear()
    asked = engine.claim(fault_of("node1", kind="requested"), Request("bob", "once more", ("cooldown",)))
    assert [each["incident"] for each in asked["waiting"]] == [number]
    engine.release(asked["token"])
    return number


def test_what_a_person_asked_for_may_have_to_wait(engine: Engine, store: Store, asked_again: int) -> None:
    number = asked_again
    found = store.incidents.get(number)
    assert found is not None
    assert (found.state, found.plan, found.request.by) == ("waiting", "", "bob")
    engine.world.state("node1", "IDLE", "DRAIN", reason=found.reason)
    engine.world.banners["ssh-node1"] = "banner"
    again = engine.due(number)
    assert again["incidents"][0]["plan"] == "reboot_over_ssh"
    steps = engine.run(again)
    assert steps["drain"].acted[0].intent == {}  # steps are begun anew, not where the repair before ended
    found = store.incidents.get(number)
    assert found is not None
    assert (found.state, found.round) == ("closed", 1)


def test_what_had_to_wait_passes_all_gates_again(engine: Engine, store: Store, asked_again: int) -> None:
    """Meanwhile the site has switched to observing: nothing is begun, and it is the person's again."""
    engine.world.banners["ssh-node1"] = "banner"
    engine.settings = replace(engine.settings, mode="observe")
    again = engine.due(asked_again)
    assert again["incidents"] == []
    assert [each["gate"] for each in again["refused"]] == ["mode"]
    found = store.incidents.get(asked_again)
    assert found is not None
    assert (found.state, found.plan) == ("escalated", "")


def test_failed_repairs_in_a_row_stop_repairing(engine: Engine, store: Store) -> None:
    for name in ("node1", "node2", "node3"):
        engine.world.freeze(name)
        claimed = engine.claim(fault_of(name))
        assert claimed["incidents"]
        engine.run(claimed, {"fence": lambda work, tools: Outcome(work.incident, FAILED, "BMC says no")})
    store.machines.put(engine.world.add("node4"))
    engine.world.freeze("node4")
    assert gate(engine.claim(fault_of("node4"))) == ["breaker"]
    engine.world.state("node1", "IDLE")  # a person repaired one
    engine.due(*[found.id for found in store.incidents.live()])
    store.database.write("UPDATE incidents SET closed_at = closed_at + 1 WHERE state = 'closed'")
    assert engine.claim(fault_of("node4"))["incidents"]


def test_a_person_who_takes_over_ends_the_repair(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    wait = Wait("time", {}, 0.0)
    engine.run(claimed, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    engine.world.state("node1", "DOWN", "DRAIN", reason="bob: I have it")
    assert gate(engine.due(number)) == ["owner"]
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "escalated"


def test_what_cannot_be_looked_at_is_looked_at_again(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    wait = Wait("time", {}, 0.0)
    engine.run(claimed, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    engine.world.slurm_trouble = Unreachable("slurmctld is down")
    assert gate(engine.due(number)) == ["scope"]
    found = store.incidents.get(number)
    assert found is not None
    assert (found.state, found.step) == ("waiting", "await_boot")


@pytest.mark.parametrize(("base", "flags", "seconds"), [("UNKNOWN", (), 15), ("IDLE", ("MAINTENANCE",), 60)])
def test_what_a_fresh_slurmctld_does_not_know_yet_is_asked_again_soon(
    engine: Engine, store: Store, base: str, flags: tuple[str, ...], seconds: float
) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    wait = Wait("time", {}, 0.0)
    engine.run(claimed, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    found = store.incidents.get(number)
    assert found is not None
    engine.world.state("node1", base, "DRAIN", *flags, reason=found.reason)
    assert gate(engine.due(number)) == ["maintenance"]
    found = store.incidents.get(number)
    assert found is not None
    assert found.wait is not None
    assert found.wait.until == pytest.approx(time.time() + seconds, abs=5)


def test_only_so_many_nodes_reboot_at_once(engine: Engine, store: Store) -> None:
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits={"max_parallel_reboots": 1})
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    claimed = engine.claim(fault_of("node1", "node2"))
    for name in ("drain", "cordon"):
        engine.step(claimed["token"], ScriptedStep(name))
    fence = ScriptedStep("fence")
    results = engine.step(claimed["token"], fence)
    assert sorted(result["status"] for result in results) == ["done", "waiting"]
    assert len(fence.acted) == 1


def test_a_step_whose_runs_always_die_is_given_to_a_person(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]

    def die(work: Work, tools: Tools) -> Outcome:
        raise KeyboardInterrupt

    for _turn in range(5):
        with pytest.raises(KeyboardInterrupt):
            engine.step(claimed["token"], ScriptedStep("drain", die))
        end_leases(store)
        claimed = engine.due(number)
    assert engine.step(claimed["token"], ScriptedStep("drain", die))[0]["status"] == "failed"
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "escalated"


def test_a_step_that_cannot_tell_is_repeated(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))

    def trouble(work: Work, tools: Tools) -> Outcome:
        raise Unreachable("slurmctld is down")

    assert engine.step(claimed["token"], ScriptedStep("drain", trouble))[0]["status"] == "interrupted"
    assert engine.release(claimed["token"])["answered"] == 1
    found = store.incidents.get(claimed["incidents"][0]["incident"])
    assert found is not None
    assert (found.state, found.step, found.why) == ("open", "drain", "slurmctld is down")


def test_a_claim_without_a_result_is_told(engine: Engine) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    with pytest.raises(incident.Incomplete, match="1 incidents were claimed and 0 gave a result"):
        engine.release(claimed["token"])


def test_a_job_from_claim_to_close(engine: Engine, store: Store) -> None:
    engine.world.job_list["7"] = failed_job()
    for attempt in range(2):
        claimed = engine.claim(job_fault("7"))
        assert claimed["steps"] == list(plans.PLANS["requeue_job"]), attempt
        engine.run(claimed)
    assert gate(engine.claim(job_fault("7"))) == ["attempts"]


def test_a_job_with_the_number_of_an_older_one_has_all_its_attempts(engine: Engine) -> None:
    """slurmctld was reinstalled, and job ids begin again."""
    def requeued(work: Work, _tools: Tools) -> Outcome:
        count = engine.world.job_list["7"].restart_count or 0
        return Outcome(work.incident, DONE, remember={"restart_count": count + 1})

    for restarts in range(2):
        engine.world.job_list["7"] = failed_job(restart_count=restarts)
        engine.run(engine.claim(job_fault("7")), {"requeue": requeued})
    engine.world.job_list["7"] = failed_job(restart_count=2)
    assert gate(engine.claim(job_fault("7"))) == ["attempts"]
    engine.world.job_list["7"] = failed_job(restart_count=0)
    assert engine.claim(job_fault("7"))["incidents"]


def test_a_job_that_fails_the_same_way_elsewhere_is_told_and_left(engine: Engine, store: Store) -> None:
    engine.world.job_list["7"] = failed_job(nodes=("node1",), exit_code="1:0")
    engine.run(engine.claim(job_fault("7")))
    engine.world.job_list["7"] = failed_job(nodes=("node2",), exit_code="1:0", restart_count=1)
    claimed = engine.claim(job_fault("7"))
    assert claimed["steps"] == list(plans.PLANS["tell_user"])
    engine.run(claimed)
    found = store.incidents.get(claimed["incidents"][0]["incident"])
    assert found is not None
    assert (found.state, "same way" in found.why, "held out" in found.why) == ("escalated", True, False)
    assert engine.claim(job_fault("7"))["attached"]


def test_a_failure_that_lasts_releases_one_successor(engine: Engine) -> None:
    """Slurm shows the failed job for minutes, its source tells of it each minute, and two jobs wait to follow it."""
    comment = '{"APS":{"auto_resume_mode":"singleton_dependency"}}'
    engine.world.job_list["7"] = failed_job(name="train", comment=comment)
    for number in (8, 9):
        follows = Job(number, "PENDING", uid=1000, name="train", partition="main", comment=comment, priority=0)
        engine.world.job_list[str(number)] = replace(follows, state_reason="JobHeldUser")
    claimed = engine.claim(job_fault("7"))
    assert claimed["incidents"][0]["plan"] == "release_successor"
    engine.run(claimed)
    engine.world.job_list["8"] = replace(engine.world.job_list["8"], state="RUNNING", state_reason=None, priority=1)
    assert gate(engine.claim(job_fault("7"))) == ["attempts"]


def test_a_chain_of_successors_has_its_attempts_together(engine: Engine) -> None:
    comment = '{"APS":{"auto_resume_mode":"singleton_dependency","max_requeue_times":2}}'
    for number in (7, 8, 9):
        name = str(number)
        engine.world.job_list[name] = failed_job(id=number, name="train", comment=comment)
        follows = Job(number + 1, "PENDING", uid=1000, name="train", partition="main", comment=comment, priority=0)
        engine.world.job_list[str(number + 1)] = replace(follows, state_reason="JobHeldUser")
        claimed = engine.claim(job_fault(name))
        if number == 9:
            assert gate(claimed) == ["attempts"]
        else:
            assert claimed["incidents"][0]["plan"] == "release_successor"
            engine.run(claimed)


def test_an_event_about_an_earlier_submission_does_nothing(engine: Engine) -> None:
    engine.world.job_list["7"] = failed_job(submit_time=200)
    stale = Fault("job_failed", "slurm", "lab", "slurm", (Target("job", "7", "100"),), time.time(), "requeue_job")
    assert gate(engine.claim(stale)) == ["identity"]


def test_a_suspect_node_by_runs_of_the_accounting_and_of_the_ledger(engine: Engine, store: Store) -> None:
    now = int(time.time())
    engine.world.job_list["7"] = failed_job(nodes=("node1",), user="ann", end_time=now - 40, start_time=now - 50)
    engine.run(engine.claim(job_fault("7")))
    suspect = fault_of("node1", kind="node_suspect", suggested="quarantine_node")
    engine.world.runs = [
        AccountingRecord(8 + n, "FAILED", user=user, nodes=("node1",), start_time=now - 30, end_time=now - 20 + n)
        for n, user in enumerate(("bob", "eve"))
    ]
    assert gate(engine.claim(suspect)) == ["gone"]
    engine.world.runs.append(
        AccountingRecord(9, "FAILED", user="bob", nodes=("node1",), start_time=now - 9, end_time=now - 8)
    )
    claimed = engine.claim(suspect)
    assert claimed["incidents"][0]["plan"] == "quarantine_node"
    found = store.incidents.get(claimed["incidents"][0]["incident"])
    assert found is not None
    assert "7 of ann (FAILED)" in found.why
    engine.world.runs.append(AccountingRecord(10, "COMPLETED", nodes=("node2",), start_time=now - 5, end_time=now))
    assert gate(engine.claim(fault_of("node2", kind="node_suspect", suggested="quarantine_node"))) == ["gone"]


def test_an_array_task_and_its_job_are_one(engine: Engine) -> None:
    job = failed_job(id=12, array_job_id=11, array_task_id=1)
    engine.world.job_list.update({"12": job, "11_1": job})
    first = engine.claim(job_fault("11_1"))
    assert first["incidents"][0]["target"] == "12"
    assert engine.claim(job_fault("12"))["attached"]


def test_a_ledger_from_an_old_backup_only_observes(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    engine.run(engine.claim(fault_of("node1")))
    store.database.write("DELETE FROM incidents")
    store.database.write("DELETE FROM control")
    engine.world.freeze("node2")
    assert gate(engine.claim(fault_of("node2"))) == ["mode"]
    stop.approve(engine.settings, store)
    assert engine.claim(fault_of("node2"))["incidents"]


def test_a_claim_that_slept_over_its_lease_decides_nothing(engine: Engine, store: Store) -> None:
    """It was stopped in the middle of its look; meanwhile another run power-cycled the node and closed the incident."""
    engine.world.state("node1", "IDLE", "NOT_RESPONDING")
    engine.world.probes.pop("ssh-node1")  # SSH greets and its helper is silent: Slurm's verdict is awaited
    number = engine.claim(fault_of("node1"))["waiting"][0]["incident"]
    engine.world.freeze("node1")
    read, slept = engine.world.read_many, []

    def sleep_and_read(urls: Any, deadline: Any = None) -> Any:
        told = read(urls, deadline)
        if not slept:
            slept.append(True)
            end_leases(store)
            engine.run(engine.due(number))
            engine.world.state("node1", "ALLOCATED")
            engine.world.banners["ssh-node1"] = "banner"
            engine.world.probes["ssh-node1"] = probe(NEW_BOOT)
        return told

    engine.world.read_many = sleep_and_read  # type: ignore[method-assign]
    assert gate(engine.due(number)) == ["duplicate"]
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "closed"
    end_leases(store)
    again = engine.due(number)
    assert not any(step.acted for step in engine.run(again).values())


def test_what_stands_begun_in_an_old_backup_does_not_go_on(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    engine.step(claimed["token"], ScriptedStep("drain"))
    end_leases(store)
    stop.raise_mark(engine.settings, store, number + 50)  # later numbers were given, then the backup came back
    store.database.write("DELETE FROM control")
    again = engine.due(number)
    assert gate(again) == ["stopped"]
    assert "approve" in again["refused"][0]["why"]
    assert not any(step.acted for step in engine.run(again).values())


def test_a_node_that_somebody_gave_back_is_left_alone(engine: Engine, store: Store) -> None:
    """It waited for its turn to reboot, came to itself, and a person resumed it."""
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits={"max_parallel_reboots": 1})
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    claimed = engine.claim(fault_of("node1", "node2"))
    for name in ("drain", "cordon"):
        engine.step(claimed["token"], ScriptedStep(name))
    results = engine.step(claimed["token"], ScriptedStep("fence"))
    (waits_for_its_turn,) = [result["incident"] for result in results if result["status"] == WAITING]
    found = store.incidents.get(waits_for_its_turn)
    assert found is not None
    end_leases(store)
    engine.world.state(found.machine, "ALLOCATED")
    engine.world.banners["ssh-" + found.machine] = "banner"
    again = engine.due(waits_for_its_turn)
    assert gate(again) == ["owner"]
    assert "gave the node back" in again["refused"][0]["why"]
    assert not any(step.acted for step in engine.run(again).values())


def test_failed_jobs_stop_no_repair_of_a_node(engine: Engine) -> None:
    for number in (901, 902, 903):
        engine.world.job_list[str(number)] = failed_job(id=number)
        claimed = engine.claim(job_fault(str(number)))
        assert claimed["incidents"]
        engine.run(claimed, {"clean_spool": lambda work, tools: Outcome(work.incident, FAILED, "still there")})
    engine.world.job_list["904"] = failed_job(id=904)
    assert gate(engine.claim(job_fault("904"))) == ["breaker"]
    engine.world.freeze("node1")
    assert engine.claim(fault_of("node1"))["incidents"]


def test_the_first_nodes_of_a_common_cause_are_not_powered_off(engine: Engine, store: Store) -> None:
    """The first look after a switch failed showed three nodes, the next one thirty-seven."""
    for number in range(4, 41):
        store.machines.put(engine.world.add("node%d" % number))
    limits = {"common_cause_nodes": 4, "blast_radius_percent": 10.0}
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits=limits)
    first, rest = ["node1", "node2", "node3"], ["node%d" % number for number in range(4, 41)]
    for name in first:
        engine.world.freeze(name)
    claimed = engine.claim(fault_of(*first))
    for name in ("drain", "cordon"):
        engine.step(claimed["token"], ScriptedStep(name))
    for name in rest:
        engine.world.freeze(name)
    assert set(gate(engine.claim(fault_of(*rest)))) == {"common_cause"}
    fence = ScriptedStep("fence")
    results = engine.step(claimed["token"], fence)
    assert fence.acted == []
    assert {result["status"] for result in results} == {WAITING}
    assert "a common cause" in results[0]["why"]


def test_a_fence_that_finds_its_node_alive_gives_it_back(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    number = claimed["incidents"][0]["incident"]
    answers = {plans.ANSWERS_AGAIN: True}

    def alive(work: Work, _tools: Tools) -> Outcome:
        return Outcome(work.incident, FAILED, "node node1 answers again", remember=answers, proof=answers)

    steps = engine.run(claimed, {"fence": alive})
    assert not steps["down"].acted
    assert not steps["power_on"].acted
    found = store.incidents.get(number)
    assert found is not None
    assert (found.plan, found.state) == ("return_node", "closed")


def test_every_fallback_is_a_plan() -> None:
    for plan in plans.PLANS:
        for fallback in decide.fallbacks(plan):
            assert fallback in plans.PLANS
