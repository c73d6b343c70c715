# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Molecule's scenarios on the lab: one cluster for all, each scenario by itself, also after one failed.

`molecule test --all` would end at the first failure, and would bring the lab up without showing progress.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from . import junit, process
from .process import BUILD, CHECKOUT, Environment, Result, Timer

PART = "molecule"
# Seconds. Of the first, most is for building the lab from nothing.
LAB_UP_DEADLINE = 45 * 60
SCENARIO_DEADLINE = 20 * 60
LAB_DOWN_DEADLINE = 5 * 60
# Owns the lab and tests nothing.
SHARED = "default"
# Installs what all others test; without it they fail, and say that it is not there.
FIRST = "site"
# Removes it.
LAST = "uninstall"


def check(environment: Environment, wanted: str = "") -> Iterator[Result]:
    """Yield a result for the lab, one for each scenario or for the `wanted` one, and one for each of its tests.

    A lab that was up before stays up, so that one scenario can be tried again and again.
    """
    names = scenarios()
    if not names or (wanted and wanted not in names):
        yield Result(PART, wanted or "scenarios", False, 0, "not there; there are: " + (" ".join(names) or "none"))
        return
    was_up = _lab_is_up(environment)
    environment = {**environment, "MOLECULE_EPHEMERAL_DIRECTORY": _fresh_folder()}
    try:
        up = _run("lab up", ["lab/up"], environment, LAB_UP_DEADLINE)
        yield up
        if up.passed:
            for name in [wanted] if wanted else names:
                yield from _scenario(name, environment)
    finally:
        if not was_up:
            down = _run("lab down", ["lab/down"], environment, LAB_DOWN_DEADLINE)
    if not was_up:
        yield down


def scenarios() -> list[str]:
    """Names of all scenarios but the shared one, in the order they run."""
    names = {path.parent.name for path in CHECKOUT.glob("molecule/*/molecule.yml")} - {SHARED}
    return sorted(names, key=lambda name: (name != FIRST, name == LAST, name))


def _scenario(name: str, environment: Environment) -> Iterator[Result]:
    """The scenario's own result, and those of the tests that it ran with pytest (parts/tasks/pytest.yml)."""
    reports = BUILD / "reports" / _instance()
    for report in reports.glob("%s-*.xml" % name):
        report.unlink()
    reports.mkdir(parents=True, exist_ok=True)
    argv = ["molecule", "test", "--scenario-name", name, "--destroy", "never"]
    yield _run(name, argv, environment, SCENARIO_DEADLINE)
    for report in sorted(reports.glob("%s-*.xml" % name)):
        yield from junit.read(PART, report)


def _instance() -> str:
    return os.environ.get("LAB_INSTANCE") or "0"


def _lab_is_up(environment: Environment) -> bool:
    with process.log_of(PART, "lab status") as log:
        return not process.run(["lab/status"], environment, deadline=60, output=log)


def _fresh_folder() -> str:
    """Molecule's folder, empty: what it remembers of a lab that is gone would make it skip creating one."""
    folder = BUILD / "molecule" / _instance()
    shutil.rmtree(folder, ignore_errors=True)
    return str(folder)


def _run(name: str, argv: list[str], environment: Environment, deadline: float) -> Result:
    timer = Timer()
    print("--- %s" % " ".join(argv), flush=True)
    problem = process.run(argv, environment, deadline=deadline)
    return Result(PART, name, not problem, timer.seconds, problem)
