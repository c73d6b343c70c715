# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is looked at behind a job that has ended."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.followers import with_followers
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import Site

SINGLETON = '{"APS": {"auto_resume_mode": "singleton_dependency"}}'


@pytest.fixture(name="site")
def _site() -> Site:
    site = Site()
    site.job(7, "FAILED", uid=5, name="train", partition="main", end_time=100, comment=SINGLETON)
    return site


def look_at(site: Site) -> JobLook:
    return with_followers({"7": JobLook(job=site.jobs_now[7])}, site.tools())["7"]


def held(site: Site, number: int, **fields: Any) -> None:
    facts = {"uid": 5, "name": "train", "partition": "main", "priority": 0, "state_reason": "JobHeldUser", **fields}
    site.job(number, "PENDING", **{"comment": SINGLETON, **facts})


def found(site: Site) -> Optional[int]:
    successor = look_at(site).successor
    return successor.id if successor else None


def test_the_oldest_successor(site: Site) -> None:
    assert found(site) is None
    held(site, 9)
    held(site, 8)
    assert found(site) == 8
    site.job(8, "CANCELLED")
    assert found(site) == 9


@pytest.mark.parametrize(
    ("comment", "dependency", "expected"),
    [
        (SINGLETON, None, 8),
        (None, "singleton(unfulfilled)", 8),
        (None, None, None),  # held under the same name for another purpose
        ('{"APS": {"auto_resume_mode": "requeue"}}', None, None),
        ("singleton_dependency", "afterok:3", None),
    ],
)
def test_a_successor_says_that_it_is_one(site: Site, comment: Any, dependency: Any, expected: Any) -> None:
    held(site, 8, comment=comment, dependency=dependency)
    assert found(site) == expected


def test_nobody_looks_for_a_successor_that_is_not_wished(site: Site) -> None:
    held(site, 8)
    site.job(7, "FAILED", uid=5, name="train", partition="main", end_time=100)
    assert found(site) is None


def test_dependents(site: Site) -> None:
    site.submitted = [
        AccountingRecord(20, "RUNNING", start_time=101, submit_line="sbatch -d afterany:7 x"),
        AccountingRecord(21, "PENDING", submit_line="sbatch -d afterok:7 x"),
    ]
    assert look_at(site).dependents == ("20",)


@pytest.mark.parametrize("job", [{"end_time": None}, {"uid": None}])
def test_a_job_of_which_slurm_says_too_little(site: Site, job: dict) -> None:
    site.job(7, "FAILED", **{"uid": 5, "end_time": 100, **job})
    look = look_at(site)
    assert look.dependents is None
    assert "dependents" in look.unknown


def test_what_cannot_be_read_is_unknown(site: Site) -> None:
    site.trouble = TimedOut("sacct did not end within 10 s")
    look = look_at(site)
    assert (look.dependents, look.successor) == (None, None)
    assert set(look.unknown) == {"dependents", "successor"}


def test_a_job_that_has_not_ended_has_let_nothing_run(site: Site) -> None:
    site.trouble = TimedOut("nobody asks")
    site.job(7, "PENDING", uid=5)
    assert look_at(site) == JobLook(job=site.jobs_now[7])
