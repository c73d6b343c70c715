# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from joblab import faults
from joblab.errors import LabError
from joblab.faults import FAULTS, Options, Where
from joblab.instance import Instance


@pytest.mark.parametrize("kind", FAULTS)
def test_every_undo_is_a_fault_of_the_same_places(kind: str) -> None:
    fault = FAULTS[kind]
    if fault.undo:
        assert FAULTS[fault.undo].where is fault.where
        assert FAULTS[fault.undo].undo is None


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_is_listed_in_one_line(kind: str) -> None:
    (line,) = [line for line in faults.listing().splitlines() if line.split()[:1] == [kind]]
    assert FAULTS[kind].summary in line
    assert len(line) < 140


@pytest.mark.parametrize(
    ("kind", "hosts", "problem"),
    [
        ("explode", ["node1"], "No fault 'explode'"),
        ("freeze", [], "freeze needs a host"),
        ("freeze", ["node5"], "No host 'node5'"),
        ("stop_slurmd", ["head"], "compute nodes, not on head"),
        ("hang_slurmctld", ["node1"], "the head, not on node1"),
        ("leave_pmix_files", ["node1"], "Which job"),
        ("remove_pmix_files", ["node1"], "Which job"),
        ("stop_service", ["head"], "Which service"),
    ],
)
def test_refusals(instance: Instance, kind: str, hosts: list[str], problem: str) -> None:
    with pytest.raises(LabError, match=problem):
        faults.inflict(instance, kind, hosts, Options())


@pytest.mark.parametrize("service", ["-f", "a b", "$(reboot)", "../x", ""])
def test_what_is_no_service_is_refused(instance: Instance, service: str) -> None:
    with pytest.raises(LabError, match="Which service"):
        faults.inflict(instance, "stop_service", ["head"], Options(service=service))


@pytest.mark.parametrize("step", ["0; reboot", "../1", "[0]"])
def test_what_is_no_step_is_refused(instance: Instance, step: str) -> None:
    with pytest.raises(LabError, match="Not a step"):
        faults.inflict(instance, "leave_pmix_files", ["node1"], Options(job=1, step=step))


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_what_is_no_share_of_packets_is_refused(instance: Instance, percent: int) -> None:
    with pytest.raises(LabError, match="1 to 100"):
        faults.inflict(instance, "lose_packets", ["node1"], Options(percent=percent))


def test_faults_of_a_lab_that_is_not_up(instance: Instance) -> None:
    with pytest.raises(LabError, match="not up"):
        faults.inflict(instance, "freeze", ["node1"], Options())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "Kill task failed"),
        ("epilog_error", "Epilog error"),
        ("Kill task failed (JobId=7)", "Kill task failed (JobId=7)"),
    ],
)
def test_reasons(given: str | None, text: str) -> None:
    assert faults.reason_text(given) == text


def test_faults_that_need_no_node_are_the_heads() -> None:
    assert {kind for kind, fault in FAULTS.items() if fault.where is Where.HEAD} == {
        "hang_slurmctld",
        "continue_slurmctld",
        "stop_slurmctld",
        "start_slurmctld",
    }
