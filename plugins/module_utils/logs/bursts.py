# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bursts: lines that say the same of the same device, and what they mean for each other."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Optional

from . import catalogue
from .model import (
    HARDWARE,
    IGNORE,
    MAX_LINES,
    REPORT,
    UNKNOWN,
    Finding,
    bounded,
    firmest,
)
from .sign import BURST, Sign

# So many bursts are open at most; the oldest is told and ended for a new one.
MAX_BURSTS = 256
_RETELL = BURST


_Key = tuple[str, str, str]  # code, device, part


@dataclasses.dataclass
class _Burst:
    """One open burst; `told` is the count that was told last, at `told_at`."""

    finding: Finding
    window: float
    count: int
    first: Optional[float]
    last: Optional[float]
    lines: list[tuple[int, str]]
    told: int = 0
    told_at: Optional[float] = None

    def tell(self) -> Finding:
        self.told, self.told_at = self.count, self.last
        self.finding = dataclasses.replace(
            self.finding, count=self.count, first=self.first, last=self.last, lines=tuple(self.lines)
        )
        return self.finding


class Bursts:
    """The open bursts of one machine."""

    def __init__(self) -> None:
        self._open: OrderedDict[_Key, _Burst] = OrderedDict()
        self._xids: dict[str, list[_Key]] = {}  # by device, in the order of their beginning

    def add(self, sign: Sign, number: int, text: str, when: Optional[float]) -> list[Finding]:
        """Count one line.

        Returns:
            The finding if it is new or firmer than it was told, with those that had to end for it.
        """
        finding = self._with_cause(sign.finding, when)
        key = (finding.code, finding.device, sign.part)
        burst = self._open.get(key)
        ended: list[Finding] = []
        if burst and _silent(burst, when):
            ended = self._end(key)
            burst = None
        if burst is None:
            ended += self._make_room()
            burst = _Burst(finding, sign.window, max(1, sign.adds), when, when, [bounded(number, text)])
            self._open[key] = burst
            if finding.family == "xid":
                self._xids.setdefault(finding.device, []).append(key)
            _escalate(burst, sign)
            return [*ended, burst.tell()]
        firmer = _count(burst, sign, finding, number, text, when)
        self._open.move_to_end(key)
        return [*ended, burst.tell()] if firmer else ended

    def flush(self, now: Optional[float]) -> list[Finding]:
        """See KernelLog.flush."""
        found: list[Finding] = []
        for key, burst in list(self._open.items()):
            if now is None or _silent(burst, now):
                found += self._end(key)
            elif burst.count > burst.told and (burst.told_at is None or now - burst.told_at >= _RETELL):
                found.append(burst.tell())
        return found

    def _end(self, key: _Key) -> list[Finding]:
        burst = self._open.pop(key)
        if burst.finding.family == "xid":
            same = self._xids[burst.finding.device]
            same.remove(key)
            if not same:
                del self._xids[burst.finding.device]
        return [burst.tell()] if burst.count > burst.told else []

    def _make_room(self) -> list[Finding]:
        return self._end(next(iter(self._open))) if len(self._open) >= MAX_BURSTS else []

    def _with_cause(self, finding: Finding, when: Optional[float]) -> Finding:
        """What the driver tidies up, and what an application meets, after a fault of its GPU is that fault's doing."""
        if finding.family != "xid" or int(finding.code[3:]) not in catalogue.SYMPTOMS:
            return finding
        for key in reversed(self._xids.get(finding.device, ())):
            burst = self._open[key]
            earlier = burst.finding
            if earlier.code == finding.code or _silent(burst, when):
                continue
            if earlier.code == finding.cause or (not finding.cause and _explains(earlier, finding)):
                return dataclasses.replace(finding, cause=earlier.code, verdict=earlier.verdict, action=earlier.action)
        return finding


def _explains(earlier: Finding, finding: Finding) -> bool:
    if earlier.cause:  # itself a consequence
        return False
    if finding.code == "xid45":
        return earlier.verdict != UNKNOWN
    return earlier.verdict == HARDWARE and earlier.action not in (IGNORE, REPORT)


def _silent(burst: _Burst, when: Optional[float]) -> bool:
    return when is not None and burst.last is not None and when - burst.last > burst.window


def _count(burst: _Burst, sign: Sign, finding: Finding, number: int, text: str, when: Optional[float]) -> bool:
    """Add one line to a burst; whether that makes it firmer."""
    burst.count += sign.adds
    if when is not None:
        burst.last = when if burst.last is None else max(burst.last, when)
    if len(burst.lines) < MAX_LINES:
        burst.lines.append(bounded(number, text))
    before = burst.finding
    action = firmest([before.action, finding.action])
    if action != before.action or (finding.cause and not before.cause):
        kept = finding if action == finding.action else before
        burst.finding = dataclasses.replace(kept, cause=before.cause or finding.cause)
    _escalate(burst, sign)
    return burst.finding.action != before.action or burst.finding.cause != before.cause


def _escalate(burst: _Burst, sign: Sign) -> None:
    """From so many times on the action is a firmer one; what is unknown stays without any."""
    if sign.after and burst.count >= sign.after and burst.finding.action in (REPORT, IGNORE):
        burst.finding = dataclasses.replace(burst.finding, action=sign.firmer)
