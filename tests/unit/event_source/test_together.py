# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event sources of the rulebook beside each other: one that fails, or hears nothing, holds up no other.

ansible-rulebook shuts all sources down when one of them returns or raises, and runs all of them in one event loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

# PyMySQL leaves its socket to the collector when it cannot connect.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

EDA = Path(__file__).parents[3] / "extensions/eda"
NAMES = ("slurm", "kubernetes", "node_agent", "loki", "ledger")
SINFO = """#!%s -IS
import pathlib, re, sys
if not (pathlib.Path(__file__).parent / "up").exists():
    sys.exit("slurm_load_partitions: Unable to contact slurm controller (connect failure)")
(form,) = [word for word in sys.argv if word.startswith("--Format=")]
widths = [int(width) for width in re.findall(":([0-9]+)", form)]
print("".join(cell.ljust(width) for cell, width in zip(("node7", "down", "Node unexpectedly rebooted"), widths)))
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def settings_file(folder: Path, kubeconfig: str, ledger: LedgerSettings) -> str:
    data = {
        "cluster": "lab",
        "state_dir": str(folder),
        "stop_file": str(folder / "STOP"),
        "scope": {"partitions": ["main"], "namespaces": ["a"]},
        "slurm": {"interval": 0.2, "timeout": 2, "bin_dir": str(folder / "bin")},
        "kubernetes": {"kubeconfig": kubeconfig, "timeout": 2},
        "ledger": dataclasses.asdict(ledger),
    }
    path = folder / "settings.yml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(path)


def rulebook(folder: Path) -> str:
    """The collection's own, whose rules only show what they are given."""
    (ruleset,) = yaml.safe_load((EDA / "rulebooks/recovery.yml").read_text(encoding="utf-8"))
    assert {source["name"] for source in ruleset["sources"]} == set(NAMES)
    for rule in ruleset["rules"]:
        rule["action"] = {"print_event": {}}
    path = folder / "rulebook.yml"
    path.write_text(yaml.safe_dump([ruleset]), encoding="utf-8")
    return str(path)


class Engine:
    """A real ansible-rulebook and what it has said."""

    def __init__(self, folder: Path, settings: str) -> None:
        inventory = folder / "inventory.yml"
        inventory.write_text("all: {hosts: {localhost: {ansible_connection: local}}}\n", encoding="utf-8")
        words = ["--rulebook", rulebook(folder), "--inventory", str(inventory), "--env-vars", "JOB_RECOVERY_SETTINGS"]
        self.process = subprocess.Popen(
            ["ansible-rulebook", *words, "--execution-strategy", "parallel"],
            env={**os.environ, "JOB_RECOVERY_SETTINGS": settings, "PYTHONUNBUFFERED": "1", "JAVA_TOOL_OPTIONS": "-Xrs"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._said = b""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said += line

    @property
    def said(self) -> str:
        return self._said.decode("utf-8", "replace")

    def works(self) -> bool:
        """Whether it begins to work; on a busy machine its Java part may be asked before it listens, and it ends."""
        until = time.monotonic() + 90
        while "'canary':" not in self.said:
            if self.process.poll() is not None:
                self._thread.join(20)
                assert "Async channel connect failed" in self.said, self.said
                return False
            assert time.monotonic() < until, self.said
            time.sleep(0.05)
        return True

    def hear(self, *words: str, seconds: float = 90.0) -> None:
        """Wait until it has said all of this, and still runs."""
        until = time.monotonic() + seconds
        while not all(word in self.said for word in words):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.05)
        assert self.process.poll() is None, self.said

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        self._thread.join(20)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def engine(tmp_path: Path, ledger: LedgerSettings) -> Iterator[Callable[[str], Engine]]:
    begun: list[Engine] = []

    def begin(kubeconfig: str) -> Engine:
        for _turn in range(3):
            begun.append(Engine(tmp_path, settings_file(tmp_path, kubeconfig, ledger)))
            if begun[-1].works():
                return begun[-1]
        pytest.fail(begun[-1].said)

    yield begin
    for one in begun:
        one.end()


def test_sources_that_fail_end_no_other_in_a_real_engine(engine: Callable[[str], Engine], tmp_path: Path) -> None:
    """Slurm does not answer for a while, Kubernetes' credentials are not there at all, the database answers."""
    program(tmp_path / "bin/sinfo", SINFO % sys.executable)
    for tool in ("squeue", "sacct"):
        program(tmp_path / "bin" / tool, "#!/bin/sh\n")
    running = engine(str(tmp_path / "no-kubeconfig"))
    running.hear("Unable to contact slurm controller", "no-kubeconfig: No such file", "'canary':")
    assert "node_rebooted" not in running.said
    (tmp_path / "bin/up").touch()
    running.hear("answers again", "'kind': 'node_rebooted'", "'node': 'node7'")
    assert running.process.poll() is None


def loaded(name: str) -> Callable[[asyncio.Queue, dict[str, Any]], Any]:
    spec = importlib.util.spec_from_file_location("together_%s" % name, EDA / "plugins/event_source" / (name + ".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


async def test_sources_that_hear_nothing_do_not_hold_up_the_loop(tmp_path: Path) -> None:
    """All three wait for something that takes connections, or starts, and never says a word."""
    for tool in ("sinfo", "squeue", "sacct"):
        program(tmp_path / "bin" / tool, "#!/bin/sh\nexec sleep 60\n")
    with socket.create_server(("127.0.0.1", 0)) as silent_api, socket.socket(socket.AF_UNIX) as silent_database:
        silent_database.bind(str(tmp_path / "s"))
        silent_database.listen()
        kubeconfig = tmp_path / "kubeconfig"
        cluster = {"name": "k", "cluster": {"server": "http://127.0.0.1:%d" % silent_api.getsockname()[1]}}
        context = {"name": "c", "context": {"cluster": "k"}}
        kubeconfig.write_text(yaml.safe_dump({"current-context": "c", "contexts": [context], "clusters": [cluster]}))
        (tmp_path / "password").write_text("x\n")
        (tmp_path / "password").chmod(0o600)
        ledger = LedgerSettings(unix_socket=str(tmp_path / "s"), password_file=str(tmp_path / "password"), timeout=2)
        settings = settings_file(tmp_path, str(kubeconfig), ledger)
        queue: asyncio.Queue = asyncio.Queue(1)
        tasks = [asyncio.create_task(loaded(name)(queue, {"settings": settings})) for name in NAMES]
        loop, longest = asyncio.get_running_loop(), 0.0
        for _turn in range(300):
            before = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - before)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # the loop hears that what was killed has ended
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    assert queue.empty()
    assert longest < 1.0
