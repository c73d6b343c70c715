# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reboot wipes out and a person may want to see: the kernel's log of this boot, and processes that hang.

Command lines and environments are left out: they may hold secrets, and reading those of a hanging process may hang.
"""

from __future__ import annotations

import base64
import os
import zlib

from . import machine
from .answer import MAX_BYTES, Refusal
from .command import run

_DEADLINE = 3.0  # of each command
# The ring buffer first: journald itself may hang on the disk that is broken.
_KERNEL_LOG = (
    ["dmesg", "--time-format=iso"],
    ["dmesg"],
    ["journalctl", "--dmesg", "--boot", "--no-pager", "--output=short-iso"],
)
_LISTED = 200  # processes
_STACK = 2000  # characters of a kernel stack
_ROOM = MAX_BYTES - 16384  # of an answer, the rest is for its other fields


def collect(here, kib: int, deadline: float = _DEADLINE) -> dict:
    """The last `kib` KiB of the kernel's log, and the processes that hang in the kernel.

    Args:
        deadline: seconds for each of three commands.

    Returns:
        `{"boot_id", "files": {"kernel.log": ..., "processes.txt": ...}, "missing": {file: why}}`, where a file is text
        in UTF-8, compressed by zlib, in base64.
    """
    texts, missing = {}, {}
    try:
        texts["kernel.log"] = _kernel_log(kib * 1024, deadline)
    except Refusal as refusal:
        missing["kernel.log"] = str(refusal)[:300]
    try:
        texts["processes.txt"] = _processes(here.proc)
    except OSError as exc:
        missing["processes.txt"] = str(exc)[:300]
    return {"boot_id": machine.boot_id(here.proc), "files": packed(texts), "missing": missing}


def _kernel_log(limit: int, deadline: float) -> bytes:
    """The newest lines.

    Raises:
        Refusal: no command tells them.
    """
    trouble = None
    for argv in _KERNEL_LOG:
        try:
            ran = run(argv, deadline, limit)
        except Refusal as refusal:
            trouble = refusal
            continue
        if ran.rc == 0 and ran.output.strip():
            return ran.output.encode("utf-8", "replace")[-limit:]
        trouble = Refusal("failed", "%s: rc %d: %s" % (argv[0], ran.rc, ran.output.strip()[-200:]))
    raise trouble


def _processes(proc: str) -> bytes:
    """Load and memory, then every process in uninterruptible sleep with where it hangs."""
    lines = ["load: %s" % _read(proc + "/loadavg").strip()]
    lines += _read(proc + "/meminfo").splitlines()[:3]
    hanging = [pid for pid in sorted(map(int, filter(str.isdigit, os.listdir(proc)))) if _state(proc, pid)[1] == "D"]
    lines.append("processes in uninterruptible sleep: %d" % len(hanging))
    for pid in hanging[:_LISTED]:
        folder = "%s/%d" % (proc, pid)
        name, state, parent = _state(proc, pid)
        lines.append("")
        lines.append("pid %d (%s) state %s parent %s in %s" % (pid, name, state, parent, _read(folder + "/wchan")))
        lines.append(_read(folder + "/stack")[:_STACK].rstrip())
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _state(proc: str, pid: int) -> tuple:
    """Name, state and parent of a process; empty texts for one that has ended."""
    head, _bracket, tail = _read("%s/%d/stat" % (proc, pid)).rpartition(")")
    values = tail.split()
    return (head.partition("(")[2], values[0], values[1]) if len(values) > 1 else ("", "", "")


def packed(texts: dict) -> dict:
    """Each text compressed, the oldest half of the longest one left out until all of them fit into an answer."""
    made = {name: base64.b64encode(zlib.compress(text)).decode("ascii") for name, text in texts.items()}
    while sum(map(len, made.values())) > _ROOM:
        longest = max(made, key=lambda name: len(made[name]))
        texts[longest] = texts[longest][len(texts[longest]) // 2 :]
        made[longest] = base64.b64encode(zlib.compress(texts[longest])).decode("ascii")
    return made


def _read(path: str) -> str:
    try:
        with open(path, "rb") as handle:
            return handle.read(65536).decode("utf-8", "replace")
    except OSError:
        return ""
