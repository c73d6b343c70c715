# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Windows join without gaps and doubles; labels name nodes and jobs."""

from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import labels, windows
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Entry
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LokiLabels
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

SECOND = windows.SECOND


def test_what_was_read_is_not_fresh_again_and_what_came_late_is() -> None:
    reading = windows.Reading(100 * SECOND)
    first = [Entry(90 * SECOND, "a"), Entry(99 * SECOND, "b")]
    assert reading.fresh(first) == first
    reading.end(first, 100 * SECOND, 20.0)
    assert reading.start(20.0) == 80 * SECOND
    late = Entry(85 * SECOND, "late")
    other_stream = Entry(90 * SECOND, "a", (("node", "node2"),))
    assert reading.fresh([late, *first, other_stream]) == [late, other_stream]


def test_what_cannot_come_again_is_forgotten_and_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = windows.Reading(0)
    read = [Entry(second * SECOND, "x") for second in range(100)]
    reading.end(read, 100 * SECOND, 10.0)
    assert sorted(reading.seen.values()) == [second * SECOND for second in range(90, 100)]
    monkeypatch.setattr(windows, "MAX_SEEN", 3)
    reading.end([], 100 * SECOND, 10.0)
    assert sorted(reading.seen.values()) == [97 * SECOND, 98 * SECOND, 99 * SECOND]


def test_never_back() -> None:
    reading = windows.Reading(100)
    reading.end([], 50, 0.0)
    assert reading.until == 100


@pytest.mark.parametrize(("times", "start"), [((1, 5), 5), ((5, 5), 6), ((7,), 8)])
def test_where_a_full_answer_is_gone_on_from(times: tuple[int, ...], start: int) -> None:
    assert windows.following([Entry(at, "x") for at in times]) == start


MACHINES = labels.by_name(
    [
        Machine("m1", slurm_name="node1", kubernetes_name="k1"),
        Machine("m2", kubernetes_name="k2"),
        Machine("m3", slurm_name="twice"),
        Machine("twice", slurm_name="node4"),
        Machine("m5"),
    ]
)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"node": "node1"}, "slurm node1 node:m1"),
        ({"node": "k1"}, "slurm node1 node:m1"),
        ({"node": "m1"}, "slurm node1 node:m1"),
        ({"hostname": "node1.cluster.example"}, "slurm node1 node:m1"),
        ({"node": "k2", "hostname": "node1"}, "kubernetes k2 node:m2"),
        ({"node": "", "hostname": "node1"}, "slurm node1 node:m1"),
        ({"node": "stranger"}, None),
        ({"node": "twice"}, None),
        ({"node": "m5"}, None),
        ({"node": "{{ 7*7 }}"}, None),
        ({"node": "node1 node2"}, None),
        ({"instance": "node1"}, None),
        ({}, None),
    ],
)
def test_nodes(told: dict[str, str], name: str) -> None:
    subject = labels.node_of(told, LokiLabels().node, MACHINES)
    assert (subject and "%s %s %s" % (subject.scheduler, subject.target.name, subject.key)) == name


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({"slurm_job_id": "17"}, "job:slurm:17"),
        ({"slurm_job_id": "17_3"}, "job:slurm:17_3"),
        ({"slurm_job_id": "$(id)"}, None),
        ({"namespace": "team", "job_name": "train"}, "job:kubernetes:team/train"),
        ({"namespace": "team"}, None),
        ({"job_name": "train"}, None),
        ({"namespace": "te/am", "job_name": "train"}, None),
    ],
)
def test_jobs(told: dict[str, str], key: str) -> None:
    subject = labels.job_of(told, LokiLabels())
    assert (subject and subject.key) == key
