# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks are this node's own, by what is mounted now and what that is made of."""

from __future__ import annotations

import os
from typing import Optional

from ..logs.disks import own_disks


def own(mountinfo: str = "/proc/self/mountinfo", block: str = "/sys/block") -> Optional[frozenset]:
    """See `own_disks`; None as well where the system does not say."""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as handle:
            mounted = handle.read()
        below = {name: _below(os.path.join(block, name, "slaves")) for name in os.listdir(block)}
    except OSError:
        return None
    return own_disks(mounted, below)


def _below(path: str) -> list:
    try:
        return os.listdir(path)
    except OSError:
        return []
