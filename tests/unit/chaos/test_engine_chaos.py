# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine over a real MariaDB and a simulated cluster: killed and stopped at any moment, all invariants hold.

`make chaos` tells stories that nobody chose for as long as it is asked to; here are a few, and the boundaries of steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.tests.chaos import invariants
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.blows import (
    BLOWS,
    NODE_FAULTS,
    POD_NODE_FAULTS,
    POD_TROUBLES,
    TROUBLES,
    Blow,
)
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.stories import (
    BOUNDARIES,
    Story,
    any_story,
    boundaries,
    struck,
    tell,
)
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.strikes import HEAD, KILL, PAUSE

SEEDS = range(8)
STORM = Story("a storm", blows=(Blow(10, "freeze", "node1"), Blow(17, "storm", "node1", 300)))
_SHARE = 12  # of the boundaries every so-manieth is tried here; all of them by `make chaos`


@pytest.mark.parametrize("seed", SEEDS)
def test_stories_that_nobody_chose(seed: int, ledger: LedgerSettings, tmp_path: Path) -> None:
    story = any_story(seed)
    told = invariants.check(tell(story, ledger, tmp_path))
    assert told == [], story.words()


@pytest.mark.parametrize("story", BOUNDARIES, ids=str)
def test_a_repair_struck_at_boundaries_of_its_steps(story: Any, ledger: LedgerSettings, tmp_path: Path) -> None:
    found = boundaries(story, ledger, tmp_path)
    assert len(found) > 4 * _SHARE
    for index, number in enumerate(found[:: _SHARE]):
        folder = tmp_path / str(number)
        folder.mkdir()
        disturbed = struck(story, number, (KILL, PAUSE, HEAD)[index % 3])
        fallen: list[Any] = []
        record = tell(disturbed, ledger, folder, lambda site, into=fallen: into.extend(site.points.fallen))
        assert fallen, disturbed.words()
        assert invariants.check(record) == [], (disturbed.words(), fallen)


def test_the_same_seed_tells_the_same_story(ledger: LedgerSettings, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = tell(any_story(3), ledger, tmp_path / "first")
    second = tell(any_story(3), ledger, tmp_path / "second")
    assert [(boot.at, boot.node) for boot in first.boots] == [(boot.at, boot.node) for boot in second.boots]
    assert (first.lives, first.requeues, first.switches) == (second.lives, second.requeues, second.switches)


def test_whatever_stories_are_made_of_is_there() -> None:
    assert set(NODE_FAULTS + TROUBLES + POD_NODE_FAULTS + POD_TROUBLES) <= set(BLOWS)


def test_a_storm_of_duplicates_makes_one_incident(ledger: LedgerSettings, tmp_path: Path) -> None:
    """Far more than fit into one look; the source sends a lasting fault once a minute."""
    record = tell(STORM, ledger, tmp_path)
    assert invariants.check(record) == []
    assert [row.target for row in record.rows] == ["node1"]
