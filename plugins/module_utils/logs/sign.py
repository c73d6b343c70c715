# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one line says, before it is joined with others of its burst: what all readers of kernel lines share."""

from __future__ import annotations

import re
from typing import NamedTuple

from .model import Finding

# Seconds of silence after which a further line of the same fault begins a new burst: NVIDIA's own measure for Xids,
# https://docs.nvidia.com/fleet-intel/user-guide/xid-bursts.md
BURST = 180.0
_ADDRESS = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?\b", re.ASCII | re.IGNORECASE)


class Sign(NamedTuple):
    """One line's finding, and how it counts with others.

    Attributes:
        finding: of this line alone, without times and lines.
        part: what else tells bursts apart, beside code and device: a link, a process.
        window: seconds of silence that end the burst.
        after, firmer: from so many times on the action is `firmer` (0: never).
        adds: how many times the line counts; 0 for a line that only belongs to the one before it.
        only_after_boot: whether the line is nothing during the start of the machine.
    """

    finding: Finding
    part: str = ""
    window: float = BURST
    after: int = 0
    firmer: str = ""
    adds: int = 1
    only_after_boot: bool = False


def sign(code: str, family: str, verdict: str, action: str, **more: object) -> Sign:
    """A sign from its finding's fields and its own."""
    own = {name: more.pop(name) for name in list(more) if name in Sign._fields}
    return Sign(Finding(code, family, verdict, action, **more), **own)


def pci_device(address: str) -> str:
    """`0000:05:00` from any spelling of a PCI address; NVIDIA's tools write eight digits of domain."""
    parts = address.lower().split(".")[0].split(":")
    if len(parts) == 3 and len(parts[0]) > 4 and parts[0].startswith("0000"):
        parts[0] = parts[0][-4:]
    return ":".join(parts)


def pci_address(text: str) -> str:
    """The first PCI address in a text, as `pci_device` spells it; empty without one."""
    match = _ADDRESS.search(text)
    return pci_device(match.group(1)) if match else ""
