# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source `slurm` on a cluster of 10,000 nodes and 50,000 jobs: what it costs, and how late it sees faults."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from measuring import Benchmark, Figure, Wrong
from slurmctld import Slurmctld
from watching import Source, percentile, share_of

NODES, JOBS = 10000, 50000
FAULTS = 20  # of each kind
WINDOW = 120.0  # seconds
SEED = 5
DEADLINE = 3600
OPTED_IN = '{"APS":{"auto_resume_mode":"requeue"}}'


def source(folder: Path) -> list[Figure]:
    """In namespaces of their own, so that nothing of the cluster is left when this ends, however it ends."""
    argv = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += [sys.executable, str(Path(__file__)), str(folder)]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=False)
    except subprocess.TimeoutExpired:
        raise Wrong("not done within %d s" % DEADLINE) from None
    if done.returncode:
        raise Wrong("the cluster, or the source on it, failed")
    return [Figure(*figure) for figure in json.loads(done.stdout.splitlines()[-1])]


BENCHMARKS = (
    Benchmark("slurm-source", "event source slurm, %d nodes and %d jobs" % (NODES, JOBS), source),
)


def measure(folder: Path) -> list[Figure]:
    """Fill the cluster, let the source look at it, and break nodes and jobs at times that nobody chose."""
    chance = random.Random(SEED)
    cluster = Slurmctld(folder, NODES)
    began = time.monotonic()
    cluster.fill(JOBS)
    print("%d jobs submitted in %.0f s" % (JOBS, time.monotonic() - began), file=sys.stderr, flush=True)
    queued = len(cluster.run(["squeue", "-h", "-r", "-o", "%A"]).split())
    if queued < JOBS:
        raise Wrong("%d jobs are in the queue, not %d" % (queued, JOBS))
    alone = share_of(lambda: cluster.seconds, WINDOW / 4)
    settings = {"scope": {"partitions": ["main", "live"]}, "slurm": {"bin_dir": str(cluster.bin_dir)}}
    watching = Source(folder, "slurm", settings)
    time.sleep(WINDOW / 4)  # its first look reads everything
    watched = share_of(lambda: cluster.seconds, WINDOW / 2)  # before anything is submitted or broken here
    before = time.monotonic(), watching.seconds
    shown = _break(cluster, chance)
    time.sleep(max(0.0, before[0] + WINDOW - time.monotonic()))
    elapsed = time.monotonic() - before[0]
    share = (watching.seconds - before[1]) / elapsed
    time.sleep(15)
    watching.end()
    lost = sorted(set(shown) - set(watching.told))
    if lost:
        raise Wrong("never told: %s" % ", ".join(lost))
    late = {name: watching.told[name] - at for name, at in shown.items()}
    nodes = [seconds for name, seconds in late.items() if name.startswith("node")]
    jobs = [seconds for name, seconds in late.items() if not name.startswith("node")]
    return [
        Figure("source and its commands, of one core", 100 * share, "%", 10),
        Figure("source and the largest of its commands", watching.megabytes, "MB", 500),
        Figure("slurmctld with the source, of one core", 100 * watched, "%"),
        Figure("slurmctld without it, of one core", 100 * alone, "%"),
        Figure("a node's fault is told, 95 of 100", percentile(nodes, 95), "s", 3),
        Figure("a job's fault is told, 95 of 100", percentile(jobs, 95), "s", 15),
    ]


def _break(cluster: Slurmctld, chance: random.Random) -> dict[str, float]:
    """When Slurm showed which fault: nodes that go down, and jobs that fail."""
    shown: dict[str, float] = {}
    for number in chance.sample(range(1, NODES + 1), FAULTS):
        name = "node%05d" % number
        cluster.run(["scontrol", "update", "NodeName=" + name, "State=DOWN", "Reason=Not responding"])
        shown[name] = time.time()
        job = cluster.fail_job(OPTED_IN)
        until = time.monotonic() + 30
        while "FAILED" not in cluster.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"], check=False):
            if time.monotonic() > until:
                raise Wrong("job %s does not fail" % job)
            time.sleep(0.05)
        shown[job] = time.time()
        time.sleep(chance.uniform(0, WINDOW / FAULTS))
    return shown


if __name__ == "__main__":
    try:
        figures = measure(Path(sys.argv[1]))
    except (Wrong, RuntimeError, OSError) as exc:
        sys.exit(str(exc))
    print(json.dumps([(one.what, one.value, one.unit, one.budget) for one in figures]))
