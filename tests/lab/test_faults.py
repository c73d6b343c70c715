# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case of the demonstration ends well with recovery, and nothing is done that need not be.

Cases that break different nodes run side by side, as faults do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import strikes
from aftermath import all_settled, assert_booted_once, assert_nothing_left
from joblab.demo import timeline
from joblab.demo.cases import CASES, DEADLINE, Story

#: Groups that run at once. Case 3 takes a node that the two-node cases do not, case 5 whichever Kubernetes gives it.
GROUPS = (("1", "4"), ("2", "3"), ("2b", "6"), ("5",))
BY_NUMBER = {case.number: case for case in CASES}
#: Cases whose nodes lose power and come back by themselves, and those whose node recovery boots.
LOSE_POWER, ARE_REPAIRED = ("1",), ("3", "5")
#: The node that a person drained; it stays as it is.
THE_PERSONS = "node4"


@pytest.mark.parametrize("numbers", GROUPS, ids="+".join)
def test_cases_end_well(cluster, numbers):
    with strikes.watched_boots(cluster.instance) as boots, ThreadPoolExecutor() as pool:
        run = pool.map(lambda number: BY_NUMBER[number].run(cluster, DEADLINE), numbers)
        stories = dict(zip(numbers, run, strict=True))
        all_settled(cluster)
    for number, story in stories.items():
        timeline.show(cluster, story, cluster.begun)
        assert story.finished, f"case {number}: {told(story)}"
    assert_booted_once(
        cluster,
        boots,
        lost_power=[node for number in LOSE_POWER if number in stories for node in stories[number].incidents_of],
        repaired=[stories[number].incidents_of[0] for number in ARE_REPAIRED if number in stories],
    )
    assert_nothing_left(cluster, but=(THE_PERSONS,) if "6" in stories else ())


def told(story: Story) -> str:
    """The story as one text, for a failure's message."""
    return "\\n".join(f"{seconds:7.1f} s  {text}" for seconds, text in story.lines)
