# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is lost under a job, with the SlurmdTimeout of a stock Slurm: recovery does not wait for it."""

from __future__ import annotations

import time

import losing
import pytest
import strikes
from aftermath import all_settled, assert_booted_once, assert_nothing_left
from joblab import faults
from joblab.demo import timeline
from watching import incidents, sleep_until

LONG_BEFORE = 120.0  # seconds: Slurm alone would not have given the node up. How soon it was is shown, not required


@pytest.fixture(autouse=True)
def _stock_slurm(whole_cluster):
    with losing.stock_slurm(whole_cluster.instance):
        yield


def test_the_job_of_a_node_that_lost_its_power_runs_again_within_seconds(cluster):
    with strikes.watched_boots(cluster.instance) as boots:
        job, node = losing.start(cluster, 30)
        begun = time.monotonic()
        faults.inflict(cluster.instance, "power_off", [node], faults.Options())
        sleep_until(lambda: losing.running(cluster, job, 1), LONG_BEFORE)
        took = time.monotonic() - begun
        all_settled(cluster)
    for row in incidents(cluster):
        print("\n".join(timeline.lines(row)))
    print(f"  {took:7.1f} s  job {job} of {node} runs again on {cluster.job(job).nodes}")
    assert [row["source"] for row in incidents(cluster, node)] == ["loss"]
    sleep_until(lambda: cluster.job(job).state == "COMPLETED", 60, 1.0)
    assert cluster.job(job).restarts == 1
    assert_booted_once(cluster, boots, lost_power=(), repaired=(node,))
    assert_nothing_left(cluster)
