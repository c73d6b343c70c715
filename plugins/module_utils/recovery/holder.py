# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which processes a run lives, and whether they are provably dead on this host.

A run that was killed frees nothing. Its lease ends by itself, and so long nobody goes on; where its processes can be
looked for, nobody has to wait. A run lives in ansible-playbook, and in the process that ansible-playbook forked for
the task: that one leads a session of its own and works on when ansible-playbook is killed. Both must be gone.

A holder is one line, `head 812:90344,815:90351 at BOOT-ID/4026531836`: the host for people to read, process numbers
with their start times in clock ticks, and the boot and the namespace in which the numbers mean something.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Optional

_PLAYBOOK = "ansible-playbook"
_MAX_HOST = 40
_HOLDER = re.compile(r"\S+ (?P<processes>\d+:\d+(?:,\d+:\d+)*) at (?P<place>\S+)\Z")


def describe() -> str:
    """This run's holder. Where ansible-playbook did not fork this process, which processes are the run is not known."""
    host = socket.gethostname()[:_MAX_HOST] or "localhost"
    place = _place()
    if os.path.basename(sys.argv[0]) != _PLAYBOOK or not place:
        return "%s:%d" % (host, os.getpid())
    return "%s %s at %s" % (host, ",".join(filter(None, map(_named, (os.getppid(), os.getpid())))), place)


def is_dead(holder: str) -> bool:
    """Whether every process of a holder is gone. False where that cannot be told: another host, unknown processes."""
    told = _HOLDER.match(holder)
    if told is None or told.group("place") != _place():
        return False
    return all(_is_gone(*map(int, process.split(":"))) for process in told.group("processes").split(","))


def _place() -> str:
    """Where process numbers mean what they mean here; the empty text where that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return "%s/%d" % (handle.read().strip(), os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _named(pid: int) -> str:
    started = _started(pid)
    return "%d:%d" % (pid, started) if started else ""


def _is_gone(pid: int, started: int) -> bool:
    """Whether no process has this number, or another one that began later, or only its exit status is left."""
    try:
        os.kill(pid, 0)  # unlike /proc it tells of other accounts' processes, too
    except ProcessLookupError:
        return True
    except OSError:
        return False
    now = _started(pid)
    return now is not None and now != started


def _started(pid: int) -> Optional[int]:
    """When a process began, in clock ticks since the boot; 0 for one that has ended and was not waited for; None where
    that cannot be read."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as handle:
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])
