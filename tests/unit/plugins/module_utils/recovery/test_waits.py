# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits, and which incidents are sent when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JobState as KubernetesState,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobView, NodeView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import dispatch, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Incident
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Wait
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.waits import CheapLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JobState, Node

NOW = 1000.0
NEVER = 1e12


def nodes(base: str, *flags: str) -> CheapLook:
    return CheapLook(nodes={"n1": Node("n1", base, flags)})


def registered(base: str = "IDLE", *flags: str, boot: Optional[int] = 900, start: Optional[int] = 910) -> CheapLook:
    return CheapLook(registered={"n1": Node("n1", base, flags, boot_time=boot, slurmd_start_time=start)})


def jobs(**states: JobState) -> CheapLook:
    return CheapLook(jobs={name[1:]: state for name, state in states.items()})


def job(state: str, *flags: str) -> JobState:
    return JobState(7, state, flags)


ROWS: list[tuple[str, dict[str, Any], CheapLook, bool]] = [
    ("time", {}, nodes("IDLE"), False),
    ("unheard_of", {"node": "n1"}, nodes("IDLE"), False),
    ("node_state_changed", {"node": "n1", "state": "IDLE+NOT_RESPONDING"}, nodes("IDLE", "NOT_RESPONDING"), False),
    ("node_state_changed", {"node": "n1", "state": "IDLE+NOT_RESPONDING"}, nodes("DOWN", "NOT_RESPONDING"), True),
    ("node_state_changed", {"node": "n1", "state": "IDLE"}, CheapLook(), False),
    ("node_state_changed", {"node": "n2", "state": "IDLE"}, nodes("DOWN"), False),
    ("node_registered", {"node": "n1"}, registered(), True),
    ("node_registered", {"node": "n1"}, registered("IDLE", "NOT_RESPONDING"), False),
    ("node_registered", {"node": "n1"}, registered(boot=None), False),
    ("node_registered", {"node": "n1"}, CheapLook(nodes={"n1": Node("n1", "IDLE")}), False),
    ("node_registered", {"node": "n1", "boot_time": 899}, registered(), True),
    ("node_registered", {"node": "n1", "boot_time": 900}, registered(), False),
    ("node_registered", {"node": "n1", "slurmd_start_time": 910}, registered(), False),
    ("node_registered", {"node": "n1", "slurmd_start_time": 909}, registered(), True),
    ("node_registered", {"node": "n1", "slurmd_start_time": 909}, registered(start=None), False),
    ("node_registered", {"node": "n1", "slurmd_start_time": None}, registered(), True),
    ("node_registered", {"node": "n1", "since": 905.5}, registered(), True),
    ("node_drained", {"node": "n1"}, nodes("IDLE", "DRAIN"), True),
    ("node_drained", {"node": "n1"}, nodes("DOWN", "DRAIN"), True),
    ("node_drained", {"node": "n1"}, nodes("MIXED", "DRAIN"), False),
    ("node_drained", {"node": "n1"}, nodes("IDLE", "COMPLETING", "DRAIN"), False),
    ("node_drained", {"node": "n1"}, nodes("IDLE"), False),
    ("node_in_service", {"node": "n1"}, nodes("IDLE"), True),
    ("node_in_service", {"node": "n1"}, nodes("ALLOCATED"), True),
    ("node_in_service", {"node": "n1"}, nodes("IDLE", "DRAIN"), False),
    ("node_in_service", {"node": "n1"}, nodes("IDLE", "NOT_RESPONDING"), False),
    ("node_in_service", {"node": "n1"}, nodes("IDLE", "?"), False),
    ("job_pending", {"job": "7"}, jobs(_7=job("PENDING")), True),
    ("job_pending", {"job": 7}, jobs(_7=job("PENDING")), True),
    ("job_pending", {"job": "7"}, jobs(_7=job("PENDING", "COMPLETING")), False),
    ("job_pending", {"job": "7"}, jobs(), False),
    ("job_running", {"job": "7"}, jobs(_7=job("RUNNING")), True),
    ("job_running", {"job": "7"}, jobs(_7=job("PENDING")), False),
    ("job_not_active", {"job": "7"}, jobs(_7=job("RUNNING")), False),
    ("job_not_active", {"job": "7"}, jobs(_7=job("COMPLETED", "COMPLETING")), False),
    ("job_not_active", {"job": "7"}, jobs(_7=job("SUSPENDED")), False),
    ("job_not_active", {"job": "7"}, jobs(_7=job("PENDING")), True),
    ("job_not_active", {"job": "7"}, jobs(), True),  # forgotten
    ("job_not_active", {"job": "7"}, CheapLook(), False),
    ("job_not_active", {"jobs": ["7", "8"]}, jobs(_7=job("FAILED"), _8=job("RUNNING")), False),
    ("job_not_active", {"jobs": ["7", "8"]}, jobs(_7=job("FAILED")), True),
    (
        "kubernetes_node_ready",
        {"node": "k1"},
        CheapLook(kubernetes_nodes={"k1": NodeView("k1", ready="True", boot_id="b")}),
        True,
    ),
    (
        "kubernetes_node_ready",
        {"node": "k1", "boot_id": "b"},
        CheapLook(kubernetes_nodes={"k1": NodeView("k1", ready="True", boot_id="b")}),
        False,
    ),
    (
        "kubernetes_node_ready",
        {"node": "k1"},
        CheapLook(kubernetes_nodes={"k1": NodeView("k1", ready="Unknown", boot_id="b")}),
        False,
    ),
    ("kubernetes_node_ready", {"node": "k1"}, CheapLook(kubernetes_nodes={}), False),
    (
        "kubernetes_job_state",
        {"job": "d/j", "states": ["complete", "failed"]},
        CheapLook(kubernetes_jobs={"d/j": JobView("d", "j", state=KubernetesState.FAILED)}),
        True,
    ),
    (
        "kubernetes_job_state",
        {"job": "d/j", "states": ["complete"]},
        CheapLook(kubernetes_jobs={"d/j": JobView("d", "j")}),
        False,
    ),
    ("pods_gone", {"pods": ["d/a", "d/b"]}, CheapLook(pods={"d/a": False, "d/b": False}), True),
    ("pods_gone", {"pods": ["d/a", "d/b"]}, CheapLook(pods={"d/a": False, "d/b": True}), False),
    ("pods_gone", {"pods": ["d/a", "d/b"]}, CheapLook(pods={"d/a": False}), False),  # one could not be read
    ("pods_gone", {"pods": ["d/a"]}, CheapLook(), False),
]


@pytest.mark.parametrize(("kind", "args", "look", "expected"), ROWS)
def test_due(kind: str, args: dict[str, Any], look: CheapLook, expected: bool) -> None:
    assert waits.due(Wait(kind, args, NEVER), look, NOW) is expected
    assert waits.due(Wait(kind, args, NOW), look, NOW)  # the time is over


def test_every_kind_has_a_row() -> None:
    assert set(waits.KINDS) <= {row[0] for row in ROWS}


def test_only_what_is_needed_is_looked_at() -> None:
    wanted = waits.wanted(
        [
            Wait("node_registered", {"node": "n1"}, 0),
            Wait("job_not_active", {"jobs": ["7", 8]}, 0),
            Wait("pods_gone", {"pods": ["d/a"]}, 0),
            Wait("unheard_of", {"node": "n9"}, 0),
        ]
    )
    assert wanted == waits.Wanted(
        nodes=frozenset(["n1"]), registered=frozenset(["n1"]), jobs=frozenset(["7", "8"]), pods=frozenset(["d/a"])
    )


def incident(number: int, state: str = "waiting", tries: int = 0, changed: float = 0.0, **fields: Any) -> Incident:
    values: dict[str, Any] = {"target": Target("node", "n%d" % number), "scheduler": "slurm", **fields}
    return Incident(
        id=number,
        key="node:n%d" % number,
        fault_kind="x",
        source="slurm",
        suggested="report",
        state=state,
        dispatch_tries=tries,
        updated_at=changed,
        **values,
    )


MACHINE = Machine("n1", "n1", "k1")


@pytest.mark.parametrize(
    ("given", "machine", "kind"),
    [
        (incident(1, "open"), MACHINE, None),
        (incident(1, wait=Wait("time", {}, 5)), MACHINE, "time"),
        (incident(1, "escalated"), MACHINE, "node_in_service"),
        (incident(1, "escalated"), Machine("k1", "", "k1"), "kubernetes_node_ready"),
        (incident(1, "escalated"), None, "job_running"),
        (incident(1, "escalated", scheduler="kubernetes"), None, "time"),
    ],
)
def test_what_an_idle_incident_waits_for(given: Incident, machine: Optional[Machine], kind: Optional[str]) -> None:
    wait = dispatch.waiting_of(given, machine).wait
    assert (wait.kind if wait else None) == kind


@pytest.mark.parametrize(
    ("given", "room", "expected"),
    [
        ([incident(1, "open")], 1, {1: 15.0}),
        ([incident(1, "open")], 0, {}),
        ([incident(1, "open", tries=1), incident(2, "open")], 1, {1: 30.0, 2: 15.0}),  # one run for both
        ([incident(1, "open", tries=3, changed=NOW - 1)], 1, {}),
        ([incident(1, "open", tries=3, changed=NOW - 2)], 1, {1: 120.0}),
        ([incident(1, "open", tries=99, changed=NOW - 29)], 1, {}),
        ([incident(1, "open", tries=99, changed=NOW - 30)], 1, {1: 300.0}),
        ([incident(1, wait=Wait("time", {}, NOW + 1))], 1, {}),
        ([incident(1, wait=Wait("time", {}, NOW - 1))], 1, {1: 15.0}),
    ],
)
def test_pick(given: list[Incident], room: int, expected: dict[int, float]) -> None:
    waiting = [dispatch.waiting_of(each, MACHINE) for each in given]
    assert dispatch.pick(waiting, CheapLook(), NOW, room) == expected


def test_the_widest_job_is_not_delayed_by_a_queue_of_small_ones() -> None:
    queue = [incident(number, "open") for number in range(1, dispatch.MAX_IN_ONE + 100)]
    wide = replace(incident(4711, "open"), memory={"job_nodes": 64})
    waiting = [dispatch.waiting_of(each, MACHINE) for each in [*queue, wide]]
    assert list(dispatch.pick(waiting, CheapLook(), NOW, 1))[:2] == [4711, 1]


def test_a_storm_is_one_run_of_bounded_size() -> None:
    waiting = [dispatch.waiting_of(incident(number, "open"), MACHINE) for number in range(1, 2000)]
    assert len(dispatch.pick(waiting, CheapLook(), NOW, 1)) == dispatch.MAX_IN_ONE


def test_what_is_left_to_persons_is_looked_at_in_turn_and_delays_nothing() -> None:
    left = [incident(number, "escalated") for number in range(1, 1001)]
    going_on = [incident(number) for number in range(2001, 2031)]
    looks = [dispatch.in_turn(left + going_on, NOW + second) for second in range(5)]
    assert all(look[: len(going_on)] == going_on for look in looks)
    assert {each.id for look in looks for each in look[len(going_on) :]} == set(range(1, 1001))
    assert max(map(len, looks)) == 230
    assert dispatch.in_turn(left[:150], NOW) == left[:150]


def test_a_ledger_whose_clock_is_ahead_delays_nothing() -> None:
    ahead = incident(1, "open", tries=3, changed=NOW + 298)  # two seconds ago, by a clock that is five minutes ahead
    waiting = [dispatch.waiting_of(ahead, MACHINE)]
    assert dispatch.pick(waiting, CheapLook(), NOW, 1) == {}
    assert dispatch.pick(waiting, CheapLook(), NOW, 1, 300.0) == {1: 120.0}
