# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reporter as a process and its workers' loops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Busy
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    LokiSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import reporter
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn

from .history import recover

MODULE = "ansible_collections.mission_control.job_recovery.plugins.module_utils.show.reporter"


def wait_for(what, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def site(ledger: LedgerSettings, tmp_path: Path):
    with LokiStandIn() as loki:
        loki.ingress = ("recovery", "secret")
        (tmp_path / "loki.credentials").write_text("recovery:secret\n")
        path = tmp_path / "settings.yml"
        path.write_text(
            yaml.safe_dump(
                {
                    "cluster": "lab",
                    "state_dir": str(tmp_path),
                    "slurm": {"enabled": False},
                    "ledger": dict(ledger.__dict__),
                    "loki": {"url": loki.url, "credentials_file": str(tmp_path / "loki.credentials")},
                }
            )
        )
        yield path, loki


def start(path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(path.parent)}
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, "--settings", str(path)], env=environment, stderr=subprocess.PIPE, text=True
    )


def pushes(loki: LokiStandIn) -> int:
    return sum(request.startswith("POST") for request in loki.requests)


def test_it_tells_goes_on_after_a_kill_and_ends_in_order(site, store: Store) -> None:
    path, loki = site
    recover(store, "node1")
    process = start(path)
    try:
        wait_for(lambda: pushes(loki) == 1)
    finally:
        process.kill()
        process.communicate(timeout=10)
    recover(store, "node2")
    process = start(path)
    try:
        wait_for(lambda: not store.database.value("SELECT COUNT(*) AS n FROM outbox WHERE ended_at IS NULL")
                 and store.database.value("SELECT COUNT(*) AS n FROM outbox") == 12)
        beat = path.parent / "reporter-loki.beat.json"
        wait_for(beat.exists)
        assert json.loads(beat.read_text())["error"] is None
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=15)[1]
    assert process.returncode == 0
    assert "secret" not in said


def test_unusable_settings_end_it(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").write_text("cluster: lab\nnonsense: 1\n")
    process = start(tmp_path / "settings.yml")
    assert "nonsense" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


class Scripted:
    """A worker that does what it is told, turn by turn."""

    interval = 0.01

    def __init__(self, turns: list, stop: threading.Event) -> None:
        self.turns, self.stop, self.at, self.closed = turns, stop, [], False

    def look(self, _settings: Settings) -> bool:
        self.at.append(time.monotonic())
        turn = self.turns.pop(0)
        if not self.turns:
            self.stop.set()
        if isinstance(turn, Exception):
            raise turn
        return turn

    def close(self) -> None:
        self.closed = True


def test_errors_are_survived_told_and_backed_off_from() -> None:
    stop = threading.Event()
    worker = Scripted([True, ValueError("defect"), Unreachable("away"), Busy("later", 0.7), False], stop)
    beats: list = []
    reporter.keep_working(
        reporter.Worker("x", lambda _settings: True, lambda: worker),
        lambda: Settings(cluster="lab"),
        stop,
        lambda name, _at, error: beats.append((name, error)),
    )
    assert worker.closed
    assert [error for _name, error in beats][-1] is None
    assert any("defect" in (error or "") for _name, error in beats)
    assert worker.at[4] - worker.at[3] >= 0.7
    assert worker.at[2] - worker.at[1] >= 0.2


def test_unreadable_settings_are_an_error_of_a_look_and_no_end() -> None:
    stop = threading.Event()
    answers = iter([Unreachable("no settings"), Settings(cluster="lab")])
    worker = Scripted([False], stop)

    def load() -> Settings:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reporter.keep_working(reporter.Worker("x", lambda _settings: True, lambda: worker), load, stop)
    assert len(worker.at) == 1


def test_what_a_site_expects() -> None:
    assert reporter.expected(Settings(cluster="lab")) == []
    assert reporter.expected(Settings(cluster="lab", loki=LokiSettings(url="https://loki"))) == ["reporter-loki"]
