# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that lines tell, from a server that behaves as Loki, over HTTP, with a real ledger."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.extensions.eda.plugins.event_source import loki as source_loki
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import client
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import watch as loki_watch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.watch import LokiWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import parse_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    LokiQuery,
    LokiSettings,
    Settings,
    parse,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import as_text

XID = "NVRM: Xid (PCI:0000:05:00): %d, pid=123, name=python, GPU has fallen off the bus."
SEGFAULT = "python[123]: segfault at 0 ip 0000 sp 0000 error 4 in libc.so"
TIMEOUT = "[rank3]:[E1130] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)"
JOURNAL = {"job": "systemd-journal", "node": "node1"}


class Clock:
    """Times that the test moves."""

    def __init__(self) -> None:
        self.moved = 0.0

    def wall(self) -> float:
        return time.time() + self.moved

    def steady(self) -> float:
        return time.monotonic() + self.moved


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loki(clock: Clock) -> Iterator[LokiStandIn]:
    with LokiStandIn(clock=clock.wall) as server:
        yield server


@pytest.fixture
def settings(loki: LokiStandIn, ledger: LedgerSettings, store: Store, tmp_path: Path) -> Settings:
    for name in ("node1", "node2"):
        store.machines.put(Machine(name, slurm_name=name))
    told = LokiSettings(url=loki.url, watch=True, timeout=5.0)
    return Settings(cluster="lab", ledger=ledger, state_dir=str(tmp_path), loki=told)


def faults(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(kind, target, suggested) of each event; every one is valid."""
    parsed = [parse_event(event) for event in events]
    return [(fault.kind, fault.targets[0].name, fault.suggested) for fault in parsed]


def look(watch: LokiWatch, settings: Settings) -> list[tuple[str, str, str]]:
    time.sleep(0.002)  # what was put just now is before now
    return faults(watch.look(settings))


@pytest.fixture
def watch(clock: Clock) -> Iterator[LokiWatch]:
    made = LokiWatch(clock.wall, clock.steady)
    yield made
    made.close()


def test_a_line_is_a_fault_once_with_evidence_in_the_ledger(
    watch: LokiWatch, settings: Settings, store: Store, loki: LokiStandIn, clock: Clock
) -> None:
    assert look(watch, settings) == []
    loki.put(JOURNAL, XID % 79)
    loki.put({"job": "systemd-journal", "node": "node2"}, SEGFAULT)  # an application's: nothing is done for it
    time.sleep(0.002)
    [event] = watch.look(settings)
    assert faults([event]) == [("gpu_fault", "node1", "reboot_node")]
    assert "Xid" not in json.dumps(event)
    [row] = store.records.kept("loki", 60.0)
    assert row["id"] == event["fault"]["evidence_ref"]
    assert row["body"]["code"] == "xid79"
    assert row["body"]["device"] == "0000:05:00"
    assert row["body"]["boot_id"] == ""
    assert "fallen off the bus" in row["body"]["lines"][0][1]
    for _turn in range(3):
        assert look(watch, settings) == []
    clock.moved += 61.0
    assert look(watch, settings) == [("gpu_fault", "node1", "reboot_node")]  # it may have been refused for a moment
    clock.moved += 120.0
    assert look(watch, settings) == []


def test_a_restart_leaves_nothing_out_and_tells_nothing_twice(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, clock: Clock
) -> None:
    loki.put(JOURNAL, XID % 79)
    assert len(look(watch, settings)) == 1
    again = LokiWatch(clock.wall, clock.steady)  # killed before it was kept that the event is on its way
    assert len(look(again, settings)) == 1
    assert look(again, settings) == []  # and now it is kept
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    clock.moved += 30.0
    last = LokiWatch(clock.wall, clock.steady)
    assert look(last, settings) == [("gpu_fault", "node2", "reboot_node")]


def test_lines_that_come_late_and_out_of_order(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, clock: Clock
) -> None:
    loki.put(JOURNAL, XID % 79)
    assert len(look(watch, settings)) == 1
    clock.moved -= 60.0
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    clock.moved += 60.0
    assert look(watch, settings) == [("gpu_fault", "node2", "reboot_node")]
    assert look(watch, settings) == []


def test_what_happened_while_loki_was_away_is_read_and_old_lines_say_that_they_are_old(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, clock: Clock
) -> None:
    assert look(watch, settings) == []
    loki.instead = as_text(503, "no")
    loki.put(JOURNAL, XID % 79)
    put_at = clock.wall()
    with pytest.raises(Partial) as caught:
        watch.look(settings)
    assert caught.value.events == []
    clock.moved += 600.0
    loki.instead = None
    [event] = watch.look(settings)
    assert parse_event(event).seen_at == pytest.approx(put_at, abs=1.0)


def test_more_lines_than_one_answer_has(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loki_watch, "_AT_ONCE", 7)
    for number in range(50):
        loki.put(JOURNAL, (XID % 13) + " %d" % number)
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    assert ("gpu_fault", "node2", "reboot_node") in look(watch, settings)
    before = len(loki.requests)
    assert look(watch, settings) == []
    assert len(loki.requests) > before


def test_many_lines_of_one_nanosecond(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loki_watch, "_AT_ONCE", 3)
    now = clock.wall()
    monkeypatch.setattr(loki, "_clock", lambda: now)
    for number in range(20):
        loki.put(JOURNAL, (XID % 13) + " %d" % number)
    monkeypatch.setattr(loki, "_clock", clock.wall)
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    assert ("gpu_fault", "node2", "reboot_node") in look(watch, settings)


def test_a_look_has_an_end_and_the_next_goes_on(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loki_watch, "_AT_ONCE", 5)
    monkeypatch.setattr(loki_watch, "_BUDGET", 0.0)
    for number in range(20):
        loki.put(JOURNAL, (XID % 13) + " %d" % number)
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    found: list[Any] = []
    turns = 0
    while ("gpu_fault", "node2", "reboot_node") not in found and turns < 10:
        found += look(watch, settings)
        turns += 1
    assert 3 <= turns < 10


def test_answers_that_are_too_long_are_asked_for_in_parts(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_ANSWER", 20000)
    for number in range(100):
        loki.put(JOURNAL, (XID % 13) + " %d " % number + "x" * 400)
    loki.put({"job": "systemd-journal", "node": "node2"}, XID % 79)
    assert ("gpu_fault", "node2", "reboot_node") in look(watch, settings)


@pytest.mark.parametrize(
    "labels",
    [
        {"job": "systemd-journal", "node": "node1", "pod": "train-0"},  # a user's program can write anything
        {"job": "varlogs", "node": "node1", "filename": "/home/user/x.log"},
        {"job": "systemd-journal", "node": "stranger"},
        {"job": "systemd-journal", "node": "node1 node2"},
        {"job": "systemd-journal"},
        {"job": "job-recovery", "component": "step", "node": "node1"},  # our own words
    ],
)
def test_lines_that_are_nobodys(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, labels: dict[str, str]
) -> None:
    loki.put(labels, XID % 79)
    assert look(watch, settings) == []


def test_a_job_that_hangs_is_reported_and_no_more(watch: LokiWatch, settings: Settings, loki: LokiStandIn) -> None:
    loki.put({"job": "slurm", "slurm_job_id": "17"}, TIMEOUT)
    loki.put({"job": "pods", "namespace": "team", "job_name": "train", "pod": "train-0"}, TIMEOUT)
    assert sorted(look(watch, settings)) == [("job_hung", "17", "report"), ("job_hung", "team/train", "report")]


def test_a_query_that_is_wrong_does_not_hide_the_others(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn
) -> None:
    queries = (LokiQuery("wrong", "{job="), LokiQuery("right", '{job="systemd-journal"} |= "NVRM"'))
    site = dataclasses.replace(settings, loki=dataclasses.replace(settings.loki, queries=queries))
    loki.put(JOURNAL, XID % 79)
    time.sleep(0.002)
    with pytest.raises(Partial, match="parse error") as caught:
        watch.look(site)
    assert faults(list(caught.value.events)) == [("gpu_fault", "node1", "reboot_node")]


def test_it_waits_as_long_as_loki_says(
    watch: LokiWatch, settings: Settings, loki: LokiStandIn, clock: Clock
) -> None:
    loki.instead = as_text(429, "slow down", **{"Retry-After": "40"})
    with pytest.raises(Partial):
        watch.look(settings)
    assert len(loki.requests) == 1
    assert watch.look(settings) == []
    assert len(loki.requests) == 1
    clock.moved += 41.0
    loki.instead = None
    loki.put(JOURNAL, XID % 79)
    assert len(look(watch, settings)) == 1


def test_a_line_whose_evidence_could_not_be_kept_is_read_again(
    watch: LokiWatch, settings: Settings, store: Store, loki: LokiStandIn
) -> None:
    assert look(watch, settings) == []
    loki.put(JOURNAL, XID % 79)
    store.database.write("ALTER TABLE evidence ADD COLUMN full INT NOT NULL")  # no row can be written now
    try:
        with pytest.raises(RecoveryError):
            watch.look(settings)
    finally:
        store.database.write("ALTER TABLE evidence DROP COLUMN full")
    assert len(look(watch, settings)) == 1


@pytest.mark.parametrize("change", [{"watch": False}, {"url": ""}])
def test_off(watch: LokiWatch, settings: Settings, loki: LokiStandIn, change: dict[str, Any]) -> None:
    loki.put(JOURNAL, XID % 79)
    assert watch.look(dataclasses.replace(settings, loki=dataclasses.replace(settings.loki, **change))) == []
    assert loki.requests == []


@pytest.mark.parametrize(
    ("queries", "wrong"),
    [
        ([{"name": "a", "query": "{}"}, {"name": "a", "query": "{}"}], "same name"),
        ([{"name": "a b", "query": "{}"}], "'a b'"),
        ([{"name": "a"}], "'a'"),
        ([{"name": "a", "query": "{}", "reads": "x"}], "reads of a"),
    ],
)
def test_queries_that_cannot_be(queries: list[dict[str, str]], wrong: str) -> None:
    with pytest.raises(BadInput, match=wrong):
        parse({"cluster": "lab", "slurm": {"enabled": False}, "loki": {"queries": queries}})


async def test_the_source_sends_and_never_ends(settings: Settings, loki: LokiStandIn, tmp_path: Path) -> None:
    path = tmp_path / "settings.yml"
    data = {
        "cluster": "lab",
        "state_dir": str(tmp_path),
        "slurm": {"enabled": False},
        "ledger": dict(settings.ledger.__dict__),
        "loki": {"url": loki.url, "watch": True},
    }
    path.write_text(yaml.safe_dump(data))
    loki.put(JOURNAL, XID % 79)
    await asyncio.sleep(0.01)
    queue: asyncio.Queue = asyncio.Queue(1)
    task = asyncio.create_task(source_loki.main(queue, {"settings": str(path)}))
    try:
        event = await asyncio.wait_for(queue.get(), 30)
        assert faults([event]) == [("gpu_fault", "node1", "reboot_node")]
        assert not task.done()
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
