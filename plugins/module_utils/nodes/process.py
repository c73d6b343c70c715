# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One local command with a deadline and bounded output; its whole process group ends with it."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreadable

_CHUNK = 65536
_MAX_STDERR = 16384


@dataclass(frozen=True)
class Finished:
    """How a command ended: its exit code (negative for a signal), its output, and whether the deadline ended it."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False


def run_bounded(
    argv: list[str], until: float, max_stdout: int, environment: Optional[Mapping[str, str]] = None
) -> Finished:
    """Run `argv` until the moment `until` (of time.monotonic) at the latest.

    Args:
        environment: all that it gets; without it our own, with the locale C.

    Raises:
        Absent: there is no such command here.
        Unreadable: it wrote more than `max_stdout` bytes.
    """
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"} if environment is None else dict(environment),
            start_new_session=True,
        )
    except OSError as exc:
        raise Absent("the command %s cannot be run: %s" % (argv[0], exc.strerror), "install it") from exc
    streams = (_Stream(child.stdout, max_stdout), _Stream(child.stderr, _MAX_STDERR))
    in_time = False
    try:
        in_time = _collect(streams, until) and _ended(child, until)
    finally:
        _end_group(child)
        for stream in streams:
            stream.pipe.close()
    if streams[0].overflowed:
        raise Unreadable("%s wrote more than %d bytes" % (argv[0], max_stdout))
    return Finished(child.returncode, streams[0].text, streams[1].text, timed_out=not in_time)


class _Stream:
    """What came out of one pipe, up to `limit` bytes; the rest is read and dropped."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        self.pipe = pipe
        self._limit = limit
        self._data = bytearray()
        self.overflowed = False

    def take(self) -> bool:
        """Read what is there; False at the end."""
        data = os.read(self.pipe.fileno(), _CHUNK)
        room = self._limit - len(self._data)
        self.overflowed = self.overflowed or len(data) > room
        self._data += data[:room]
        return bool(data)

    @property
    def text(self) -> str:
        """All of it; bytes that are no UTF-8 are replaced."""
        return self._data.decode("utf-8", "replace")


def _collect(streams: tuple[_Stream, ...], until: float) -> bool:
    """Read the pipes to their end; False when the time was over before."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.pipe, selectors.EVENT_READ, stream)
        while selector.get_map():
            left = until - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                return False
            for key, _events in ready:
                if not key.data.take():
                    selector.unregister(key.fileobj)
    return True


def _ended(child: subprocess.Popen, until: float) -> bool:
    try:
        child.wait(max(0.01, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_group(child: subprocess.Popen) -> None:
    """End what is left of the group; a group that is gone is the usual case."""
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
