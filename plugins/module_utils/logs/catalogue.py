# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's catalogues of Xid and SXid errors ask for, in our words, and what a site says instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from . import xid_table
from .model import (
    ACTIONS,
    APPLICATION,
    DRAIN_AND_REPORT,
    HARDWARE,
    IGNORE,
    PLATFORM,
    REBOOT,
    REPORT,
    RESET_GPU,
    RESTART_APP,
    UNKNOWN,
    VERDICTS,
    firmest,
)

# The catalogue's resolution buckets, immediate action. Where a bucket is a workflow, this is what holds as long as the
# line does not say more (nvlink5, nvlink, recovery_action); work that only a person can do takes nothing away from
# anybody by itself, except where the hardware is certainly not fit (CHECK_MECHANICALS).
BUCKETS = {
    "RESTART_APP": RESTART_APP,
    "RESET_GPU": RESET_GPU,
    "RESTART_BM": REBOOT,
    "RESTART_VM": REBOOT,
    "IGNORE": IGNORE,
    "CHECK_MECHANICALS": DRAIN_AND_REPORT,
    "CONTACT_SUPPORT": REPORT,
    "UPDATE_SWFW": REPORT,
    "CHECK_UVM": REPORT,
    "-": REPORT,
    # Alone it is nothing; with others, theirs is followed.
    "WORKFLOW_XID_45": IGNORE,
    # Alone: reset. With 63 or 64: drain and reset; our reset always drains before.
    "WORKFLOW_XID_48": RESET_GPU,
    "WORKFLOW_NVLINK_ERR": REPORT,
    "WORKFLOW_NVLINK5_ERR": REPORT,
    "XID_154": REPORT,
    # "If there is an Xid 154 with it, take its action; else restart the application."
    "XID_154_EVAL": RESTART_APP,
}
# Every row of these codes that the catalogue calls fatal asks for a reset, and nearly every row is fatal.
_NVLINK5_BARE = {149: RESET_GPU, 150: RESET_GPU}


@dataclass(frozen=True)
class Entry:
    """What a code means: `name` (NVIDIA's mnemonic, or empty), one of VERDICTS, one of ACTIONS."""

    name: str
    verdict: str
    action: str


NOT_LISTED = Entry("", UNKNOWN, REPORT)


class Catalogue:
    """Xids and SXids by number. A number that is in no list is unknown: it is told, and nothing follows."""

    def __init__(self, xids: Mapping[int, Entry], sxids: Mapping[int, Entry], changed: frozenset[str] = frozenset()):
        self._xids = dict(xids)
        self._sxids = dict(sxids)
        self._changed = changed

    def xid(self, code: int) -> Entry:
        return self._xids.get(code, NOT_LISTED)

    def sxid(self, code: int) -> Entry:
        return self._sxids.get(code, NOT_LISTED)

    def changed(self, code: str) -> bool:
        """Whether the site's own word holds for `xid74`; then the text of the line decides nothing any more."""
        return code in self._changed

    def with_changes(self, changes: Mapping[str, Any]) -> Catalogue:
        """This catalogue as a site changes it.

        Args:
            changes: `{"xid": {"79": {"action": "drain_and_report", "verdict": "hardware"}}, "sxid": {...}}`; what is
                not named stays.

        Raises:
            ValueError: anything else than that; the message says where.
        """
        if not isinstance(changes, Mapping):
            raise ValueError("the changes of the catalogue are no mapping")
        unheard = sorted(set(map(str, changes)) - {"xid", "sxid"})
        if unheard:
            raise ValueError("the catalogue has xid and sxid, not %s" % ", ".join(unheard))
        xids = _changed(self._xids, changes.get("xid", {}), "xid")
        sxids = _changed(self._sxids, changes.get("sxid", {}), "sxid")
        named = [kind + str(int(code)) for kind in ("xid", "sxid") for code in changes.get(kind, {})]
        return Catalogue(xids, sxids, self._changed | frozenset(named))


def _changed(entries: Mapping[int, Entry], changes: Any, kind: str) -> dict[int, Entry]:
    if not isinstance(changes, Mapping):
        raise ValueError("%s is no mapping" % kind)
    result = dict(entries)
    for code, change in changes.items():
        where = "%s %s" % (kind, code)
        if not str(code).isascii() or not str(code).isdigit():
            raise ValueError("%s: no number" % where)
        if not isinstance(change, Mapping) or not change or set(change) - {"action", "verdict"}:
            raise ValueError("%s: wants action, verdict or both" % where)
        number = int(code)
        before = result.get(number, NOT_LISTED)
        entry = Entry(before.name, change.get("verdict", before.verdict), change.get("action", before.action))
        if entry.verdict not in VERDICTS or entry.action not in ACTIONS:
            raise ValueError("%s: no such action or verdict" % where)
        if entry.verdict == UNKNOWN and entry.action not in (REPORT, IGNORE):
            raise ValueError("%s: what is unknown is never acted upon; say the verdict too" % where)
        result[number] = entry
    return result


def nvlink5(code: int, unit: str, severity: str, words: tuple[int, ...]) -> Optional[str]:
    """The action for an Xid of 144 to 150 by its unit, severity and first two words; None where the catalogue has none.

    Args:
        code: 144 to 150.
        unit: `RLW_RXPIPE`.
        severity: `fatal`, `nonfatal` or empty, as the line says.
        words: the hexadecimal words of the line: interrupt information, error status, others.
    """
    known = (code, unit) in _NVLINK5_UNITS or (code == 149 and unit in xid_table.NETIR_LINK_UNITS)
    if not known:
        return None
    if unit in xid_table.NETIR_LINK_UNITS:
        return _link_event(severity, words)
    status = words[1] if len(words) > 1 else None
    exact = _NVLINK5.get((code, unit, status))
    if exact is not None:
        return exact
    if status is not None and unit not in xid_table.NVLINK5_NUMBERED:
        bits = [_NVLINK5.get((code, unit, 1 << bit)) for bit in range(32) if status >> bit & 1]
        found = [action for action in bits if action is not None]
        if found and len(found) == len(bits):
            return firmest(found)
    return _by_severity(severity)


def _link_event(severity: str, words: tuple[int, ...]) -> Optional[str]:
    if words:
        sub_code = words[0] >> 20 & 0x3F
        if sub_code in xid_table.NETIR_LINK_RESET:
            return RESET_GPU
        if sub_code in xid_table.NETIR_LINK_IGNORE:
            return IGNORE
    return _by_severity(severity)


def _by_severity(severity: str) -> Optional[str]:
    return {"fatal": RESET_GPU, "nonfatal": IGNORE}.get(severity)


def nvlink(registers: tuple[int, ...]) -> tuple[str, int]:
    """WORKFLOW_NVLINK_ERR, of Xid 74.

    Returns:
        The action now, and after how many times on the same link a person has to look at it (0: never).
    """
    def seen(table: tuple[tuple[int, frozenset[int]], ...]) -> bool:
        return any(
            len(registers) > index and any(registers[index] >> bit & 1 for bit in bits) for index, bits in table
        )

    if seen(xid_table.NVLINK_BITS_AT_ONCE):
        return DRAIN_AND_REPORT, 0
    if seen(xid_table.NVLINK_BITS_SECOND):
        return REPORT, 2
    if seen(xid_table.NVLINK_BITS_THIRD):
        return REPORT, 3
    rest = list(registers)
    for index, bits in xid_table.NVLINK_BITS_IGNORED:
        if len(rest) > index:
            rest[index] &= ~sum(1 << bit for bit in bits)
    return (IGNORE, 0) if registers and not any(rest) else (REPORT, 0)


def recovery_action(value: int, words: str) -> Optional[str]:
    """What Xid 154 asks for by its own text, `0x4 (Drain and Reset)`; None where value and words are not known so."""
    for number, spellings, action in xid_table.RECOVERY_ACTIONS:
        if number == value and words in spellings:
            return action
    return None


def _xids() -> dict[int, Entry]:
    entries = {code: Entry("", UNKNOWN, REPORT) for code in xid_table.UNUSED_XIDS}
    for line in xid_table.XIDS.split("\n"):
        if line:
            number, name, bucket, verdict = line.split()
            code = int(number)
            entries[code] = Entry(name, verdict, _NVLINK5_BARE.get(code, BUCKETS[bucket]))
    return entries


def _sxids() -> dict[int, Entry]:
    entries = {code: Entry("", HARDWARE, IGNORE) for code in xid_table.SXIDS_HARMLESS}
    entries.update((code, Entry("", PLATFORM, REPORT)) for code in xid_table.SXIDS_TOLD)
    # A switch belongs to all GPUs of the node: resetting one of them does not mend it.
    entries.update((code, Entry("", HARDWARE, REBOOT)) for code in xid_table.SXIDS_FATAL)
    return entries


def _nvlink5_rows() -> dict[tuple[int, str, Optional[int]], str]:
    rows = [line.split() for line in xid_table.NVLINK5.split("\n") if line]
    return {
        (int(code), unit, int(status, 16)): BUCKETS[bucket]
        for code, units, status, bucket in rows
        for unit in units.split("/")
    }


_NVLINK5 = _nvlink5_rows()
_NVLINK5_UNITS = frozenset((code, unit) for code, unit, dummy in _NVLINK5)
DEFAULT = Catalogue(_xids(), _sxids())
# Xids of an application, or of what the driver tidies up for it: after a fault of the GPU they are its consequence.
SYMPTOMS = frozenset(
    code for code, entry in _xids().items() if entry.verdict == APPLICATION or entry.name.endswith("PREEMPTIVE_REMOVAL")
)
