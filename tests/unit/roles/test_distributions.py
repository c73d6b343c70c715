# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role `controller` tells to install, by distribution."""

from __future__ import annotations

import pathlib
import subprocess

import jinja2
import pytest
import yaml

CONTROLLER = pathlib.Path(__file__).resolve().parents[3] / "roles/controller"
VARS = yaml.safe_load((CONTROLLER / "vars/main.yml").read_text())
NAMES = ("__controller_os_words", "__controller_os_name", "__controller_packages", "__controller_python_hint",
         "__controller_java_hint")
# /etc/os-release as these distributions ship it; what the installer is to say.
RELEASES = [
    ('NAME="Red Hat Enterprise Linux"\nVERSION="8.10 (Ootpa)"\nID="rhel"\nVERSION_ID="8.10"\n',
     "dnf install python3.11", "python3.11", "dnf install java-17-openjdk-headless"),
    ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n',
     "dnf install python3.11", "python3.11", "dnf install java-17-openjdk-headless"),
    ('ID="almalinux"\nVERSION_ID="8.9"\n', "dnf install python3.11", "python3.11",
     "dnf install java-17-openjdk-headless"),
    ('NAME="SLES"\nVERSION="15-SP6"\nID="sles"\nVERSION_ID="15.6"\n',
     "zypper install python311", "python3.11", "zypper install java-17-openjdk-headless"),
    ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n',
     "apt-get install python3.11-venv", "python3.11", "apt-get install openjdk-17-jre-headless"),
    ('ID=ubuntu\nVERSION_ID="24.04"\n',
     "apt-get install python3-venv", "python3", "apt-get install openjdk-17-jre-headless"),
    ('ID=debian\nVERSION_ID="12"\n',
     "apt-get install python3-venv", "python3", "apt-get install openjdk-17-jre-headless"),
    ('ID=debian\nVERSION_ID="13"\n',
     "apt-get install python3-venv", "python3", "apt-get install openjdk-21-jre-headless"),
]


def hints(said: str) -> dict[str, str]:
    """The role's texts for what the task that asks for the distribution printed."""
    environment = jinja2.nativetypes.NativeEnvironment(undefined=jinja2.StrictUndefined)
    known = {"__controller_os": {"stdout": said}, **VARS}
    for name in NAMES:
        known[name] = environment.from_string(VARS[name]).render(known)
    return known


def ask(release: pathlib.Path) -> str:
    """What the task's own shell command prints, with another os-release."""
    tasks = yaml.safe_load((CONTROLLER / "tasks/runtime.yml").read_text())
    command = tasks[0]["ansible.builtin.shell"]["cmd"].replace("/etc/os-release", str(release))
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize(("release", "python", "interpreter", "java"), RELEASES)
def test_each_distribution_is_told_its_own_packages(
    tmp_path: pathlib.Path, release: str, python: str, interpreter: str, java: str
) -> None:
    (tmp_path / "os-release").write_text(release)
    told = hints(ask(tmp_path / "os-release"))
    assert told["__controller_python_hint"] == "`%s` and set controller_python to %s" % (python, interpreter)
    assert told["__controller_java_hint"] == "`%s`" % java


@pytest.mark.parametrize("said", ["arch ", "fedora 41", ""])
def test_an_unknown_distribution_is_said_to_be_one(said: str) -> None:
    told = hints(said)
    assert "is not known here" in told["__controller_python_hint"]
    assert "17 or newer" in told["__controller_java_hint"]


def test_every_release_of_the_table_is_tried(tmp_path: pathlib.Path) -> None:
    tried = set()
    for release, *_rest in RELEASES:
        (tmp_path / "os-release").write_text(release)
        tried.add(hints(ask(tmp_path / "os-release"))["__controller_os_name"])
    assert tried == set(VARS["__controller_distributions"])
