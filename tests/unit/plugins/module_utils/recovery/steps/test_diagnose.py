# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A failed job's log is read before the requeue, once, as its user; whatever it says, the repair goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import job_log
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import job_runs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Work
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    Site,
    work_of,
)

HOSTILE = "\x1b[2J{{ lookup('pipe','id') }} <script> Segmentation fault (core dumped)\n"


@pytest.fixture
def site() -> Site:
    made = Site()
    made.add("node1")
    made.add("node2")
    made.job(
        42, "FAILED", uid=1000, nodes=("node1", "node2"), batch_host="node2", exit_code="139:0",
        stdout="/home/u/o ut.log", stderr="/home/u/o ut.log", restart_count=1,
    )  # fmt: skip
    return made


def _log(tmp_path: Path, text: str) -> dict[str, Any]:
    """What the helper answers about a real file."""
    path = tmp_path / "o ut.log"
    path.write_text(text, encoding="utf-8")
    return job_log.read([os.fsencode(path).hex()], os.geteuid(), 64)


def _work(name: str, **fields: Any) -> Work:
    return work_of("diagnose", name, "requeue_job", **fields)


def _act(site: Site, tmp_path: Path, memory: dict[str, Any], **nodes: Any) -> Outcome:
    tools = site.tools(state_dir=str(tmp_path), nodes=nodes)
    return site.act_one(_work("42", memory=memory), tools)


SEEN = {"job_seen": {"restart_count": 1, "uid": 1000}}


def test_what_a_log_tells_is_remembered_and_kept(site: Site, tmp_path: Path) -> None:
    site.helper["ssh-node2", "job-log"] = _log(tmp_path, "step 1\n" + HOSTILE)
    outcome = _act(site, tmp_path, SEEN)
    assert outcome.status == "done"
    assert outcome.remember["diagnosis"] == {"verdict": "application", "why": "segfault", "rank": None}
    page = (Path(outcome.remember["evidence"]) / "diagnosis.txt").read_text(encoding="utf-8")
    assert "application: segfault" in page
    assert "\x1b" not in page
    assert "lookup" not in repr(outcome.proof) + repr(outcome.remember)
    path = os.fsencode("/home/u/o ut.log").hex()
    words = ("job-log", "--path", path, "--uid", "1000", "--kib", "512")
    assert site.asked == [("ssh-node2", *words), ("ssh-node1", *words)]


def test_its_user_is_told_in_our_words(site: Site, tmp_path: Path) -> None:
    site.helper["ssh-node2", "job-log"] = _log(tmp_path, HOSTILE)
    told = dict(_act(site, tmp_path, SEEN).remember)
    sentence = job_runs.sentence("job_failed", {**told, "did": "requeued", "attempt": [1, 3]})
    assert sentence == "requeued (1 of 3); its log tells of segfault, application"
    assert job_runs.sentence("job_failed", {**told, "tell": "not requeued"}).endswith("segfault, application")


def test_another_node_is_believed_where_that_of_the_script_is_silent(site: Site, tmp_path: Path) -> None:
    site.helper["ssh-node2", "job-log"] = Unreachable("gone")
    site.helper["ssh-node1", "job-log"] = _log(tmp_path, "CUDA out of memory\n")
    assert _act(site, tmp_path, SEEN).remember["diagnosis"]["why"] == "cuda_oom"


def test_a_log_that_tells_nothing_is_unknown(site: Site, tmp_path: Path) -> None:
    site.helper["ssh-node2", "job-log"] = _log(tmp_path, "all is well\n")
    outcome = _act(site, tmp_path, SEEN)
    assert outcome.remember == {"diagnosis": {"verdict": "unknown", "why": "nothing_found", "rank": None}}
    assert job_runs.sentence("job_failed", {**outcome.remember, "did": "requeued"}) == "requeued"


@pytest.mark.parametrize(
    "told",
    [
        Unreachable("no answer"),
        Absent("no helper"),
        {},
        {"files": {"log-0.txt": "AAAA"}, "sizes": {"log-0.txt": 3}},
        {"files": {}, "sizes": {}, "missing": {"log-0.txt": "unreadable: Permission denied"}},
        {"files": {"../x": ""}, "sizes": {}},
    ],
    ids=["silent", "no helper", "empty", "damaged", "not the user's", "another file"],
)
def test_a_log_that_cannot_be_had_keeps_no_repair(site: Site, tmp_path: Path, told: Any) -> None:
    site.helper["ssh-node1", "job-log"] = site.helper["ssh-node2", "job-log"] = told
    outcome = _act(site, tmp_path, SEEN)
    assert (outcome.status, outcome.remember) == ("done", {})
    assert outcome.why.startswith("the job's log was not read: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "RUNNING"},
        {"restart_count": 2},
        {"uid": None},
        {"stdout": "/home/u/%j.log", "stderr": None},
        {"stdout": "relative", "stderr": "/dev/null"},
        {"nodes": (), "batch_host": None},
    ],
    ids=["runs again", "ran again", "whose", "not filled in", "no file", "nowhere"],
)
def test_a_log_that_is_not_asked_for(site: Site, tmp_path: Path, changes: dict[str, Any]) -> None:
    usual = {
        "state": "FAILED", "uid": 1000, "nodes": ("node1",), "batch_host": "node1", "stdout": "/o", "stderr": "/o",
        "restart_count": 1,
    }  # fmt: skip
    facts = {**usual, **changes}
    site.job(42, facts.pop("state"), **facts)
    outcome = _act(site, tmp_path, SEEN)
    assert (outcome.status, outcome.remember, site.asked) == ("done", {}, [])


def test_a_job_that_slurm_requeued_is_looked_for_where_it_failed(site: Site, tmp_path: Path) -> None:
    site.job(42, "PENDING", uid=1000, restart_count=1, stdout="/o")
    site.helper["ssh-node1", "job-log"] = _log(tmp_path, "CUDA out of memory\n")
    outcome = _act(site, tmp_path, {**SEEN, "failed_run": {"nodes": "node1"}})
    assert outcome.remember["diagnosis"]["why"] == "cuda_oom"


def test_a_site_may_read_none(site: Site, tmp_path: Path) -> None:
    assert (_act(site, tmp_path, SEEN, job_log_kib=0).status, site.asked) == ("done", [])


def test_two_jobs_of_one_node_ask_it_once_each_run(site: Site, tmp_path: Path) -> None:
    site.job(43, "FAILED", uid=1001, nodes=("node2",), batch_host="node2", stdout="/p")
    site.helper["ssh-node2", "job-log"] = _log(tmp_path, "CUDA out of memory\n")
    outcomes = site.act(_work("42"), _work("43", incident=8), tools=site.tools(state_dir=str(tmp_path)))
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert "none of its nodes can be asked now" in outcomes[1].why


def test_who_lost_his_claim_asks_nobody(site: Site, tmp_path: Path) -> None:
    site.lost = {7}
    assert (_act(site, tmp_path, SEEN).status, site.asked) == ("waiting", [])
