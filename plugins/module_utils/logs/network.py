# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines about the network: links of InfiniBand and Ethernet, and their adapters."""

from __future__ import annotations

import re
from typing import Optional

from .model import DRAIN_AND_REPORT, FATAL, HARDWARE, PLATFORM, REPORT
from .sign import Sign, pci_device, sign

_DRIVER = re.compile(
    r"([a-z][\w-]{1,20}) ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])(?:[ :] ?([\w.-]{1,32}))?: (.*)", re.ASCII
)
_DOWN = ("Link down", "Link Down", "NIC Link is Down", "link is down", "link down")
_PORT_DOWN = re.compile(r"Port: \d{1,3} Link DOWN", re.ASCII)
_CABLE = ("Cable unplugged", "Cable error")
_INFINIBAND = ("mlx4", "mlx5", "hfi1", "qib", "ib_", "mthca")
_BAD = ("device's health compromised", "handling bad device here", "Fatal error", "assert_var[0]")
_LOST_FOR_GOOD = ("health recovery failed", "recovery failed", "device is going to be removed")
_FLAPS = 3
_FLAP_WINDOW = 600.0


def link(text: str) -> Optional[Sign]:
    """A link that went down. A person or a switch may have done that; one that does so again and again is broken."""
    match = _DRIVER.match(text)
    if not match:
        return None
    driver, address, name, said = match.groups()
    if not (said.startswith(_DOWN) or _PORT_DOWN.match(said) or any(words in said for words in _CABLE)):
        return None
    infiniband = driver.startswith(_INFINIBAND)
    return sign(
        "ib_link" if infiniband else "nic_link", "network", PLATFORM, REPORT, device=pci_device(address),
        part=name or "", window=_FLAP_WINDOW, only_after_boot=True,
        after=_FLAPS if infiniband else 0, firmer=DRAIN_AND_REPORT if infiniband else "",
    )


def adapter(text: str) -> Optional[Sign]:
    """An adapter whose firmware does not answer any more."""
    match = _DRIVER.match(text)
    if not match or not match.group(1).startswith(_INFINIBAND):
        return None
    said = match.group(4)
    device = pci_device(match.group(2))
    if any(words in said for words in _LOST_FOR_GOOD):
        return sign("ib_adapter", "network", HARDWARE, DRAIN_AND_REPORT, severity=FATAL, device=device)
    if any(words in said for words in _BAD):
        return sign("ib_adapter", "network", HARDWARE, REPORT, device=device)
    return None
