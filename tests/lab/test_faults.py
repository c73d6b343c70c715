# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case of the demonstration ends well with recovery, and nothing is done that need not be.

Cases that break different nodes run side by side, as faults do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from joblab.demo import timeline
from joblab.demo.cases import CASES, DEADLINE, Story
from watching import incidents

#: Groups that run at once. Case 3 takes whichever node Slurm gives it, case 5 whichever Kubernetes does.
GROUPS = (("1", "4", "6"), ("2", "3"), ("2b",), ("5",))
BY_NUMBER = {case.number: case for case in CASES}


@pytest.mark.parametrize("numbers", GROUPS, ids="+".join)
def test_cases_end_well(cluster, numbers):
    with ThreadPoolExecutor() as pool:
        stories = list(pool.map(lambda number: BY_NUMBER[number].run(cluster, DEADLINE), numbers))
    for number, story in zip(numbers, stories, strict=True):
        timeline.show(cluster, story, cluster.begun)
        assert story.finished, f"case {number}: {told(story)}"
    assert_nothing_is_left(cluster)
    assert_no_second_reboot(cluster)


def told(story: Story) -> str:
    """The story as one text, for a failure's message."""
    return "\n".join(f"{seconds:7.1f} s  {text}" for seconds, text in story.lines)


def assert_nothing_is_left(cluster):
    """No incident is open or with a person, and no node bears a reason of ours."""
    left = [row for row in incidents(cluster) if row["state"] != "closed"]
    assert not left, left
    reasons = {node: cluster.node(node).reason for node in cluster.instance.nodes}
    assert not [reason for reason in reasons.values() if reason.startswith("job-recovery")], reasons


def assert_no_second_reboot(cluster):
    """No incident rebooted its node twice, by the ledger; the boots themselves are counted by the crash tests."""
    for row in incidents(cluster):
        acts = [step for step in row["steps"] if step["step"] in ("reboot", "power_on")]
        assert len(acts) <= 1, row
