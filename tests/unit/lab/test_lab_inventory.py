# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from joblab import inventory, seed
from joblab.instance import HOSTS, NODES, Instance


def test_groups(instance: Instance) -> None:
    content = inventory.content(instance)["all"]
    members = {name: sorted(group["hosts"]) for name, group in content["children"].items()}
    assert members == {
        "controller": ["head"],
        "slurm_controller": ["head"],
        "kubernetes_control_plane": ["head"],
        "compute": sorted(NODES),
    }
    assert sorted(content["hosts"]) == sorted(HOSTS)


def test_a_node_knows_its_bmc(instance: Instance) -> None:
    node = inventory.content(instance)["all"]["hosts"]["node2"]
    assert node["ansible_host"] == "10.89.3.12"
    assert node["job_recovery_bmc_url"].startswith("https://10.89.3.1:")


def test_host_keys_are_checked_with_our_own_list(instance: Instance) -> None:
    arguments = inventory.content(instance)["all"]["vars"]["ansible_ssh_common_args"]
    assert "StrictHostKeyChecking=yes" in arguments
    assert f"UserKnownHostsFile={instance.known_hosts}" in arguments
    assert str(instance.ssh_key) not in arguments


def test_hosts_file(instance: Instance) -> None:
    assert seed.hosts_file(instance).splitlines()[:3] == ["127.0.0.1 localhost", "10.89.3.10 head", "10.89.3.11 node1"]


def test_secrets_are_made_once_and_private(instance: Instance) -> None:
    first = seed.secret(instance, "mysql_root")
    assert seed.secret(instance, "mysql_root") == first
    assert instance.secret("mysql_root").stat().st_mode & 0o777 == 0o600
    assert instance.secret("mysql_root").parent.stat().st_mode & 0o777 == 0o700
