# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log, read as it comes: what its lines say, joined to bursts.

A fault is told at once, when its first line comes; further lines of the same burst (the same fault of the same device,
with less than three minutes of silence between) only count, and are told when the burst is over, or when they make the
fault a worse one. Memory is bounded, whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

from . import catalogue, machine, network, prefix, storage, system
from .bursts import Bursts
from .model import Finding
from .nvidia import Nvidia
from .sign import Sign

Reader = Callable[[str], Optional[Sign]]

# Links come and go while a machine starts.
_START = 300.0


class KernelLog:
    """Reads one machine's kernel log, of one boot.

    Args:
        boot_time: seconds since the epoch; makes times of lines that bear only the uptime.
        entries: the catalogue of Xids and SXids.
        disks: the node's own disks; None to judge by their names.
    """

    def __init__(
        self,
        boot_time: Optional[float] = None,
        entries: catalogue.Catalogue = catalogue.DEFAULT,
        disks: Optional[frozenset[str]] = None,
    ):
        self._boot_time = boot_time
        self._number = 0
        self._bursts = Bursts()
        nvidia, memory = Nvidia(entries), system.OutOfMemory()
        self._readers = _readers(nvidia, memory, storage.Storage(disks))

    def feed(self, text: str, at: Optional[float] = None) -> list[Finding]:
        """Read whole lines.

        Args:
            text: one line or more, with or without a newline at the end.
            at: when they were read, seconds since the epoch: the time of lines that bear none.

        Returns:
            What is new or worse than it was; a burst that goes on has the `code`, `device` and `first` of before.
        """
        found: list[Finding] = []
        passed = 0
        for start, readers in sorted(self._hits(text).items()):
            self._number += text.count("\n", passed, start)
            passed = start
            found.extend(self._read(_line(text, start), readers, at))
        self._number += text.count("\n", passed) + (not text.endswith("\n"))
        return found

    def _hits(self, text: str) -> dict[int, list[Reader]]:
        """Where lines begin that are worth reading, and by whom; nothing is done for the lines between."""
        hits: dict[int, list[Reader]] = {}
        for words, reader in self._readers:
            position = text.find(words)
            while position >= 0:
                hits.setdefault(text.rfind("\n", 0, position) + 1, []).append(reader)
                end = text.find("\n", position)
                position = text.find(words, end) if end >= 0 else -1
        return hits

    def flush(self, now: Optional[float]) -> list[Finding]:
        """End the bursts that have been silent for long enough; None: all of them.

        Returns:
            Those, and those that last, whose count has grown since they were told.
        """
        return self._bursts.flush(now)

    def _read(self, line: str, readers: list[Reader], at: Optional[float]) -> list[Finding]:
        message = prefix.parse(line)
        if message is None:
            return []
        texts = (message.text,)
        if message.more and message.text.startswith("NVRM: "):
            texts += message.more  # only the driver is trusted to say several things in one record
        found: list[Finding] = []
        for text in texts:
            sign = _first(readers, text)
            if sign:
                sign = self._at_start(sign, message.uptime)
            if sign:
                found.extend(self._bursts.add(sign, self._number + 1, text, self._time(message, at)))
        return found

    def _time(self, message: prefix.Message, at: Optional[float]) -> Optional[float]:
        if message.time is not None:
            return message.time
        if message.uptime is not None and self._boot_time is not None:
            return self._boot_time + message.uptime
        return at

    def _at_start(self, sign: Sign, uptime: Optional[float]) -> Optional[Sign]:
        """The sign without what the start of a machine brings about by itself."""
        if not sign.only_after_boot:
            return sign
        if uptime is None:  # nobody knows: told, and never more
            return sign._replace(after=0)
        return sign if uptime >= _START else None


def _line(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start:end] if end >= 0 else text[start:]


def _first(readers: list[Reader], text: str) -> Optional[Sign]:
    for reader in readers:
        sign = reader(text)
        if sign:
            return sign
    return None


def _readers(nvidia: Nvidia, memory: system.OutOfMemory, disks: storage.Storage) -> tuple[tuple[str, Reader], ...]:
    """Which words in a line make it worth reading, and by whom: by all whose words it has, until one understands it."""
    return (
        ("NVRM: ", nvidia.xid),
        ("SXid (", nvidia.sxid),
        ("[Hardware Error]", machine.hardware_error),
        ("EDAC ", machine.edac),
        ("Memory failure: ", machine.memory_failure),
        (" temperature ", machine.thermal),
        ("AER: ", machine.pcie),
        ("severity=", machine.pcie),
        ("DPC: ", machine.pcie),
        ("INFO: task ", system.hung_task),
        ("BUG: soft lockup", system.lockup),
        ("hard LOCKUP", system.lockup),
        ("BUG: workqueue lockup", system.lockup),
        ("INFO: rcu", system.rcu_stall),
        ("BUG: ", system.oops),
        ("kernel BUG at ", system.oops),
        ("Oops: ", system.oops),
        ("general protection fault", system.oops),
        ("Unable to handle kernel ", system.oops),
        ("Kernel panic", system.panic),
        ("oom-kill:", memory.whose),
        ("as a result of limit of", memory.whose),
        ("ut of memory: Kill", memory.killed),
        ("]: segfault at ", system.crash),
        ("fault (11) at 0x", system.crash),
        ("traps: ", system.crash),
        ("s suppressed", system.lost),
        ("messages dropped", system.lost),
        ("error, dev ", disks.block),
        ("I/O error on dev", disks.block),
        ("ost async page write", disks.block),
        ("Sense Key : ", disks.block),
        ("nvme nvme", disks.nvme),
        ("I/O Error (sct ", disks.nvme),
        ("EXT4-fs error", disks.file_system),
        ("EXT4-fs warning", disks.file_system),
        ("Remounting filesystem", disks.file_system),
        ("Aborting journal", disks.file_system),
        ("JBD2: ", disks.file_system),
        ("XFS (", disks.file_system),
        ("BTRFS ", disks.file_system),
        ("md/raid", storage.array),
        (": failed command: ", storage.ata),
        (": exception Emask ", storage.ata),
        (": hard resetting link", storage.ata),
        (": disabled", storage.ata),
        (": server ", storage.remote),
        ("Lustre: ", storage.remote),
        ("ink down", network.link),
        ("ink Down", network.link),
        ("ink is Down", network.link),
        ("Link DOWN", network.link),
        ("Cable ", network.link),
        ("mlx5_core ", network.adapter),
    )


def read(text: str, boot_time: Optional[float] = None, disks: Optional[frozenset[str]] = None) -> list[Finding]:
    """All that a piece of a kernel log says, every burst once, in the order of their beginnings."""
    log = KernelLog(boot_time, disks=disks)
    last: dict[tuple[str, str, Optional[float], int], Finding] = {}
    for finding in log.feed(text) + log.flush(None):
        last[_identity(finding)] = finding
    return sorted(last.values(), key=_beginning)


def _identity(finding: Finding) -> tuple[str, str, Optional[float], int]:
    return finding.code, finding.device, finding.first, _beginning(finding)


def _beginning(finding: Finding) -> int:
    return finding.lines[0][0] if finding.lines else 0
