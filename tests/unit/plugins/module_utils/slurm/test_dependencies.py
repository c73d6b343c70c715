# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.dependencies import (
    depends_on,
    is_successor,
    names_of,
    started_behind,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord, Job

LINES = [
    ("sbatch --dependency=afterok:12 next.sh", True),
    ("sbatch --dependency afterok:12 next.sh", True),
    ("sbatch -d afterany:12 next.sh", True),
    ("sbatch -dafternotok:12 next.sh", True),
    ("sbatch --depend=afterok:12 next.sh", True),
    ("sbatch -d afterok:7:12+10,afterany:9 next.sh", True),
    ("sbatch -d afterany:9?afterok:12 next.sh", True),
    ("sbatch -d aftercorr:12 next.sh", True),
    ("sbatch -d afterok:12_3 next.sh", True),
    ("sbatch -d afterok:12_* next.sh", True),
    ("srun -d afterok:12 -n 4 hostname", True),
    # another job's, or no end of a job
    ("sbatch -d afterok:120 next.sh", False),
    ("sbatch -d afterok:112 next.sh", False),
    ("sbatch -d afterok:12_4 next.sh", False),
    ("sbatch -d after:12 next.sh", False),
    ("sbatch -d singleton next.sh", False),
    ("sbatch -d expand:12 next.sh", False),
    ("sbatch next.sh afterok:12", False),
    ("sbatch --depth=12 next.sh", False),
    ("sbatch next.sh", False),
    ("", False),
    ("sbatch -J x--dependency=afterok:12 next.sh", False),
    # hostile
    ("sbatch -J '\n12' -d {{afterok:12}} next.sh", True),
    ("sbatch -d afterok:" + "9:" * 50000 + " x", False),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=range(len(LINES)))
def test_depends_on(line, expected):
    assert depends_on(line, {"12", "12_3"}) is expected


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (Job(12, "FAILED"), {"12"}),
        (Job(15, "FAILED", array_job_id=12, array_task_id=3), {"15", "12", "12_3"}),
        (Job(13, "FAILED", het_job_id=12, het_job_offset=1), {"13", "12"}),
    ],
)
def test_names(job, names):
    assert names_of(job) == names


@pytest.mark.parametrize(
    ("number", "line", "started", "found"),
    [
        (20, "sbatch -d afterany:12 x", 100, ("20",)),
        (20, "sbatch -d afterany:12 x", 150, ("20",)),
        (20, "sbatch -d afterany:12 x", 99, ()),  # of an older job with this number
        (20, "sbatch -d afterok:12 x", None, ()),  # it still waits
        (20, "sbatch x", 150, ()),
        (20, None, 150, ()),
        (12, "sbatch -d afterok:12 x", 150, ()),
    ],
)
def test_what_has_started_behind_a_job(number, line, started, found):
    record = AccountingRecord(number, "RUNNING", start_time=started, submit_line=line)
    assert started_behind(Job(12, "FAILED", end_time=100), [record]) == found


FAILED = Job(12, "FAILED", uid=5, name="train", partition="main")
HELD = Job(13, "PENDING", uid=5, name="train", partition="main", priority=0, state_reason="JobHeldUser")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"uid": 6}, False),
        ({"uid": None}, False),
        ({"name": "train2"}, False),
        ({"partition": "other"}, False),
        ({"id": 12}, False),
        ({"state_reason": "JobHeldAdmin"}, False),
        ({"state_reason": "launch_failed_requeued_held"}, False),
        ({"state_reason": "Dependency", "priority": 1}, False),
        ({"state": "RUNNING"}, False),
        ({"state": "CANCELLED"}, False),
        ({"restart_count": 1}, False),
        ({"array_job_id": 13, "array_tasks": "1-9"}, False),
        ({"het_job_id": 13}, False),
        ({"flags": ("UNHEARD_OF",)}, False),
    ],
)
def test_who_is_a_successor(changes, expected):
    assert is_successor(FAILED, dataclasses.replace(HELD, **changes)) is expected
