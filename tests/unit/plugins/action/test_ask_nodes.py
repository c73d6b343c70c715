# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ask_nodes` as a playbook runs it: Ansible and its SSH connection are real, an executable stands in place of ssh."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
from typing import Any

import pytest

SSH = """#!/bin/sh
# Called as ssh is: options, the host, a command. Notes with which user and port, and runs the command here.
for word; do
    case $word in User=*) user=${word#User=};; Port=*) port=${word#Port=};; esac
    host=$last; last=$word
done
case $host in
    lost) echo "ssh: connect to host lost port 22: No route to host" >&2; exit 255;;
    hangs) echo $$ >> %(folder)s/hanging; exec sleep 60;;
esac
echo "host=$host user=$user port=$port"
exec sh -c "$last"
"""
# In place of sudo: says for whom it was asked, and with -n, which asks for no password; does what follows `sh -c`.
SUDO = """#!/bin/sh
for word; do
    case $word in -n) password=no;; esac
    [ "$last" != -u ] || user=$word
    last=$word
done
echo "became $user, password: ${password:-yes}"
exec sh -c "$last"
"""
PLAY = [
    {
        "hosts": "head",
        "gather_facts": False,
        "become": True,
        "vars": {"question": "echo {{ inventory_hostname | quote }} {{ colour | quote }}; echo oops >&2; exit 3\n"},
        "tasks": [
            {
                "mission_control.job_recovery.ask_nodes": {
                    "names": ["plain", "other", "lost", "head", "undefined", "nowhere", "hangs"],
                    "command": "question",
                    "timeout": 3,
                },
                "register": "asked",
            },
            {"ansible.builtin.copy": {"content": "{{ asked.answers | to_json }}", "dest": "{{ dest }}"},
             "become": False},
        ],
    }
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a play that asks hosts of all kinds registered, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("asked")
    for name, text in (("ssh", SSH % {"folder": folder}), ("sudo", SUDO)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    hosts = {
        "head": {"ansible_connection": "local", "ansible_become": False, "ansible_user": "nobody",
                 "ansible_become_password": "of this host alone",
                 "ansible_ssh_port": 99, "colour": "grey",
                 "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "plain": {"colour": "it's; {{ '{{' }} 7 }}", "ansible_host": "plain.example"},
        "other": {"colour": "red", "ansible_user": "ubuntu", "ansible_port": 2222, "ansible_become_user": "worker"},
        "lost": {"colour": "blue"},
        "undefined": {},
        "hangs": {"colour": "black"},
    }
    variables = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_become_exe": str(folder / "sudo"),
                 "ansible_ssh_retries": 0}
    (folder / "hosts.json").write_text(json.dumps({"all": {"vars": variables, "hosts": hosts}}), encoding="utf-8")
    (folder / "play.json").write_text(json.dumps(PLAY), encoding="utf-8")
    argv = ["ansible-playbook", "-i", str(folder / "hosts.json"), "-e", "dest=%s" % (folder / "asked.json")]
    started = time.monotonic()
    done = subprocess.run([*argv, str(folder / "play.json")], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    names = PLAY[0]["tasks"][0]["mission_control.job_recovery.ask_nodes"]["names"]
    assert len(answers) == len(names)
    return {**dict(zip(names, answers)), "seconds": time.monotonic() - started, "folder": folder}


@pytest.mark.parametrize(("name", "lines"), [
    ("plain", ["host=plain.example user= port=", "became root, password: no", "plain it's; {{ 7 }}"]),
    ("other", ["host=other user=\"ubuntu\" port=2222", "became worker, password: no", "other red"]),
    ("head", ["head grey"]),  # by a local connection, and without sudo, as its own variables say
])
def test_each_host_is_asked_over_its_own_connection(asked: dict[str, Any], name: str, lines: list[str]) -> None:
    said = [line for line in asked[name]["stdout"].splitlines() if not line.startswith("BECOME")]
    assert said == lines
    assert asked[name]["rc"] == 3
    assert "oops" in asked[name]["stderr"]


@pytest.mark.parametrize(("name", "word", "message"), [
    ("lost", "unreachable", "No route to host"),
    ("undefined", "failed", "colour"),
    ("nowhere", "failed", "the inventory has no host nowhere"),
    ("hangs", "unreachable", "timed out: no answer within 3 s"),
])
def test_trouble_with_one_host_is_its_answer(asked: dict[str, Any], name: str, word: str, message: str) -> None:
    assert asked[name][word] is True
    assert message in asked[name]["msg"]
    assert "stdout" not in asked[name]


def test_a_host_that_hangs_is_neither_waited_for_nor_left_behind(asked: dict[str, Any]) -> None:
    assert asked["seconds"] < 50
    pid = (asked["folder"] / "hanging").read_text(encoding="ascii").split()[0]
    assert not pathlib.Path("/proc", pid).exists()
