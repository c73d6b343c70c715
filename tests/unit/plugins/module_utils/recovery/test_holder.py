# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs are provably dead, by real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import holder

# A process that forks a worker as ansible-playbook does for a task: in a session of its own. It prints the worker's
# number and its holder.
PLAYBOOK = """
import os, signal, time
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import holder
worker = os.fork()
if not worker:
    os.setsid()
    print(os.getpid(), holder.describe(), sep="|", flush=True)
    time.sleep(60)
    os._exit(0)
signal.pause()
"""


class Run:
    """A playbook with its worker, and what the worker says of itself."""

    def __init__(self, folder: Path, name: str) -> None:
        script = folder / name
        script.write_text("import sys" + PLAYBOOK, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.main = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment)
        assert self.main.stdout is not None
        number, self.holder = self.main.stdout.readline().strip().split("|")
        self.worker = int(number)

    def kill_main(self, reap: bool = True) -> None:
        self.main.kill()
        if reap:
            self.main.wait(10)

    def kill_worker(self) -> None:
        try:
            os.kill(self.worker, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def end(self) -> None:
        self.kill_main()
        self.kill_worker()
        assert self.main.stdout is not None
        self.main.stdout.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    begun: list[Run] = []

    def begin(name: str = "ansible-playbook") -> Run:
        begun.append(Run(tmp_path, name))
        return begun[-1]

    yield begin
    for run in begun:
        run.end()


def soon(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_a_run_is_dead_when_playbook_and_worker_are(start: Callable[..., Run]) -> None:
    run = start()
    assert len(run.holder) <= 128
    assert re.fullmatch(r"\S+ %d:\d+,%d:\d+ at \S+" % (run.main.pid, run.worker), run.holder)
    assert not holder.is_dead(run.holder)
    run.kill_main()
    assert not holder.is_dead(run.holder)  # the worker works on
    run.kill_worker()
    assert soon(lambda: holder.is_dead(run.holder))


def test_a_stopped_run_is_not_dead(start: Callable[..., Run]) -> None:
    run = start()
    for pid in (run.main.pid, run.worker):
        os.kill(pid, signal.SIGSTOP)
    assert not holder.is_dead(run.holder)
    os.kill(run.main.pid, signal.SIGCONT)


def test_a_run_that_nobody_waited_for_is_dead(start: Callable[..., Run]) -> None:
    run = start()
    run.kill_worker()
    run.kill_main(reap=False)  # as the engine leaves it while it stands still
    assert soon(lambda: holder.is_dead(run.holder))


def test_a_number_that_another_process_got_is_not_the_run(start: Callable[..., Run]) -> None:
    run = start()
    assert holder.is_dead(re.sub(r":(\d+)", lambda found: ":%d" % (int(found[1]) - 1), run.holder))


def test_nothing_is_known_of_a_run_outside_ansible_playbook(start: Callable[..., Run]) -> None:
    run = start("some-module.py")
    assert re.fullmatch(r"\S+:\d+", run.holder)
    run.end()
    assert not holder.is_dead(run.holder)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "head:4711",
        "head 999999999:1 at 00000000-0000-0000-0000-000000000000/1",  # another boot, another host
        "head  at somewhere",
        "head 999999999 at somewhere",
    ],
)
def test_what_cannot_be_told_is_not_dead(told: str) -> None:
    assert not holder.is_dead(told)
