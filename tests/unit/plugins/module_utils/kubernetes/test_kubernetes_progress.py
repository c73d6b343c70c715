# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import detect, progress
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.detect import Seen
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    OPT_IN_ANNOTATION,
    JobState,
    job_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import present
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook

STARTED, WROTE = "2026-11-30T10:00:00Z", "2026-11-30T10:30:00Z"
NOW = 1796034600.0 + 1800  # half an hour after the last write


def server_job(deadline="1800", opt_in="{}", started=STARTED, writes=(STARTED, WROTE), **metadata):
    annotations = {OPT_IN_ANNOTATION: opt_in, progress.ANNOTATION: deadline}
    return {
        "metadata": {
            "name": "train", "namespace": "a", "uid": "u1",
            "annotations": {key: value for key, value in annotations.items() if value is not None},
            "managedFields": [{"manager": "m", "time": moment} for moment in writes], **metadata,
        },
        "spec": {},
        "status": {"startTime": started, "active": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("1800", 1800.0), ("1", 60.0), ("0", None), ("", None), ("-5", None), ("1.5", None), ("1h", None), (None, None),
        ("9" * 100000, None), ("\u0661\u0668", None), ("{{ 1800 }}", None), (1800, None), ("1800\n", None),
    ],
)  # fmt: skip
def test_what_a_user_says(said, seconds):
    assert progress.deadline({progress.ANNOTATION: said} if said is not None else {}) == seconds


@pytest.mark.parametrize(
    ("change", "stalled"),
    [
        ({}, True),
        ({"deadline": "1801"}, False),
        ({"deadline": None}, False),  # nobody asked
        ({"opt_in": None}, False),
        ({"writes": (STARTED,)}, True),
        ({"writes": ("2026-11-30T11:00:00Z",)}, False),  # a checkpoint just now
        ({"writes": ("2099-01-01T00:00:00Z",)}, False),  # clocks differ
        ({"writes": ("yesterday", None), "started": None}, False),  # nobody knows since when
        ({"writes": (), "started": WROTE}, True),
        ({"deletionTimestamp": WROTE}, False),
    ],
)
def test_jobs_that_stand_still(change, stalled):
    job = job_view(server_job(**change))
    assert detect.stalled_jobs([job], False, NOW) == ([Seen(detect.JOB_STALLED, "a/train", "u1")] if stalled else [])


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.RUNNING])
def test_only_a_running_job_stands_still(state):
    job = dataclasses.replace(job_view(server_job()), state=state)
    assert detect.stalled_jobs([job], True, NOW) == []


def test_where_everybody_is_looked_after_no_opt_in_is_wanted():
    assert detect.stalled_jobs([job_view(server_job(opt_in=None))], True, NOW)


@pytest.mark.parametrize(
    ("look", "known", "there", "well"),
    [
        (JobLook(kubernetes=job_view(server_job()), stalled=True), True, True, False),
        (JobLook(kubernetes=job_view(server_job())), True, False, True),
        (JobLook(absent=True), True, False, True),
        (JobLook(unknown={"kubernetes": "no answer"}), False, False, False),
    ],
)
def test_looked_at_again(look, known, there, well):
    state = present.state_of(detect.JOB_STALLED, "kubernetes", look)
    assert (state.known, state.there, present.is_well(look)) == (known, there, well)
