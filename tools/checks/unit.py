# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests: pytest in the tool environment."""

from __future__ import annotations

from collections.abc import Iterator

from . import junit, process
from .process import BUILD, Environment, Result, Timer

PART = "unit"
DEADLINE = 1200


def check(environment: Environment) -> Iterator[Result]:
    """Yield one result for each unit test; files that cannot be imported are failed tests as well."""
    timer = Timer()
    report = BUILD / "unit.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    argv = ["python", "-m", "pytest", "--quiet", "--junitxml", str(report), "tests/unit"]
    problem = process.run(argv, environment, deadline=DEADLINE)
    results = list(junit.read(PART, report)) if report.exists() else []
    yield from results
    if problem and all(result.passed for result in results):
        yield Result(PART, "pytest", False, timer.seconds, problem)
