# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are lost, or look so, under jobs, with the SlurmdTimeout of a stock Slurm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from joblab import slurm
from joblab.instance import Instance
from watching import sleep_until

SLURMD_TIMEOUT = 300
SEEN_RUNNING = 12.0  # two looks at the jobs, so that the node is probed


@contextmanager
def stock_slurm(instance: Instance) -> Iterator[None]:
    """SlurmdTimeout as Slurm's own default, for a while."""
    slurm.set_configuration(instance, {"SlurmdTimeout": str(SLURMD_TIMEOUT)})
    slurm.push_configuration(instance)
    try:
        yield
    finally:
        slurm.set_configuration(instance, {"SlurmdTimeout": ""})
        slurm.push_configuration(instance)


def running(cluster, job: int, restarts: int) -> bool:
    """Whether the job runs, having been restarted so often."""
    state = cluster.job(job)
    return (state.state, state.restarts) == ("RUNNING", restarts)


def start(cluster, seconds: int, nodes: int = 1) -> tuple[int, str]:
    """A job that opted in, once its nodes are probed: its id and the nodes (compressed)."""
    job = cluster.submit(f"srun sleep {seconds}\n", "", "loss", options=f"--requeue -N{nodes}")
    sleep_until(lambda: running(cluster, job, 0), 30)
    time.sleep(SEEN_RUNNING)
    return job, cluster.job(job).nodes
