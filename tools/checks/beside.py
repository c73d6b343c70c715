# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts that compute, run with what the scenarios on the lab leave of the processors: those mostly wait.

A second `tools/check` at the lowest priority, so that it slows nothing down that is timed. What it prints is shown when
it has ended, in one piece.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from dataclasses import asdict

from . import process
from .process import BUILD, CHECKOUT, Result

PART = "beside"
# Seconds that it may go on after the scenarios have ended.
PATIENCE = 30 * 60
REPORT = BUILD / "reports" / "beside.json"


@contextlib.contextmanager
def running(parts: list[str], results: list[Result], seconds: dict[str, float]) -> Iterator[None]:
    """Run these parts meanwhile and wait for them at the end; results and wall times are added, also of half a run."""
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.unlink(missing_ok=True)
    with process.log_of(PART, "checks") as log:
        print("=== %s, meanwhile: %s" % (" ".join(parts), log.name), flush=True)
        argv = ["nice", "-n", "19", str(CHECKOUT / "tools/check"), *parts, "--report", str(REPORT)]
        child = process.start(argv, dict(os.environ), output=log)
        problem = "ended early"
        try:
            yield
            problem = process.finish(child, PATIENCE)
        finally:
            if child.poll() is None:
                process.end(child)
            _add(parts, problem, results, seconds)
            log.seek(0)
            print(log.read().rstrip(), flush=True)


def write_report(path: str, results: list[Result], seconds: dict[str, float]) -> None:
    """What `running` reads."""
    told = {"results": [asdict(result) for result in results], "seconds": seconds}
    pathlib.Path(path).write_text(json.dumps(told), encoding="utf-8")


def _add(parts: list[str], problem: str, results: list[Result], seconds: dict[str, float]) -> None:
    try:
        told = json.loads(REPORT.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = {"results": [], "seconds": {}}
    found = [Result(**result) for result in told["results"]]
    results.extend(found)
    seconds.update({part: told["seconds"][part] for part in parts if part in told["seconds"]})
    if not found or (problem and all(result.passed for result in found)):
        results.append(Result(PART, " ".join(parts), False, 0, problem or "told nothing"))
