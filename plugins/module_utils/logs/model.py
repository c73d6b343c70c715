# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What logs say, as values: findings about single faults, and the diagnosis that follows from them.

Everything in `logs/` is pure and needs nothing but the standard library: the node agent carries it to the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

# Verdicts: whose fault it is. Unknown is an answer, and nothing is ever done because of it.
HARDWARE = "hardware"
PLATFORM = "platform"
APPLICATION = "application"
UNKNOWN = "unknown"
VERDICTS = (HARDWARE, PLATFORM, APPLICATION, UNKNOWN)

# Actions, from the mildest to the firmest.
IGNORE = "ignore"
REPORT = "report"
RESTART_APP = "restart_app"
RESET_GPU = "reset_gpu"
REBOOT = "reboot"
DRAIN_AND_REPORT = "drain_and_report"
ACTIONS = (IGNORE, REPORT, RESTART_APP, RESET_GPU, REBOOT, DRAIN_AND_REPORT)
# Those that take a node out of service.
NODE_ACTIONS = frozenset([RESET_GPU, REBOOT, DRAIN_AND_REPORT])

FATAL = "fatal"
NONFATAL = "nonfatal"

# A finding keeps so many of its lines, and so many characters of each.
MAX_LINES = 8
MAX_LINE_LENGTH = 500


@dataclass(frozen=True)
class Finding:
    """One fault that one or more lines of a log tell.

    Attributes:
        code: the fault: `xid79`, `sxid12028`, `mce`, `edac_ue`, `nvme`, `oom_kill`, `nccl_timeout` ...
        family: the group of the code: `xid`, `sxid`, `mce`, `edac`, `storage`, `memory`, `network`, `nccl`, `cuda` ...
        verdict: `hardware`, `platform`, `application` or `unknown`.
        action: what is to be done about it, one of ACTIONS; `report` or `ignore` where the verdict is unknown.
        severity: `fatal`, `nonfatal`, or empty where the log does not say.
        device: what failed: PCI address (`0000:05:00`), disk (`nvme0n1`), processor, memory module; or whose memory ran
            out (`job_123`, `pod_UID`); empty when unknown.
        pid: of the process that the line names; None where it names none.
        process: its name, or empty.
        rank: of the job's process that failed; None where the log does not say.
        cause: code of the earlier fault that brought this one about (`xid149`), or empty.
        count: how many times it was seen.
        first, last: seconds since the epoch of the first and the last time; None where the log bears no time.
        lines: (number in the log, text) of the first lines that say so, MAX_LINES at most; hostile text.
    """

    code: str
    family: str
    verdict: str
    action: str
    severity: str = ""
    device: str = ""
    pid: Optional[int] = None
    process: str = ""
    rank: Optional[int] = None
    cause: str = ""
    count: int = 1
    first: Optional[float] = None
    last: Optional[float] = None
    lines: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What the findings together say.

    Attributes:
        verdict: `hardware`, `platform`, `application` or `unknown`.
        action: what is to be done, one of ACTIONS.
        findings: what it rests on, the one that decided first.
        why: the rule that decided, as a short name.
    """

    verdict: str
    action: str
    findings: tuple[Finding, ...]
    why: str


def firmest(actions: Iterable[str]) -> str:
    """The firmest of several actions; `ignore` of none."""
    return max(actions, key=ACTIONS.index, default=IGNORE)


def bounded(number: int, text: str) -> tuple[int, str]:
    """One line as a finding keeps it."""
    return number, text[:MAX_LINE_LENGTH]
