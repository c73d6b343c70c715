# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own disks, by what is mounted, and what follows for lines about disks."""

from __future__ import annotations

from typing import Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import disks, kernel

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
23 22 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw,size=1k
24 22 253:3 / /var rw,relatime shared:3 - xfs /dev/mapper/vg0-var rw
25 22 9:0 / /scratch rw - xfs /dev/md0 rw
26 22 8:48 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount rw - ext4 /dev/sdd rw
27 22 253:7 / /var/lib/kubelet/plugins/x/globalmount rw - ext4 /dev/mapper/mpatha rw
28 22 7:1 / /snap/core rw - squashfs /dev/loop1 ro
29 22 251:0 / /data rw - ext4 /dev/rbd0 rw
30 22 0:44 / /home rw - nfs4 filer:/home rw
31 22 11:0 / /media/cd rw - iso9660 /dev/sr0 ro
"""
BELOW = {"dm-3": ["nvme1n1p1"], "dm-7": ["sde", "sdf"], "md0": ["sda1", "dm-9"], "dm-9": ["sdb"], "nvme0n1": []}
OWN = frozenset(["nvme0n1", "dm-3", "nvme1n1", "md0", "sda", "dm-9", "sdb"])


@pytest.mark.parametrize(
    ("mounts", "below", "own"),
    [
        (MOUNTS, BELOW, OWN),
        (MOUNTS, {}, frozenset(["nvme0n1", "dm-3", "md0"])),
        (MOUNTS, {"md0": ["md0"], "dm-3": ["md0"]}, frozenset(["nvme0n1", "dm-3", "md0"])),
        ("", BELOW, None),
        ("nonsense\n1 2 3 4 - 5\n- - - - - - - -\n1 2 3:4 / /x rw -\n", BELOW, None),
    ],
)
def test_own_disks(mounts: str, below: dict[str, list[str]], own: Optional[frozenset[str]]) -> None:
    assert disks.own_disks(mounts, below) == own


@pytest.mark.parametrize(
    ("line", "action", "by_name"),
    [
        ("XFS (dm-3): Metadata corruption detected at xfs_buf_ioend", "drain_and_report", "report"),
        ("XFS (dm-7): Metadata corruption detected at xfs_buf_ioend", "report", "report"),
        ("EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2", "drain_and_report", "drain_and_report"),
        ("EXT4-fs error (device sdd): ext4_find_entry:1455: inode #2", "report", "drain_and_report"),
        ("critical medium error, dev sdb, sector 1 op 0x0:(READ)", "drain_and_report", "drain_and_report"),
        ("critical medium error, dev sdd, sector 1 op 0x0:(READ)", "report", "drain_and_report"),
        ("nvme nvme1: Disabling device after reset failure: -19", "drain_and_report", "drain_and_report"),
        ("nvme nvme7: Disabling device after reset failure: -19", "report", "drain_and_report"),
    ],
)
def test_only_own_disks_take_the_node_out_of_service(line: str, action: str, by_name: str) -> None:
    assert [one.action for one in kernel.KernelLog(disks=OWN).feed(line)] == [action]
    assert [one.action for one in kernel.KernelLog().feed(line)] == [by_name]
