# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of NVIDIA's drivers: Xid, SXid, and what they say without a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from . import catalogue
from .model import DRAIN_AND_REPORT, FATAL, HARDWARE, IGNORE, NONFATAL, PLATFORM, REBOOT, REPORT, UNKNOWN
from .sign import Sign, pci_address, pci_device, sign

# `NVRM: Xid (PCI:0000:05:00): 79, ...`, without `PCI:` before driver 352, with a MIG instance behind the address.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2,4}:[0-9a-f]{2}(?:\.[0-9a-f])?)(?: [^)]{0,40})?\): "
    r"(\d{1,5})(?:,|$)(.*)",
    re.ASCII | re.IGNORECASE,
)
_SXID = re.compile(
    r"nvidia-nvswitch\d{1,3}: SXid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?\): "
    r"(\d{1,6}), (.*)",
    re.ASCII | re.IGNORECASE,
)
_PROCESS = re.compile(r" pid='?(\d{1,10})'?,(?: name=([^,]{0,64}))?")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,5})(?!\d)", re.ASCII)
_RECOVERY = re.compile(
    r"GPU recovery action changed from 0x[0-9a-f]{1,8} \([^)]{0,40}\) to 0x([0-9a-f]{1,8}) \(([^)]{0,40})\)"
)
# `RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 ...)`
_UNIT = re.compile(
    r"(?:^|, | )([A-Z][A-Z0-9_/]{2,40}) {1,8}(Fatal|Nonfatal|Non-fatal)\b([^(]{0,60})(?:\(([0-9a-fx, ]{1,120}))?"
)
_LINK = re.compile(r"\blink (-?\d{1,3}) ?\(([0-9a-fx, ]{1,120})\)", re.IGNORECASE)
_FALLEN = re.compile(
    r"NVRM: (?:GPU [0-9a-f:.]{7,20}: GPU has |(?:The NVIDIA GPU [0-9a-f:.]{7,20} )?(?:\(PCI ID: [0-9a-f:]{9}\) )?"
    r"(?:installed in this system has )?)fallen off the bus",
    re.IGNORECASE,
)
_DAY = 86400.0
_MOST_SEEN = 256  # the same line comes thousands of times in a storm
_NVLINK5 = range(144, 151)


@dataclass
class Nvidia:
    """Reads the drivers' lines; remembers the GPU of a message that is spread over several."""

    entries: catalogue.Catalogue = field(default_factory=lambda: catalogue.DEFAULT)
    _named: str = ""
    _seen: dict[str, Sign] = field(default_factory=dict)

    def xid(self, text: str) -> Optional[Sign]:
        """A line that begins with `NVRM: `."""
        known = self._seen.get(text)
        if known is not None:
            return known
        match = _XID.match(text)
        if not match:
            return self._without_number(text) if text.startswith("NVRM: ") else None
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        return self._seen.setdefault(text, self._numbered(match))

    def _numbered(self, match: re.Match[str]) -> Sign:
        device, code, rest = pci_device(match.group(1)), int(match.group(2)), match.group(3)
        entry = self.entries.xid(code)
        more: dict[str, object] = {"device": device, **_process(rest)}
        action, verdict = entry.action, entry.verdict
        if code == 45:
            verdict, action, more["cause"] = self._clean_up(rest)
        elif not self.entries.changed("xid%d" % code):
            verdict, action = self._by_text(code, rest, entry, more)
        return sign("xid%d" % code, "xid", verdict, action, **more)

    def _clean_up(self, rest: str) -> tuple[str, str, str]:
        """Verdict, action and cause of Xid 45: those of the Xid that it names, and nothing by itself."""
        cause = _CAUSE.search(rest)
        if not cause or int(cause.group(1)) == 45:
            return UNKNOWN, IGNORE, ""
        earlier = self.entries.xid(int(cause.group(1)))
        return earlier.verdict, earlier.action, "xid%d" % int(cause.group(1))

    def _by_text(self, code: int, rest: str, entry: catalogue.Entry, more: dict[str, object]) -> tuple[str, str]:
        """Verdict and action where the catalogue says that the text of the line decides."""
        if code == 154:
            return _recovery(rest)
        if code in _NVLINK5:
            return _nvlink5(code, rest, entry, more)
        if code == 74:
            return _nvlink(rest, entry, more)
        return entry.verdict, entry.action

    def _without_number(self, text: str) -> Optional[Sign]:
        for pattern, make in _WITHOUT_NUMBER:
            match = pattern.match(text)
            if match:
                return make(pci_address(match.group()))
        # Three lines, of which only the first names the GPU and only the last says what is wrong.
        if text.startswith("NVRM: The NVIDIA GPU ") and "fallen off" not in text:
            self._named = pci_address(text)
        elif _FALLEN.match(text):
            device, self._named = pci_address(text) or self._named, ""
            return sign("xid79", "xid", HARDWARE, self.entries.xid(79).action, device=device, adds=0)
        return None

    def sxid(self, text: str) -> Optional[Sign]:
        """A line of an NVSwitch: `nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`."""
        match = _SXID.match(text)
        if not match:
            return None
        code, rest = int(match.group(2)), match.group(3)
        entry = self.entries.sxid(code)
        known = {"device": pci_device(match.group(1))}
        if rest.startswith(("Data ", "Severity ")):
            return sign("sxid%d" % code, "sxid", UNKNOWN, IGNORE, adds=0, **known)
        severity = FATAL if rest.startswith("Fatal") else NONFATAL if rest.startswith("Non-fatal") else ""
        action = entry.action
        if action == REBOOT and severity == NONFATAL and not self.entries.changed("sxid%d" % code):
            action = REPORT  # the list and the driver disagree
        return sign("sxid%d" % code, "sxid", entry.verdict, action, severity=severity, **known)


def _recovery(rest: str) -> tuple[str, str]:
    match = _RECOVERY.search(rest)
    action = catalogue.recovery_action(int(match.group(1), 16), match.group(2)) if match else None
    return (UNKNOWN, REPORT) if action is None else (PLATFORM, action)


def _nvlink5(code: int, rest: str, entry: catalogue.Entry, more: dict[str, object]) -> tuple[str, str]:
    match = _UNIT.search(rest)
    if not match:
        return entry.verdict, entry.action
    severity = FATAL if match.group(2) == "Fatal" else NONFATAL
    more["severity"] = severity
    actions = [
        catalogue.nvlink5(code, unit, severity, _words(match.group(4) or "")) for unit in match.group(1).split("/")
    ]
    known = [action for action in actions if action is not None]
    return (entry.verdict, known[-1]) if known else (UNKNOWN, REPORT)


def _nvlink(rest: str, entry: catalogue.Entry, more: dict[str, object]) -> tuple[str, str]:
    if "fatal error" in rest:
        more["severity"] = FATAL
    match = _LINK.search(rest)
    if not match:
        return entry.verdict, entry.action
    action, times = catalogue.nvlink(_words(match.group(2)))
    more.update(part="link " + match.group(1), window=_DAY)
    if times:
        more.update(after=times, firmer=DRAIN_AND_REPORT)
    return entry.verdict, action


def _words(text: str) -> tuple[int, ...]:
    found = []
    for word in text.replace(",", " ").split():
        try:
            found.append(int(word, 16))
        except ValueError:
            return ()
    return tuple(found)


def _process(rest: str) -> dict[str, object]:
    match = _PROCESS.match(rest)
    if not match:
        return {}
    name = match.group(2) or ""
    return {"pid": int(match.group(1)), "process": "" if name == "<unknown>" else name}


def _global_fatal(device: str) -> Sign:
    return sign("uvm_fatal", "nvidia", PLATFORM, REBOOT, device=device, severity=FATAL)


def _no_init(device: str) -> Sign:
    return sign("gpu_init", "nvidia", PLATFORM, REPORT, device=device)


def _mismatch(device: str) -> Sign:
    return sign("driver_mismatch", "nvidia", PLATFORM, REPORT, device=device)


_WITHOUT_NUMBER = (
    (re.compile(r"NVRM: (?:GPU\d{1,3} )?nvGpuOpsReportFatalError: uvm encountered global fatal error"), _global_fatal),
    (re.compile(r"NVRM: (?:GPU [0-9a-f:.]{1,20}: )?RmInitAdapter failed!"), _no_init),
    (re.compile(r"NVRM: API mismatch: "), _mismatch),
)
