# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A million lines of a job's log: how long one core needs to say what went wrong."""

from __future__ import annotations

import random
import time
from pathlib import Path

from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.jobs import JobLog
from measuring import Benchmark, Figure, Wrong

LINES = 1_000_000
BUDGET = 10.0  # seconds of one core
PIECE = 10_000  # lines that are read at once
SEED = 12
QUIET = (
    "step {0} | loss 2.31 | lr 1.2e-4 | grad norm 0.81 | 40.1 GB | 18321 tokens/s | eta 3:21:33",
    "[2026-11-30 10:00:00,123][train][INFO] epoch 3 iter {0} time 0.412 data 0.003",
    "validation at {0}: perplexity 11.2, best so far 11.1",
    "gpu{1}:210:412 [{1}] NCCL INFO Channel 02/0 : {1}[{1}] -> 0[0] via P2P/CUMEM",
)
LOUD = (
    "[rank{1}]: RuntimeError: CUDA error: an illegal memory access was encountered",
    "gpu{1}:210:412 [{1}] NCCL WARN NET/IB : Got completion from peer 10.0.0.{1}<1> with status=12 opcode=1 len=0",
    "srun: error: node{1}: task {1}: Segmentation fault (core dumped)",
)


def million(_folder: Path) -> list[Figure]:
    """One line of a hundred tells of a fault."""
    chance = random.Random(SEED)
    pieces, loud = [], 0
    for first in range(0, LINES, PIECE):
        lines = []
        for number in range(first, first + PIECE):
            says = chance.random() < 0.01
            loud += says
            lines.append(chance.choice(LOUD if says else QUIET).format(number, chance.randrange(8)))
        pieces.append("\n".join(lines))
    began = time.process_time()
    log = JobLog()
    for piece in pieces:
        log.feed(piece)
    counted = sum(finding.count for finding in log.findings())
    seconds = time.process_time() - began
    if counted != loud:
        raise Wrong("%d lines tell of a fault, and %d were counted" % (loud, counted))
    return [Figure("a million lines, one core", seconds, budget=BUDGET)]


BENCHMARKS = (Benchmark("job-log-diagnosis", "a job's log of %d lines" % LINES, million),)
