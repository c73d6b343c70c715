# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every text by which Slurm itself takes a node out of service, alone and joined with every other one."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect, reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import NodeState

BROKEN = (
    "Kill task failed",
    "Kill task failed (JobId=7 StepId=0)",
    "batch job complete failure",
    "Prolog error",
    "Job env setup error",
    "Epilog error",
    "Prolog/Epilog failure",
    "Duplicate jobid",
)
CONFIGURATION = (
    "Low socket*core*thread count",
    "Low CPUs",
    "Low TmpDisk",
    "Low RealMemory (reported:1900 < 100.00% of configured:2000)",
    "gres/gpu count reported lower than configured (0 < 8)",
)
NO_BOOT = ("ResumeTimeout reached", "reboot timed out")
SILENCE = ("Not responding",)
TEXTS = {
    **dict.fromkeys(BROKEN, "node_drained"),
    **dict.fromkeys(CONFIGURATION, "node_misconfigured"),
    **dict.fromkeys(NO_BOOT, "reboot_failed"),
    **dict.fromkeys(SILENCE, "node_back"),
}
# The first of these that one part of the reason names: a boot that failed, or a node that is not what slurm.conf says,
# is not repaired by one more reboot.
ORDER = ("reboot_failed", "node_misconfigured", "node_drained", "node_back")
HANDS_OFF = ("ADMIN SHUTDOWN", "bob: disk", "kill task failed", "Low on coffee", "Not responding to ping", "NHC: gpu")


def fault(reason: str, base: str = "DOWN", *flags: str) -> str:
    seen = detect.node_fault(NodeState("n1", base, flags or ("DRAIN",), reason))
    return seen.kind if seen else ""


@pytest.mark.parametrize("text", TEXTS)
def test_alone(text: str) -> None:
    assert fault(text) == TEXTS[text]
    assert fault(text, "IDLE") == ("" if text in SILENCE else TEXTS[text])
    assert reasons.reason_owner(text) == reasons.SLURM


@pytest.mark.parametrize("separator", [", ", " : "])
def test_joined(separator: str) -> None:
    for first, second in itertools.permutations(TEXTS, 2):
        joined = first + separator + second
        wanted = min(TEXTS[first], TEXTS[second], key=ORDER.index)
        assert fault(joined) == wanted, joined
        assert reasons.reason_owner(joined) == reasons.SLURM, joined


def test_with_a_persons_text_it_is_the_persons() -> None:
    """The fault may be seen; the gate `owner` leaves the node alone."""
    for text, person, separator in itertools.product(TEXTS, HANDS_OFF, (", ", " : ")):
        for joined in (text + separator + person, person + separator + text):
            assert reasons.reason_owner(joined) in (reasons.PERSON, reasons.TOOL), joined


@pytest.mark.parametrize("text", HANDS_OFF)
def test_a_text_that_is_not_slurms_is_no_fault(text: str) -> None:
    assert fault(text) == ""


def test_what_is_only_reported() -> None:
    assert KINDS["node_misconfigured"].remediation == "report"
    for text in CONFIGURATION:
        assert fault(text, "IDLE", "DRAIN", "INVALID_REG") == "node_misconfigured"
    assert fault("", "IDLE", "INVALID_REG") == "node_misconfigured"
