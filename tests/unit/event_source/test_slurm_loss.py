# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lost nodes by the event source `slurm`, loaded by path as ansible-rulebook does: a real MariaDB, real ports."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import loss, silence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import parse_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    load,
)

from .lossy_site import OPT_IN, LossySite

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SOURCE = Path(__file__).parents[3] / "extensions/eda/plugins/event_source/slurm.py"
TOLD_WITHIN = 15.0
NOT_TOLD_FOR = 6.0  # three times what a dead node takes


def source() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("slurm_source", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.fixture
def site(
    tmp_path: Path, ledger: LedgerSettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LossySite]:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    made = LossySite(tmp_path, ledger, store, 4)
    yield made
    made.close()


@pytest.fixture
def many(site: LossySite) -> LossySite:
    """The same with twenty nodes."""
    site.add(*range(5, 21))
    return site


def play(site: LossySite, story: Callable[[Callable[[float], Any]], Any]) -> None:
    """Run the source, and a story beside it that asks `told(seconds)` for the node names of the next event."""

    async def both() -> None:
        queue: asyncio.Queue = asyncio.Queue()
        task = asyncio.create_task(source()(queue, {"settings": str(site.folder / "settings.yml")}))

        async def told(seconds: float) -> Optional[list[str]]:
            try:
                fault = parse_event(await asyncio.wait_for(queue.get(), seconds))
            except asyncio.TimeoutError:
                return None
            assert (fault.kind, fault.source, fault.suggested) == ("node_not_responding", "loss", "reboot_node")
            assert time.time() - fault.seen_at < 5
            return [target.name for target in fault.targets]

        try:
            await story(told)
            assert not task.done()
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(both())


def queues(site: LossySite) -> list[str]:
    """How squeue was called so far."""
    return [call for call in site.calls if call.startswith("squeue")]


def test_a_node_that_lost_its_power_under_an_opted_in_job_is_told_within_seconds(site: LossySite) -> None:
    site.job(1, "n1")

    async def story(told: Callable[[float], Any]) -> None:
        assert await told(2.0) is None
        begun = time.monotonic()
        site.lose("n1")
        site.bmc("n1", status="OFF")
        assert await told(TOLD_WITHIN) == ["n1"]
        took = time.monotonic() - begun
        assert took < 8.0
        assert site.beat("loss")["error"] is None
        while time.monotonic() - begun < TOLD_WITHIN and len(queues(site)) <= 3:
            assert await told(0.5) is None
        assert sum("--json" in call for call in queues(site)) == 1  # of a job that runs details are read once
        assert len(queues(site)) > 3

    play(site, story)


def test_only_what_is_proved_dead_under_an_opted_in_job_is_told(many: LossySite) -> None:
    """One node is dead; every other is not proved dead, nobody asked to look after it, or Slurm knows why it is off."""
    bmcs = {
        "n1": {"status": "OFF"},
        "n2": {"status": "OFF"},  # it lies: the node answers
        "n3": {"status": "ON"},
        "n4": {"status": "cannot be reached"},
        "n5": {"status": "OFF", "identify": "4c4c4544-0042-3010-8058-c7c04f4affff"},  # another machine's
        "n6": {"status": "OFF", "identify": "cannot be reached"},
    }
    comments = {"n7": "", "n8": "not for APS"}
    states = {"n9": "allocated+powering_down", "n10": "allocated+reboot_issued"}
    for number, name in enumerate([*bmcs, *comments, *states], 1):
        many.job(number, name, comments.get(name, OPT_IN))
        many.world["nodes"][name][0] = states.get(name, "allocated")
        many.bmc(name, **bmcs.get(name, {"status": "OFF"}))

    async def story(told: Callable[[float], Any]) -> None:
        assert await told(2.0) is None
        for name in {*bmcs, *comments, *states} - {"n2"}:
            many.lose(name)
        assert await told(TOLD_WITHIN) == ["n1"]
        assert await told(NOT_TOLD_FOR) is None
        assert many.beat("loss")["error"] is None
        asked = {call.split()[2] for call in many.calls if call.startswith("power")}
        assert asked == {"n1", "n3", "n4", "n5", "n6"}

    play(many, story)


@pytest.mark.parametrize("status", ["ON", "cannot be reached"])
def test_silence_counts_after_its_time_and_is_recorded_for_the_runs(site: LossySite, status: str) -> None:
    site.job(1, "n1")
    site.bmc("n1", status=status)
    path = site.settings(silence=8.0)

    async def story(told: Callable[[float], Any]) -> None:
        site.lose("n1")
        assert await told(6.0) is None
        assert site.recorded == {}
        assert await told(TOLD_WITHIN) == ["n1"]
        assert set(site.recorded) == {"n1"}
        assert 8.0 <= silence.read(load(path), time.time())["n1"] < 20.0
        assert silence.read(load(path), time.time() + 60) == {}
        site.bring_back("n1")
        await asyncio.sleep(3.0)
        assert site.recorded == {}

    play(site, story)


def test_a_controller_that_reaches_nobody_says_so_and_nothing_else(site: LossySite) -> None:
    for number, name in enumerate(site.names, 1):
        site.job(number, name)
        site.bmc(name, status="OFF")

    async def story(told: Callable[[float], Any]) -> None:
        assert await told(2.0) is None
        for name in site.names:
            site.lose(name)
        assert await told(NOT_TOLD_FOR) is None
        assert str(site.beat("loss")["error"]).startswith(loss.CUT_OFF)
        for name in site.names:
            site.bring_back(name)
        assert await told(8.0) is None
        assert site.beat("loss")["error"] is None

    play(site, story)


def test_more_nodes_than_blast_radius_allows(site: LossySite) -> None:
    for number in (1, 2):
        site.job(number, "n%d" % number)
        site.bmc("n%d" % number, status="OFF")
    site.settings(blast_radius_nodes=1)

    async def story(told: Callable[[float], Any]) -> None:
        assert await told(2.0) is None
        for name in ("n1", "n2"):
            site.lose(name)
        assert await told(NOT_TOLD_FOR) is None
        assert not any(call.startswith("power") for call in site.calls)

    play(site, story)


def test_a_site_may_do_without(site: LossySite) -> None:
    site.job(1, "n1")
    site.bmc("n1", status="OFF")
    site.settings(slurm={"probe_interval": 0})

    async def story(told: Callable[[float], Any]) -> None:
        site.lose("n1")
        assert await told(NOT_TOLD_FOR) is None
        assert not any(call.startswith("squeue") and "--json" in call for call in site.calls)

    play(site, story)
