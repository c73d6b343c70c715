# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that belong to a Slurm job, found without Slurm: after kill -9 of slurmstepd nobody else knows them.

A process is a job's when its environment says SLURM_JOB_ID, when its cgroup is below `job_ID`, or when it is the
job's slurmstepd (which names its step in its title). A daemon of Slurm itself never is.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import NamedTuple

from .answer import Refusal

_CGROUP = re.compile(r"/job_([0-9]+)(?:/|$)", re.MULTILINE)
_STEPD_TITLE = re.compile(r"slurmstepd: \[([0-9]+)[.\]]")
_NEVER = frozenset(("slurmd", "slurmctld", "slurmdbd", "systemd"))
_LISTED = 200  # processes named in an answer; `count` tells of all
_TERM_GRACE = 2.0
_KILL_GRACE = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One process of a job; `start` in clock ticks since boot makes (pid, start) unique; `age` in seconds."""

    pid: int
    start: int
    age: float
    name: str
    uid: int
    job: int
    how: str

    def shown(self) -> dict:
        """As it stands in an answer."""
        return {"pid": self.pid, "job": self.job, "name": self.name, "uid": self.uid, "how": self.how}


def look(proc: str, jobs: list, min_age: float) -> dict:
    """The processes of these jobs that are at least `min_age` seconds old.

    Returns:
        `{"count": number, "processes": [{"pid", "job", "name", "uid", "how": environment|cgroup|slurmstepd}]}`
    """
    found = _find(proc, frozenset(jobs), min_age)
    return {"count": len(found), "processes": [process.shown() for process in found[:_LISTED]]}


def end(proc: str, jobs: list, min_age: float) -> dict:
    """End the processes of these jobs: SIGTERM, a moment, SIGKILL.

    `min_age` (seconds) spares a job that was started here again meanwhile. Looked for again after each round, since a
    dying process may still fork.

    Returns:
        `{"ended": number, "count": how many are left, "processes": those that are left, as in `look`}`
    """
    wanted = frozenset(jobs)
    started = time.monotonic()
    seen: set = set()
    for send, grace in ((signal.SIGTERM, _TERM_GRACE), (signal.SIGKILL, _KILL_GRACE)):
        until = time.monotonic() + grace
        signalled: set = set()
        while True:
            left = _find(proc, wanted, min_age + (time.monotonic() - started))
            for process in left:
                key = (process.pid, process.start)
                seen.add(key)
                if key not in signalled:
                    signalled.add(key)
                    _signal(proc, process, send)
            if not left or time.monotonic() >= until:
                break
            time.sleep(0.05)
        if not left:
            break
    return {
        "ended": len(seen) - len(left),
        "count": len(left),
        "processes": [process.shown() for process in left[:_LISTED]],
    }


def _find(proc: str, jobs: frozenset, min_age: float) -> list:
    uptime = _uptime(proc)
    found = []
    for entry in os.listdir(proc):
        if entry.isdigit():
            process = _read(proc, int(entry), jobs, uptime)
            if process is not None and process.age >= min_age:
                found.append(process)
    return found


def _read(proc: str, pid: int, jobs: frozenset, uptime: float):
    """The process, if it belongs to one of the jobs; None for all others and for what has ended meanwhile."""
    if pid in (1, os.getpid(), os.getppid()):
        return None
    folder = "%s/%d" % (proc, pid)
    try:
        belongs = _belongs(folder, jobs)
        if belongs is None:
            return None
        with open(folder + "/stat", encoding="utf-8", errors="replace") as handle:
            head, _, tail = handle.read().rpartition(")")
        values = tail.split()
        uid = os.stat(folder).st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
    name = head.partition("(")[2]
    if values[0] in ("Z", "X") or name in _NEVER:
        return None
    start = int(values[19])
    return Process(pid, start, uptime - start / _TICKS, name, uid, *belongs)


def _belongs(folder: str, jobs: frozenset):
    """(job, how we know) or None. The title is trusted only from root: a user may give his process any title."""
    for variable in _content(folder + "/environ").split("\0"):
        key, _, value = variable.partition("=")
        if key in ("SLURM_JOB_ID", "SLURM_JOBID") and value.isdigit() and int(value) in jobs:
            return int(value), "environment"
    for job in _CGROUP.findall(_content(folder + "/cgroup")):
        if int(job) in jobs:
            return int(job), "cgroup"
    title = _STEPD_TITLE.match(_content(folder + "/cmdline"))
    if title and int(title.group(1)) in jobs and os.stat(folder).st_uid == 0:
        return int(title.group(1)), "slurmstepd"
    return None


def _content(path: str) -> str:
    try:
        with open(path, "rb") as handle:
            return handle.read(262144).decode("utf-8", "replace")
    except PermissionError as exc:
        raise Refusal("failed", "%s may not be read; the helper must run as root" % path) from exc
    except OSError:  # gone, or a process that has just ended (EIO, ESRCH)
        return ""


def _signal(proc: str, process: Process, number: int) -> None:
    """Send a signal to this very process: the descriptor pins it, then its start is compared."""
    try:
        descriptor = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else -1
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        descriptor = -1
    try:
        if _start(proc, process.pid) != process.start:
            return
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _start(proc: str, pid: int) -> int:
    tail = _content("%s/%d/stat" % (proc, pid)).rpartition(")")[2].split()
    return int(tail[19]) if len(tail) > 19 else -1


def _uptime(proc: str) -> float:
    return float(_content(proc + "/uptime").split(" ")[0])
