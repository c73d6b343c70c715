# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that belong to a Slurm job, found without Slurm: after kill -9 of slurmstepd nobody else knows them.

A process is a job's when its environment says SLURM_JOB_ID and it is the job's user's, when its cgroup is below
`job_ID`, or when it is the job's slurmstepd (which names its step in its title). A daemon of Slurm itself never is, nor
one of root that a prolog started with the job's environment: anybody can write a job's number into his own.
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
_LISTED = 500  # processes named in an answer; `count` tells of all
_KILL_GRACE = 5.0


class Process(NamedTuple):
    """One process of a job. With its start, in clock ticks since boot, a pid is unique within a boot."""

    pid: int
    start: int
    parent: int
    name: str
    uid: int
    job: int
    how: str

    @property
    def key(self) -> tuple:
        """What pins it."""
        return (self.pid, self.start)

    def shown(self) -> dict:
        """As it stands in an answer."""
        return {
            "pid": self.pid,
            "start": self.start,
            "job": self.job,
            "name": self.name,
            "uid": self.uid,
            "how": self.how,
        }


def look(proc: str, jobs: list, owners: dict) -> dict:
    """The processes of these jobs.

    Args:
        owners: by job the uid of its user, where that is known; else everybody's but root's count by their environment.

    Returns:
        `{"count": number, "jobs": {job: number}, "processes": [{"pid", "start", "job", "name", "uid", "how"}]}`, where
        `how` is environment, cgroup or slurmstepd, and at most 500 processes are named.
    """
    found = _find(proc, frozenset(jobs), owners)
    counts: dict = {}
    for process in found:
        counts[str(process.job)] = counts.get(str(process.job), 0) + 1
    return {"count": len(found), "jobs": counts, "processes": [process.shown() for process in found[:_LISTED]]}


def end(proc: str, jobs: list, only: list, owners: dict) -> dict:
    """End those processes of these jobs that are named, and what they have forked meanwhile.

    They are named by (pid, start), as `look` told them, so that a job that was started here again in between keeps its
    new ones. All are stopped first: what is stopped forks no more. SIGKILL, as Slurm itself ends a job's last ones;
    a handler that writes a checkpoint now would write over the next run's.

    Returns:
        `{"ended": number}` and what `look` then finds of these jobs.
    """
    wanted, named = frozenset(jobs), frozenset(only)
    doomed: dict = {}
    while True:
        found = _find(proc, wanted, owners)
        fresh = [each for each in found if each.key not in doomed and _belongs_to(each, named, doomed)]
        if not fresh:
            break
        for process in fresh:
            doomed[process.key] = process
            _signal(proc, process, signal.SIGSTOP)
    for process in doomed.values():
        _signal(proc, process, signal.SIGKILL)
    until = time.monotonic() + _KILL_GRACE
    left = list(doomed.values())
    while left and time.monotonic() < until:
        time.sleep(0.02)
        left = [process for process in left if _is_there(proc, process)]
    return {"ended": len(doomed) - len(left), **look(proc, jobs, owners)}


def _belongs_to(process: Process, named: frozenset, doomed: dict) -> bool:
    """Whether it is one of those named, or a child of one that is doomed already."""
    return process.key in named or any(process.parent == pid for pid, _start in doomed)


def _find(proc: str, jobs: frozenset, owners: dict) -> list:
    found = (_read(proc, int(entry), jobs, owners) for entry in os.listdir(proc) if entry.isdigit())
    return [process for process in found if process is not None]


def _read(proc: str, pid: int, jobs: frozenset, owners: dict):
    """The process, if it belongs to one of the jobs; None for all others and for what has ended meanwhile."""
    if pid in (1, os.getpid(), os.getppid()):
        return None
    folder = "%s/%d" % (proc, pid)
    try:
        belongs = _belongs(folder, jobs, owners)
        if belongs is None:
            return None
        with open(folder + "/stat", encoding="utf-8", errors="replace") as handle:
            head, _bracket, tail = handle.read().rpartition(")")
        values = tail.split()
        uid = os.stat(folder).st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
    name = head.partition("(")[2]
    if values[0] in ("Z", "X") or name in _NEVER:
        return None
    return Process(pid, int(values[19]), int(values[1]), name, uid, *belongs)


def _belongs(folder: str, jobs: frozenset, owners: dict):
    """(job, how we know) or None. The title is trusted only from root: a user may give his process any title."""
    for variable in _content(folder + "/environ").split("\0"):
        key, _equals, value = variable.partition("=")
        if key in ("SLURM_JOB_ID", "SLURM_JOBID") and value.isdigit() and int(value) in jobs:
            uid = os.stat(folder).st_uid
            if uid == owners.get(int(value), uid or None):
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


def _is_there(proc: str, process: Process) -> bool:
    """Whether it has not ended; a zombie has."""
    head, _bracket, tail = _content("%s/%d/stat" % (proc, process.pid)).rpartition(")")
    values = tail.split()
    return bool(head) and len(values) > 19 and int(values[19]) == process.start and values[0] not in ("Z", "X")


def _start(proc: str, pid: int) -> int:
    tail = _content("%s/%d/stat" % (proc, pid)).rpartition(")")[2].split()
    return int(tail[19]) if len(tail) > 19 else -1
