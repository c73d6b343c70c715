# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a file as one user may read it.

The path of a job's log is its user's word. It is opened by a process that has become that user for good, so that it
leads nowhere where the user could not go himself. That process may hang on a dead file server: it has a deadline, and
nobody waits for it afterwards. It gave up root's rights without starting a new program, so its user may end it, but not
trace it.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import stat
import time
from typing import NamedTuple

from .answer import ABSENT, BAD_INPUT, FAILED, TIMED_OUT, UNREADABLE, Refusal

MAX_BYTES = 2 * 1024 * 1024
_PATH_MAX = 4096


class Tail(NamedTuple):
    """The end of a file: its last bytes, its whole size, and when it was written to last (seconds since the epoch)."""

    content: bytes
    size: int
    modified: float


def tail(path: bytes, uid: int, limit: int, deadline: float) -> Tail:
    """The last `limit` bytes of a regular file, read as the user `uid`.

    Args:
        path: absolute; its last part may not be a symbolic link.
        limit: bytes, MAX_BYTES at most.
        deadline: seconds for all of it.

    Raises:
        Refusal: `bad_input` (no absolute path), `absent` (no such file, or no such user), `unreadable` (the user may
            not read it, or it is no regular file), `timed_out`, `failed` (this process cannot become that user).
    """
    if not path.startswith(b"/") or b"\0" in path or len(path) > _PATH_MAX:
        raise Refusal(BAD_INPUT, "the path is not absolute, or too long")
    limit = min(limit, MAX_BYTES)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(path, uid, limit, reading, writing)
    os.close(writing)
    until = time.monotonic() + deadline
    try:
        answer = _read_until(reading, until, limit)
    except Refusal:
        _end(child)
        raise
    finally:
        os.close(reading)
    os.waitpid(child, 0)  # it has closed the file before it answered, so nothing holds it any more
    return _understood(answer)


def _child(path: bytes, uid: int, limit: int, reading: int, writing: int) -> None:
    """Never returns: nothing of the parent's may be done twice."""
    try:
        os.close(reading)
        answer = _answer(path, uid, limit)
        with os.fdopen(writing, "wb") as out:
            out.write(answer)
    finally:
        os._exit(0)


def _answer(path: bytes, uid: int, limit: int) -> bytes:
    try:
        _become(uid)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as handle:
            facts = os.fstat(handle.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise Refusal(UNREADABLE, "it is no regular file")
            handle.seek(max(0, facts.st_size - limit))
            content = handle.read(limit)
        head = {"size": facts.st_size, "modified": facts.st_mtime}
    except Refusal as refusal:
        head, content = {"kind": refusal.kind, "message": str(refusal)}, b""
    except OSError as exc:
        kind = ABSENT if isinstance(exc, FileNotFoundError) else UNREADABLE
        head, content = {"kind": kind, "message": os.strerror(exc.errno or 0)}, b""
    return json.dumps(head).encode("ascii") + b"\n" + content


def _become(uid: int) -> None:
    """Be that user, with his groups, for good."""
    if os.geteuid() != 0:
        if os.geteuid() != uid:
            raise Refusal(FAILED, "only root reads as another user")
        return
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        raise Refusal(ABSENT, "no user has the number %d" % uid) from None
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(uid, uid, uid)


def _read_until(reading: int, until: float, limit: int) -> bytes:
    parts = []
    left = limit + 65536
    while left > 0:
        ready = select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]
        if not ready:
            raise Refusal(TIMED_OUT, "the file could not be read in time")
        part = os.read(reading, min(left, 65536))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _end(child: int) -> None:
    """End a child that did not answer; one that hangs in the kernel is left to init."""
    try:
        os.kill(child, signal.SIGKILL)
        for _attempt in range(20):
            if os.waitpid(child, os.WNOHANG)[0]:
                return
            time.sleep(0.01)
    except (ProcessLookupError, ChildProcessError):
        pass


def _understood(answer: bytes) -> Tail:
    head, newline, content = answer.partition(b"\n")
    try:
        facts = json.loads(head.decode("ascii")) if newline else {}
    except ValueError:
        facts = {}
    if "kind" in facts:
        raise Refusal(str(facts["kind"]), str(facts["message"]))
    if "size" not in facts:
        raise Refusal(FAILED, "the process that reads the file was ended")
    return Tail(content, int(facts["size"]), float(facts["modified"]))
