# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person types reaches the playbook as it is, and never as a template."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import by_hand

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'nodes': nodes, 'reason': reason, 'wait': wait} | to_json }}"
        dest: "{{ lookup('ansible.builtin.env', 'TOLD') }}"
        mode: "0600"
"""


@pytest.mark.parametrize(
    "reason",
    ["{{ lookup('pipe', 'touch MARK') }}", "new $(touch MARK) `x` \"' \\ \n# : !x ü \U0001f600 \x1b[2J\x9b, {a: b}=c"],
)
def test_text_arrives_as_it_was_typed(tmp_path: Path, reason: str) -> None:
    mark, told, playbook = tmp_path / "mark", tmp_path / "told", tmp_path / "playbook.yml"
    reason = reason.replace("MARK", str(mark))
    playbook.write_text(PLAYBOOK)
    made = by_hand.command(["reboot_node", "--nodes", "node[1-2,4]", "--reason", reason, "--wait", "-v"])
    assert made[:2] == ["ansible-playbook", "mission_control.job_recovery.reboot_node"]
    assert made[-1] == "-v"
    ansible = [str(Path(sys.executable).with_name("ansible-playbook")), str(playbook), *made[2:-1]]
    environment = {**os.environ, "TOLD": str(told), "ANSIBLE_LOCALHOST_WARNING": "false"}
    subprocess.run(ansible, check=True, env=environment, capture_output=True, timeout=120)
    assert json.loads(told.read_text()) == {"nodes": ["node[1-2,4]"], "reason": reason, "wait": True}
    assert not mark.exists()


def test_nothing_is_added_to_what_was_typed() -> None:
    made = by_hand.command(["requeue_job", "-e", "jobs=12", "-e", "reason=x"])
    assert made == ["ansible-playbook", "mission_control.job_recovery.requeue_job", "-e", "jobs=12", "-e", "reason=x"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["reboot_node"], "give --nodes"),
        (["reboot_node", "--jobs", "7", "--reason", "x"], "give --nodes"),
        (["requeue_job", "--nodes", "node1", "--reason", "x"], "give --jobs"),
        (["reboot_node", "--nodes", "node1"], "a reason is needed"),
        (["reboot_node", "--nodes", "node1", "--reason", "  "], "a reason is needed"),
        (["report", "--nodes", "node1", "--reason", "x"], "invalid choice"),
    ],
)
def test_what_is_missing_is_said_before_a_play_starts(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        by_hand.command(words)
    assert why in capsys.readouterr().err


def test_only_remediations_are_run() -> None:
    with pytest.raises(SystemExit):
        by_hand.command(["site", "--nodes", "node1"])
