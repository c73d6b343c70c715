# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Molecule's scenarios on the lab: one cluster for all, each scenario by itself, also after one failed."""

from __future__ import annotations

from collections.abc import Iterator

from . import process
from .process import CHECKOUT, Environment, Result, Timer

PART = "molecule"
# Seconds. From nothing the lab is built first, which is most of the time.
LAB_UP_DEADLINE = 45 * 60
SCENARIO_DEADLINE = 15 * 60
LAB_DOWN_DEADLINE = 5 * 60
# Owns the lab: its create and destroy serve all other scenarios.
SHARED = "default"


def check(environment: Environment, wanted: str = "") -> Iterator[Result]:
    """Yield a result for the lab and one for each scenario, or for the `wanted` one."""
    names = scenarios()
    if wanted and wanted not in names:
        yield Result(PART, wanted, False, 0, "no such scenario; there are: " + " ".join(names))
        return
    try:
        up = _molecule("lab up", ["create", "--scenario-name", SHARED], environment, LAB_UP_DEADLINE)
        yield up
        if up.passed:
            for name in [wanted] if wanted else names:
                # The lab stays for the next one.
                argv = ["test", "--scenario-name", name, "--destroy", "never"]
                yield _molecule(name, argv, environment, SCENARIO_DEADLINE)
    finally:
        down = _molecule("lab down", ["destroy", "--scenario-name", SHARED], environment, LAB_DOWN_DEADLINE)
    yield down


def scenarios() -> list[str]:
    """Names of all scenarios but the shared one, in the order they run."""
    return sorted(path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml") if path.parent.name != SHARED)


def _molecule(name: str, argv: list[str], environment: Environment, deadline: float) -> Result:
    timer = Timer()
    print("--- molecule %s" % " ".join(argv), flush=True)
    problem = process.run(["molecule", *argv], environment, deadline=deadline)
    return Result(PART, name, not problem, timer.seconds, problem)
