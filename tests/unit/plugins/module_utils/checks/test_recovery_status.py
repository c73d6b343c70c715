# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of an installation: judgements in tables, and the whole with a systemctl on PATH and a real MariaDB."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import recovery as status
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import canary
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import parse

NOW = 1_800_000_000.0
SYSTEMCTL = """#!/bin/sh
for unit; do :; done
[ "$1" = show ] || exit 64
cat "$(dirname "$0")/$unit" 2>/dev/null || { echo "no bus" >&2; exit 1; }
"""


def beat(name="slurm", ago=1.0, error=None):
    return {"name": name, "at": NOW - ago, "error": error}


@pytest.mark.parametrize(
    ("beats", "expected", "said"),
    [
        ([beat()], "passed", "hears and sees"),
        ([], "failed", "no sign of life"),
        ([beat(ago=121)], "failed", "silent for 121 s"),
        ([beat(error="scontrol did not end within 10 s")], "failed", "scontrol did not end"),
    ],
)
def test_sources(beats, expected, said):
    (check,) = status.source_checks(beats, ["slurm"], NOW)
    assert (check.id, check.status) == ("recovery_source_slurm", expected)
    assert said in check.found


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"LoadState": "loaded", "ActiveState": "active", "SubState": "running"}, "passed"),
        ({"LoadState": "loaded", "ActiveState": "activating", "SubState": "auto-restart"}, "failed"),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "failed"),
        ({}, "failed"),
        (RecoveryError("no bus"), "unknown"),
    ],
)
def test_service(told, expected):
    assert status.service_check(told).status == expected


@pytest.mark.parametrize(
    ("timer", "last", "expected"),
    [
        ({"ActiveState": "active"}, {"Result": "success"}, "passed"),
        ({"ActiveState": "active"}, {}, "passed"),
        ({"ActiveState": "active"}, {"Result": "exit-code"}, "warning"),
        ({"ActiveState": "inactive"}, {"Result": "success"}, "failed"),
        ({"LoadState": "not-found"}, {}, "failed"),
        (RecoveryError("no bus"), {}, "unknown"),
    ],
)
def test_watchdog(timer, last, expected):
    assert status.watchdog_check(timer, last).status == expected


def told_by(bird=None, proof=None, **other):
    values = {"stopped": "", "restored": False, "going_on": 0, "for_a_person": 0, "now": NOW, **other}
    return status.Ledger(canary=bird or canary.Canary(), proof=proof, **values)


@pytest.mark.parametrize(
    ("told", "seconds", "expected"),
    [
        (told_by(), None, "failed"),
        (told_by(canary.Canary(NOW - 100)), None, "warning"),
        (told_by(canary.Canary(NOW - 181)), None, "failed"),
        (told_by(canary.Canary(NOW - 200, NOW - 195, 5.0)), None, "passed"),
        (told_by(canary.Canary(NOW - 481, NOW - 480, 1.0)), None, "failed"),
        # of one that was asked for, only that one counts
        (told_by(canary.Canary(NOW - 200, NOW - 195, 5.0)), 60.0, "failed"),
        (told_by(proof=2.5), 60.0, "passed"),
    ],
)
def test_canary(told, seconds, expected):
    assert status.canary_check(told, seconds).status == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (told_by(), {"recovery_ledger": "passed", "recovery_stopped": "passed", "recovery_incidents": "passed"}),
        (told_by(restored=True), {"recovery_ledger": "failed"}),
        (told_by(stopped="stopped by bob"), {"recovery_stopped": "warning"}),
        (told_by(for_a_person=2, going_on=1), {"recovery_incidents": "warning", "recovery_breaker": "passed"}),
        (told_by(broken=("node",)), {"recovery_breaker": "failed"}),
        (Unreachable("the database is down"), {"recovery_ledger": "failed", "recovery_canary": "unknown"}),
    ],
)
def test_ledger(told, expected, tmp_path):
    settings = parse({"cluster": "c", "stop_file": str(tmp_path / "STOP"), "slurm": {"enabled": False}})
    found = {check.id: check.status for check in status.ledger_checks(told, settings, None)}
    assert {name: found[name] for name in expected} == expected


def test_stopped_by_the_file_while_the_database_is_down(tmp_path):
    (tmp_path / "STOP").write_text("")
    settings = parse({"cluster": "c", "stop_file": str(tmp_path / "STOP"), "slurm": {"enabled": False}})
    checks = {check.id: check for check in status.ledger_checks(Unreachable("down"), settings, None)}
    assert checks["recovery_stopped"].status == "warning"
    assert "stopped by the file" in checks["recovery_stopped"].found


# ---- the whole ----


@pytest.fixture
def controller(ledger, tmp_path, monkeypatch):
    """A controller's settings, systemctl and signs of life."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    (folder / "job-recovery.service").write_text("LoadState=loaded\nActiveState=active\nSubState=running\n")
    (folder / "job-recovery-watchdog.timer").write_text("LoadState=loaded\nActiveState=active\n")
    (folder / "job-recovery-watchdog.service").write_text("Result=success\n")
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % folder)
    data = {
        "cluster": "lab",
        "stop_file": str(tmp_path / "STOP"),
        "state_dir": str(tmp_path),
        "slurm": {"enabled": False},
        "ledger": dataclasses.asdict(ledger),
    }
    (tmp_path / "settings.yml").write_text(yaml.safe_dump(data), encoding="utf-8")
    life = {"name": "ledger", "at": time.time(), "error": None, "pid": 1}
    (tmp_path / "ledger.beat.json").write_text(json.dumps(life))
    return tmp_path


def run(folder, check_mode=False, **other):
    defaults = {name: option.get("default") for name, option in status.SPEC["argument_spec"].items()}
    params = {**defaults, "settings": str(folder / "settings.yml"), "sources": ["ledger"], **other}
    return {check["id"]: check for check in status.run(params, check_mode)["checks"]}


def test_all_is_well(controller, store):
    store.control.put(canary.SENT, "1", "ledger")
    store.control.put(canary.SEEN, "1", "a run")
    found = run(controller)
    assert {check["status"] for check in found.values()} == {"passed"}, found
    assert list(found) == [
        "recovery_service",
        "recovery_watchdog",
        "recovery_source_ledger",
        "recovery_ledger",
        "recovery_canary",
        "recovery_stopped",
        "recovery_breaker",
        "recovery_incidents",
    ]


def test_what_stands_where(controller, store):
    store.records.refuse("node:node2", "node_drained", "slurm", "owner", "\x1b[2J", {})
    store.commands.note("stop", "alice")
    params = {name: option.get("default") for name, option in status.SPEC["argument_spec"].items()}
    told = status.run({**params, "settings": str(controller / "settings.yml"), "sources": ["ledger"]}, False)
    assert {"refused in the last day:", "last commands:"} <= set(told["standing"])
    assert all(line.isprintable() for line in told["standing"])


def test_no_engine_answers_the_canary(controller, store):
    store.control.put(canary.SENT, "1", "ledger")
    store.control.put(canary.SEEN, "1", "a run")
    assert run(controller, canary=True, canary_timeout=0.2)["recovery_canary"]["status"] == "failed"
    assert run(controller, check_mode=True, canary=True)["recovery_canary"]["status"] == "passed"
    assert store.control.get(canary.WANTED) is None


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_works(controller):
    (controller / "bin/job-recovery.service").unlink()
    (controller / "bin/job-recovery-watchdog.timer").unlink()
    path = controller / "settings.yml"
    data = yaml.safe_load(path.read_text())
    data["ledger"]["unix_socket"] = "/nonexistent/s"
    path.write_text(yaml.safe_dump(data))
    found = run(controller, sources=["ledger", "slurm"])
    assert {name: check["status"] for name, check in found.items()} == {
        "recovery_service": "unknown",
        "recovery_watchdog": "unknown",
        "recovery_source_ledger": "passed",
        "recovery_source_slurm": "failed",
        "recovery_ledger": "failed",
        "recovery_canary": "unknown",
        "recovery_stopped": "unknown",
    }
    assert all(check["hint"] for check in found.values() if check["status"] != "passed")


def test_wrong_use(controller):
    with pytest.raises(BadInput):
        run(controller, canary_timeout=0)
