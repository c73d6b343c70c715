# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The invariants of the chaos suite: a record that keeps each, and the records that break it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.mission_control.job_recovery.tests.chaos import invariants
from ansible_collections.mission_control.job_recovery.tests.chaos.facts import (
    CLOSED,
    COMPLETED,
    ESCALATED,
    FAILED,
    KILLED,
    OPEN,
    WAITING,
    Boot,
    Breakage,
    Forced,
    Hold,
    Life,
    Record,
    Requeue,
    Reset,
    Row,
    Stop,
    Switch,
    Wish,
)

OURS = "job-recovery #1 node_not_responding"
ROW = Row(1, "node1", CLOSED, 10, 60, 60, OURS)
#: node1 freezes at 0 under job 7, is fenced at 10, and serves again at 50; the job goes on elsewhere from 15 on.
GOOD = Record(
    now=1000.0,
    breakages=(Breakage(0, "node1", 40),),
    boots=(Boot(40, "node1"),),
    switches=(Switch(10, "node1", "Off"), Switch(20, "node1", "On")),
    lives=(
        Life(7, ("node1", "node2"), -100, 12, KILLED),
        Life(7, ("node2", "node3"), 15, 200, COMPLETED),
        Life(8, ("node4",), -50),
    ),
    requeues=(Requeue(12, 7),),
    holds=(Hold(5, "node1", OURS, 50),),
    rows=(ROW,),
    stops=(Stop(500, 600),),
    wishes=(),
    allowed=((7, 3), (8, 3)),
    most_held=1,
)

BROKEN = (
    ("no_node_rebooted_twice", "boots", (Boot(40, "node1"), Boot(50, "node1"))),
    ("no_node_rebooted_twice", "boots", (Boot(40, "node2"),)),
    ("no_node_rebooted_twice", "boots", (Boot(70, "node1"),)),
    ("no_node_rebooted_twice", "breakages", (Breakage(45, "node1"),)),
    ("no_node_rebooted_twice", "breakages", (Breakage(0, "node1", 40, boots=0),)),
    ("no_gpu_reset_twice", "resets", (Reset(10, "node1"),)),  # its fault is none of a GPU
    ("no_service_left_stopped", "stopped_services", ("node3",)),
    ("no_healthy_node_switched_off", "switches", (Switch(10, "node2", "Off"),)),
    ("no_healthy_node_switched_off", "switches", (Switch(100, "node1", "Off"),)),
    ("no_job_requeued_twice", "requeues", (Requeue(12, 7), Requeue(14, 7, asked=True))),
    ("no_job_requeued_twice", "requeues", (Requeue(30, 8, asked=True),)),
    ("no_job_requeued_twice", "requeues", (Requeue(11, 7, asked=True),)),
    ("no_job_requeued_too_often", "requeues", tuple(Requeue(at, 8, asked=True) for at in range(4))),
    (
        "no_job_runs_twice_at_once",
        "lives",
        (Life(7, ("node1",), 0, 16, KILLED), Life(7, ("node2",), 15, 200, COMPLETED)),
    ),
    ("no_job_runs_twice_at_once", "lives", (Life(7, ("node1",), 0), Life(7, ("node2",), 15, 200, FAILED))),
    ("no_healthy_job_killed", "lives", (Life(8, ("node4",), 0, 30, KILLED),)),
    ("no_healthy_job_killed", "breakages", (Breakage(0, "node1", 40, fatal=False),)),
    ("no_node_held_without_incident", "rows", ()),
    ("no_node_held_without_incident", "rows", (replace(ROW, target="node2"),)),
    ("no_node_held_without_incident", "rows", (replace(ROW, number=2, state=ESCALATED, opened_at=4.0),)),
    ("no_node_held_without_incident", "rows", (replace(ROW, number=2, opened_at=61.0),)),
    ("no_node_held_without_incident", "holds", (Hold(5, "node1", OURS),)),
    ("no_more_held_than_allowed", "holds", (Hold(5, "node1", OURS, 50), Hold(30, "node2", OURS, 60))),
    ("no_incident_without_owner", "rows", (replace(ROW, state=OPEN),)),
    ("no_incident_without_owner", "rows", (replace(ROW, state=WAITING, wait_until=100.0),)),
    ("no_incident_without_owner", "rows", (replace(ROW, state=WAITING, wait_until=90000.0),)),
    ("no_incident_without_owner", "rows", (replace(ROW, state=WAITING, wait_until=1001.0, sent_until=1e9),)),
    ("no_target_with_two_incidents", "rows", (replace(ROW, state=ESCALATED), replace(ROW, number=2, opened_at=99.0))),
    ("no_target_with_two_incidents", "rows", (ROW, replace(ROW, number=2, opened_at=59.0))),
    ("nothing_done_while_stopped", "stops", (Stop(7, 600),)),
    ("nothing_done_while_stopped", "stops", (Stop(1),)),
    ("no_wish_is_overruled", "wishes", (Wish(30, "node1", "bob has it"),)),
    ("nothing_forced_on_a_living_node", "forced", (Forced(15, "node1", "On"),)),
)

KEPT = (
    ("boots", (Boot(10, "node1"),)),
    ("breakages", (Breakage(0, "node1", 40), Breakage(41, "node1", 70))),
    ("lives", (Life(7, ("node1",), 0, 5, FAILED), Life(7, ("node2",), 15, 200, COMPLETED))),
    ("lives", (Life(7, ("node1",), 0), Life(7, ("node2",), 133, 200, COMPLETED))),
    ("lives", (Life(7, ("node1",), 0), Life(7, ("node2",), 131.2, 200, COMPLETED))),
    ("rows", (replace(ROW, state=ESCALATED),)),
    ("rows", (replace(ROW, number=2, state=ESCALATED, opened_at=61.0),)),
    ("rows", (ROW, replace(ROW, number=2, opened_at=61.0))),
    ("rows", (replace(ROW, state=OPEN, claimed=True),)),
    ("rows", (replace(ROW, state=OPEN, updated_at=990.0),)),
    ("rows", (replace(ROW, state=WAITING, wait_until=1200.0),)),
    ("holds", (Hold(5, "node1", OURS, 50), Hold(30, "node2", "bob: fans"))),
    ("stops", (Stop(9.0, 11.0),)),
    ("forced", (Forced(15, "node1", "Off"),)),
)


def test_what_is_well_breaks_none() -> None:
    assert invariants.check(GOOD) == []


@pytest.mark.parametrize(("rule", "part", "facts"), BROKEN)
def test_each_invariant_sees_what_breaks_it(rule: str, part: str, facts: tuple) -> None:
    told = invariants.check(replace(GOOD, **{part: facts}))
    assert any(line.startswith(rule + ":") for line in told), told


@pytest.mark.parametrize(("part", "facts"), KEPT)
def test_what_looks_alike_and_is_well(part: str, facts: tuple) -> None:
    assert invariants.check(replace(GOOD, **{part: facts})) == []


def test_every_invariant_has_a_record_that_breaks_it() -> None:
    assert {rule for rule, _part, _facts in BROKEN} == set(invariants.INVARIANTS)


def test_each_reset_of_a_gpu_wants_a_fault_of_its_own() -> None:
    fault = Breakage(25, "node3", 30, boots=0, fatal=False, resets=1)
    record = replace(GOOD, breakages=(*GOOD.breakages, fault), resets=(Reset(30, "node3"),))
    assert invariants.check(record) == []
    told = invariants.check(replace(record, resets=(*record.resets, Reset(40, "node3"))))
    assert [line.partition(":")[0] for line in told] == ["no_gpu_reset_twice"]
