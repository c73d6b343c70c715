# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `job-recovery`, the stop and the heartbeat."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import control, heartbeat, stop
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    load,
)

from .world import fault_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e{{ 7*7 }}$(id)\n<b>"


@pytest.fixture
def path(ledger: LedgerSettings, tmp_path: Path) -> str:
    """A settings file."""
    data = {
        "cluster": "lab",
        "stop_file": str(tmp_path / "STOP"),
        "state_dir": str(tmp_path),
        "scope": {"partitions": ["main"]},
        "ledger": dataclasses.asdict(ledger),
    }
    file = tmp_path / "settings.yml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(file)


@pytest.fixture
def broken(path: str) -> str:
    """The same with a database that is down."""
    with open(path, encoding="utf-8") as handle:
        data = yaml.safe_load(handle)
    data["ledger"]["unix_socket"] = "/nonexistent/s"
    with open(path, "w", encoding="utf-8") as handle:
        yaml.safe_dump(data, handle)
    return path


def run(path: str, *words: str) -> tuple[int, str]:
    out = io.StringIO()
    rc = control.main(["--settings", path, *words], out)
    return rc, out.getvalue()


@pytest.mark.usefixtures("store")
def test_a_reader_that_has_seen_enough_gets_no_traceback(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", encoding="utf-8") as out:
        assert control.main(["--settings", path, "status"], out) == control.TROUBLE
    assert capfd.readouterr().err == ""


def test_stop_and_resume(path: str, store: Store) -> None:
    settings = load(path)
    assert stop.stopped(settings, store) == ""
    rc, said = run(path, "stop", "--reason", "fire in the " + HOSTILE)
    assert rc == 0
    assert said.startswith("stopped")
    assert stop.stopped(settings, store) == "stopped by the file %s" % settings.stop_file
    os.unlink(settings.stop_file)
    assert stop.stopped(settings, store).startswith("stopped by '")
    assert run(path, "resume")[0] == 0
    assert stop.stopped(settings, store) == ""


def test_stopping_works_without_the_database(broken: str, capsys: pytest.CaptureFixture[str]) -> None:
    rc, said = run(broken, "stop")
    assert rc == 0
    assert "the file alone stops" in said
    assert stop.stopped_by_file(load(broken).stop_file)
    rc, said = run(broken, "resume")
    assert rc == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert stop.stopped_by_file(load(broken).stop_file)  # it still stops


def test_a_stop_file_that_cannot_be_looked_at_stops(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "cannot be told" in stop.stopped_by_file(str(tmp_path / "file" / "STOP"))


def test_status_tells_what_is_wrong(path: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    settings = load(path)
    assert run(path, "status")[0] == 1  # no sign of life
    beat = heartbeat.writer(settings)
    for name in ("slurm", "loss", "ledger"):
        beat(name, time.time(), None)
    rc, said = run(path, "status")
    assert (rc, "recovery: running" in said, "source slurm: well" in said) == (0, True, True)
    beat("slurm", time.time(), "slurmctld " + HOSTILE)
    rc, said = run(path, "status")
    assert rc == 1
    assert "\x1b" not in said
    beat("slurm", time.time() - 3600, None)
    assert "source slurm: silent" in run(path, "status")[1]


def test_status_without_the_database(broken: str) -> None:
    rc, said = run(broken, "status")
    assert rc == 1
    assert "nothing new is begun" in said


def test_incidents_are_shown_without_harm(path: str, store: Store) -> None:
    target = Target("node", "node1")
    number = store.incidents.open(
        fault_of("node1"), target, "node:node1", "node1", Request(HOSTILE, HOSTILE, (HOSTILE,))
    ).id
    store.incidents.change(number, {"why": HOSTILE})
    store.records.refuse("node:node2", "node_drained", "slurm", "owner", HOSTILE, {"owner": HOSTILE})
    rc, said = run(path, "incidents")
    assert rc == 0
    assert "#%d node1: node_not_responding, open" % number in said
    assert "refused node2: node_drained, gate owner" in said
    assert all(line.isprintable() for line in said.splitlines())
    rc, text = run(path, "incidents", "--json", "--since", "0")
    assert (rc, text.isascii(), "\x1b" in text) == (0, True, False)
    data = json.loads(text)
    assert data["incidents"][0]["why"] == HOSTILE
    assert data["refusals"][0]["target"] == "node2"
    assert run(path, "incidents", "node9")[1] == ""


@pytest.mark.parametrize(
    ("text", "seconds_ago"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5d", 129600), (" 3 d ", 259200)],
)
def test_a_moment_is_so_long_ago(text: str, seconds_ago: float) -> None:
    assert control.moment(text) == pytest.approx(time.time() - seconds_ago, abs=5)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10", 10.0),
        ("1700000000", 1700000000.0),
        ("1700000000.5", 1700000000.5),
        ("2026-01-31", time.mktime((2026, 1, 31, 0, 0, 0, 0, 0, -1))),
        ("2026-01-31 23:45", time.mktime((2026, 1, 31, 23, 45, 0, 0, 0, -1))),
    ],
)
def test_a_moment_is_a_date_or_epoch_seconds(text: str, moment: float) -> None:
    assert control.moment(text) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "-5m", "5w", "2026-13-01", "nan", "1e9999", "99999-01-01"])
def test_a_moment_that_is_none_is_told(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="10m"):
        control.moment(text)


def test_migrate_and_approve(path: str, store: Store) -> None:
    assert run(path, "migrate") == (0, "tables of version %d, nothing to do\n" % schema.VERSION)
    settings = load(path)
    stop.raise_mark(settings, store, 10**9)
    store.control.remove(stop.HIGH_WATER)
    assert stop.restored(settings, store)
    assert run(path, "approve")[0] == 0
    assert not stop.restored(settings, store)


def test_settings_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("/nonexistent", "status")[0] == 1
    assert "job-recovery: settings /nonexistent" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"name": 1}', '{"name": "x", "at": "y"}', '{"name": "x", "at": true}']
)
def test_a_beat_that_is_none_is_left_out(path: str, content: str) -> None:
    settings = load(path)
    Path(settings.state_dir, "x.beat.json").write_text(content, encoding="utf-8")
    assert heartbeat.read_all(settings) == []


def test_a_mark_that_cannot_be_kept_is_an_error(path: str, store: Store) -> None:
    settings: Any = dataclasses.replace(load(path), state_dir="/nonexistent")
    with pytest.raises(RecoveryError, match="high-water"):
        stop.raise_mark(settings, store, 1)
