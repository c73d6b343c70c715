# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run makes of a node that was lost before Slurm noticed: it looks itself, over a real MariaDB."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import shell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, silence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

from .test_engine import Engine, gate
from .world import OTHER_UUID, World, fault_of, settings_of


@pytest.fixture
def engine(ledger: LedgerSettings, store: Store, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    world = World()
    for name in ("node1", "node2", "node3"):
        store.machines.put(world.add(name))
    return Engine(ledger, settings_of(ledger, str(tmp_path)), world)


def record(engine: Engine, ago: float = 0.0, **silent: float) -> None:
    """What the source that probes has written."""
    silence.write(engine.settings, silent, time.time() - ago)


def test_a_dead_node_is_given_up_before_slurm_notices(engine: Engine, store: Store) -> None:
    engine.world.silence("node1", "Off")
    claimed = engine.claim(fault_of("node1"))
    assert claimed["incidents"][0]["plan"] == "reboot_by_power"
    begun = store.incidents.get(claimed["incidents"][0]["incident"])
    assert begun is not None
    assert begun.why == "the node is silent and off, and its BMC is proved"
    steps = engine.run(claimed)
    assert list(steps)[:5] == ["drain", "cordon", "fence", "down", "release_pods"]
    (work,) = steps["fence"].acted
    assert work.memory[plans.BY_PROBES] is True
    closed = store.incidents.get(work.incident)
    assert closed is not None
    assert closed.state == "closed"


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda world: world.banners.update({"ssh-node1": shell.BANNER}), id="it answers: the BMC lies"),
        pytest.param(lambda world: world.banners.update({"ssh-node1": shell.SILENT}), id="it connects: frozen"),
        pytest.param(lambda world: world.banners.update({"ssh-node1": shell.REFUSED}), id="it refuses"),
        pytest.param(lambda world: world.banners.update({"ssh-node1": shell.UNKNOWN}), id="we cannot ask"),
        pytest.param(lambda world: world.silence("node1", "On"), id="the BMC says On by now"),
        pytest.param(lambda world: world.silence("node1", "PoweringOff"), id="not off yet"),
        pytest.param(lambda world: world.powers.clear(), id="the BMC does not answer"),
    ],
)
def test_the_word_of_the_source_is_not_enough(engine: Engine, store: Store, spoil: Callable[[World], Any]) -> None:
    engine.world.silence("node1", "Off")
    spoil(engine.world)
    assert gate(engine.claim(fault_of("node1"))) == ["gone"]
    assert store.incidents.report() == []


def test_the_bmc_of_another_machine_proves_nothing(engine: Engine) -> None:
    engine.world.silence("node1", "Off")
    there = engine.world.powers["https://bmc/node1"]
    engine.world.powers["https://bmc/node1"] = type(there)("Off", OTHER_UUID)
    assert gate(engine.claim(fault_of("node1"))) == ["gone"]


@pytest.mark.parametrize(
    ("ago", "silent", "begins"),
    [
        (0.0, {"node1": 61.0}, True),
        (0.0, {"node1": 59.0}, False),  # by other settings than these
        (0.0, {"node2": 61.0}, False),
        (30.0, {"node1": 61.0}, False),  # the source stood still since
        (-30.0, {"node1": 61.0}, False),  # a clock was set back
        (0.0, {}, False),
    ],
)
def test_silence_counts_by_a_fresh_record_alone(engine: Engine, ago: float, silent: Any, begins: bool) -> None:
    engine.world.silence("node1", "On")
    record(engine, ago, **silent)
    claimed = engine.claim(fault_of("node1"))
    assert [each["plan"] for each in claimed["incidents"]] == (["reboot_by_power"] if begins else [])
    assert gate(claimed) == ([] if begins else ["gone"])


def test_without_a_record_nothing_is_long_silent(engine: Engine) -> None:
    engine.world.silence("node1", "On")
    assert gate(engine.claim(fault_of("node1"))) == ["gone"]


def test_a_record_that_is_damaged_says_nothing(engine: Engine) -> None:
    engine.world.silence("node1", "On")
    for text in ("", "{", "[]", '{"at": true, "silent": {"node1": 99}}', '{"at": %f, "silent": []}' % time.time()):
        with open(engine.settings.state_dir + "/silent.json", "w", encoding="utf-8") as file:
            file.write(text)
        assert gate(engine.claim(fault_of("node1"))) == ["gone"]


def test_without_a_bmc_slurms_verdict_is_awaited_and_the_incident_says_so(engine: Engine, store: Store) -> None:
    engine.world.silence("node1", "On")
    engine.world.powers.clear()
    record(engine, node1=61.0)
    (waiting,) = engine.claim(fault_of("node1"))["waiting"]
    assert waiting["why"].endswith("has no BMC of proved identity; Slurm's verdict is awaited")
    incident = store.incidents.get(waiting["incident"])
    assert incident is not None
    assert incident.wait is not None
    assert (incident.wait.kind, incident.wait.args["state"]) == ("node_state_changed", "ALLOCATED")
    # Slurm gives it up: as without probes
    engine.world.state("node1", "DOWN", "NOT_RESPONDING", reason="Not responding")
    assert engine.due(waiting["incident"])["incidents"][0]["plan"] == "return_node"


def test_a_node_that_answers_again_while_its_incident_waits_ends_it(engine: Engine, store: Store) -> None:
    engine.world.silence("node1", "On")
    engine.world.powers.clear()
    record(engine, node1=61.0)
    (waiting,) = engine.claim(fault_of("node1"))["waiting"]
    engine.world.banners["ssh-node1"] = shell.BANNER
    assert engine.due(waiting["incident"])["ended"][0]["why"] == "gone: looked again: the node is ALLOCATED"
    incident = store.incidents.get(waiting["incident"])
    assert incident is not None
    assert (incident.state, incident.acted) == ("closed", False)


def test_more_dead_nodes_than_may_be_held_are_refused(engine: Engine) -> None:
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, limits={"blast_radius_nodes": 1})
    for name in ("node1", "node2"):
        engine.world.silence(name, "Off")
    claimed = engine.claim(fault_of("node1", "node2"))
    assert [each["target"] for each in claimed["incidents"]] == ["node1"]
    assert gate(claimed) == ["blast_radius"]


def test_observing_tells_what_would_be_done(engine: Engine, store: Store) -> None:
    engine.settings = settings_of(engine.ledger, engine.settings.state_dir, mode="observe")
    engine.world.silence("node1", "Off")
    assert gate(engine.claim(fault_of("node1"))) == ["mode"]
    assert store.records.refusals(["node1"])[0]["plan"] == "reboot_by_power"
