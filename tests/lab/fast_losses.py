# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes lose their power under jobs, one after the other: the moments on the way to each job's next run.

For `make bench NAME=fast_loss`: writes one line of JSON for each loss, {"node": name, MOMENT: seconds since the loss}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "lab")]

import losing  # noqa: E402
from aftermath import all_settled  # noqa: E402
from joblab import faults, instance  # noqa: E402
from joblab.demo import cases  # noqa: E402
from joblab.demo.cluster import Cluster, wait  # noqa: E402
from watching import listening, sleep_until  # noqa: E402

LONGEST = 120.0  # seconds until a job runs again
JOB = 90  # seconds that a job takes, so that it has not ended before its node's repair


def main(losses: int) -> int:
    """Lose nodes; 1 when recovery is not at work on the lab."""
    cluster = Cluster(instance.from_environment())
    if not wait(lambda: listening(cluster), 60):
        print("recovery is not at work on the lab: run lab/up, then site.yml", file=sys.stderr)
        return 1
    with losing.stock_slurm(cluster.instance):
        for _number in range(losses):
            print(json.dumps(_lose(cluster)), flush=True)
    return 0


def _lose(cluster: Cluster) -> dict[str, str | float]:
    """One loss, on a cluster that is whole; the node is in service again afterwards."""
    cases.tidy(cluster)
    cluster.begun = cluster.now()
    job, node = losing.start(cluster, JOB)
    lost = time.time()  # the lab's hosts have this machine's clock
    faults.inflict(cluster.instance, "power_off", [node], faults.Options())
    sleep_until(lambda: losing.running(cluster, job, 1), LONGEST)
    runs = time.time()
    (row,) = all_settled(cluster)
    if (row["target"], row["source"], row["state"]) != (node, "loss", "closed"):
        raise AssertionError(row)
    cluster.cancel(job)
    ended = {step["step"]: step["finished_at"] for step in row["steps"]}
    moments = {"noticed": row["seen_at"], "claimed": row["opened_at"], **ended, "running again": runs}
    return {"node": node, **{name: round(moment - lost, 2) for name, moment in moments.items()}}


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
