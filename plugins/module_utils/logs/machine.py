# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines about the machine's own hardware: machine checks, memory, PCIe, temperature."""

from __future__ import annotations

import re
from typing import Optional

from .model import DRAIN_AND_REPORT, FATAL, HARDWARE, IGNORE, NONFATAL, REPORT
from .sign import Sign, pci_address, sign

# `mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 1: b200000000000000`
_BANK = re.compile(
    r"(?:mce: )?\[Hardware Error\]: CPU (\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,16} Bank (\d{1,3}): "
    r"([0-9a-f]{1,16})",
    re.ASCII,
)
_UNCORRECTED = 1 << 61  # MCi_STATUS.UC
_CONTEXT_CORRUPT = 1 << 57  # MCi_STATUS.PCC
_HARDWARE_ERROR = re.compile(r"(?:mce: |BERT: |\{\d{1,10}\})?\[Hardware Error\]: ", re.ASCII)
# What APEI (CPER) and the decoder of AMD's machine checks say. A fatal one that shows at boot is of the boot before:
# the machine has rebooted for it already, and whoever rebooted it again would do so for ever.
_SEVERITIES = (
    ("event severity: corrected", NONFATAL, IGNORE),
    ("event severity: info", NONFATAL, IGNORE),
    ("event severity: recoverable", NONFATAL, REPORT),
    ("event severity: fatal", FATAL, DRAIN_AND_REPORT),
    ("Corrected error, no action required", NONFATAL, IGNORE),
    ("Deferred error, no action required", NONFATAL, REPORT),
    ("Uncorrected, software", NONFATAL, DRAIN_AND_REPORT),
    ("System Fatal error", FATAL, DRAIN_AND_REPORT),
    ("Machine check events logged", NONFATAL, IGNORE),
    ("Machine check: ", FATAL, DRAIN_AND_REPORT),
)
_EDAC = re.compile(
    r"EDAC (?:\w{1,20} )?MC(\d{1,3}): (?:(\d{1,9}) )?(CE|UE) (?:page 0x|(?:[\w -]{1,80} )?on ([^(\[:]{1,80}) \()",
    re.ASCII,
)
_MEMORY_FAILURE = re.compile(r"Memory failure: 0x[0-9a-f]{1,16}: (?:Killing (.{1,32}):(\d{1,10}) |.*)", re.ASCII)
_HOT = re.compile(r"(?:mce: )?CPU(\d{1,5}): (Core|Package) temperature above threshold", re.ASCII)
_CRITICAL = re.compile(r"thermal thermal_zone\d{1,3}: (?:[\w-]{1,32}: )?critical temperature reached", re.ASCII)
_PCI = re.compile(r"[\w-]{2,32} [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f](?: [\w-]{1,32})?: (.*)", re.ASCII)
_RECEIVED = re.compile(r"(?:received: |received from )(\S{1,40})")


def hardware_error(text: str) -> Optional[Sign]:
    """`[Hardware Error]: ...`: machine checks and what the firmware reports of its own."""
    start = _HARDWARE_ERROR.match(text)
    if not start:
        return None
    bank = _BANK.match(text)
    if bank:
        return _machine_check(int(bank.group(3), 16), "cpu%s bank%s" % (bank.group(1), bank.group(2)))
    for words, severity, action in _SEVERITIES:
        if text.startswith(words, start.end()):
            return sign("mce", "mce", HARDWARE, action, severity=severity, part=words)
    return None


def _machine_check(status: int, device: str) -> Sign:
    if not status & _UNCORRECTED:
        return sign("mce", "mce", HARDWARE, IGNORE, severity=NONFATAL, device=device)
    severity = FATAL if status & _CONTEXT_CORRUPT else NONFATAL
    return sign("mce", "mce", HARDWARE, DRAIN_AND_REPORT, severity=severity, device=device)


def edac(text: str) -> Optional[Sign]:
    """`EDAC MC0: 2 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (...)`."""
    match = _EDAC.match(text)
    if not match:
        return None
    controller, times, kind, label = match.groups()
    device = "mc%s" % controller + (" " + label if label else "")
    if kind == "CE":
        return sign("edac_ce", "edac", HARDWARE, IGNORE, severity=NONFATAL, device=device, adds=int(times or 1))
    return sign("edac_ue", "edac", HARDWARE, DRAIN_AND_REPORT, device=device, adds=int(times or 1))


def memory_failure(text: str) -> Optional[Sign]:
    """`Memory failure: 0x4a12c9: Killing python:1234 due to hardware memory corruption`."""
    match = _MEMORY_FAILURE.match(text)
    if not match:
        return None
    process = {"process": match.group(1), "pid": int(match.group(2))} if match.group(2) else {}
    return sign("memory_failure", "mce", HARDWARE, DRAIN_AND_REPORT, **process)


def thermal(text: str) -> Optional[Sign]:
    """Throttling is told; a machine that is about to switch itself off is taken out of service."""
    if _CRITICAL.match(text):
        return sign("thermal", "thermal", HARDWARE, DRAIN_AND_REPORT, severity=FATAL)
    match = _HOT.match(text)
    if match:
        return sign("thermal", "thermal", HARDWARE, REPORT, severity=NONFATAL, device="cpu" + match.group(1))
    if text.startswith("mlx5_core ") and "High temperature on sensors" in text:
        return sign("thermal", "thermal", HARDWARE, REPORT, severity=NONFATAL, device=pci_address(text))
    return None


def pcie(text: str) -> Optional[Sign]:
    """Advanced error reporting of PCIe, and downstream port containment."""
    match = _PCI.match(text)
    if not match:
        return None
    said = match.group(1)
    received = _RECEIVED.search(said)
    device = (pci_address(received.group(1)) if received else "") or pci_address(text)
    if said.startswith("DPC: containment event"):
        return sign("pcie_dpc", "pcie", HARDWARE, REPORT, device=device)
    if not said.startswith(("AER: ", "PCIe Bus Error: ")) or not ("severity=" in said or received):
        return None
    if "Non-Fatal" in said or "Nonfatal" in said:
        severity, action = NONFATAL, REPORT
    elif "Fatal" in said:
        severity, action = FATAL, DRAIN_AND_REPORT
    elif "Correct" in said:
        severity, action = NONFATAL, IGNORE
    else:
        return None
    # The port tells that a message came, the device what it was: two lines, one error.
    told = said.startswith("PCIe Bus Error: ") or "severity=" in said
    return sign("pcie_aer", "pcie", HARDWARE, action, severity=severity, device=device, adds=0 if told else 1)
