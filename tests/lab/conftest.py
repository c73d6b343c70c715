# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests on the lab: a real cluster, with the collection installed on it and recovery at work.

They run one after the other on one lab (`LAB_INSTANCE`), from the molecule scenarios or by hand:
`tools/with-env python -m pytest tests/lab/test_faults.py`. A lab that is not there is a failure, not a skip.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "lab"), str(Path(__file__).resolve().parent)]

from joblab import instance  # noqa: E402
from joblab.demo import cases  # noqa: E402
from joblab.demo.cluster import Cluster, wait  # noqa: E402
from watching import listening  # noqa: E402


@pytest.fixture(scope="session")
def whole_cluster():
    cluster = Cluster(instance.from_environment())
    assert cluster.head("systemctl is-enabled job-recovery", check=False) == "enabled", "run site.yml on the lab first"
    return cluster


@pytest.fixture
def cluster(whole_cluster):
    """The cluster with every node in service and recovery listening; tidied up afterwards."""
    whole_cluster.head("job-recovery resume; systemctl start job-recovery", timeout=60)
    cases.tidy(whole_cluster)
    assert wait(lambda: listening(whole_cluster), 60), "the sources of the recovery do not listen"
    whole_cluster.begun = whole_cluster.now()
    yield whole_cluster
    whole_cluster.recovery(on=True)
    cases.tidy(whole_cluster)
