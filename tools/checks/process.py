# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of checks, and processes that never outlive their deadline."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
BUILD = CHECKOUT / ".build"
LOGS = BUILD / "logs"
COLLECTION = "mission_control.job_recovery"

Environment = dict[str, str]


@dataclass(frozen=True)
class Result:
    """One thing that was checked.

    Attributes:
        part: the part of `make test` it belongs to.
        name: what was checked, as the tool calls it.
        passed: False also for what was skipped: a test that did not run proves nothing.
        seconds: wall time; 0 where the tool does not tell.
        detail: why it failed, in a few words.
        message: all that the test said of its failure, empty where the tool does not tell.
    """

    part: str
    name: str
    passed: bool
    seconds: float = 0.0
    detail: str = ""
    message: str = ""


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start


def run(
    argv: list[str],
    environment: Environment,
    *,
    deadline: float,
    directory: pathlib.Path = CHECKOUT,
    output: IO[str] | None = None,
) -> str:
    """Run a command without standard input; the answer is "" when it succeeded, else what went wrong.

    The command and all its children are ended when `deadline` (seconds) passes and when we are interrupted.
    """
    return finish(start(argv, environment, directory=directory, output=output), deadline)


def start(
    argv: list[str], environment: Environment, *, directory: pathlib.Path = CHECKOUT, output: IO[str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command without standard input, at the head of a process group of its own; `finish` must follow."""
    process = subprocess.Popen(
        argv,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        start_new_session=True,
    )
    _keep_priority(process.pid)
    return process


def _keep_priority(pid: int) -> None:
    """Give a new session our own priority: Linux schedules each as a group, in which a priority counts inside only."""
    with contextlib.suppress(OSError):  # no such groups here
        pathlib.Path("/proc/%d/autogroup" % pid).write_text(str(os.nice(0)), encoding="ascii")


def finish(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Wait for a command that was started; as `run`."""
    try:
        code = process.wait(timeout=deadline)
    except subprocess.TimeoutExpired:
        end(process)
        return "not done after %d s" % deadline
    except BaseException:
        end(process)
        raise
    return "" if code == 0 else "exit code %d" % code


def run_logged(part: str, name: str, argv: list[str], environment: Environment, deadline: float = 600) -> Result:
    """Run a command and show what it said only if it failed."""
    timer = Timer()
    with log_of(part, name) as log:
        problem = run(argv, environment, deadline=deadline, output=log)
        if problem:
            log.flush()
            log.seek(0)
            print(log.read().rstrip(), flush=True)
    return Result(part, name, not problem, timer.seconds, problem)


@contextlib.contextmanager
def log_of(part: str, name: str) -> Iterator[IO[str]]:
    """The log file of one check, open for writing and reading."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / ("%s-%s.log" % (part, name.replace("/", "-").replace(" ", "-")))).open("w+", encoding="utf-8") as log:
        yield log


def tracked_files() -> list[str]:
    """Files of the checkout as git sees them, also new ones that are not ignored; paths are relative."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=CHECKOUT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return sorted(name for name in listing.stdout.split("\0") if name and os.path.lexists(CHECKOUT / name))


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process group: politely, so that it can clean up, and after 30 seconds for good."""
    for number, patience in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            if number is signal.SIGKILL:
                return
