# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's kernel log reported (`gpu_fault`, `kernel_fault`): is it still so, and what is done about it? Pure.

A report is a hint and decides nothing by itself. It is of one boot; the node's own log must still say it, after the
last reset; and a GPU whose driver says that no recovery is needed is left alone.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import (
    APPLICATION,
    DRAIN_AND_REPORT,
    NODE_ACTIONS,
    REBOOT,
    RESET_GPU,
    UNKNOWN,
)

KINDS = ("gpu_fault", "kernel_fault")
GPU = "gpu_fault"

# States of a GPU as the node helper tells them.
ANSWERS, LOST, SILENT, ABSENT = "answers", "lost", "silent", "absent"
_NO_RECOVERY = "None"  # nvidia-smi: gpu_recovery_action

# Errors of a GPU's memory that no ECC corrected, and pages or rows that could not be replaced: what comes again after a
# reset or reboot, which retires the page or remaps the row, is the GPU itself (NVIDIA GPU Memory Error Management).
ECC_CODES = frozenset("xid%d" % number for number in (48, 63, 64, 92, 94, 95, 140, 171, 172))

_CODE = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/#()@,+ -]{0,63}\Z")  # `0000:05:00`, `mc0 CPU_SrcID#0_Chan#1_DIMM#0`
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\Z")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


@dataclass(frozen=True)
class Report:
    """What a node reported, without any text of its log.

    Attributes:
        code: the fault (`xid79`); empty where the report is not understood.
        verdict: whose fault it is, of `logs.model.VERDICTS`; empty where the report does not say.
        action: what the catalogue asks for, of `logs.model.ACTIONS`.
        device: PCI address, disk, port or memory module; empty where the log names none.
        boot_id: of the boot whose log said it; empty where that is not known.
    """

    code: str
    action: str = ""
    severity: str = ""
    device: str = ""
    boot_id: str = ""
    verdict: str = ""

    def as_memory(self) -> dict[str, str]:
        """As an incident remembers it."""
        return asdict(self)


@dataclass(frozen=True)
class GpuLook:
    """The GPU that was reported, as its node tells it now.

    Attributes:
        state: ANSWERS, LOST, SILENT, ABSENT (there is no nvidia-smi) or another word for what is not known.
        recovery: what its driver says is needed (`None`, `Reset` ...); empty where it does not say.
        pending: a page waits for its retirement or a row for its remapping, which a reset does; None: not known.
        remap_failed: a row could not be remapped; None: not known.
    """

    state: str
    recovery: str = ""
    pending: Optional[bool] = None
    remap_failed: Optional[bool] = None


@dataclass(frozen=True)
class Repair:
    """An earlier repair of the node for a report.

    Attributes:
        incident: its number.
        how: `reset` or `reboot`.
        at: epoch seconds of the beginning.
        until: epoch seconds when the step had done it; None where it did not.
    """

    incident: int
    code: str
    device: str
    how: str
    at: float
    until: Optional[float] = None


RESET, REBOOTED = "reset", "reboot"


def parse(body: Any) -> Report:
    """A report from the ledger's evidence, or from an incident's memory; an empty `code` where it is none."""
    if not isinstance(body, Mapping):
        return Report("")
    values = {name: body.get(name) or "" for name in ("code", "action", "severity", "device", "boot_id", "verdict")}
    patterns = {"code": _CODE, "device": _DEVICE, "boot_id": _BOOT_ID}
    for name, value in values.items():
        if not isinstance(value, str) or (value and name in patterns and not patterns[name].match(value)):
            return Report("")
    return Report(**values)


def word(device: str) -> str:
    """A PCI address as the node helper's command line takes it, which knows no colon."""
    return device.replace(":", "-")


def told_ago(data: Mapping[str, Any], report: Report) -> Optional[float]:
    """Seconds since the log said it last, by an answer of the helper's `kernel-look`; None where it does not say it."""
    found = [each for each in data.get("findings") or () if isinstance(each, Mapping)]
    same = [each.get("ago") for each in found if (each.get("code"), each.get("device")) == (report.code, report.device)]
    return min((float(ago) for ago in same if isinstance(ago, (int, float))), default=None)


def gpus_of(data: Mapping[str, Any]) -> dict[str, GpuLook]:
    """By PCI address the GPUs in an answer of the helper's `gpu-look`."""
    found = [each for each in data.get("gpus") or () if isinstance(each, Mapping)]
    return {
        str(each.get("device")): GpuLook(
            str(each.get("state")), str(each.get("recovery") or ""), each.get("pending"), each.get("remap_failed")
        )
        for each in found
    }


def gpu_of(data: Mapping[str, Any], device: str) -> GpuLook:
    """One GPU in an answer of the helper's `gpu-look`; not known where it gave none."""
    return gpus_of(data).get(device, GpuLook("unknown"))


def is_gpu(report: Report) -> bool:
    """Whether it names a GPU by its PCI address (an SXid names an NVSwitch)."""
    return _PCI.match(report.device) is not None and report.code.startswith("xid")


def why_not_there(
    report: Optional[Report],
    boot_id: str,
    told_ago: Optional[float],
    gpu: Optional[GpuLook],
    repairs: Sequence[Repair],
    now: float,
) -> str:
    """Why the fault is not there any more, or the empty text.

    Args:
        boot_id: of the node's present boot, as the node says.
        told_ago: seconds since the kernel's log of this boot said it last, as the node says; None: it does not say it.
        gpu: the GPU, where the report is about one and somebody looked.
        repairs: earlier ones of this node.
    """
    if report is None:
        return ""
    if report.boot_id != boot_id:
        return "it is of an earlier boot of the node (%s, now %s)" % (report.boot_id, boot_id)
    if told_ago is None:
        return "the kernel's log of this boot does not say %s of %s" % (report.code, report.device or "the node")
    resets = [each for each in repairs if each.how == RESET and each.until is not None]
    last = max(resets, key=_until, default=None)
    if last is not None and is_gpu(report) and now - told_ago <= _until(last):
        return "the node's GPUs were reset since, for incident #%d" % last.incident
    if gpu is not None and report.action in (RESET_GPU, REBOOT) and is_fit(gpu):
        return "the driver of GPU %s says that no recovery is needed" % report.device
    return ""


def is_fit(gpu: GpuLook) -> bool:
    """Whether its own driver says that nothing is to be recovered, and nothing is left for a reset to do."""
    return gpu.state == ANSWERS and gpu.recovery == _NO_RECOVERY and not gpu.pending and not gpu.remap_failed


def why_unfit(gpu: GpuLook) -> str:
    """What is wrong with a GPU after a repair, or the empty text; what its driver does not tell is no fault."""
    if gpu.state != ANSWERS:
        return "it is %s" % gpu.state
    if gpu.recovery not in ("", _NO_RECOVERY):
        return "its driver asks for: %s" % gpu.recovery
    if gpu.remap_failed:
        return "a row of its memory could not be remapped"
    return "a page or row of its memory still waits for a reset" if gpu.pending else ""


@dataclass(frozen=True)
class Remedy:
    """What is to be done about a report: `plan` is `reset_gpu`, `reboot`, `quarantine`, or empty for to tell only."""

    plan: str
    why: str


def remedy(report: Report, gpu: Optional[GpuLook], repairs: Sequence[Repair], since: float, waits: bool) -> Remedy:
    """The mildest that the catalogue and what was done before allow.

    Args:
        repairs: earlier ones of this node.
        since: epoch seconds; an earlier reset does not count against another one.
        waits: the jobs of the node are waited for, as nobody ends them by a reset.
    """
    what = "%s of %s" % (report.code, report.device) if report.device else report.code
    if report.verdict in (UNKNOWN, APPLICATION) or report.action not in NODE_ACTIONS:
        return Remedy("", "%s: nothing is to be done about the node" % what)
    before = [each for each in repairs if each.device == report.device]
    if report.code in ECC_CODES and is_gpu(report):
        same = [each for each in before if each.code in ECC_CODES]
        if same:
            last = max(same, key=_at)
            why = "replace GPU %s: %s again after the %s of incident #%d" % (
                report.device,
                report.code,
                last.how,
                last.incident,
            )
            return Remedy("quarantine", why)
    if report.action == DRAIN_AND_REPORT:
        return Remedy("quarantine", "%s: a person must look at the hardware" % what)
    if report.action == REBOOT:
        return Remedy("reboot", what)
    why = _why_no_reset(report, gpu, before, since, waits)
    return Remedy("reboot", "%s, and %s" % (what, why)) if why else Remedy("reset_gpu", what)


def _why_no_reset(
    report: Report, gpu: Optional[GpuLook], before: Sequence[Repair], since: float, waits: bool
) -> str:
    if not is_gpu(report) or gpu is None:
        return "which GPU it is is not known"
    if gpu.state != ANSWERS:
        return "the GPU cannot be reset: it is %s to nvidia-smi" % gpu.state
    if "Reboot" in gpu.recovery:
        return "its driver asks for a reboot"
    last = max((each for each in before if each.at >= since), key=_at, default=None)
    if last is not None:
        return "it was repaired already (%s, incident #%d)" % (last.how, last.incident)
    return "" if waits else "the site does not wait for the jobs there"


def _at(repair: Repair) -> float:
    return repair.at


def _until(repair: Repair) -> float:
    return repair.until or 0.0
