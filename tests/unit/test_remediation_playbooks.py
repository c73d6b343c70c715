# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing acts without the claim's answer, whatever limit ansible-rulebook or a person puts on a run.

A ruleset's `hosts` and an event's `meta.hosts` both become --limit: a play whose hosts are not in it is skipped, the
next play runs, and the exit code is 0. So a remediation is one play on the controller, whose first task claims.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS, REMEDIATIONS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    SLURM,
    Target,
    build_event,
)

COLLECTION = Path(__file__).parents[2]
PLAYBOOKS = COLLECTION / "playbooks"
ROLE = "mission_control.job_recovery.advance"
CLAIMING = sorted({"advance", *REMEDIATIONS}.intersection(path.stem for path in PLAYBOOKS.glob("*.yml")))
(RULESET,) = yaml.safe_load((COLLECTION / "extensions/eda/rulebooks/recovery.yml").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = RULESET["rules"]


@pytest.mark.parametrize("name", CLAIMING)
def test_a_remediation_is_one_play_on_the_controller_that_claims_first(name: str) -> None:
    (play,) = yaml.safe_load((PLAYBOOKS / (name + ".yml")).read_text(encoding="utf-8"))
    assert (play["hosts"], play["connection"]) == ("localhost", "local")
    assert not {"tasks", "pre_tasks", "post_tasks", "handlers", "vars_files"}.intersection(play)
    (role,) = play["roles"]
    assert role["role"] == ROLE
    assert role.get("vars", {}).get("advance_remediation", "") == ("" if name == "advance" else name)


def test_the_first_task_claims_and_all_that_acts_depends_on_its_answer() -> None:
    tasks = yaml.safe_load((COLLECTION / "roles/advance/tasks/main.yml").read_text(encoding="utf-8"))
    claim = tasks[0]["mission_control.job_recovery.recovery_incident"]
    assert claim["state"] == "claimed"
    assert not {"ignore_errors", "failed_when", "when", "ignore_unreachable"}.intersection(tasks[0])
    acting = [task for task in tasks if "recovery_step" in json.dumps(task)]
    assert len(acting) == 1
    assert acting[0]["when"] == "%s.incidents | default([]) | length > 0" % tasks[0]["register"]
    # whatever becomes of the steps, every claim is accounted for: a missing result fails the run
    assert acting[0]["always"][0]["mission_control.job_recovery.recovery_incident"]["state"] == "released"
    assert "rescue" not in acting[0]


def test_rules_neither_limit_nor_lock_nor_queue() -> None:
    """A lock, or runs one after another, would let one long run hold up every other fault."""
    assert (RULESET["hosts"], RULESET["execution_strategy"]) == ("all", "parallel")
    for rule in RULES:
        assert set(rule) <= {"name", "condition", "throttle", "action"}
        (action,) = rule["action"].items()
        assert action[0] == "run_playbook"
        assert set(action[1]) == {"name"}
    assert all("throttle" in rule for rule in RULES if "event.fault" in rule["condition"])


def test_every_rule_of_a_kind_names_the_catalogues_remediation() -> None:
    for rule in RULES:
        if rule["name"] in KINDS:
            assert 'event.fault.kind == "%s"' % rule["name"] in rule["condition"]
            playbook = rule["action"]["run_playbook"]["name"].rpartition(".")[2]
            assert playbook == KINDS[rule["name"]].remediation


class Controller:
    """A controller whose Slurm commands note that they were called, and whose ledger does not answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for tool in ("scontrol", "sinfo", "squeue", "sacct", "ssh", "sacctmgr"):
            path = folder / "bin" / tool
            path.write_text("#!/bin/sh\necho %s >> %s/called\n" % (tool, folder), encoding="utf-8")
            path.chmod(0o755)
        (folder / "password").write_text("x\n", encoding="utf-8")
        (folder / "password").chmod(0o600)
        settings = {
            "cluster": "lab",
            "mode": "act",
            "state_dir": str(folder),
            "stop_file": str(folder / "STOP"),
            "scope": {"partitions": ["main"]},
            "slurm": {"bin_dir": str(folder / "bin")},
            "ledger": {"unix_socket": str(folder / "none"), "password_file": str(folder / "password"), "timeout": 2},
        }
        (folder / "settings.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        hosts = {"localhost": {"ansible_connection": "local"}, "node1": {"ansible_host": "127.0.0.1"}}
        (folder / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}), encoding="utf-8")

    def play(self, *words: str) -> tuple[int, str]:
        """Run a remediation as the engine does, with a fault's event; exit code and output."""
        event = build_event("node_not_responding", SLURM, "lab", "slurm", [Target("node", "node1")], 1796036820.0)
        command = ["ansible-playbook", "-i", str(self.folder / "inventory.yml"), *words]
        command += ["-e", json.dumps({"ansible_eda": {"event": event}}), "mission_control.job_recovery.reboot_node"]
        done = subprocess.run(
            command,
            env={**os.environ, "JOB_RECOVERY_SETTINGS": str(self.folder / "settings.yml"), "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    @property
    def called(self) -> bool:
        return (self.folder / "called").exists()


@pytest.mark.parametrize(("words", "succeeds", "says"), [
    ((), False, "the ledger at"),  # no claim, no answer: it fails, and no step runs
    (("--limit", "node1"), True, "no hosts matched"),
    (("--limit", "all:!localhost"), True, "no hosts matched"),
    (("--start-at-task", "Run the steps in their one order"), True, "ok=0 "),
])
def test_without_a_claim_nothing_acts(tmp_path: Path, words: tuple[str, ...], succeeds: bool, says: str) -> None:
    controller = Controller(tmp_path)
    rc, output = controller.play(*words)
    assert (rc == 0) is succeeds, output
    assert says in output
    assert not controller.called
