# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates that look at the whole cluster, and changes of settings, over a real MariaDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Scope
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    WAITING,
    Outcome,
    Wait,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

from .test_engine import OPT_IN, Engine, end_leases, engine, gate, world
from .world import ScriptedStep, fault_of, job_fault, settings_of

__all__ = ["engine", "world"]

LIMITS = {"blast_radius_percent": 10.0, "blast_radius_nodes": 10, "common_cause_nodes": 4}


def limited(engine: Engine, **limits: Any) -> None:
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits={**LIMITS, **limits})


def cluster(engine: Engine, store: Store, size: int) -> list[str]:
    """So many nodes, the three of the world among them."""
    for number in range(4, size + 1):
        store.machines.put(engine.world.add("node%d" % number))
    for number in range(size + 1, 4):
        store.machines.forget("node%d" % number)
    return ["node%d" % number for number in range(1, size + 1)]


def quarantined(store: Store, name: str, days_ago: float, plan: str = "quarantine_node") -> int:
    """A node that was left to a person."""
    number = store.incidents.open(fault_of(name), Target("node", name), "node:" + name, name, Request()).id
    store.incidents.change(number, {**changes.escalate("flaky", {}), "acted": 1, "plan": plan})
    store.incidents.change(number, {"closed_at": store.now() - days_ago * 86400, "opened_at": 1.0})
    return number


def plans_of(answer: dict[str, Any]) -> dict[str, str]:
    """By target what became of it: a plan, the gate that refused it, or the word for neither."""
    found = {each["target"]: each["plan"] for each in answer["incidents"]}
    found.update({each["target"]: each["gate"] for each in answer["refused"]})
    found.update({each["target"]: "to wait" for each in answer["waiting"]})
    found.update({each["target"]: "to report" for each in answer["ended"]})
    return found


# ---- blast radius ----


@pytest.mark.parametrize(("size", "room"), [(1, 1), (2, 1), (3, 1), (30, 3), (288, 10)])
def test_so_many_nodes_of_a_cluster_are_repaired_at_once(engine: Engine, store: Store, size: int, room: int) -> None:
    limited(engine, common_cause_nodes=1000)
    broken = cluster(engine, store, size)[: room + 5]
    for name in broken:
        engine.world.freeze(name)
    answer = engine.claim(fault_of(*broken))
    assert len(answer["incidents"]) == min(room, len(broken))
    assert set(gate(answer)) <= {"blast_radius"}
    end_leases(store)
    assert engine.claim(fault_of(*broken))["incidents"] == []


def test_nodes_that_are_broken_for_weeks_keep_no_other_from_being_repaired(engine: Engine, store: Store) -> None:
    limited(engine)
    names = cluster(engine, store, 288)
    for name in names[:14]:  # left to a person by us, weeks ago
        engine.world.state(name, "IDLE", "DRAIN", reason="job-recovery #%d node_suspect" % quarantined(store, name, 20))
    for name in names[14:28]:  # held by persons
        engine.world.state(name, "DOWN", "DRAIN", reason="RMA 4711")
    engine.world.freeze("node100")
    assert plans_of(engine.claim(fault_of("node100"))) == {"node100": "reboot_by_power"}


def test_what_was_left_to_a_person_today_counts(engine: Engine, store: Store) -> None:
    limited(engine)
    names = cluster(engine, store, 288)
    for name in names[:10]:
        quarantined(store, name, 0.9)
    engine.world.freeze("node100")
    assert plans_of(engine.claim(fault_of("node100"))) == {"node100": "blast_radius"}
    store.database.write("UPDATE incidents SET closed_at = closed_at - 86400 * 0.2")
    assert plans_of(engine.claim(fault_of("node100"))) == {"node100": "reboot_by_power"}


def test_a_repair_that_goes_on_counts_however_long_it_takes(engine: Engine, store: Store) -> None:
    limited(engine)
    engine.world.freeze("node1")
    number = engine.claim(fault_of("node1"))["incidents"][0]["incident"]
    store.incidents.change(number, {"opened_at": 1.0, "updated_at": 1.0})
    engine.world.freeze("node2")
    assert plans_of(engine.claim(fault_of("node2"))) == {"node2": "blast_radius"}


@pytest.mark.parametrize("override", [(), ("blast_radius",)])
def test_two_runs_do_not_both_take_the_last_node(engine: Engine, store: Store, override: tuple[str, ...]) -> None:
    """The second one decides between the first one's gates and its decision."""
    limited(engine)
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    nested: list[dict[str, Any]] = []
    evaluate = gates.GATES["mode"]

    def meanwhile(case: gates.Case) -> str:
        if not nested:
            nested.append({})
            nested[0] = engine.claim(fault_of("node2"))
        return evaluate(case)

    gates.GATES["mode"] = meanwhile
    try:
        request = Request("bob", "both", override) if override else Request()
        answer = engine.claim(fault_of("node1", kind="requested" if override else "node_not_responding"), request)
    finally:
        gates.GATES["mode"] = evaluate
    assert plans_of(nested[0]) == {"node2": "reboot_by_power"}
    assert plans_of(answer) == {"node1": "reboot_by_power" if override else "blast_radius"}
    open_ones = [incident.target.name for incident in store.incidents.live()]
    assert sorted(open_ones) == (["node1", "node2"] if override else ["node2"])


# ---- common cause ----


@pytest.mark.parametrize("reason", ["Prolog error", "Kill task failed", "Epilog error"])
def test_a_bad_prolog_on_every_node_is_one_cause(engine: Engine, store: Store, reason: str) -> None:
    limited(engine)
    names = cluster(engine, store, 30)
    for name in names:
        engine.world.state(name, "IDLE", "DRAIN", reason=reason)
    answer = engine.claim(fault_of(*names, kind="node_drained"))
    assert set(plans_of(answer).values()) == {"common_cause"}
    assert len(store.incidents.report()) == 0


def test_the_first_nodes_of_a_bad_prolog_are_not_rebooted(engine: Engine, store: Store) -> None:
    """It drains one node after the other; the first three were claimed before anybody could know."""
    limited(engine)
    names = cluster(engine, store, 40)
    for name in names[:3]:
        engine.world.state(name, "IDLE", "DRAIN", reason="Prolog error")
    claimed = engine.claim(fault_of(*names[:3], kind="node_drained"))
    assert set(plans_of(claimed).values()) == {"reboot_over_ssh"}
    for name in names[3:]:
        engine.world.state(name, "IDLE", "DRAIN", reason="Prolog error")
    assert set(gate(engine.claim(fault_of(*names[3:], kind="node_drained")))) == {"common_cause"}
    for step in ("drain", "cordon", "await_drained", "save_evidence"):
        engine.step(claimed["token"], ScriptedStep(step))
    reboot = ScriptedStep("reboot")
    results = engine.step(claimed["token"], reboot)
    assert reboot.acted == []
    assert {result["status"] for result in results} == {WAITING}


# ---- order ----


def test_the_nodes_of_the_widest_job_come_first(engine: Engine, store: Store) -> None:
    limited(engine, blast_radius_percent=100.0, blast_radius_nodes=2, common_cause_nodes=100, max_parallel_reboots=1)
    cluster(engine, store, 6)
    for name in ("node1", "node2", "node3", "node4"):
        engine.world.freeze(name)
    for number, nodes in ((1, ("node1",)), (2, ("node2", "node5")), (3, ("node3", "node4", "node6"))):
        engine.world.job_list[str(number)] = Job(number, "RUNNING", nodes=nodes)
    claimed = engine.claim(fault_of("node1", "node2", "node3", "node4"))
    assert [each["target"] for each in claimed["incidents"]] == ["node3", "node4"]


def test_a_place_for_a_reboot_goes_to_the_widest_job(engine: Engine, store: Store) -> None:
    limited(engine, blast_radius_percent=100.0, common_cause_nodes=100, max_parallel_reboots=1)
    for name in ("node1", "node2", "node3"):
        engine.world.freeze(name)
    widths = {"node1": 1, "node2": 64, "node3": 2}
    claimed = engine.claim(fault_of(*widths))

    def drained(work: Any, tools: Any) -> Outcome:
        return Outcome(work.incident, "done", remember={"job_nodes": widths[work.target.name]})

    engine.step(claimed["token"], ScriptedStep("drain", drained))
    engine.step(claimed["token"], ScriptedStep("cordon"))
    fence = ScriptedStep("fence")
    engine.step(claimed["token"], fence)
    assert [work.target.name for work in fence.acted] == ["node2"]


def test_a_place_for_a_reboot_is_kept_until_the_node_is_back(engine: Engine, store: Store) -> None:
    limited(engine, blast_radius_percent=100.0, common_cause_nodes=100, max_parallel_reboots=1)
    for name in ("node1", "node2"):
        engine.world.freeze(name)
    wait = Wait("time", {}, 0.0)
    first = engine.claim(fault_of("node1"))
    engine.run(first, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    second = engine.claim(fault_of("node2"))
    steps = engine.run(second)
    assert steps["fence"].acted == []
    held = store.incidents.get(second["incidents"][0]["incident"])
    assert held is not None
    assert (held.step, held.why) == ("fence", "1 nodes reboot already")
    number = first["incidents"][0]["incident"]
    booted = engine.run(engine.due(number))
    assert booted["await_boot"].acted
    steps = engine.run(engine.due(held.id))
    assert [work.target.name for work in steps["fence"].acted] == ["node2"]


# ---- observing ----

FAULTS: list[tuple[str, str, Callable[[Engine], None]]] = [
    ("node_not_responding", "node1", lambda engine: engine.world.freeze("node1")),
    ("node_not_responding", "node1", lambda engine: engine.world.state("node1", "IDLE", "NOT_RESPONDING")),
    ("node_rebooted", "node1", lambda engine: engine.world.state("node1", "DOWN", reason="Node unexpectedly rebooted")),
    ("node_back", "node1", lambda engine: engine.world.state("node1", "DOWN", reason="Not responding")),
    ("node_drained", "node1", lambda engine: engine.world.state("node1", "IDLE", "DRAIN", reason="Kill task failed")),
    ("node_drained", "node1", lambda engine: engine.world.state("node1", "IDLE", "DRAIN", reason="bob: mine")),
    ("node_misconfigured", "node1", lambda engine: engine.world.state("node1", "IDLE", "INVALID_REG")),
    ("reboot_failed", "node1", lambda engine: engine.world.state("node1", "DOWN", reason="reboot timed out")),
    (
        "job_failed",
        "7",
        lambda engine: engine.world.job_list.update(
            {"7": Job(7, "FAILED", partition="main", comment=OPT_IN, requeue=True, batch=True)}
        ),
    ),
    (
        "job_failed",
        "7",
        lambda engine: engine.world.job_list.update({"7": Job(7, "FAILED", partition="main", comment="none")}),
    ),
]


@pytest.mark.parametrize(("kind", "name", "break_it"), FAULTS, ids=["%d-%s" % each for each in enumerate(
    fault[0] for fault in FAULTS)])
def test_observing_tells_what_acting_does(
    engine: Engine, store: Store, kind: str, name: str, break_it: Callable[[Engine], None]
) -> None:
    break_it(engine)
    fault = (job_fault if name.isdigit() else fault_of)(name, kind=kind, suggested="")
    fault = replace(fault, suggested={"job_failed": "requeue_job", "node_misconfigured": "report"}.get(kind, ""))
    engine.settings = replace(engine.settings, mode="observe")
    observed = engine.claim(fault)
    (refusal,) = store.records.refusals()
    told = refusal["gate"]
    if told == "mode":
        told = refusal["plan"] or refusal["why"].partition("acting would be: ")[2].partition(" (")[0]
    assert observed["incidents"] == []
    assert store.incidents.live() == []
    store.database.write("DELETE FROM refusals")
    engine.settings = replace(engine.settings, mode="act")
    assert plans_of(engine.claim(fault)) == {name: told}


def test_observing_holds_as_many_nodes_as_acting_would(engine: Engine, store: Store) -> None:
    names = cluster(engine, store, 40)
    limited(engine, common_cause_nodes=1000)
    engine.settings = replace(engine.settings, mode="observe")
    for name in names[:6]:
        engine.world.freeze(name)
    answers = [gate(engine.claim(fault_of(name)))[0] for name in names[:6]]
    assert answers == ["mode"] * 4 + ["blast_radius"] * 2


# ---- a change of settings ----


def waiting_repair(engine: Engine) -> int:
    """A node that boots."""
    engine.world.freeze("node1")
    claimed = engine.claim(fault_of("node1"))
    wait = Wait("time", {}, 0.0)
    engine.run(claimed, {"await_boot": lambda work, tools: Outcome(work.incident, WAITING, "boots", wait)})
    return int(claimed["incidents"][0]["incident"])


def test_a_switch_to_observe_gives_back_what_was_taken(engine: Engine, store: Store) -> None:
    number = waiting_repair(engine)
    engine.settings = replace(engine.settings, mode="observe")
    claimed = engine.due(number)
    assert claimed["incidents"][0]["step"] == "await_boot"
    engine.run(claimed)
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "closed"


def test_a_switch_to_observe_ends_what_has_not_begun(engine: Engine, store: Store) -> None:
    engine.world.freeze("node1")
    engine.world.powers.clear()  # no BMC answers: Slurm's verdict is awaited
    number = engine.claim(fault_of("node1"))["waiting"][0]["incident"]
    engine.settings = replace(engine.settings, mode="observe")
    assert gate(engine.due(number)) == ["mode"]
    found = store.incidents.get(number)
    assert found is not None
    assert found.state == "closed"
    engine.settings = replace(engine.settings, mode="act")  # and the fault, which lasts, comes again
    end_leases(store)
    assert engine.claim(fault_of("node1"))["waiting"]


def test_a_partition_that_was_taken_out_stops_a_repair_and_loses_nothing(engine: Engine, store: Store) -> None:
    number = waiting_repair(engine)
    engine.settings = replace(engine.settings, scope=Scope(partitions=("other",)))
    assert gate(engine.due(number)) == ["scope"]
    found = store.incidents.get(number)
    assert found is not None
    assert (found.state, found.step, found.plan) == ("waiting", "await_boot", "reboot_by_power")
    engine.settings = replace(engine.settings, scope=Scope(partitions=("main",)))
    end_leases(store)
    assert engine.due(number)["incidents"][0]["step"] == "await_boot"


def test_a_step_that_has_begun_gets_the_new_time(engine: Engine, store: Store) -> None:
    engine.world.state("node1", "MIXED", "DRAIN", reason="Kill task failed")
    claimed = engine.claim(fault_of("node1", kind="node_drained"))
    wait = Wait("time", {}, 0.0)
    deadlines: list[float] = []

    def look(work: Any, tools: Any) -> Outcome:
        deadlines.append(work.deadline - work.first_started_at)
        return Outcome(work.incident, WAITING, "jobs run", wait)

    engine.run(claimed, {"await_drained": look})
    number = claimed["incidents"][0]["incident"]
    held = store.incidents.get(number)
    assert held is not None
    engine.world.state("node1", "MIXED", "DRAIN", reason=held.reason)
    for policy in ("end", "deadline"):
        limits = replace(engine.settings.limits, drain_policy=policy, drain_timeout=60.0)
        engine.settings = replace(engine.settings, limits=limits)
        engine.run(engine.due(number), {"await_drained": look})
    assert deadlines == [3600.0, float("inf"), 60.0]
    assert plans.PLANS[held.plan].index("await_drained") > 0


def test_a_node_that_a_restored_ledger_does_not_know_is_released_by_a_person(engine: Engine, store: Store) -> None:
    reason = "job-recovery #4711 node_not_responding"
    engine.world.state("node1", "IDLE", "DRAIN", reason=reason)
    number = quarantined(store, "node1", 1)
    store.incidents.change(number, {"reason": reason})
    request = Request("bob", "it is good", ("cooldown", "breaker"))
    claimed = engine.claim(fault_of("node1", kind="requested", suggested="return_node"), request)
    assert plans_of(claimed) == {"node1": "return_node"}
    steps = engine.run(claimed)
    assert steps["resume"].acted[0].reason == reason
