# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody who follows incidents is told, and who advances them meanwhile."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import follow, looks, stop, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    Request,
    StepRow,
    target_key,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Wait

from .world import World, fault_of, settings_of


@pytest.fixture
def settings_file(ledger: LedgerSettings, tmp_path: Path) -> str:
    path = tmp_path / "settings.yml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(dataclasses.asdict(settings_of(ledger, str(tmp_path)))))))
    return str(path)


def opened_for(store: Store, name: str) -> int:
    fault = fault_of(name)
    target = fault.targets[0]
    return store.incidents.open(fault, target, target_key(target, looks.SLURM, name), name, Request("bob", "why")).id


class Follower(follow.Follower):
    """One that collects what it tells; its adapters are a small world's."""

    def __init__(self, numbers: list[int], settings: str, world: Optional[World] = None) -> None:
        self.lines: list[str] = []
        super().__init__(numbers, settings, self.lines.append, lambda given: (world or World()).tools(given, no_act))

    @property
    def texts(self) -> list[str]:
        """What was told, without the seconds."""
        return [line.partition(" s  ")[2] or line.strip() for line in self.lines]


def no_act(_work: Any) -> float:
    raise AssertionError("the follower acts by the same runs only")


def beat(folder: str, name: str, at: float) -> None:
    Path(folder).joinpath(name + ".beat.json").write_text(json.dumps({"name": name, "at": at, "error": None}))


def test_each_thing_is_told_once(store: Store, settings_file: str) -> None:
    number = opened_for(store, "node1")
    follower = Follower([number], settings_file)
    beat(str(Path(settings_file).parent), "ledger", time.time())
    store.incidents.change(number, changes.plan("reboot_over_ssh", "drain", "as asked for", {}, new_round=True))
    assert follower.look() is False
    assert follower.look() is False
    waiting = Wait(waits.TIME, {}, time.time() + 60)
    store.incidents.change(number, changes.wait(waiting, "it boots\x1b[2J", {}))
    assert follower.look() is False
    store.incidents.change(number, changes.close("the node is idle", {}))
    assert follower.look() is True
    assert follower.texts == [
        "node1  open: as asked for",
        r"node1  waiting: it boots\x1b[2J",
        "node1  closed: the node is idle",
    ]
    assert follower.left == []


def test_a_step_is_told_when_it_begins_and_when_it_ends() -> None:
    told: list[str] = []
    incident = type("Incident", (), {"id": 3, "opened_at": 100.0, "state": "open", "why": "", "target": TARGET})()
    story = follow.Story(told.append)
    story.tell([incident], [StepRow(3, 1, "drain", "started", started_at=101.0)], 101.5)
    story.tell([incident], [StepRow(3, 1, "drain", "done", started_at=101.0, finished_at=102.0)], 105.0)
    assert told == [
        "    +1.0 s  node1  drain started",
        "    +1.5 s  node1  open",
        "    +2.0 s  node1  drain done",
    ]


TARGET = fault_of("node1").targets[0]


@pytest.mark.parametrize(
    ("age", "stopped", "sent"),
    [
        (1.0, False, False),  # the service does it
        (600.0, False, True),
        (None, False, True),
        (None, True, False),  # nobody does it
    ],
)
def test_who_advances(store: Store, settings_file: str, age: Optional[float], stopped: bool, sent: bool) -> None:
    number = opened_for(store, "node1")
    if age is not None:
        beat(str(Path(settings_file).parent), "ledger", time.time() - age)
    if stopped:
        store.control.put(stop.STOP, "x", "bob")
    _over, due = Follower([number], settings_file)._look(follow.load(settings_file))
    assert [event["due"]["incidents"] for event in due] == ([[number]] if sent else [])


def test_only_its_own_incidents_are_sent(store: Store, settings_file: str) -> None:
    mine, _other = opened_for(store, "node1"), opened_for(store, "node2")
    _over, due = Follower([mine], settings_file)._look(follow.load(settings_file))
    assert [event["due"]["incidents"] for event in due] == [[mine]]


def test_what_is_left_to_a_person_fails(store: Store, settings_file: str) -> None:
    number = opened_for(store, "node1")
    store.incidents.change(number, changes.escalate("verify failed: 1 GB is missing", {}))
    with pytest.raises(follow.Unrepaired, match="node1: verify failed: 1 GB is missing"):
        follow.run({"incidents": [number], "timeout": 5.0, "settings": settings_file}, False)


def test_the_time_is_over(store: Store, settings_file: str) -> None:
    number = opened_for(store, "node1")
    beat(str(Path(settings_file).parent), "ledger", time.time())
    with pytest.raises(TimedOut, match="it is not over: node1"):
        follow.run({"incidents": [number], "timeout": 0.0, "settings": settings_file}, False)


def test_a_ledger_that_does_not_answer_is_told_once(tmp_path: Path, store: Store, ledger: LedgerSettings) -> None:
    path = tmp_path / "settings.yml"
    follower = Follower([1], str(path))
    assert follower.look() is False
    assert follower.look() is False
    assert len(follower.lines) == 1
    assert "settings" in follower.lines[0]
    assert issubclass(follow.Unrepaired, RecoveryError)
