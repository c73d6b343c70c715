# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold after a repair, whatever broke in the middle of it: once, to the end, and nothing left over."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import strikes
from joblab.demo.cases import Story
from joblab.demo.cluster import wait
from watching import incidents, listening

_REBOOTS = ("reboot", "fence")


def all_settled(cluster, seconds: float = 120) -> list[dict]:
    """Every incident since the test began, once none goes on any more."""
    wait(lambda: all(row["state"] not in ("open", "waiting") for row in incidents(cluster)), seconds, 1.0)
    return incidents(cluster)


def assert_jobs_restarted_once(cluster, stories: Sequence[Story], failed_again: int = 0) -> None:
    """Each job finished, and no run of it was thrown away by us but the one that broke, and those that failed again."""
    for story in stories:
        assert story.finished, "\n".join(f"{seconds:7.1f} s  {text}" for seconds, text in story.lines)
        job, given_up = cluster.job(story.job), given_up_by_slurm(cluster, story)
        assert (job.state, job.restarts - len(given_up) - failed_again) == ("COMPLETED", 1), (job, given_up)


def given_up_by_slurm(cluster, story: Story) -> list[str]:
    """Restarts of the story's job that Slurm itself made for a node which had no fault, in its own words.

    Its pings all end with the slowest, which for a frozen node is longer than the lab's SlurmdTimeout: now and then it
    then gives up nodes that answer well.
    """
    words = f"requeue job JobId={story.job} due to failure of node "
    told = cluster.head(
        f"journalctl -u slurmctld -o cat --no-pager --since @{int(cluster.begun)} | grep -F '{words}'; true"
    ).splitlines()
    return [line for line in told if line.rpartition(" ")[2] not in story.incidents_of]


def assert_booted_once(cluster, boots: strikes.Boots, lost_power: Collection[str], repaired: Collection[str]) -> None:
    """A node booted once if it lost its power or if we rebooted it, else not; the ledger has our reboot once."""
    for node in cluster.instance.nodes:
        expected = int(node in lost_power or node in repaired)
        assert boots.reboots(node) == expected, (node, boots.seen[node], incidents(cluster, node))
        acts = [step for row in incidents(cluster, node) for step in row["steps"] if step["step"] in _REBOOTS]
        assert len(acts) == int(node in repaired), (node, acts)


def assert_nothing_left(cluster, but: Collection[str] = ()) -> None:
    """Incidents are closed, one engine listens, no run, its folder or claim is left; all nodes but some serve again."""
    assert {row["state"] for row in incidents(cluster)} <= {"closed"}, incidents(cluster)
    for node in set(cluster.instance.nodes) - set(but):
        state = cluster.node(node)
        assert state.in_service, (node, state)
        assert not state.reason, (node, state)
    assert wait(lambda: listening(cluster), 60), cluster.head("job-recovery status", check=False)
    assert len(strikes.rulebooks(cluster.instance)) == 1
    assert wait(lambda: not strikes.runs(cluster.instance), 30), strikes.runs(cluster.instance)
    assert wait(lambda: not folders_of_runs(cluster), 10), folders_of_runs(cluster)
    with strikes.Ledger(cluster.instance) as ledger:
        assert wait(lambda: not ledger.rows("SELECT target_key FROM claims"), strikes.LEASE + 10)


def folders_of_runs(cluster) -> str:
    """What ansible-runner keeps while a run goes on, its variables among it."""
    return cluster.head("ls -d /proc/$(systemctl show -P MainPID job-recovery)/root/tmp/eda*/ 2>/dev/null; true")
