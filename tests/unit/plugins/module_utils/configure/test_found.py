# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `configure_info` finds: Slurm clusters by their files, and a login to a real MariaDB."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure import found

# One scontrol for all clusters, as on a head node: SLURM_CONF tells which is meant.
SCONTROL = r"""#!/usr/bin/python3
import json, os, sys
conf = os.environ.get("SLURM_CONF", "")
with open(%r) as handle:
    cluster = json.load(handle).get(conf)
if cluster is None:
    sys.exit("scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host")
words = [word for word in sys.argv[1:] if word != "--all"]
if words == ["show", "config"]:
    print("Configuration data as of 2026-11-30T10:00:00")
    print("SLURM_VERSION           = 24.11.5")
    print("ClusterName             = " + cluster["name"])
    print("SlurmctldHost[0]        = head1")
    print()
    print("Slurmctld(primary) at head1 is UP")
elif words == ["--json", "show", "node"]:
    print(json.dumps({"nodes": [{"name": "n1", "state": ["IDLE"], "partitions": cluster["partitions"]}], "errors": []}))
else:
    sys.exit("unknown arguments: %%r" %% sys.argv)
"""
PASSWORDS = ["plain", "a'b", 'a"b', "a\\b", "back\\", '"', "'", "#x", "a #b", '"a"#b"', "a;b", "$x`id`", "{{ x }}",
             " blank ", "a\\nb", "a\\'\"#b", "ü€", "[client]", "%s", "!x", "a\\s"]


@pytest.fixture
def head(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "scontrol").write_text(SCONTROL % str(tmp_path / "clusters"))
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return tmp_path


def clusters(head: pathlib.Path, by_conf: dict[str, Any]) -> list[str]:
    (head / "clusters").write_text(json.dumps(by_conf))
    for conf in filter(None, by_conf):
        pathlib.Path(conf).parent.mkdir(exist_ok=True)
        pathlib.Path(conf).write_text("ClusterName=x\n")
    return found.find_confs([str(head / "*" / "slurm.conf")])


def test_each_cluster_is_found_once(head: pathlib.Path) -> None:
    one = {"name": "one", "partitions": ["batch", "debug"]}
    two = {"name": "two", "partitions": ["gpu"]}
    first, second = str(head / "a/slurm.conf"), str(head / "b/slurm.conf")
    confs = clusters(head, {"": one, first: one, second: two})
    assert found.find_clusters(str(head), confs, 10) == [
        {"cluster": "one", "conf": "", "partitions": ["batch", "debug"], "error": ""},
        {"cluster": "two", "conf": second, "partitions": ["gpu"], "error": ""},
    ]


def test_a_cluster_that_does_not_answer_is_there_with_its_error(head: pathlib.Path) -> None:
    conf = str(head / "a/slurm.conf")
    confs = clusters(head, {conf: None})
    (only,) = found.find_clusters(str(head), confs, 10)
    assert only["conf"] == conf
    assert only["error"]


def test_no_slurm_is_no_cluster(head: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(head / "empty"))
    assert found.find_bin_dir([str(head)]) == str(head)
    assert found.find_bin_dir([str(head / "empty")]) is None
    monkeypatch.setenv("PATH", str(head))
    assert found.find_bin_dir([]) == ""


@pytest.mark.parametrize(("rc", "stderr", "status"), [
    (0, "", found.OK),
    (1, "ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)\n", found.REFUSED),
    (1, "ERROR 1698 (28000): Access denied for user 'root'@'localhost'\n", found.REFUSED),
    (1, "WARNING: x\nERROR 2002 (HY000): Can't connect to local server through socket '/x' (2)\n", found.UNREACHABLE),
    (1, "ERROR 2003 (HY000): Can't connect to MySQL server on '10.0.0.1:3306' (111)\n", found.UNREACHABLE),
    (127, "mysql: error while loading shared libraries\n", found.UNKNOWN),
    (7, "", found.UNKNOWN),
])
def test_the_clients_end_is_understood(rc: int, stderr: str, status: str) -> None:
    assert found.judge_login(rc, stderr)["status"] == status


@pytest.mark.parametrize("password", PASSWORDS)
def test_every_character_of_a_password_reaches_a_real_server(mariadb: Any, password: str) -> None:
    with mariadb.root() as root, root.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER configure@localhost IDENTIFIED BY %s", (password,))
    login = {"user": "configure", "password": password, "unix_socket": mariadb.socket, "host": "", "port": 0,
             "ca_file": ""}
    assert found.try_login(login, 10) == {"status": found.OK, "message": ""}
    refused = found.try_login({**login, "password": password + "x"}, 10)
    assert refused["status"] == found.REFUSED
    assert password not in refused["message"] or password in ("'", "ü€")


def test_a_server_that_is_not_there_is_unreachable(tmp_path: pathlib.Path) -> None:
    login = {"user": "root", "password": "", "unix_socket": str(tmp_path / "s"), "host": "", "port": 0, "ca_file": ""}
    assert found.try_login(login, 5)["status"] == found.UNREACHABLE


def test_without_a_client_nobody_knows(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    login = {"user": "root", "password": "", "unix_socket": "/x", "host": "", "port": 0, "ca_file": ""}
    assert found.try_login(login, 5)["status"] == found.UNKNOWN
