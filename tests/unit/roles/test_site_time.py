# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of site.yml: what is left of it bounds every task, every play tells it, and then the run ends in words."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import yaml

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
ROLE = "mission_control.job_recovery.job_recovery"


def plays(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load((PLAYBOOKS / name).read_text())


def imported(task: dict[str, Any]) -> tuple[str, str]:
    role = task.get("ansible.builtin.import_role", {})
    return role.get("name", ""), role.get("tasks_from", "main")


LIMIT = plays("site.yml")[-1]["timeout"]


def test_every_play_is_bounded_and_begins_with_the_time() -> None:
    first, *others = plays("site.yml")
    assert imported(first["tasks"][-1]) == (ROLE, "begin.yml")
    for play in others:
        if play.get("ansible.builtin.import_playbook") == "preflight.yml":
            continue
        assert play["timeout"] == LIMIT, play["name"]
        assert imported(play["tasks"][0]) == (ROLE, "time.yml"), play["name"]
    for play in plays("preflight.yml")[1:]:
        assert play["timeout"] == LIMIT, play["name"]


@pytest.mark.parametrize(
    ("seconds", "code", "said", "unsaid"),
    [
        (600, 0, "of 10.0 minutes used. Now: Second", "Timed out"),
        # the task is the limit's, and what would wait for it does not
        (4, 2, "Timed out after", "Now: Second"),
    ],
)
def test_a_task_ends_with_the_time(tmp_path: pathlib.Path, seconds: int, code: int, said: str, unsaid: str) -> None:
    ended = run(tmp_path, seconds, [["sleep", "2" if code == 0 else "300"]])
    assert ended.returncode == code, ended.stdout
    assert said in ended.stdout
    assert unsaid not in ended.stdout


def test_between_two_plays_the_end_is_told_in_words(tmp_path: pathlib.Path) -> None:
    ended = run(tmp_path, 1, [])
    assert ended.returncode == 2, ended.stdout
    assert "the time is over. Next was: First. Run it again, it goes on from here" in " ".join(ended.stdout.split())


def run(folder: pathlib.Path, seconds: int, commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    """Two plays as those of site.yml, the commands in the first; a second goes by before it."""
    here = {"hosts": "all", "gather_facts": False}
    limited = {**here, "timeout": LIMIT}
    time = {"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "time.yml"}}
    begin = {"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "begin.yml"}}
    slow = {"ansible.builtin.command": {"argv": ["sleep", "1"]}}
    acts = [{"ansible.builtin.command": {"argv": command}} for command in commands]
    (folder / "plays.json").write_text(json.dumps([
        {**here, "tasks": [begin, slow]},
        {**limited, "name": "First", "tasks": [time, *acts]},
        {**limited, "name": "Second", "tasks": [time]},
    ]))
    given = {"job_recovery_install_timeout": seconds, "ansible_python_interpreter": sys.executable}
    return subprocess.run(
        ["ansible-playbook", "-i", "one,two,", "-c", "local", "-e", json.dumps(given), str(folder / "plays.json")],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )
