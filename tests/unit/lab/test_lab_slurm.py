# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from joblab import slurm
from joblab.errors import LabError
from joblab.instance import Instance


def test_settings_replace_and_add() -> None:
    text = "# ReturnToService=9\nReturnToService=1\nNodeName=node[1-4] CPUs=2\n"
    changed = slurm.overridden(text, {"returntoservice": "0", "MaxJobCount": "9"})
    assert changed == "# ReturnToService=9\nreturntoservice=0\nNodeName=node[1-4] CPUs=2\nMaxJobCount=9\n"


@pytest.mark.parametrize("word", ["ReturnToService", "=1", "Return ToService=1", "A=1\nB=2", "../x=1"])
def test_what_is_no_setting_is_refused(word: str) -> None:
    with pytest.raises(LabError, match="Not a setting"):
        slurm.parse_settings([word])


def test_overrides_are_kept_until_taken_back(instance: Instance) -> None:
    slurm.set_configuration(instance, {"ReturnToService": "0", "SlurmdTimeout": "30"})
    slurm.set_configuration(instance, {"SlurmdTimeout": ""})
    lines = slurm.configuration(instance).splitlines()
    assert "ReturnToService=0" in lines
    assert "SlurmdTimeout=15" in lines


@pytest.mark.parametrize("key", ["NodeName", "partitionname", "ClusterName"])
def test_the_clusters_shape_is_fixed(instance: Instance, key: str) -> None:
    with pytest.raises(LabError, match="fixed"):
        slurm.set_configuration(instance, {key: "x"})


def test_what_recovery_needs_of_slurm(instance: Instance) -> None:
    lines = slurm.configuration(instance).splitlines()
    for line in ("AccountingStoreFlags=job_comment", "MinJobAge=600", "JobRequeue=1"):
        assert line in lines


def test_nodes_from_sinfo() -> None:
    text = (
        f"{'node1':64}{'idle':128}{'none':512}\n"
        f"{'node2':64}{'down+drain+not_responding':128}{'Kill task failed (JobId=7 StepId=0)':512}\n"
        f"{'node1':64}{'idle':128}{'none':512}\n"
    )
    assert slurm.parse_nodes(text) == [
        slurm.Node("node1", "idle", ""),
        slurm.Node("node2", "down+drain+not_responding", "Kill task failed (JobId=7 StepId=0)"),
    ]
