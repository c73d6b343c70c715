# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is lost under a job, with the SlurmdTimeout of a stock Slurm: recovery does not wait for it.

And what is no loss: a network that loses packets, a controller that is cut off or stands still.
"""

from __future__ import annotations

import signal
import time

import pytest
import strikes
from aftermath import all_settled, assert_booted_once, assert_nothing_left
from controller import settings_changed
from joblab import faults, slurm
from joblab.demo import timeline
from joblab.instance import HEAD
from watching import incidents, listening, sleep_until

SLURMD_TIMEOUT = 300
RUNS_AGAIN = 15.0  # seconds from the loss of power to the job running again, as an administrator is promised
SEEN_RUNNING = 12.0  # two looks at the jobs, so that the node is probed
SILENCE = 5  # seconds, in place of a minute, so that what is no loss would be taken for one soon
#: How long each trouble lasts: Kubernetes has a verdict of its own after twenty seconds.
TROUBLE = 3 * SILENCE


@pytest.fixture(autouse=True)
def _stock_slurm(whole_cluster):
    slurm.set_configuration(whole_cluster.instance, {"SlurmdTimeout": str(SLURMD_TIMEOUT)})
    slurm.push_configuration(whole_cluster.instance)
    yield
    slurm.set_configuration(whole_cluster.instance, {"SlurmdTimeout": ""})
    slurm.push_configuration(whole_cluster.instance)


def running(cluster, job: int, restarts: int) -> bool:
    state = cluster.job(job)
    return (state.state, state.restarts) == ("RUNNING", restarts)


def start(cluster, seconds: int, nodes: int) -> tuple[int, list[str]]:
    """A job that opted in, once the node is probed: its id and its nodes."""
    job = cluster.submit(f"srun sleep {seconds}\n", "", "loss", options=f"--requeue -N{nodes}")
    sleep_until(lambda: running(cluster, job, 0), 30)
    time.sleep(SEEN_RUNNING)
    return job, cluster.head(f"scontrol show hostnames {cluster.job(job).nodes}").split()


def test_the_job_of_a_node_that_lost_its_power_runs_again_within_seconds(cluster):
    with strikes.watched_boots(cluster.instance) as boots:
        job, (node,) = start(cluster, 30, 1)
        begun = time.monotonic()
        faults.inflict(cluster.instance, "power_off", [node], faults.Options())
        sleep_until(lambda: running(cluster, job, 1), 60)
        took = time.monotonic() - begun
        all_settled(cluster)
    for row in incidents(cluster):
        print("\n".join(timeline.lines(row)))
    print(f"  {took:7.1f} s  job {job} of {node} runs again on {cluster.job(job).nodes}")
    assert took < RUNS_AGAIN
    assert [row["source"] for row in incidents(cluster, node)] == ["loss"]
    sleep_until(lambda: cluster.job(job).state == "COMPLETED", 60, 1.0)
    assert cluster.job(job).restarts == 1
    assert_booted_once(cluster, boots, lost_power=(), repaired=(node,))
    assert_nothing_left(cluster)


def lose_packets(cluster) -> None:
    """A fifth of all packets of every node, each way."""
    faults.inflict(cluster.instance, "lose_packets", cluster.instance.nodes, faults.Options(percent=20))
    time.sleep(TROUBLE)
    faults.inflict(cluster.instance, "restore_packets", cluster.instance.nodes, faults.Options())


def cut_the_controller_off(cluster) -> None:
    faults.inflict(cluster.instance, "cut_network", [HEAD], faults.Options())
    time.sleep(TROUBLE)
    faults.inflict(cluster.instance, "restore_network", [HEAD], faults.Options())


def stop_the_controller(cluster) -> None:
    """SIGSTOP of the engine, for longer than silence needs."""
    engines = strikes.rulebooks(cluster.instance)
    assert [engine.send(signal.SIGSTOP) for engine in engines] == [True]
    time.sleep(TROUBLE)
    assert [engine.send(signal.SIGCONT) for engine in engines] == [True]


def test_what_is_no_loss_powers_no_node_off(cluster):
    with strikes.watched_boots(cluster.instance) as boots, settings_changed(
        cluster, f"s/^  silence: .*/  silence: {SILENCE}/"
    ):
        job, nodes = start(cluster, 600, 2)
        for trouble in (lose_packets, cut_the_controller_off, stop_the_controller):
            trouble(cluster)
            time.sleep(SILENCE)
            sleep_until(lambda: listening(cluster), 90, 1.0)
            # Slurm may have asked a node just then, and awaits its own verdict: that is no act
            acted = [row for row in incidents(cluster) if row["steps"] or row["source"] == "loss"]
            assert not acted, (trouble, acted)
            assert running(cluster, job, 0), trouble
        # it would have been noticed: the same job, with a node that is really gone
        faults.inflict(cluster.instance, "cut_network", nodes[1:], faults.Options())
        sleep_until(lambda: [row for row in incidents(cluster, nodes[1]) if row["source"] == "loss"], 60, 1.0)
        all_settled(cluster)
    cluster.cancel(job)
    assert_booted_once(cluster, boots, lost_power=(), repaired=nodes[1:])
    assert_nothing_left(cluster)
