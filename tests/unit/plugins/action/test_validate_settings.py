# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong settings of site.yml are told in one sentence each, all at once, before anything is asked or done."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest
import yaml

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[4] / "playbooks"
MODULE = "mission_control.job_recovery.validate_settings"
GIVEN = {"job_recovery_cluster": "c", "job_recovery_partitions": ["batch"], "job_recovery_kubernetes": False}


def play(folder: pathlib.Path, playbook: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    # a host that cannot be reached: who asks it anything fails otherwise
    host = {"ansible_ssh_executable": "/bin/false", "ansible_ssh_retries": 0}
    groups = {"controller": {"hosts": {"head1": host}}, "compute": {"hosts": {"node1": host}}}
    inventory = {"all": {"vars": {**GIVEN, **variables}, "children": groups}}
    (folder / "hosts.json").write_text(json.dumps(inventory))
    return subprocess.run(
        ["ansible-playbook", "-i", str(folder / "hosts.json"), str(PLAYBOOKS / playbook)],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )


def test_every_mistake_has_its_sentence_and_no_secret_is_shown(tmp_path: pathlib.Path) -> None:
    ended = play(
        tmp_path, "site.yml",
        job_recovery_mode="perhaps", job_recovery_cooldown="soon", preflight_images={"a": 1},
        controller_start_timeout=[], charts_releases=[{"name": "a", "password": "nvapi-secret", "chrat": "./a"}],
        job_recovery_bmc_password=["nvapi-secret"], preflight_registries=[{"name": "r", "password": "nvapi-secret"}],
        job_recovery_lease="{{ nowhere }}",
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0, said
    for words in (
        "- job_recovery_mode: value of job_recovery_mode must be one of: observe, act, got: perhaps",
        "- job_recovery_cooldown: ", "- preflight_images: ", "- controller_start_timeout: ",
        "- charts_releases: missing required arguments: chart, namespace found in charts_releases",
    ):
        assert words in said
    assert "nvapi-secret" not in said
    assert "argument_spec_data" not in said
    assert len(said) < 8000, said
    assert "Look at every node" not in said


@pytest.mark.parametrize("playbook", ["site.yml", "preflight.yml", "status.yml", "harden.yml", "uninstall.yml"])
def test_it_comes_before_the_first_role_that_would_print_its_specification(playbook: str) -> None:
    checked: set[str] = set()
    for play in yaml.safe_load((PLAYBOOKS / playbook).read_text()):
        for task in play.get("tasks", []):
            checked |= set(task.get(MODULE, {}).get("roles", []))
            role = task.get("ansible.builtin.import_role", {})
            name = role.get("name", "").rpartition(".")[2]
            if name and role.get("rolespec_validate", True) and "preflight" not in checked:
                assert name in checked, (playbook, play["name"], task["name"])
