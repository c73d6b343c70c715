# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark is, and how its result is shown."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class Wrong(Exception):
    """What was measured did not do what it should, so its numbers mean nothing."""


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        what: what was measured.
        value: the number.
        unit: of the number.
        budget: what it may be at most; None for a number that only explains the others.
    """

    what: str
    value: float
    unit: str = "s"
    budget: float | None = None

    @property
    def good(self) -> bool:
        """Within the budget."""
        return self.budget is None or self.value <= self.budget


@dataclass(frozen=True)
class Benchmark:
    """One thing that people wait for, or that costs.

    Attributes:
        name: for the command line.
        what: for the table.
        run: prepares in an empty folder, measures and returns figures; raises `Wrong`.
    """

    name: str
    what: str
    run: Callable[[Path], Sequence[Figure]]


@dataclass(frozen=True)
class Outcome:
    """One measurement; `trouble` says why there is none."""

    benchmark: Benchmark
    figures: Sequence[Figure] = ()
    trouble: str = ""

    @property
    def good(self) -> bool:
        """Done right, and within the budgets."""
        return not self.trouble and all(figure.good for figure in self.figures)


class Stopwatch:
    """Seconds since it was made: by the clock, and of all cores by the child processes that ended since."""

    def __init__(self) -> None:
        self._started, self._used = time.monotonic(), _children()

    def figures(self, budget: float) -> list[Figure]:
        """Both; the budget is for the clock, the cores tell how much of it was waiting for a busy machine."""
        seconds, used = time.monotonic() - self._started, _children() - self._used
        return [Figure("by the clock", seconds, budget=budget), Figure("of all cores", used)]


def measure(benchmark: Benchmark, folder: Path) -> Outcome:
    """Run one benchmark."""
    try:
        return Outcome(benchmark, benchmark.run(folder))
    except Wrong as exc:
        return Outcome(benchmark, trouble=str(exc))


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for people, and one line that counts."""
    lines = ["", "load of the machine %.1f on %d cores" % (os.getloadavg()[0], os.cpu_count() or 1)]
    for one in outcomes:
        lines += ["", "%s: %s" % (one.benchmark.name, one.benchmark.what)]
        lines += ["  " + one.trouble] if one.trouble else [_row(figure) for figure in one.figures]
    good = sum(one.good for one in outcomes)
    return "\n".join([*lines, "", "%d within their budgets, %d not" % (good, len(outcomes) - good)])


def _row(figure: Figure) -> str:
    shown = "  %-50s %10.2f %-3s" % (figure.what, figure.value, figure.unit)
    if figure.budget is None:
        return shown
    return "%s of %g %s" % (shown, figure.budget, "" if figure.good else "OVER THE BUDGET")


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
