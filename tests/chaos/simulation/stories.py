# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories: what a site is, what happens to it and which strikes fall; told, they give the facts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

from ..facts import Record
from . import blows
from .blows import Blow
from .controller import CLAIM, ENGINE, RELEASE
from .gangs import Gang
from .ledger import empty
from .site import Site
from .strikes import ACT, ACTED, HEAD, KILL, PAUSE, SQL, Strike


@dataclass(frozen=True)
class JobPlan:
    """A job of the story: on how many nodes, for how long, how many of its runs fail, how many restarts it allows."""

    number: int
    nodes: int = 1
    seconds: float = 150.0
    fails: int = 0
    allowed: int = 3


@dataclass(frozen=True)
class Story:
    """What happens.

    Attributes:
        gangs: Jobs of Kubernetes; where there is one, all nodes are in Kubernetes, too.
        deaths_are_seen: the recovery may tell that a run's processes are dead (on its own host).
        limits: changes to the settings' limits.
        most_held: see `Record`.
        quiet: the story is over when nothing has gone on for so many seconds.
        longest: it is over after so many seconds anyhow.
    """

    name: str
    nodes: int = 4
    jobs: tuple[JobPlan, ...] = (JobPlan(7, 2), JobPlan(8))
    gangs: tuple[Gang, ...] = ()
    blows: tuple[Blow, ...] = ()
    strikes: tuple[Strike, ...] = ()
    deaths_are_seen: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)
    most_held: Optional[int] = None
    quiet: float = 90.0  # longer than a lease and a dispatch that was lost
    longest: float = 3000.0

    def __str__(self) -> str:
        return self.name

    def words(self) -> str:
        """The whole story for a person who has to find out what went wrong."""
        happens = [str(each) for each in (*sorted(self.blows, key=lambda blow: blow.at), *self.strikes)]
        return "\n  ".join([self.name, *map(str, (*self.jobs, *self.gangs)), *happens])


def tell(story: Story, ledger: LedgerSettings, folder: Path, then: Optional[Callable[[Site], None]] = None) -> Record:
    """Let it happen, wait until all has come to rest, and ask the witnesses.

    Args:
        then: called with the site at the end, before it is gone.
    """
    empty(ledger)
    with pytest.MonkeyPatch.context() as patch:
        site = Site(ledger, folder, patch, bool(story.gangs), **story.limits)
        try:
            site.deaths_are_seen = story.deaths_are_seen
            site.add_nodes(story.nodes)
            for job in story.jobs:
                site.submit(job.number, job.nodes, job.seconds, job.fails, job.allowed)
            for gang in story.gangs:
                site.submit_gang(gang)
            site.points.strikes = list(story.strikes)
            for blow in story.blows:
                site.clock.after(blow.at, lambda blow=blow: blows.strike(site, blow))
            site.run(max([blow.at for blow in story.blows], default=0.0) + 2.0)
            site.settle(story.quiet, story.longest)
            if then is not None:
                then(site)
            return site.record(story.most_held)
        finally:
            site.close()


# ---- one blow at every boundary ------------------------------------------------------------------------------------

#: Repairs that go through all steps of Slurm, one of each kind.
BOUNDARIES = (
    Story("a frozen node under a job", jobs=(JobPlan(7, 2, 60.0),), blows=(Blow(10, "freeze", "node1"),)),
    Story("a job that fails", jobs=(JobPlan(7, 2, 60.0, 1),)),
    Story("a job whose step daemon dies", jobs=(JobPlan(7, 2, 60.0),), blows=(Blow(10, "lose_step_daemon", "7"),)),
    Story("a GPU that needs a reset", jobs=(JobPlan(7, 2, 60.0),), blows=(Blow(10, "gpu_fault", "node1"),)),
    Story("a GPU that a reset does not help", jobs=(JobPlan(7, 2, 60.0),), blows=(Blow(10, "gpu_stuck", "node1"),)),
    Story("a node that Slurm drains", jobs=(JobPlan(7, 2, 60.0),), blows=(Blow(10, "drained", "node1"),)),
    Story("a frozen node under a gang of pods", jobs=(), gangs=(Gang(101),), blows=(Blow(10, "freeze", "node1"),)),
    Story("a sick node under a gang of pods", jobs=(), gangs=(Gang(101),), blows=(Blow(10, "sick", "node1"),)),
)


def boundaries(story: Story, ledger: LedgerSettings, folder: Path) -> list[int]:
    """The numbers of the points right before and after each act, and before each write, of the story's runs."""
    labels: list[tuple[str, str]] = []
    tell(story, ledger, folder, lambda site: labels.extend(site.points.labels))
    return [
        number
        for number, (label, step) in enumerate(labels, 1)
        if step not in ("", ENGINE) and label.startswith(_BOUNDARIES)
    ]


def struck(story: Story, number: int, how: str) -> Story:
    """The same story with one strike, at this point."""
    return replace(story, name="%s, %s at point %d" % (story.name, how, number), strikes=(Strike(how, number),))


_BOUNDARIES = (ACT, ACTED, SQL + " INSERT", SQL + " UPDATE", SQL + " DELETE")


# ---- stories that nobody chose -------------------------------------------------------------------------------------

_MOMENTS = (CLAIM, CLAIM, RELEASE, ENGINE, "", *plans.ORDER)


def any_story(seed: int) -> Story:
    """A story that nobody chose."""
    chance = random.Random(seed)
    nodes = chance.randint(3, 5)
    jobs = tuple(_any_job(chance, number) for number in range(7, 7 + chance.randint(1, 3)))
    happens = [_any_fault(chance, nodes, jobs) for _fault in range(chance.randint(1, 3))]
    happens += [_any_trouble(chance, nodes) for _trouble in range(chance.choice((0, 1, 1, 2)))]
    strikes = tuple(_any_strike(chance) for _strike in range(chance.randint(0, 4)))
    seen = chance.random() < 0.5
    gangs = tuple(_any_gang(chance, number) for number in range(101, 101 + chance.choice((0, 0, 1, 2))))
    if gangs:
        happens += [_any_of(chance, blows.POD_NODE_FAULTS, nodes) for _fault in range(chance.choice((0, 1)))]
        happens += [_any_of(chance, blows.POD_TROUBLES, nodes) for _trouble in range(chance.choice((0, 1, 1, 2)))]
    return Story("seed %d" % seed, nodes, jobs, gangs, tuple(happens), strikes, seen)


def _any_gang(chance: random.Random, number: int) -> Gang:
    return Gang(number, chance.randint(1, 2), chance.uniform(40, 150), chance.randint(1, 3))


def _any_of(chance: random.Random, kinds: Sequence[str], nodes: int) -> Blow:
    return Blow(chance.uniform(1, 90), chance.choice(kinds), "node%d" % chance.randint(1, nodes), chance.uniform(3, 70))


def _any_job(chance: random.Random, number: int) -> JobPlan:
    nodes, seconds = chance.randint(1, 2), chance.uniform(40, 200)
    return JobPlan(number, nodes, seconds, chance.choice((0, 0, 1, 3)), chance.randint(1, 3))


def _any_fault(chance: random.Random, nodes: int, jobs: tuple[JobPlan, ...]) -> Blow:
    at = chance.uniform(5, 70)
    if chance.random() < 0.2:
        return Blow(at, "lose_step_daemon", str(chance.choice(jobs).number))
    node = "node%d" % chance.randint(1, nodes)
    return Blow(at, chance.choice(blows.NODE_FAULTS), node, chance.uniform(5, 60))


def _any_trouble(chance: random.Random, nodes: int) -> Blow:
    what, node = chance.choice(blows.TROUBLES), "node%d" % chance.randint(1, nodes)
    return Blow(chance.uniform(1, 90), what, node, chance.uniform(3, 70))


def _any_strike(chance: random.Random) -> Strike:
    how = chance.choice((KILL, KILL, PAUSE, PAUSE, HEAD))
    number = chance.randint(1, chance.choice((5, 15, 400)))
    return Strike(how, number, chance.choice((5.0, 20.0, 45.0, 90.0)), "", chance.choice(_MOMENTS))
