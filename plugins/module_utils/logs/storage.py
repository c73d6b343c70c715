# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines about disks and file systems: the node's own told from volumes that come and go with pods and mounts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .model import DRAIN_AND_REPORT, FATAL, HARDWARE, PLATFORM, REPORT
from .sign import Sign, sign

_DISK = re.compile(
    r"nvme\d{1,4}n\d{1,4}|mmcblk\d{1,3}|md\d{1,4}|dm-\d{1,5}|(?:sd|vd|xvd|hd)[a-z]{1,3}|[a-z]{2,10}\d{1,5}", re.ASCII
)
# Whether these are of the node or a volume of a pod nobody can tell by their name: network, image files, memory.
FOREIGN = ("loop", "rbd", "nbd", "drbd", "zram", "ram", "zd", "sr", "fd", "dm-", "fuse", "ublk")
_IO_ERROR = re.compile(
    r"(?:blk_update_request: |print_req_error: )?"
    r"(I/O error|critical medium error|critical target error|critical nexus error|protection error|"
    r"critical space allocation error),? dev ([\w-]{1,32}),? sector",
    re.ASCII,
)
_BUFFER = re.compile(r"(?:Buffer I/O error|[Ll]ost async page write) on (?:dev|device) ([\w-]{1,32})", re.ASCII)
_SENSE = re.compile(r"sd [\d:]{7,32}: \[(sd[a-z]{1,3})\] .{0,60}Sense Key : (Medium|Hardware) Error", re.ASCII)
_NVME = re.compile(r"nvme (nvme\d{1,4}): (.*)", re.ASCII)
_NVME_IO = re.compile(
    r"(nvme\d{1,4})(?:c\d{1,4})?n\d{1,4}: .{0,80}I/O Error \(sct 0x([0-9a-f]) / sc 0x([0-9a-f]{1,2})\)", re.ASCII
)
# The driver has given the controller up.
_NVME_GONE = (
    "Removing after probe failure", "Disabling device after reset failure", "Device not ready; aborting reset",
    "failed to set APST feature (-19)", "Removing namespaces from dead controller",
)
_NVME_TROUBLE = ("timeout, ", "controller is down; will reset", "Abort status", "resetting controller")
_EXT4 = re.compile(r"EXT4-fs (error|warning|)\s?\((?:device )?([\w-]{1,32})\): (.*)", re.ASCII)
_JOURNAL = re.compile(
    r"(?:Aborting journal on device|JBD2: Detected IO errors while flushing file data on|"
    r"JBD2: (?:I/O error when|Error -?\d{1,4} detected when) updating journal superblock for) ([\w-]{1,32})",
    re.ASCII,
)
_XFS = re.compile(r"XFS \(([\w-]{1,32})\): (.*)", re.ASCII)
_XFS_BROKEN = (
    "Corruption of in-memory data", "Metadata corruption detected", "Metadata CRC error", "log I/O error",
    "Internal error", "metadata I/O error", "Filesystem has been shut down", "File system has been shut down",
    "Log I/O Error Detected", "Metadata I/O Error",
)
_BTRFS = re.compile(r"BTRFS (error|critical|info|warning) \(device ([\w-]{1,32})[^)]{0,80}\): (.*)", re.ASCII)
_MD = re.compile(r"md/raid[\w:]{0,32}: Disk failure on ([\w-]{1,32})", re.ASCII)
_ATA = re.compile(
    r"(ata\d{1,4})(?:\.\d\d)?: (?:failed command: |exception Emask |disabled|hard resetting link)", re.ASCII
)
_NFS = re.compile(r"(?:nfs|NFS): server (\S{1,255}) not responding", re.ASCII)
_LUSTRE = re.compile(r"Lustre: .{0,200}Connection to (\S{1,120}) \(at \S{1,120}\) was lost", re.ASCII)


@dataclass(frozen=True)
class Storage:
    """Reads the lines; `own` are the node's own disks (`nvme0n1`, `sda`, `dm-0`), None to judge by the name."""

    own: Optional[frozenset[str]] = None

    def is_own(self, disk: str) -> bool:
        if self.own is not None:
            return disk in self.own
        return not disk.startswith(FOREIGN)

    def block(self, text: str) -> Optional[Sign]:
        """Errors of the block layer and of SCSI."""
        match = _IO_ERROR.match(text)
        if match:
            return self._disk(match.group(2), surely="medium" in match.group(1), space="space" in match.group(1))
        match = _BUFFER.match(text)
        if match:
            return self._disk(match.group(1), surely=False)
        match = _SENSE.match(text)
        return self._disk(match.group(1), surely=True) if match else None

    def _disk(self, name: str, surely: bool, space: bool = False) -> Sign:
        disk = base(name)
        code = "nvme" if disk.startswith("nvme") else "disk"
        if space or not self.is_own(disk):
            return sign(code, "storage", PLATFORM, REPORT, device=disk)
        # One request that failed may be a cable, a reset or a disk that somebody pulls; a medium error is the disk.
        return sign(code, "storage", HARDWARE, DRAIN_AND_REPORT if surely else REPORT, device=disk)

    def nvme(self, text: str) -> Optional[Sign]:
        """Lines of the NVMe driver."""
        match = _NVME_IO.match(text)
        if match:
            medium = match.group(2) == "2" and int(match.group(3), 16) in (0x80, 0x81)
            return self._controller(match.group(1), medium)
        match = _NVME.match(text)
        if not match:
            return None
        said = match.group(2)
        if said.startswith(_NVME_GONE):
            return self._controller(match.group(1), surely=True, severity=FATAL)
        if any(words in said for words in _NVME_TROUBLE):
            return self._controller(match.group(1), surely=False)
        return None

    def _controller(self, name: str, surely: bool, severity: str = "") -> Sign:
        """A controller may be at the other end of a network as well."""
        if self.own is not None and not any(disk.startswith(name + "n") for disk in self.own):
            return sign("nvme", "storage", PLATFORM, REPORT, device=name)
        action = DRAIN_AND_REPORT if surely else REPORT
        return sign("nvme", "storage", HARDWARE, action, severity=severity, device=name)

    def file_system(self, text: str) -> Optional[Sign]:
        """Lines of ext4, its journal, XFS and Btrfs."""
        found = _broken_file_system(text)
        if found is None:
            return None
        disk, broken = base(found[0]), found[1]
        if not self.is_own(disk):
            return sign("filesystem", "storage", PLATFORM, REPORT, device=disk)
        return sign("filesystem", "storage", HARDWARE, DRAIN_AND_REPORT if broken else REPORT, device=disk)


def _broken_file_system(text: str) -> Optional[tuple[str, bool]]:
    """Device and whether its file system is broken; None where the line tells nothing bad."""
    match = _EXT4.match(text)
    if match:
        if match.group(1) == "error" or match.group(3).startswith("Remounting filesystem read-only"):
            return match.group(2), True
        return (match.group(2), False) if match.group(1) == "warning" else None
    match = _JOURNAL.match(text)
    if match:
        return match.group(1), True
    match = _XFS.match(text)
    if match:
        return (match.group(1), True) if match.group(2).startswith(_XFS_BROKEN) else None
    match = _BTRFS.match(text)
    if match and match.group(1) in ("error", "critical"):
        return match.group(2), True
    return None


def array(text: str) -> Optional[Sign]:
    """A disk left a RAID array, which goes on without it."""
    match = _MD.match(text)
    return sign("disk", "storage", HARDWARE, REPORT, device=base(match.group(1))) if match else None


def ata(text: str) -> Optional[Sign]:
    match = _ATA.match(text)
    return sign("disk", "storage", HARDWARE, REPORT, device=match.group(1)) if match else None


def remote(text: str) -> Optional[Sign]:
    """A file server that does not answer: nothing of this node."""
    match = _NFS.match(text)
    if match:
        return sign("nfs", "storage", PLATFORM, REPORT, device=match.group(1))
    match = _LUSTRE.match(text)
    return sign("lustre", "storage", PLATFORM, REPORT, device=match.group(1)) if match else None


def base(name: str) -> str:
    """The disk of a partition or journal: `nvme0n1` of `nvme0n1p2`, `sda` of `sda2-8`."""
    match = _DISK.match(name)
    return match.group() if match else name
