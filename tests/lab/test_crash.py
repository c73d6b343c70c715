# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recovery is killed, or stopped for longer than a lease, in the middle of a repair; it ends well all the same.

Killed or stopped are the engine, a playbook with all below it, or the process in which its modules run. Whatever is
hit: every incident ends closed, no node is rebooted twice, every job is restarted exactly once and finishes, and
nothing is left out of service.

`JOB_RECOVERY_CHAOS=N` adds two rounds, and N of strikes that nobody chose; their seed is printed, and
`JOB_RECOVERY_CHAOS_SEED=...` repeats them.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import strikes
from aftermath import all_settled, assert_booted_once, assert_jobs_restarted_once, assert_nothing_left
from joblab.demo import timeline
from joblab.demo.cases import (
    DEADLINE,
    Story,
    frozen_node,
    lost_step_daemon,
    lost_step_daemon_reported,
    power_loss,
)
from joblab.demo.cluster import wait
from strikes import KILL, MODULE, PAUSE, PLAYBOOK, RULEBOOK, Strike

PATIENCE = DEADLINE + 2 * strikes.LEASE
TWO_NODES = {"power_loss": power_loss, "stepd": lost_step_daemon, "stepd_reported": lost_step_daemon_reported}
#: The plan that each case's repair follows, and its steps, the empty one being the claim.
PLANS = {
    "power_loss": ("return_node", ("", "drain", "free_jobs", "await_boot", "clean_spool", "verify", "resume")),
    "stepd": ("requeue_job", ("", "await_job_end", "end_orphans", "clean_spool", "requeue")),
    "stepd_reported": ("requeue_job", ("", "await_job_end", "end_orphans", "clean_spool", "requeue")),
    "frozen": (
        "reboot_by_power",
        ("", "drain", "cordon", "fence", "down", "free_jobs", "power_on", "await_boot", "verify", "resume"),
    ),
}


@dataclass(frozen=True)
class Round:
    """A case on two nodes and a frozen node beside it, each repair with strikes of its own; neither may be empty."""

    case: str
    strikes: tuple[Strike, ...]
    frozen: tuple[Strike, ...] = ()


ROUNDS = (
    Round(
        "power_loss",
        (Strike("return_node", "await_boot", "started", MODULE, KILL),),
        (Strike("reboot_by_power", "fence", "done", PLAYBOOK, KILL),),
    ),
    Round(
        "stepd",
        (Strike("requeue_job", "", "", RULEBOOK, KILL),),
        (Strike("reboot_by_power", "fence", "started", PLAYBOOK, PAUSE),),
    ),
)
#: Of the long form. Every boundary of every step is struck in the tests of the engine, on a cluster that is simulated.
MORE = (
    Round(
        "power_loss",
        (Strike("return_node", "drain", "done", PLAYBOOK, KILL),),
        (Strike("reboot_by_power", "down", "done", RULEBOOK, PAUSE),),
    ),
    Round(
        "stepd_reported",
        (Strike("requeue_job", "requeue", "started", PLAYBOOK, KILL),),
        (Strike("reboot_by_power", "power_on", "done", RULEBOOK, KILL),),
    ),
)


def of_the_long_form() -> list[Round]:
    """More rounds, most of them chosen by nobody."""
    count = int(os.environ.get("JOB_RECOVERY_CHAOS", "0"))
    seed = int(os.environ.get("JOB_RECOVERY_CHAOS_SEED", "0")) or time.time_ns() % 1_000_000
    if count:
        print(f"\nJOB_RECOVERY_CHAOS={count} JOB_RECOVERY_CHAOS_SEED={seed}")
    chance = random.Random(seed)
    cases = [chance.choice(sorted(TWO_NODES)) for _ in range(count)]
    return [
        *(MORE if count else ()),
        *(
            Round(case, (strikes.any_strike(chance, *PLANS[case]),), (strikes.any_strike(chance, *PLANS["frozen"]),))
            for case in cases
        ),
    ]


def described(planned: Round) -> str:
    return f"{planned.case}: {' and '.join(map(str, planned.strikes + planned.frozen))}"


@pytest.mark.parametrize("planned", [*ROUNDS, *of_the_long_form()], ids=described)
def test_repair_goes_on(cluster, planned):
    strikers = [
        strikes.Striker(cluster.instance, strike, cluster.begun) for strike in (*planned.strikes, *planned.frozen)
    ]
    with strikes.watched_boots(cluster.instance) as boots:
        for striker in strikers:
            striker.start()
        stories = run_side_by_side(cluster, planned)
        for striker in strikers:
            striker.give_up()
        all_settled(cluster)
    for striker in strikers:
        print(f"  {striker.strike}: hit {striker.struck} {striker.error}")
    for story in stories:
        timeline.show(cluster, story, cluster.begun)
    for striker in strikers:
        assert striker.struck, f"nothing was hit ({striker.error or 'the moment did not come'}): {striker.strike}"
    assert_jobs_restarted_once(cluster, stories)
    assert_booted_once(
        cluster,
        boots,
        lost_power=("node1", "node2") if planned.case == "power_loss" else (),
        repaired=[story.incidents_of[0] for story in stories[1:]],
    )
    assert_nothing_left(cluster)


def run_side_by_side(cluster, planned: Round) -> list[Story]:
    """The case on node1 and node2; beside it, once its job has its nodes, a frozen node."""

    def frozen() -> Story:
        assert wait(lambda: running_on(cluster, "node1"), 120), "the job of two nodes did not start"
        return frozen_node(cluster, PATIENCE)

    with ThreadPoolExecutor() as pool:
        running = [pool.submit(TWO_NODES[planned.case], cluster, PATIENCE)]
        if planned.frozen:
            running.append(pool.submit(frozen))
        return [future.result() for future in running]


def running_on(cluster, node: str) -> str:
    return cluster.head(f"squeue -h -t R -w {node} -o %i")
