# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of the kernel about itself and about processes: hung tasks, lock-ups, oopses, memory, crashes, lost lines.

Many of them begin with the name of a process, 15 characters that its user chose, and end with the name of a file.
So whatever takes a node out of service, here and beside, is known by more than 15 characters, from the start of the
line and without gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from .model import APPLICATION, DRAIN_AND_REPORT, FATAL, HARDWARE, PLATFORM, REBOOT, REPORT, RESTART_APP, UNKNOWN
from .sign import Sign, sign

_HUNG = re.compile(r"INFO: task (.{1,64}):(\d{1,10}) blocked for more than \d{1,9} seconds", re.ASCII)
_SOFT_LOCKUP = re.compile(
    r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(\d{1,5}) stuck for \d{1,9}s! \[(.{1,64}):(\d{1,10})\]", re.ASCII
)
_HARD_LOCKUP = re.compile(r"(?:NMI )?(?:watchdog: )?Watchdog detected hard LOCKUP on cpu (\d{1,5})", re.ASCII)
_RCU = re.compile(r"(?:rcu: )?INFO: rcu\w{0,32} (?:self-detected stall|detected (?:expedited )?stalls?)")
_OOPS = re.compile(
    r"BUG: unable to handle |BUG: kernel NULL pointer|kernel BUG at [\w./-]{1,160}:\d{1,7}!|"
    r"Oops: (?:general protection fault|[0-9a-f]{4,16} \[#\d{1,4}\] (?:PREEMPT|SMP))|"
    r"general protection fault(?:, probably|: [0-9a-f]{4} \[#\d)|Unable to handle kernel |Internal error: Oops",
    re.ASCII,
)
_KILLED = re.compile(
    r"(Memory cgroup out of memory|Out of memory)(?: \([\w ]{1,40}\))?: Kill(?:ed)? process (\d{1,10}),? \((.{0,64}?)\)"
)
_OOM_KILL = re.compile(r"oom-kill:constraint=(CONSTRAINT_\w{1,20}),.{0,1600}?task_memcg=([^,]{0,400}),")
_LIMIT_OF = re.compile(r"Task in (\S{1,400}) killed as a result of limit of (\S{1,400})")
_JOB = re.compile(r"/job_(\d{1,10})(?=/|$)", re.ASCII)
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})", re.ASCII)
_SEGFAULT = re.compile(
    r"(.{1,32})\[(\d{1,10})\]: (?:segfault at [0-9a-f]{1,16} ip |unhandled .{1,60} fault \(11\) at 0x)",
    re.ASCII,
)
_TRAP = re.compile(
    r"traps: (.{1,32})\[(\d{1,10})\] (?:general protection|trap [a-z0-9 ]{3,32}?) ?(?:fault )?ip:", re.ASCII
)
_LOST = re.compile(
    r"(?:\*\* |[\w ]{1,40}: )?(\d{1,12}) (?:(?:printk )?messages (?:suppressed|dropped)|callbacks suppressed)", re.ASCII
)
# A crash of one of these is nothing that a job did by itself.
_SERVICES = frozenset(
    [
        "slurmd", "slurmstepd", "slurmctld", "slurmdbd", "munged", "kubelet", "containerd", "containerd-shim",
        "dockerd", "crio", "sshd", "systemd", "systemd-journal", "dbus-daemon", "nv-hostengine", "nvidia-persiste",
        "nv-fabricmanage", "opensm",
    ]
)


def hung_task(text: str) -> Optional[Sign]:
    match = _HUNG.match(text)
    if not match:
        return None
    return sign(
        "hung_task", "kernel", PLATFORM, REPORT, process=match.group(1), pid=int(match.group(2)), part=match.group(2)
    )


def lockup(text: str) -> Optional[Sign]:
    soft = _SOFT_LOCKUP.match(text)
    if soft:
        more = {"device": "cpu" + soft.group(1), "process": soft.group(2), "pid": int(soft.group(3))}
        return sign("soft_lockup", "kernel", PLATFORM, REPORT, **more)
    if text.startswith("BUG: workqueue lockup - pool "):
        return sign("workqueue_lockup", "kernel", PLATFORM, REPORT)
    hard = _HARD_LOCKUP.match(text)
    return sign("hard_lockup", "kernel", PLATFORM, REPORT, device="cpu" + hard.group(1)) if hard else None


def rcu_stall(text: str) -> Optional[Sign]:
    return sign("rcu_stall", "kernel", PLATFORM, REPORT) if _RCU.match(text) else None


def oops(text: str) -> Optional[Sign]:
    """The kernel went on after a fault of its own, with locks held and memory in doubt: only a boot mends that."""
    return sign("kernel_oops", "kernel", PLATFORM, REBOOT, severity=FATAL) if _OOPS.match(text) else None


def panic(text: str) -> Optional[Sign]:
    """Found after the fact, by a crash dump's log: the machine has booted since, or stands still."""
    if not text.startswith("Kernel panic - not syncing"):
        return None
    if "achine check" in text or "hardware error" in text:
        return sign("kernel_panic", "kernel", HARDWARE, DRAIN_AND_REPORT, severity=FATAL)
    return sign("kernel_panic", "kernel", PLATFORM, REBOOT, severity=FATAL)


@dataclass
class OutOfMemory:
    """The out-of-memory killer says in one line whose memory it is, and in a later one whom it killed."""

    _group: str = ""

    def whose(self, text: str) -> None:
        match = _OOM_KILL.match(text)
        if match:
            self._group = match.group(2) if match.group(1) == "CONSTRAINT_MEMCG" else ""
            return
        limit = _LIMIT_OF.match(text)
        if limit:
            self._group = limit.group(1) if limit.group(2) != "/" else ""

    def killed(self, text: str) -> Optional[Sign]:
        match = _KILLED.match(text)
        if not match:
            return None
        group, self._group = self._group, ""
        more = {"process": match.group(3), "pid": int(match.group(2)), "part": match.group(2)}
        if match.group(1) == "Out of memory":  # the whole node's
            return sign("oom_kill", "memory", PLATFORM, REPORT, **more)
        owner = _owner(group)
        verdict = PLATFORM if not owner and group.startswith("/system.slice/") else APPLICATION
        return sign("oom_kill", "memory", verdict, REPORT, device=owner, **more)


def _owner(group: str) -> str:
    """`job_123` or `pod_UID` of a cgroup of Slurm or the kubelet."""
    job = _JOB.search(group)
    if job:
        return "job_" + job.group(1)
    pod = _POD.search(group)
    return "pod_" + pod.group(1).replace("_", "-") if pod else ""


def crash(text: str) -> Optional[Sign]:
    """A program that broke: segmentation fault, trap."""
    match = _SEGFAULT.match(text) or _TRAP.match(text)
    if not match:
        return None
    name = match.group(1)
    ours = name in _SERVICES
    verdict, action = (PLATFORM, REPORT) if ours else (APPLICATION, RESTART_APP)
    return sign("segfault", "process", verdict, action, process=name, pid=int(match.group(2)), part=name)


def lost(text: str) -> Optional[Sign]:
    """The kernel says that it did not say everything."""
    match = _LOST.match(text)
    return sign("lost_lines", "log", UNKNOWN, REPORT, adds=int(match.group(1))) if match else None
