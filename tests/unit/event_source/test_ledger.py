# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source `ledger`: loaded by path, as ansible-rulebook does, against a real MariaDB."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, AsyncIterator, Callable

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import dispatch, evidence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    load,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Wait

from ..plugins.module_utils.recovery.world import NEW_BOOT, World, fault_of, probe

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SOURCE = Path(__file__).parents[3] / "extensions/eda/plugins/event_source/ledger.py"


def source() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("ledger_source", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def write(path: Path, ledger: LedgerSettings, **changes_: Any) -> str:
    data = {
        "cluster": "lab",
        "stop_file": str(path / "STOP"),
        "state_dir": str(path),
        "slurm": {"enabled": False, "interval": 0.1},
        "ledger": {**dataclasses.asdict(ledger), **changes_},
    }
    (path / "new").write_text(yaml.safe_dump(data), encoding="utf-8")
    (path / "new").rename(path / "settings.yml")
    return str(path / "settings.yml")


def opened(store: Store, name: str) -> int:
    number = store.incidents.open(fault_of(name), Target("node", name), "node:" + name, name, Request()).id
    store.database.write("UPDATE incidents SET updated_at = updated_at - 100 WHERE id = %s", (number,))
    return number


async def running(settings: str) -> AsyncIterator[asyncio.Queue]:
    queue: asyncio.Queue = asyncio.Queue()
    task = asyncio.create_task(source()(queue, {"settings": settings}))
    try:
        yield queue
        assert not task.done()
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def due(queue: asyncio.Queue, seconds: float = 20.0) -> dict[str, Any]:
    while True:
        event = await asyncio.wait_for(queue.get(), seconds)
        if "due" in event:
            return event["due"]


async def test_what_is_due_is_sent_once_and_the_canary_comes(
    ledger: LedgerSettings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    number = opened(store, "node1")
    async for queue in running(write(tmp_path, ledger)):
        canary = await asyncio.wait_for(queue.get(), 20)
        assert list(canary) == ["canary"]
        event = await due(queue)
        assert event["incidents"] == [number]
        assert event["dispatch"] > 0
        await asyncio.sleep(0.5)
        assert queue.empty()  # it is on its way
        store.database.write("UPDATE incidents SET dispatch_until = 0")
        assert (await due(queue))["dispatch"] > event["dispatch"]
    beat = json.loads((tmp_path / "ledger.beat.json").read_text(encoding="utf-8"))
    assert (beat["name"], beat["error"]) == ("ledger", None)


async def test_an_outage_of_the_database_is_survived(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    number = opened(store, "node1")
    settings = write(tmp_path, ledger, unix_socket="/nonexistent/s")
    async for queue in running(settings):
        await asyncio.sleep(0.5)
        assert queue.empty()
        write(tmp_path, ledger)
        assert (await due(queue))["incidents"] == [number]


async def test_a_stop_holds_everything_back(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    number = opened(store, "node1")
    (tmp_path / "STOP").write_text("", encoding="utf-8")
    async for queue in running(write(tmp_path, ledger)):
        assert "canary" in await asyncio.wait_for(queue.get(), 20)
        await asyncio.sleep(0.5)
        assert queue.empty()
        (tmp_path / "STOP").unlink()
        assert (await due(queue))["incidents"] == [number]


async def test_unusable_settings_raise_before_the_loop(tmp_path: Path) -> None:
    with pytest.raises(RecoveryError):
        await source()(asyncio.Queue(), {"settings": str(tmp_path / "none.yml")})


def test_waits_are_looked_at_in_the_world(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    world = World()
    store.machines.put(world.add("node1"))
    world.freeze("node1")
    settings = load(write(tmp_path, ledger))
    number = opened(store, "node1")
    store.incidents.change(number, changes.wait(Wait("node_in_service", {"node": "node1"}, 2e9), "boots", {}))
    watch = dispatch.LedgerWatch(make=lambda settings: world.tools(settings, lambda work: pytest.fail("acted")))
    assert [event for event in watch.look(settings) if "due" in event] == []
    world.state("node1", "IDLE")
    assert [event["due"]["incidents"] for event in watch.look(settings) if "due" in event] == [[number]]
    watch.close()


def test_evidence_of_what_is_not_closed_is_kept(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    world = World()
    old, closed, newest = (opened(store, name) for name in ("node1", "node2", "node3"))
    store.incidents.change(old, changes.escalate("for a person", {}))
    for number in (closed, newest):
        store.incidents.change(number, changes.close("it is over", {}))
    for number in (old, closed, newest):
        evidence.save(str(tmp_path), number, "node1", {"kernel.log": b"x"})
    settings = load(write(tmp_path, ledger))
    settings = replace(settings, nodes=replace(settings.nodes, evidence_incidents=1))
    watch = dispatch.LedgerWatch(make=lambda settings: world.tools(settings, lambda work: pytest.fail("acted")))
    watch.look(settings)
    watch.close()
    kept = sorted(path.name for path in (tmp_path / "evidence").iterdir())
    assert kept == sorted("incident-%d" % number for number in (old, newest))


def test_healthy_boots_are_refreshed(store: Store, ledger: LedgerSettings, tmp_path: Path) -> None:
    world = World()
    now = time.time()
    for name in ("node1", "node2", "node3"):
        store.machines.put(world.add(name, boot_time=int(now) - 500, slurmd_start_time=int(now) - 490))
    opened(store, "node2")  # in repair: its record is what the repair began from
    world.state("node3", "IDLE", "DRAIN", reason="bob")
    world.probes["ssh-node1"] = probe(NEW_BOOT)
    settings = load(write(tmp_path, ledger))
    tools = world.tools(settings, lambda work: pytest.fail("acted"))
    assert dispatch.refresh_identities(store, tools, now) == 1
    assert store.machines.get(["node1"])["node1"].boot_id == NEW_BOOT
    assert dispatch.refresh_identities(store, tools, now + 60) == 0
