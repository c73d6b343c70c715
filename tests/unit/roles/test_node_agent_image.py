# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role `node_agent` into the folder of an image; `chroot` and Slurm's commands are executables on PATH."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROLE = "mission_control.job_recovery.node_agent"
CHROOT = """#!/bin/sh
test "$2" = /usr/bin/python3 || { echo "unknown arguments: $*" >&2; exit 97; }
test -e "$1/usr/bin/python3" || { echo "chroot: failed to run command '$2': No such file or directory" >&2; exit 127; }
cat "$1/usr/bin/python3"
"""
SCONTROL = r"""#!/bin/sh
test "$1" != --all || shift
case "$*" in
"show config")
    printf 'Configuration data as of 2026-11-30T10:00:00\nSLURM_VERSION = 24.11.5\nClusterName = c\n'
    printf 'SlurmdSpoolDir = /var/spool/slurmd/%%n\nStateSaveLocation = /var/spool/slurmctld\n' ;;
ping) echo "Slurmctld(primary) at head1 is UP" ;;
"--json ping") echo '{"pings": [{"hostname": "head1", "pinged": "UP", "mode": "primary"}], "errors": []}' ;;
"--json show node") echo '{"nodes": [{"name": "node001", "state": ["IDLE"], "partitions": ["batch"]}], "errors": []}' ;;
*) echo "unknown arguments: $*" >&2; exit 97 ;;
esac
"""


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    """An image, a controller's key, a playbook, and what it finds on PATH."""
    image = tmp_path / "image"
    for folder in ("bin", "lib/systemd/system", "local/sbin", "local/lib"):
        (image / "usr" / folder).mkdir(parents=True)
    for folder in ("etc/tmpfiles.d", "root/.ssh"):
        (image / folder).mkdir(parents=True)
    (image / "usr/bin/python3").write_text("3.9\n")
    (image / "usr/lib/systemd/system/slurmd.service").write_text("[Unit]\nAfter=network.target\n")
    (tmp_path / "etc/ssh").mkdir(parents=True)
    (tmp_path / "etc/ssh/id_ed25519.pub").write_text("ssh-ed25519 AAAA job-recovery@c\n")
    (tmp_path / "bin").mkdir()
    for name, text in (("chroot", CHROOT), ("scontrol", SCONTROL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": {"controller": {"hosts": {"head1": {
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable}}}}}}))
    (tmp_path / "play.json").write_text(json.dumps([{"hosts": "controller", "gather_facts": False, "tasks": [
        {"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "image.yml"}, "tags": ["install"]},
        {"ansible.builtin.import_role": {"name": ROLE, "tasks_from": "remove_images.yml"}, "tags": ["remove", "never"]},
    ]}]))
    return tmp_path


def play(site: pathlib.Path, *arguments: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    given = {
        "job_recovery_cluster": "c", "job_recovery_partitions": ["batch"], "job_recovery_kubernetes": False,
        "node_agent_images": [str(site / "image")], "job_recovery_etc": "/etc/job-recovery", **variables,
    }
    # the key is read from the controller's own folder, which is this test's
    (site / "given.json").write_text(json.dumps(given))
    root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    environment = {**os.environ, "PATH": "%s:%s" % (site / "bin", os.environ["PATH"]), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        [*root, "ansible-playbook", "-i", str(site / "hosts.json"), "-e", "@%s" % (site / "given.json"), *arguments,
         str(site / "play.json")],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False,
    )


def test_an_image_gets_what_a_node_has_and_a_second_time_changes_nothing(site: pathlib.Path) -> None:
    etc = str(site / "etc")  # the folder of settings, which in the image lies under the same path
    ended = play(site, job_recovery_etc=etc)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    image = site / "image"
    assert (image / "usr/local/lib/job-recovery/job_recovery_node/cli.py").exists()
    assert os.access(image / "usr/local/sbin/job-recovery-node", os.X_OK)
    told = json.loads((image / etc.lstrip("/") / "node.json").read_text())
    assert (told["node_name"], told["spool_dir"]) == ("", "/var/spool/slurmd/%n")
    lines = (image / "etc/tmpfiles.d/job-recovery.conf").read_text().splitlines()
    assert "r! /var/spool/slurmd/*/stepd.slurm.pmix.[0-9]*.[0-9]*" in lines
    assert "r! /var/spool/slurmd/*/*_[0-9]*.[0-9]*" in lines
    keys = (image / "root/.ssh/authorized_keys").read_text()
    assert keys == ('restrict,command="/usr/local/sbin/job-recovery-node" ssh-ed25519 AAAA job-recovery@c\n')
    again = play(site, job_recovery_etc=etc)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout

    (image / "root/.ssh/authorized_keys").write_text("ssh-ed25519 BBBB alice@c\n" + keys)
    (image / etc.lstrip("/") / "node.json.kept").touch()
    before = {path for path in image.rglob("*") if "job-recovery" not in str(path) and path.name != "node.json"}
    removed = play(site, "--tags", "remove", job_recovery_etc=etc)
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert (image / "root/.ssh/authorized_keys").read_text() == "ssh-ed25519 BBBB alice@c\n"
    assert set(image.rglob("*")) == before


def test_the_agent_comes_into_an_image_where_it_is_wanted_and_goes_where_not(site: pathlib.Path) -> None:
    etc = str(site / "etc")
    given = {"job_recovery_etc": etc, "job_recovery_user": "root", "job_recovery_agent_controllers": ["head1"],
             "job_recovery_agent_catalogue": {"xid": {79: {"action": "drain_and_report"}}}}
    image = site / "image"
    mine = ("local/sbin/job-recovery-agent", "local/lib/job-recovery/job_recovery/agent/service.py")
    units = image / "etc/systemd/system"
    ended = play(site, job_recovery_agent=True, **given)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads((image / etc.lstrip("/") / "agent.json").read_text())
    assert told == {
        "controllers": ["head1"], "port": 6838, "controller_uid": 0, "node": "", "kernel_log": "/dev/kmsg",
        "munge_socket": "", "catalogue": {"xid": {"79": {"action": "drain_and_report"}}},
    }
    assert all((image / "usr" / path).exists() for path in mine)
    assert "CapabilityBoundingSet=CAP_SYSLOG" in (units / "job-recovery-agent.service").read_text()
    link = units / "multi-user.target.wants/job-recovery-agent.service"
    assert os.readlink(link) == "/etc/systemd/system/job-recovery-agent.service"
    again = play(site, job_recovery_agent=True, **given)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout
    without = play(site, **given)
    assert without.returncode == 0, without.stdout + without.stderr
    assert not any((image / "usr" / path).exists() for path in mine)
    assert not link.is_symlink()
    assert not (image / etc.lstrip("/") / "agent.json").exists()


@pytest.mark.parametrize(("file", "text", "said"), [
    ("usr/bin/python3", "3.6\n", "Python 3.9 or newer"),
    ("usr/bin/python3", None, "No such file or directory"),
    ("usr/lib/systemd/system/slurmd.service", "[Unit]\nDefaultDependencies=no\n", "start before the spool is cleaned"),
])
def test_an_image_that_will_not_do_is_refused(site: pathlib.Path, file: str, text: str, said: str) -> None:
    path = site / "image" / file
    path.unlink()
    if text is not None:
        path.write_text(text)
    ended = play(site, job_recovery_etc=str(site / "etc"))
    assert ended.returncode != 0
    assert said in " ".join((ended.stdout + ended.stderr).split())
