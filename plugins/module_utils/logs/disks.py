# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks are the node's own: those that hold what is mounted, but for the volumes of pods and of containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from .storage import FOREIGN, base

# What is mounted below these comes and goes with pods, containers and their volumes.
_NOT_OURS = (
    "/var/lib/kubelet/", "/var/lib/docker/", "/var/lib/containerd/", "/var/lib/containers/", "/run/", "/media/",
)


def own_disks(mountinfo: str, below: Mapping[str, Sequence[str]]) -> Optional[frozenset[str]]:
    """The node's own disks, as kernel messages name them.

    Args:
        mountinfo: the text of /proc/self/mountinfo.
        below: what each device mapper and RAID device is made of: `{"dm-0": ["nvme0n1p3"], "md0": ["sda1", "sdb1"]}`.

    Returns:
        `{"nvme0n1", "dm-0"}`; None when nothing is known, which is judged by the names.
    """
    found = {name for name in map(_device, mountinfo.split("\n")) if name}
    more = found
    while more:
        more = {base(part) for name in more for part in below.get(name, ())} - found
        found = found | more
    return frozenset(found) or None


def _device(line: str) -> str:
    """The disk of one line of mountinfo; empty where it is not the node's own, or no disk."""
    fields = line.split()
    if "-" not in fields[5:-2]:
        return ""
    where, source = fields[4], fields[fields.index("-", 5) + 2]
    if not source.startswith("/dev/") or (where + "/").startswith(_NOT_OURS):
        return ""
    name = source[len("/dev/"):]
    if "/" in name:  # a name that the device mapper gives: its number is the one that the kernel says
        return "dm-" + fields[2].partition(":")[2]
    disk = base(name)
    return disk if disk.startswith("dm-") or not disk.startswith(FOREIGN) else ""
