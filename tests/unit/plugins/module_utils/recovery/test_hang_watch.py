# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job whose log does not grow is reported, and only reported; what cannot be read is never called hung."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Sequence

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import cli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, present
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target, parse_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import Case, History, Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.hang_watch import HangWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, parse
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import progress
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

A = (("log-0.txt", 10, 1.0),)
B = (("log-0.txt", 11, 2.0),)
RUN = ("7", 5)


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(0, A), (100, A)], True),
        ([(0, A), (99, A)], False),
        ([(0, A), (60, B), (120, B)], False),
        ([(0, A), (60, B), (160, B)], True),
        ([(0, A), (60, None), (120, A)], True),  # it was not written to meanwhile
        ([(0, A), (120, None)], False),  # nobody knows
        ([(0, None), (500, None)], False),
        ([(0, None), (500, A)], False),
    ],
)
def test_how_long_a_log_must_be_the_same(looks: list[tuple[float, Optional[progress.Mark]]], told: bool) -> None:
    tracks: dict[progress.Run, progress.Track] = {}
    hung: list[progress.Run] = []
    for at, mark in looks:
        tracks = progress.follow(tracks, {RUN: mark}, at)
        hung = progress.hung(tracks, {RUN: mark}, 100, at)
    assert (hung == [RUN]) is told


def test_a_run_that_ended_is_forgotten() -> None:
    tracks = progress.follow({}, {RUN: A}, 0)
    assert progress.follow(tracks, {("7", 6): A}, 10) == {("7", 6): progress.Track(A, 10)}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"sizes": {}, "modified": {}},
        {"sizes": {"a": "1"}, "modified": {"a": 1}},
        {"sizes": {"a": 1}, "modified": {}},
        {"sizes": [1], "modified": {}},
    ],
)
def test_an_answer_that_is_none(answer: Mapping[str, Any]) -> None:
    assert progress.mark_of(answer) is None


class Cluster:
    """Slurm's jobs, the ledger's machines, and nodes whose helper is the real one, on real files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.jobs_now: dict[str, Job] = {}
        self.silent: set[str] = set()
        self.opted_in = self
        self.calls: list[list[str]] = []

    def job(self, number: int, node: str, **fields: Any) -> Path:
        log = self.folder / ("%d log" % number)
        log.write_text("begins\n", encoding="ascii")
        usual: dict[str, Any] = {"state": "RUNNING", "uid": os.geteuid(), "stdout": str(log), "submit_time": 5}
        facts = {**usual, **fields}
        self.jobs_now[str(number)] = Job(number, facts.pop("state"), nodes=(node,), batch_host=node, **facts)
        return log

    def running(self) -> list[str]:
        return list(self.jobs_now)

    async def jobs(self, names: Iterable[str], missing_ok: bool = False) -> list[Job]:
        return [self.jobs_now[name] for name in names if name in self.jobs_now]

    def machines(self, _settings: Settings) -> list[Machine]:
        return [Machine(name, name, "", "ssh-" + name, "", "", "", "") for name in ("n1", "n2")]

    def call(self, requests: Mapping[str, Sequence[str]], deadline: float) -> dict[str, NodeAnswer]:
        assert deadline > 0
        self.calls.append(sorted(requests))
        return {address: self._answer(address, list(words)) for address, words in requests.items()}

    def _answer(self, address: str, words: list[str]) -> NodeAnswer:
        if address in self.silent:
            return NodeAnswer(error=Unreachable("no answer"))
        request = cli.parse(words)
        return NodeAnswer(data=cli.VERBS[request.verb].run(request, cli.Here("", "/proc")))

    def watch(self) -> HangWatch:
        return HangWatch(self, self, self.machines, lambda _nodes: self, lambda: self.now)  # type: ignore[arg-type]


def _settings(after: float = 100.0) -> Settings:
    return parse({"cluster": "lab", "scope": {"partitions": ["main"]}, "slurm": {"hang_after": after}})


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def _told(watch: HangWatch, after: float = 100.0) -> list[str]:
    events = asyncio.run(watch.look(_settings(after)))
    faults = [parse_event(event) for event in events]
    assert all((fault.kind, fault.suggested) == ("job_hung", "report") for fault in faults)
    return [target.name for fault in faults for target in fault.targets]


def test_a_job_whose_log_does_not_grow_is_told(cluster: Cluster) -> None:
    log, watch = cluster.job(7, "n1"), cluster.watch()
    cluster.job(8, "n2")
    assert _told(watch) == []
    cluster.now += 60
    log.write_text("begins\nstep 2\n", encoding="ascii")
    assert _told(watch) == []
    cluster.now += 60
    assert _told(watch) == ["8"]
    cluster.now += 10
    assert _told(watch) == []  # at most once a minute
    cluster.now += 60
    assert sorted(_told(watch)) == ["7", "8"]


@pytest.mark.parametrize(
    "fields",
    [{"state": "COMPLETING"}, {"state": "PENDING"}, {"uid": None}, {"stdout": "/no/such/file"}, {"stdout": None},
     {"stdout": "/x/%j"}],
)  # fmt: skip
def test_a_job_that_is_not_told(cluster: Cluster, fields: dict[str, Any]) -> None:
    cluster.job(7, "n1", **fields)
    watch = cluster.watch()
    for _look in range(3):
        assert _told(watch) == []
        cluster.now += 100


def test_a_node_that_is_silent_hangs_no_job(cluster: Cluster) -> None:
    cluster.job(7, "n1")
    watch = cluster.watch()
    _told(watch)
    cluster.silent = {"ssh-n1"}
    cluster.now += 500
    assert _told(watch) == []


def test_many_jobs_of_one_node_are_asked_about_in_turn(cluster: Cluster) -> None:
    for number in range(1, 7):
        cluster.job(number, "n1")
    watch = cluster.watch()
    _told(watch)
    assert cluster.calls == [["ssh-n1"]] * 4
    cluster.now += 50
    _told(watch)
    cluster.now += 100
    assert set(_told(watch)) | set(_told(watch)) >= {"5", "6"}


def test_nobody_looks_where_the_site_does_not_ask_for_it(cluster: Cluster) -> None:
    cluster.job(7, "n1")
    assert _told(cluster.watch(), 0.0) == []
    assert cluster.calls == []


@pytest.mark.parametrize(("state", "there"), [("RUNNING", True), ("FAILED", False), ("PENDING", False)])
def test_it_is_looked_at_again_and_only_reported(state: str, there: bool) -> None:
    look = JobLook(job=Job(7, state, nodes=("n1",), uid=5, restart_count=0))
    assert present.state_of("job_hung", "slurm", look).there is there
    for suggested in ("report", ""):
        target, asked = Target("job", "7"), Request()
        made = Case("job_hung", "slurm", target, 0.0, look, History(), _settings(), 0.0, suggested, asked)
        assert decide.decide(made).plan == ""
