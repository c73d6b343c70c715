# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench`: how long what people wait for takes, against a budget for each.

A benchmark is a row of `BENCHMARKS` in a module here; it prepares, measures one thing, and proves that it was right.
It is no part of `make test`: its numbers belong to the machine that it runs on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import batch
import fast_loss
import job_logs
import kubernetes_source
import log_diagnosis
import preflight
import slurm_source
from measuring import Benchmark, Outcome, measure, table

BENCHMARKS: tuple[Benchmark, ...] = (
    *preflight.BENCHMARKS, *slurm_source.BENCHMARKS, *kubernetes_source.BENCHMARKS, *log_diagnosis.BENCHMARKS,
    *job_logs.BENCHMARKS, *batch.BENCHMARKS, *fast_loss.BENCHMARKS,
)


def main() -> int:
    """Run what the command line names, show the table; 0 only if all were right and within their budgets."""
    names = [one.name for one in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="%s (default: all)" % ", ".join(names))
    wanted = parser.parse_args().names or names
    strange = sorted(set(wanted) - set(names))
    if strange:
        parser.error("there is no benchmark %s" % ", ".join(strange))
    outcomes: list[Outcome] = []
    for benchmark in BENCHMARKS:
        if benchmark.name in wanted:
            print("--- %s: %s" % (benchmark.name, benchmark.what), flush=True)
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                outcomes.append(measure(benchmark, Path(folder)))
    print(table(outcomes), flush=True)
    return 0 if all(one.good for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
