# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark is, and how its result is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class Wrong(Exception):
    """What was measured did not do what it should, so its time means nothing."""


@dataclass(frozen=True)
class Benchmark:
    """One thing that people wait for.

    Attributes:
        name: for the command line.
        what: for the table.
        budget: seconds that it may take.
        run: prepares in an empty folder, measures and returns seconds; raises `Wrong`.
    """

    name: str
    what: str
    budget: float
    run: Callable[[Path], float]


@dataclass(frozen=True)
class Outcome:
    """One measurement; `trouble` says why there is none."""

    benchmark: Benchmark
    seconds: float = 0.0
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Done right, and within the budget."""
        return not self.trouble and self.seconds <= self.benchmark.budget


def measure(benchmark: Benchmark, folder: Path) -> Outcome:
    """Run one benchmark."""
    try:
        return Outcome(benchmark, benchmark.run(folder))
    except Wrong as exc:
        return Outcome(benchmark, trouble=str(exc))


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people, and one line that counts."""
    lines = ["", "%-20s %-46s %10s %10s  %s" % ("benchmark", "what", "seconds", "budget", "verdict")]
    for one in outcomes:
        verdict = one.trouble or ("within" if one.good else "OVER THE BUDGET")
        shown = "-" if one.trouble else "%.1f" % one.seconds
        row = (one.benchmark.name, one.benchmark.what, shown, one.benchmark.budget, verdict)
        lines.append("%-20s %-46s %10s %10.0f  %s" % row)
    good = sum(one.good for one in outcomes)
    return "\n".join([*lines, "", "%d within their budgets, %d not" % (good, len(outcomes) - good)])
