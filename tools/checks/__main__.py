# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the parts of `make test`, goes on through all of them, and says what passed.

The last line is always `N passed, N failed`; the exit code is 0 only if something passed and nothing failed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import FrameType

from . import beside, lint, molecule, process, sanity, unit
from .process import Environment, Result, Timer

# Of one failure, in the summary.
MESSAGE_LINES = 60
PARTS = (lint.PART, sanity.PART, unit.PART, molecule.PART)
# What measures no time: it may be as slow as it likes.
PATIENT = (lint.PART, sanity.PART)


def main() -> int:
    """Run what the command line names and print the summary."""
    parser = argparse.ArgumentParser(prog="tools/check", description=__doc__)
    parser.add_argument("parts", nargs="*", type=_part, metavar="PART", help="%s (default: all)" % ", ".join(PARTS))
    parser.add_argument("--scenario", default="", help="the only molecule scenario to run")
    parser.add_argument("--report", default="", help="a file for the results as JSON, in place of the summary")
    options = parser.parse_args()
    # a shell lets its background commands ignore it, and what they start with them: tests of interruptions would hang
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    results: list[Result] = []
    seconds: dict[str, float] = {}
    try:
        run_parts(options.parts or list(PARTS), options.scenario, results, seconds)
    except KeyboardInterrupt:
        results.append(Result("interrupted", "interrupted", False, 0, "stopped from outside"))
    if options.report:
        beside.write_report(options.report, results, seconds)
    else:
        print(summary(results, seconds), flush=True)
    return 0 if results and all(result.passed for result in results) else 1


def run_parts(parts: list[str], scenario: str, results: list[Result], seconds: dict[str, float]) -> None:
    """Run each part; results and wall times are added as they come, so that an interrupted run can show them.

    The scenarios on the lab wait more than they compute: what measures no time runs meanwhile.
    """
    timer = Timer()
    environment = tool_environment()
    seconds["environment"] = timer.seconds
    if environment is None:
        results.append(Result("environment", "tool environment", False, timer.seconds, "could not be made, see above"))
        return
    patient = [part for part in parts if part in PATIENT] if molecule.PART in parts else []
    with beside.running(patient, results, seconds) if patient else nullcontext():
        for part in [part for part in parts if part not in patient]:
            print("=== %s" % part, flush=True)
            timer = Timer()
            for result in run_part(part, environment, scenario):
                results.append(result)
                if part != unit.PART or not result.passed:
                    print(line(result), flush=True)
            seconds[part] = timer.seconds


def run_part(part: str, environment: Environment, scenario: str) -> Iterator[Result]:
    """Yield the results of one part. A part that breaks is a failure and never the end of the others."""
    try:
        if part == molecule.PART:
            yield from molecule.check(environment, scenario)
        else:
            yield from {lint.PART: lint, sanity.PART: sanity, unit.PART: unit}[part].check(environment)
    except Exception as exc:  # noqa: BLE001 - whatever it is, the other parts still have to run
        yield Result(part, part, False, 0, "%s: %s" % (type(exc).__name__, exc))


def tool_environment() -> Environment | None:
    """Environment variables of a command in the tool environment, which is made if need be; none if that failed."""
    answer = subprocess.run(
        [str(process.CHECKOUT / "tools/with-env"), "env", "--null"], stdout=subprocess.PIPE, text=True
    )
    if answer.returncode != 0:
        return None
    return dict(item.split("=", 1) for item in answer.stdout.split("\0") if item)


def line(result: Result) -> str:
    """One result as one line of text."""
    words = ["passed" if result.passed else "FAILED", "%7.1f s" % result.seconds, " ", result.part, result.name]
    return " ".join(words) + (" (%s)" % result.detail if result.detail else "")


def told(result: Result) -> list[str]:
    """What failed and all that it said, within reason: of a test on the lab its story is worth more than its line."""
    rest = result.message.splitlines()
    cut = ["..."] if len(rest) > MESSAGE_LINES else []
    return [line(result), *("    " + text[:300] for text in [*rest[:MESSAGE_LINES], *cut])]


def summary(results: list[Result], seconds: dict[str, float]) -> str:
    """What failed, a table of the parts, and the one line that counts."""
    lines = ["", *(text for result in results if not result.passed for text in told(result)), ""]
    lines.append("%-14s %8s %8s %10s" % ("part", "passed", "failed", "seconds"))
    for part in dict.fromkeys([*seconds, *(result.part for result in results)]):
        verdicts = [result.passed for result in results if result.part == part]
        row = (part, sum(verdicts), len(verdicts) - sum(verdicts), seconds.get(part, 0))
        lines.append("%-14s %8d %8d %10.1f" % row)
    passed = sum(result.passed for result in results)
    lines += ["", "%d passed, %d failed" % (passed, len(results) - passed)]
    return "\n".join(lines)


def _part(word: str) -> str:
    # argparse's `choices` refuses an empty list.
    if word not in PARTS:
        raise argparse.ArgumentTypeError("%s is none of %s" % (word, ", ".join(PARTS)))
    return word


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # make and the process that stopped it both send it; the clean-up that follows is interrupted by neither.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
