# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make chaos`: stories that nobody chose, told one after the other for as long as wanted, from a printed seed on.

The engine runs over a MariaDB of its own and a simulated cluster (tests/chaos/simulation); with `--boundaries` it is
struck at every boundary of every step, and with `--rounds` on the lab besides, which must be up and installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.tests.chaos import invariants
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.stories import (
    BOUNDARIES,
    Story,
    any_story,
    boundaries,
    struck,
    tell,
)
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.strikes import HEAD, KILL, PAUSE
from ansible_collections.mission_control.job_recovery.tests.unit import private_mariadb

_LAB = Path(__file__).resolve().parents[1] / "lab"
_LAB_TESTS = (str(_LAB / "test_crash.py"), str(_LAB / "test_false_alarms.py"))


def main() -> int:
    """Tell stories, show what was violated; 0 only if nothing was."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first story (default: by the clock)")
    parser.add_argument("--minutes", type=float, default=5.0, help="go on for so long (0: one story)")
    parser.add_argument("--boundaries", action="store_true", help="strike at every boundary of every step besides")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds on the lab besides")
    asked = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="jr-db-"))
    server = private_mariadb.Server(folder)
    try:
        server.install()
        server.start()
        ledger = private_mariadb.create(server, folder)
        session = database.connect(ledger)
        schema.migrate(session)
        session.close()
        bad = _tell_for(seed, asked.minutes * 60, ledger, folder)
        if asked.boundaries:
            bad += sum(not _told_well(story, ledger, folder) for story in _at_boundaries(ledger, folder))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if asked.rounds:
        bad += _on_the_lab(seed, asked.rounds)
    return 1 if bad else 0


def _tell_for(seed: int, seconds: float, ledger: LedgerSettings, folder: Path) -> int:
    """Stories from a seed on; how many ended badly."""
    print("SEED=%d" % seed, flush=True)
    until, number, bad = time.monotonic() + seconds, seed, 0
    while number == seed or time.monotonic() < until:
        bad += not _told_well(any_story(number), ledger, folder)
        number += 1
    print("%d stories were told, %d of them ended badly" % (number - seed, bad), flush=True)
    return bad


def _at_boundaries(ledger: LedgerSettings, folder: Path) -> Iterator[Story]:
    for story in BOUNDARIES:
        numbers = boundaries(story, ledger, _fresh(folder))
        print("%s: %d boundaries" % (story, len(numbers)), flush=True)
        for number in numbers:
            for how in (KILL, PAUSE, HEAD):
                yield struck(story, number, how)


def _told_well(story: Story, ledger: LedgerSettings, folder: Path) -> bool:
    told = invariants.check(tell(story, ledger, _fresh(folder)))
    if told:
        print("%s\n  => %s" % (story.words(), "\n  => ".join(told)), flush=True)
    return not told


def _fresh(folder: Path) -> Path:
    """An empty folder for what controllers keep."""
    return Path(tempfile.mkdtemp(dir=folder, prefix="story-"))


def _on_the_lab(seed: int, rounds: int) -> int:
    """The same on the real cluster of the lab: its rounds, those that nobody chose, and what only looks like a loss."""
    chosen = {"JOB_RECOVERY_CHAOS": str(rounds), "JOB_RECOVERY_CHAOS_SEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *_LAB_TESTS], env={**os.environ, **chosen}, check=False
    )
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
