# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many things read at once, each with its own answer or its own error."""

from __future__ import annotations

import contextlib
import glob
import os
import queue
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError


def read_each(names: Sequence[str], read: Callable[[str], Any], workers: int) -> dict[str, Any]:
    """By name what `read` gives, or the `RecoveryError` that it raises; a name that comes twice is read once.

    Args:
        workers: how many are read at the same time at most.
    """

    def safely(name: str) -> Any:
        try:
            return read(name)
        except RecoveryError as exc:
            return exc

    unique = list(dict.fromkeys(names))
    if not unique:
        return {}
    with ThreadPoolExecutor(min(workers, len(unique))) as pool:
        return dict(zip(unique, pool.map(safely, unique)))


def run_each(
    names: Sequence[str], prepare: Callable[[str], Callable[[], Any]], at_once: int, seconds: float
) -> dict[str, Any]:
    """By name what `prepare(name)()` returns, or None where that took longer than `seconds`; nobody waits for it then.

    Args:
        prepare: called here, one after another; what it returns is called in a thread, and must not raise.
        at_once: how many threads are waited for at the same time at most.
    """
    waiting = list(dict.fromkeys(reversed(names)))
    until: dict[str, float] = {}  # of those that run, in the order of their start
    answers: dict[str, Any] = {}
    done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    while waiting or until:
        if waiting and len(until) < at_once:
            name = waiting.pop()
            work = prepare(name)
            until[name] = time.monotonic() + seconds
            threading.Thread(target=lambda name=name, work=work: done.put((name, work())), daemon=True).start()
        oldest = next(iter(until))
        try:
            block = not waiting or len(until) >= at_once
            name, answer = done.get(block, max(0.0, until[oldest] - time.monotonic()))
        except queue.Empty:
            if until[oldest] <= time.monotonic():
                del until[oldest]
                answers[oldest] = None
            continue
        if until.pop(name, None) is not None:  # else it is too late
            answers[name] = answer
    return answers


def end_children() -> None:
    """Kill the child processes of this process that are left, as those of threads that nobody waits for."""
    for path in glob.glob("/proc/self/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            for pid in stream.read().split():
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
