# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that bear the reason of a closed incident are given back; all others are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import again, left_over
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Sql
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node


@pytest.fixture
def store(ledger: LedgerSettings) -> Any:
    with open_store(ledger) as opened:
        opened.machines.put(Machine("node1", "node1"))
        yield opened


def opened(store: Store) -> int:
    target = Target("node", "node1")
    fault = Fault("node_not_responding", "slurm", "lab", "slurm", (target,), 1_800_000_000.0, "reboot_node")
    return store.incidents.open(fault, target, "node:node1", "node1", Request()).id


def closed(store: Store, seconds_ago: float = 100.0) -> int:
    number = opened(store)
    store.incidents.change(number, changes.close("proved well", {"power_off_proved": True}))
    store.incidents.change(number, {"closed_at": Sql("closed_at - %f" % seconds_ago)})
    return number


def node(number: int, added: str = "", base: str = "IDLE", flags: tuple[str, ...] = ("DRAIN",)) -> Node:
    return Node("node1", base, flags, reason="job-recovery #%d node_not_responding%s" % (number, added))


@pytest.mark.parametrize("look", [{}, {"base": "DOWN", "flags": ()}, {"added": " : reboot complete"}])
def test_a_node_held_for_a_closed_incident_is_given_back(store: Store, look: dict[str, Any]) -> None:
    number = closed(store)
    assert left_over.take_up(store, [node(number, **look)]) == [number]
    incident = store.incidents.get(number)
    assert incident is not None
    assert (incident.state, incident.plan, incident.step, incident.round) == ("open", "return_node", "drain", 1)
    assert (incident.memory, incident.closed_at) == ({}, None)
    assert store.incidents.idle() == {number}
    assert left_over.take_up(store, [node(number)]) == []


@pytest.mark.parametrize(
    "look",
    [
        {"added": ", Kill task failed"},  # a new fault: the source tells it
        {"added": ", ticket 4711"},  # a person's
        {"flags": ()},  # in service: Slurm kept the text
    ],
)
def test_nodes_that_are_not_ours_to_give_back(store: Store, look: dict[str, Any]) -> None:
    assert left_over.take_up(store, [node(closed(store), **look)]) == []


def test_an_incident_that_was_closed_just_now(store: Store) -> None:
    assert left_over.take_up(store, [node(closed(store, seconds_ago=1.0))]) == []


def test_an_incident_that_goes_on(store: Store) -> None:
    assert left_over.take_up(store, [node(opened(store))]) == []


def test_a_node_that_has_another_incident_by_now(store: Store) -> None:
    number = closed(store)
    other = opened(store)
    assert left_over.take_up(store, [node(number)]) == []
    assert set(store.incidents.idle()) == {other}


@pytest.mark.parametrize(
    ("added", "kind"), [("", "node_not_responding"), (" : reboot complete", "node_not_responding")]
)
def test_an_incident_that_the_ledger_does_not_know_is_a_persons(store: Store, added: str, kind: str) -> None:
    (number,) = left_over.take_up(store, [node(4711, added)])
    incident = store.incidents.get(number)
    assert incident is not None
    assert (incident.state, incident.fault_kind, incident.machine) == ("escalated", kind, "node1")
    assert incident.reason == "job-recovery #4711 node_not_responding"  # what makes the node ours to give back
    assert store.incidents.reasons_of("node:node1") == [incident.reason]
    assert again.again("release", incident).remediation == "return_node"
    assert left_over.take_up(store, [node(4711, added)]) == []  # once


def test_a_number_that_a_restored_ledger_gave_to_another_node(store: Store) -> None:
    store.machines.put(Machine("node2", "node2"))
    number = closed(store)
    other = Node("node2", "IDLE", ("DRAIN",), reason="job-recovery #%d node_not_responding" % number)
    (adopted,) = left_over.take_up(store, [other])
    found = store.incidents.get(adopted)
    assert found is not None
    assert (found.state, found.machine) == ("escalated", "node2")


@pytest.mark.parametrize(
    "reason",
    [
        "job-recovery #4711 node_not_responding, Kill task failed",
        "job-recovery #4711 node_not_responding: bob has it",
        "job-recovery #4711 node_not_responding, bob has it",
        "job-recovery #4711",
        "job-recovery #0x11 node_back",
        "job-recovery is broken, see #4711 node_back",
    ],
)
def test_what_somebody_wrote_is_nobodys_incident(store: Store, reason: str) -> None:
    assert left_over.take_up(store, [Node("node1", "IDLE", ("DRAIN",), reason=reason)]) == []
    assert store.incidents.live() == []


def test_a_node_that_is_no_machine_of_ours(store: Store) -> None:
    other = Node("stranger", "IDLE", ("DRAIN",), reason="job-recovery #4711 node_not_responding")
    assert left_over.take_up(store, [other]) == []
