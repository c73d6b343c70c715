# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of the lab lose their power under jobs: how long until each job runs again, and where the seconds go.

The lab must be up, and the collection installed on it. SlurmdTimeout is a stock Slurm's, so none of it is Slurm's
verdict. `JOB_RECOVERY_LOSSES` says how many.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measuring import Benchmark, Figure, Wrong
from watching import percentile

LOSSES = int(os.environ.get("JOB_RECOVERY_LOSSES", "10"))
BUDGET = 15.0
_LONGEST = 300.0  # seconds of one loss and its repair
_RUNS = "running again"
_MOMENTS = ("noticed", "claimed", "drain", "fence", "down", "free_jobs")
_SCRIPT = Path(__file__).resolve().parents[1] / "lab" / "fast_losses.py"


def fast_loss(_folder: Path) -> list[Figure]:
    """One after the other, each on a cluster that is whole again; every sample is printed."""
    argv = [sys.executable, str(_SCRIPT), str(LOSSES)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=LOSSES * _LONGEST, check=False)
    except subprocess.TimeoutExpired:
        raise Wrong("not done within %d s" % (LOSSES * _LONGEST)) from None
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise Wrong("recovery is not on the lab, or a loss did not end well")
    return figures([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])


def figures(samples: Sequence[dict[str, float]]) -> list[Figure]:
    """What is shown of samples, each with seconds by moment."""
    seconds = [sample[_RUNS] for sample in samples]
    return [
        Figure("power lost to the job running again, P95", percentile(seconds, 95), budget=BUDGET),
        Figure("  median", statistics.median(seconds)),
        *(
            Figure("  median until: %s" % moment, statistics.median(sample[moment] for sample in samples))
            for moment in _MOMENTS
        ),
    ]


BENCHMARKS = (Benchmark("fast_loss", "%d nodes of the lab lose their power under jobs" % LOSSES, fast_loss),)
