# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons

OURS = "job_recovery: node_not_responding (incident 7, reboot_node)"


@pytest.mark.parametrize(("part", "kind"), [
    ("Kill task failed", reasons.REPAIRABLE),
    ("Kill task failed (JobId=7 StepId=0)", reasons.REPAIRABLE),
    ("batch job complete failure", reasons.REPAIRABLE),
    ("Prolog error", reasons.REPAIRABLE),
    ("Job env setup error", reasons.REPAIRABLE),
    ("Epilog error", reasons.REPAIRABLE),
    ("Prolog/Epilog failure", reasons.REPAIRABLE),
    ("Duplicate jobid", reasons.REPAIRABLE),
    ("Node unexpectedly rebooted", reasons.REBOOTED),
    ("Not responding", reasons.SILENT),
    ("ResumeTimeout reached", reasons.REBOOT_FAILED),
    ("reboot timed out", reasons.REBOOT_FAILED),
    ("Low socket*core*thread count", reasons.CONFIGURATION),
    ("Low CPUs", reasons.CONFIGURATION),
    ("Low TmpDisk", reasons.CONFIGURATION),
    ("Low RealMemory (reported:1900 < 100.00% of configured:2000)", reasons.CONFIGURATION),
    ("gres/gpu count reported lower than configured (0 < 8)", reasons.CONFIGURATION),
    ("gres/gpu:a100 count too low (7 < 8)", reasons.CONFIGURATION),
    ("Kill task failed again, leave it", reasons.UNKNOWN),
    ("Kill task failed (bob: debugging, do not touch)", reasons.UNKNOWN),
    ("Not responding (rack 7 is being moved)", reasons.UNKNOWN),
    ("Kill task failed (JobId=7_3 StepId=batch)", reasons.REPAIRABLE),
    ("Kill task failed (JobId=7)", reasons.REPAIRABLE),
    ("Not responding to ping, asked Bob", reasons.UNKNOWN),
    ("kill task failed", reasons.UNKNOWN),
    ("ADMIN SHUTDOWN", reasons.UNKNOWN),
    ("gres/gpu swap planned", reasons.UNKNOWN),
    ("", reasons.UNKNOWN),
])
def test_classify_part(part: str, kind: str) -> None:
    assert reasons.classify_part(part) == kind


@pytest.mark.parametrize(("reason", "parts"), [
    (None, []),
    ("Low CPUs, Low RealMemory (reported:1900 < 100.00% of configured:2000)",
     ["Low CPUs", "Low RealMemory (reported:1900 < 100.00% of configured:2000)"]),
    ("Kill task failed (JobId=7, StepId=0), Epilog error", ["Kill task failed (JobId=7, StepId=0)", "Epilog error"]),
    ("a,b", ["a,b"]),
    ("a) , b", ["a)", "b"]),
])
def test_split_reason(reason: str, parts: list[str]) -> None:
    assert reasons.split_reason(reason) == parts


@pytest.mark.parametrize(("reason", "ours", "owner"), [
    (None, OURS, reasons.NOBODY),
    ("", OURS, reasons.NOBODY),
    (OURS, OURS, reasons.OURS),
    (OURS + " : reboot issued", OURS, reasons.OURS),
    (OURS + " : reboot complete", OURS, reasons.OURS),
    (OURS + " : reboot issued : reboot complete", OURS, reasons.OURS),
    (OURS + " : Not responding", OURS, reasons.OURS),
    (OURS + " : Not responding : keep your hands off", OURS, reasons.PERSON),
    (OURS + " : Kill task failed", OURS, reasons.SLURM),
    ("ADMIN SHUTDOWN : Not responding", OURS, reasons.PERSON),
    ("Kill task failed : Not responding", OURS, reasons.SLURM),
    (OURS + ", Kill task failed", OURS, reasons.SLURM),
    (OURS + " : reboot timed out", OURS, reasons.SLURM),
    (OURS + ", do not touch (Bob)", OURS, reasons.PERSON),
    (OURS + " do not touch", OURS, reasons.PERSON),
    (OURS, None, reasons.PERSON),
    (OURS.replace("7", "8"), OURS, reasons.PERSON),
    ("ADMIN SHUTDOWN", OURS, reasons.PERSON),
    ("ADMIN SHUTDOWN", None, reasons.PERSON),
    ("Kill task failed", None, reasons.SLURM),
    ("Low CPUs, Low TmpDisk", None, reasons.SLURM),
    ("Low CPUs, ask Bob", None, reasons.PERSON),
    ("slurm-operator: node not ready", None, reasons.TOOL),
    ("k8s: cordoned", None, reasons.TOOL),
    ("NHC: check_hw failed", None, reasons.TOOL),
    ("nhc: check_hw failed", None, reasons.TOOL),
    ("Action: replace", None, reasons.TOOL),
    ("[node_problem] gpu", None, reasons.TOOL),
    ("Drained by CMDaemon", None, reasons.TOOL),
    ("drained by cmdaemon", None, reasons.TOOL),
    (OURS + ",Drained by CMDaemon", OURS, reasons.PERSON),  # drainReasonPolicy APPEND: whatever the separator
    ("cmd: out of disk", None, reasons.PERSON),
    ("root", None, reasons.PERSON),
])
def test_owner(reason: str, ours: str, owner: str) -> None:
    assert reasons.reason_owner(reason, ours) == owner


@pytest.mark.parametrize(("text", "clean"), [
    ("plain", "plain"),
    ("two\nlines\tand\x1b[31mred\x00", "two lines and [31mred"),
    ('say "hi"', "say 'hi'"),
    ("  a   b ", "a b"),
    ("a\u2028b\u202ec", "a b c"),
    ("x" * 500, "x" * reasons.MAX_REASON),
    ("grün", "grün"),
])
def test_clean_text(text: str, clean: str) -> None:
    assert reasons.clean_text(text) == clean
