# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log, record by record, from a known place on, with every record that was lost counted.

/dev/kmsg gives one record a read: `LEVEL,NUMBER,MICROSECONDS,FLAGS[,...];TEXT`. Numbers are without gaps within a boot,
so what the kernel overwrote before it was read shows as a gap
(https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg). Records are handed on as they stand: programs write to
/dev/kmsg as well, and `logs` tells by the facility which ones are the kernel's.

A regular file of such lines (or of bare texts) is followed in its place where several nodes share one kernel.
"""

from __future__ import annotations

import errno
import os
import re
import select
import time
from typing import NamedTuple, Optional

_RECORD = re.compile(rb"\d{1,10},(\d{1,20}),(\d{1,20}),")
_BUFFER = 16384  # the kernel's longest record has 8 KiB, and a smaller buffer is refused
_CHUNK = 262144
_MAX_TEXT = 4096
_PAUSE = 0.2  # seconds between two looks at a file
_YOUNG = 600.0  # seconds after a boot in which a log that was never read is read from its beginning


class Position(NamedTuple):
    """How far a log was read: in which boot, which file, and the last record's number or the offset."""

    boot_id: str = ""
    inode: int = 0
    number: int = -1


class Record(NamedTuple):
    """One record: when (epoch seconds), and its first line; further ones are the kernel's own properties."""

    at: float
    text: str


class Batch(NamedTuple):
    """What one read gave: records, how many were lost before and among them, and where it ended."""

    records: list
    lost: int
    position: Position


def numbered(data: bytes) -> tuple:
    """Number and microseconds since the boot of a record of the kernel's; (-1, 0) for a bare text. Pure."""
    found = _RECORD.match(data)
    return (int(found.group(1)), int(found.group(2))) if found else (-1, 0)


def _text(data: bytes) -> str:
    return data.partition(b"\n")[0][:_MAX_TEXT].decode("utf-8", "replace")


class Ring:
    """The kernel's own ring.

    Args:
        fd: of /dev/kmsg, which does not block.
    """

    def __init__(self, fd: int, boot_id: str, position: Position) -> None:
        self._fd, self._boot_id = fd, boot_id
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._last: Optional[int] = position.number if position.boot_id == boot_id else None
        self.skipped = self._last is None and time.clock_gettime(time.CLOCK_BOOTTIME) > _YOUNG
        if self.skipped:  # what it tells is old, and nobody knows what was done about it since
            os.lseek(self._fd, 0, os.SEEK_END)

    def read(self, limit: int) -> Batch:
        """At most `limit` records; fewer when there are no more."""
        began = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)  # which is the clock of the records
        records, lost = [], 0
        for _turn in range(limit):
            data = self._one()
            if data is None:
                break
            number, microseconds = numbered(data)
            if self._last is not None:
                if number <= self._last:
                    continue
                lost += number - self._last - 1
            self._last = number
            records.append(Record(began + microseconds / 1e6, _text(data)))
        return Batch(records, lost, Position(self._boot_id, 0, -1 if self._last is None else self._last))

    def wait(self, seconds: float) -> None:
        """Until there is a record, at most so long."""
        self._poll.poll(seconds * 1000)

    def _one(self) -> Optional[bytes]:
        while True:
            try:
                return os.read(self._fd, _BUFFER) or None
            except BlockingIOError:
                return None
            except OSError as exc:
                if exc.errno != errno.EPIPE:  # overwritten before it was read: the next number tells how many
                    raise


class File:
    """A file to which lines are appended. It may come later, be truncated, or be replaced."""

    skipped = False

    def __init__(self, path: str, boot_id: str, position: Position) -> None:
        self._path, self._boot_id = path, boot_id
        known = position.boot_id == boot_id
        self._inode, self._offset = (position.inode, max(position.number, 0)) if known else (0, 0)

    def read(self, limit: int) -> Batch:
        """What was appended, whole lines only, at most `limit` of them."""
        try:
            with open(self._path, "rb") as handle:
                status = os.fstat(handle.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset = status.st_ino, 0
                handle.seek(self._offset)
                data = handle.read(_CHUNK)
        except FileNotFoundError:
            data = b""
        lines = data.split(b"\n")[:-1][:limit]
        if not lines and len(data) == _CHUNK:  # a line longer than anybody writes
            lines = [data]
        self._offset += sum(len(line) + 1 for line in lines) if lines != [data] else len(data)
        now = time.time()
        records = [Record(now, _text(line)) for line in lines]
        return Batch(records, 0, Position(self._boot_id, self._inode, self._offset))

    def wait(self, seconds: float) -> None:
        """A moment."""
        time.sleep(min(seconds, _PAUSE))


def opened(path: str, boot_id: str, position: Position):
    """The log at this path, to be read on from a position: a `Ring` if it is a device, else a `File`."""
    if path.startswith("/dev/"):
        return Ring(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), boot_id, position)
    return File(path, boot_id, position)
