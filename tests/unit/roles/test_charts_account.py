# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which account the role `charts` uses for a chart: its own, the site's for what comes from there, or the common."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/charts"
SITE = "oci://nvcr.io/nvidia"
RELEASES = (
    ({"chart": SITE + "/tool"}, "site"),
    ({"chart": SITE}, "site"),
    ({"chart": "oci://nvcr.io/nvidia-other/tool"}, "common"),
    ({"chart": "oci://nvcr.io.example.org/nvidia/tool"}, "common"),
    ({"chart": "tool", "repository": "https://charts.example.org"}, "common"),
    ({"chart": "./tool.tgz"}, "common"),
    ({"chart": SITE + "/tool", "username": "own"}, "own"),
)


def test_the_sites_token_goes_to_the_sites_repository_alone(tmp_path: pathlib.Path) -> None:
    shown = "{{ range(releases | length) | map('string') | list }}"
    task = {
        "ansible.builtin.debug": {"msg": "RELEASE {{ item }} {{ __charts_account.username }}"},
        "loop": shown,
        "vars": {"__charts_release": "{{ releases[item | int] }}"},
    }
    given = {
        "releases": [release for release, _account in RELEASES], "charts_username": "common", "charts_password": "c",
        "charts_password_file": "", "charts_docker_config": "", "job_recovery_chart_repository": SITE + "/",
        "job_recovery_registry_user": "site", "job_recovery_registry_password": "s",
        "ansible_python_interpreter": sys.executable,
    }
    play = {"hosts": "all", "gather_facts": False, "vars_files": [str(ROLE / "vars/main.yml")], "tasks": [task]}
    (tmp_path / "play.json").write_text(json.dumps([play]))
    (tmp_path / "given.json").write_text(json.dumps(given))
    ended = subprocess.run(
        ["ansible-playbook", "-i", "here,", "-c", "local", "-e", "@%s" % (tmp_path / "given.json"),
         str(tmp_path / "play.json")],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for number, (release, account) in enumerate(RELEASES):
        assert '"msg": "RELEASE %d %s"' % (number, account) in ended.stdout, release
