# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at nodes for the sake of their jobs, and at jobs for the sake of what they left."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import observe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import NodeLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import End
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import Site

NODE = Target("node", "node1")


@pytest.fixture(name="site")
def _site() -> Site:
    site = Site()
    site.add("node1")
    return site


def look_at(site: Site, kind: str, past: Optional[observe.Past] = None) -> NodeLook:
    machines, kinds = {NODE: site.machines["node1"]}, {NODE: kind}
    known = {"node1": past} if past else {}
    return observe.look_at_nodes(machines, kinds, site.tools(), False, lambda _names: known)[NODE]


def test_jobs_that_are_completing_past_their_time(site: Site) -> None:
    now = int(time.time())
    site.job(7, "COMPLETING", "COMPLETING", nodes=("node1",), end_time=now - 1000)
    site.job(8, "COMPLETING", "COMPLETING", nodes=("node1",), end_time=now - 10)
    site.job(9, "RUNNING", nodes=("node1",), end_time=now - 1000)
    assert look_at(site, "job_stuck_completing").stuck_jobs == ("7",)
    assert look_at(site, "node_drained").stuck_jobs is None
    site.conf = {}
    look = look_at(site, "job_stuck_completing")
    assert look.stuck_jobs is None
    assert "UnkillableStepTimeout" in look.unknown["jobs"]


@pytest.mark.parametrize("kind", ["job_stuck_completing", "node_suspect"])
def test_slurm_that_hangs_tells_nothing(site: Site, kind: str) -> None:
    site.trouble = TimedOut("squeue did not end within 10 s")
    look = look_at(site, kind)
    assert (look.stuck_jobs, look.failures) == (None, None)
    assert "did not end" in look.unknown["jobs"]


def ended(job: int, user: str, state: str, ago: int, *nodes: str) -> AccountingRecord:
    at = int(time.time()) - ago
    return AccountingRecord(job, state, user=user, nodes=nodes or ("node1",), start_time=at - 5, end_time=at)


def test_failures_of_several_users_in_a_row(site: Site) -> None:
    site.runs = [ended(1, "a", "FAILED", 90), ended(2, "b", "FAILED", 80), ended(3, "c", "FAILED", 70)]
    assert look_at(site, "node_suspect").failures == ()
    # a run that was requeued: the accounting has forgotten how it ended, the ledger has not
    site.runs.append(ended(4, "d", "REQUEUED", 60))
    at = int(time.time()) - 60
    requeued = End("4", "d", "FAILED", at, at - 5)
    failures = look_at(site, "node_suspect", observe.Past((requeued,))).failures
    assert [end.job for end in failures] == ["1", "2", "3", "4"]
    # given back since: a new row
    assert look_at(site, "node_suspect", observe.Past((requeued,), time.time() - 72)).failures == ()
    site.runs.append(ended(5, "e", "COMPLETED", 50))
    assert look_at(site, "node_suspect", observe.Past((requeued,))).failures == ()


def test_one_run_of_an_array_task_is_one_failure(site: Site) -> None:
    """Incidents name it by its array, the accounting by its own number too; it was told of and not requeued."""
    at = int(time.time()) - 60
    site.runs = [
        ended(1, "a", "FAILED", 90),
        ended(2, "b", "FAILED", 80),
        replace(ended(13, "c", "FAILED", 60), array_job_id=12, array_task_id=3, end_time=at, start_time=at - 5),
    ]
    known = observe.Past((End("12_3", "c", "FAILED", at, at - 5),))
    assert look_at(site, "node_suspect", known).failures == ()


STEP = AccountingRecord(7, "FAILED", step="0", exit_code="0:0", start_time=105 + 2**40)
STEPS = [
    ([STEP], True),
    ([], False),
    ([AccountingRecord(7, "COMPLETED", step="0", exit_code="0:0", start_time=105)], False),
    ([AccountingRecord(7, "FAILED", step="0", exit_code="1:0", start_time=105)], False),  # its program's own failure
    ([AccountingRecord(7, "FAILED", step="batch", exit_code="0:0", start_time=105)], False),
    ([AccountingRecord(7, "FAILED", exit_code="0:0")], False),
    ([AccountingRecord(7, "FAILED", step="0+1", exit_code="0:0")], True),  # of a component
]


@pytest.mark.parametrize(("steps", "hid"), STEPS)
def test_a_completed_run_that_hid_a_failed_launch(steps: list, hid: bool) -> None:
    assert observe.hid_a_failed_launch(steps) is hid


@pytest.mark.parametrize(
    ("state", "steps", "where", "left"),
    [
        ("COMPLETED", [STEP], "node1", {"node1": "1 files"}),
        ("COMPLETED", [], "node1", {}),
        # a run that completed on another node did not find what an earlier one left
        ("COMPLETED", [STEP], "node2", {}),
        ("PENDING", [], "node2", {"node2": "1 files"}),
    ],
)
def test_the_proof_of_stale_files(site: Site, state: str, steps: list, where: str, left: dict[str, Any]) -> None:
    site.add("node2")
    for name in ("node1", "node2"):
        site.helper["ssh-" + name, "spool-look"] = {"stale": ["/s/pmix.7.0"] if name == where else []}
        site.helper["ssh-" + name, "orphans"] = {"count": 0, "processes": []}
    now_on = ("node1",) if state == "COMPLETED" else ()
    site.job(7, state, restart_count=1, nodes=now_on, start_time=int(time.time()) - 86)
    site.runs = [ended(7, "a", "NODE_FAIL", 90, "node2"), ended(7, "a", state, 80, "node1"), *steps]
    tools = site.tools()
    found = observe.look_at_jobs({Target("job", "7"): "stale_spool"}, "slurm", tools, tools.machines)
    assert found[Target("job", "7")].left_overs == left
