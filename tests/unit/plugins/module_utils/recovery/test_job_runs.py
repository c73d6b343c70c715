# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from several runs of a job: whose attempts count, whose fault it is, what its user is told."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import job_runs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job


def memory(before: int, after: Optional[int] = None, uid: Optional[int] = 5) -> dict[str, Any]:
    """An incident that saw the job with one restart count and left it with another."""
    made: dict[str, Any] = {"job_seen": {"restart_count": before, "uid": uid}}
    if after is not None:
        made["restart_count"] = after
    return made


ATTEMPTS = [
    # the same job, requeued again and again
    ([], 0, 0),
    ([memory(0, 1)], 1, 1),
    ([memory(2, 3), memory(1, 2), memory(0, 1)], 3, 3),
    # its user, or Slurm, requeued it in between
    ([memory(5, 6), memory(0, 1)], 9, 2),
    # Slurm had requeued and held it: we released it
    ([memory(2, 2), memory(1, 1)], 2, 2),
    # a requeue that failed, or was killed, and was begun
    ([memory(1), memory(0, 1)], 1, 2),
    ([memory(0), memory(0)], 0, 2),
    # the number is another job's by now: its restart count is lower than one that was left
    ([memory(0, 1)], 0, 0),
    ([memory(2, 3), memory(1, 2), memory(0, 1)], 0, 0),
    ([memory(2, 3), memory(1, 2), memory(0, 1)], 2, 0),
    # and it was restarted by us since
    ([memory(0, 1), memory(2, 3), memory(1, 2), memory(0, 1)], 1, 1),
    ([memory(1, 2), memory(0, 1), memory(0, 1)], 2, 2),
    # or is another user's
    ([memory(0, 1, uid=6)], 7, 0),
    ([memory(1, 2), memory(0, 1, uid=6)], 2, 1),
    # incidents that remember nothing count
    ([{}, {}], 0, 2),
    ([memory(0, 1, uid=None)], 1, 1),
]


@pytest.mark.parametrize(("memories", "restarts", "count"), ATTEMPTS)
def test_whose_attempts_count(memories: list, restarts: int, count: int) -> None:
    job = Job(7, "FAILED", restart_count=restarts, uid=5)
    assert len(job_runs.of_this_job(memories, job)) == count
    assert job_runs.of_this_job(memories, None) == memories


@pytest.mark.parametrize(
    ("seen", "uid", "restarts", "another"),
    [
        ({"restart_count": 1, "uid": 5}, 5, 1, False),
        ({"restart_count": 1, "uid": 5}, 5, 3, False),
        ({"restart_count": 1, "uid": 5}, 5, 0, True),
        ({"restart_count": 0, "uid": 5}, 6, 0, True),
        ({"restart_count": 0, "uid": None}, 6, 0, False),
        ({"restart_count": 0, "uid": 5}, None, 0, False),
        ({}, 6, 0, False),
    ],
)
def test_another_job_of_the_same_number(seen: dict, uid: Optional[int], restarts: int, another: bool) -> None:
    assert job_runs.is_another({"job_seen": seen}, uid, restarts) is another


FOLLOWED = [
    ([], 0, ""),
    ([{**memory(0), "successor": 8}], 0, "8"),
    ([{**memory(0), "successor": 8}], 1, ""),  # it was requeued since, and failed anew
    ([{**memory(1), "successor": 9}, {**memory(0), "successor": 8}], 1, "9"),
    ([{**memory(3), "successor": 8}], 0, ""),  # another job's number
    ([{**memory(0, uid=6), "successor": 8}], 0, ""),
]


@pytest.mark.parametrize(("memories", "restarts", "successor"), FOLLOWED)
def test_one_failure_has_one_successor(memories: list, restarts: int, successor: str) -> None:
    assert job_runs.followed_by(memories, Job(7, "FAILED", restart_count=restarts, uid=5)) == successor


def ran(state: str, code: Optional[str], *nodes: str) -> dict[str, Any]:
    return job_runs.remembered(Job(7, state, exit_code=code, nodes=nodes, uid=5))


APPLICATION = [
    ([ran("FAILED", "1:0", "n1")], "FAILED", "1:0", ("n2",), True),
    ([ran("FAILED", "0:9", "n1", "n2")], "FAILED", "0:9", ("n3", "n4"), True),
    ([ran("NODE_FAIL", None, "n5"), ran("FAILED", "1:0", "n1")], "FAILED", "1:0", ("n2",), True),
    ([ran("OUT_OF_MEMORY", "0:125", "n1")], "OUT_OF_MEMORY", "0:125", ("n2",), True),
    # a node of both runs may be the cause
    ([ran("FAILED", "1:0", "n1", "n2")], "FAILED", "1:0", ("n2", "n3"), False),
    ([ran("FAILED", "1:0", "n1")], "FAILED", "1:0", ("n1",), False),
    # not the same way
    ([ran("FAILED", "1:0", "n1")], "FAILED", "2:0", ("n2",), False),
    ([ran("FAILED", "1:0", "n1")], "FAILED", "0:1", ("n2",), False),
    ([ran("TIMEOUT", "0:0", "n1")], "FAILED", "0:0", ("n2",), False),
    # Slurm itself says that it was the node
    ([ran("NODE_FAIL", "0:0", "n1")], "NODE_FAIL", "0:0", ("n2",), False),
    ([ran("BOOT_FAIL", "0:0", "n1")], "BOOT_FAIL", "0:0", ("n2",), False),
    # nobody knows where
    ([ran("FAILED", "1:0")], "FAILED", "1:0", ("n2",), False),
    ([ran("FAILED", "1:0", "n1")], "FAILED", "1:0", (), False),
    ([{}], "FAILED", "1:0", ("n2",), False),
    ([], "FAILED", "1:0", ("n2",), False),
]


@pytest.mark.parametrize(("former", "state", "code", "nodes", "application"), APPLICATION)
def test_a_job_that_fails_the_same_way_elsewhere(
    former: list, state: str, code: str, nodes: tuple, application: bool
) -> None:
    why = job_runs.the_applications(former, Job(7, state, exit_code=code, nodes=nodes))
    assert bool(why) is application
    assert not application or (state in why and code in why)


@pytest.mark.parametrize(
    ("nodes", "most", "expected"),
    [(("n1",), 0, ()), (("n1",), 1, ("n1",)), (("n1", "n2"), 1, ()), (("n1", "n2"), 2, ("n1", "n2")), ((), 3, ())],
)
def test_which_nodes_are_suspect(nodes: tuple, most: int, expected: tuple) -> None:
    assert job_runs.suspects(ran("FAILED", "1:0", *nodes), most) == expected
    assert job_runs.suspects({}, most) == ()


SENTENCES = [
    ("job_failed", {**ran("FAILED", "1:0", "n1", "n2"), "did": "requeued", "attempt": [2, 3]},
     "requeued (2 of 3) after FAILED 1:0 on n[1-2]"),
    ("job_failed", {**ran("NODE_FAIL", None, "n1"), "did": "requeued", "excluded": "n1"},
     "requeued after NODE_FAIL on n1; kept off n1"),
    ("job_launch_held", {"did": "released", "attempt": [1, 3]}, "released (1 of 3) after its launch had failed"),
    ("stale_spool", {"did": "found"}, "let begin, left-over files of its steps were removed"),
    ("requested", {"did": "requeued"}, "requeued"),
    ("job_failed", {"tell": "not requeued: x"}, "not requeued: x"),
]


@pytest.mark.parametrize(("kind", "remembers", "sentence"), SENTENCES)
def test_what_the_user_is_told(kind: str, remembers: dict, sentence: str) -> None:
    assert job_runs.sentence(kind, remembers) == sentence


def test_a_sentence_is_short() -> None:
    nodes = tuple("x%dy" % number for number in range(500))
    assert len(job_runs.sentence("job_failed", {**ran("FAILED", "1:0", *nodes), "did": "requeued"})) == 300
