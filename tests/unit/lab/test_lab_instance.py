# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from joblab import instance as names
from joblab.errors import LabError
from joblab.instance import HOSTS, NODES, Instance


def test_names_and_addresses(instance: Instance) -> None:
    assert instance.name == "jrlab-3"
    assert str(instance.subnet) == "10.89.3.0/24"
    assert instance.gateway == "10.89.3.1"
    assert [instance.address(host) for host in HOSTS] == [f"10.89.3.{last}" for last in range(10, 15)]
    assert instance.container("node2") == "jrlab-3-node2"
    assert [instance.node_index(node) for node in NODES] == [1, 2, 3, 4]


@pytest.mark.parametrize("host", ["node5", "", "HEAD", "../etc"])
def test_unknown_hosts_are_refused(instance: Instance, host: str) -> None:
    for method in (instance.address, instance.container, instance.smbios_uuid, instance.seed):
        with pytest.raises(LabError, match="head, node1"):
            method(host)


def test_the_head_is_no_compute_node(instance: Instance) -> None:
    with pytest.raises(LabError, match="No compute node"):
        instance.node_index("head")


def test_identities_are_stable_and_distinct(tmp_path: Path) -> None:
    first, again, other = Instance(0, tmp_path), Instance(0, tmp_path / "elsewhere"), Instance(1, tmp_path)
    assert first.smbios_uuid("node1") == again.smbios_uuid("node1")
    identities = [
        f(host) for lab in (first, other) for host in HOSTS for f in (lab.smbios_uuid, lab.machine_id, lab.mac)
    ]
    assert len(set(identities)) == len(identities)


def test_all_paths_are_in_the_state_folder(instance: Instance) -> None:
    for path in (
        instance.share,
        instance.home,
        instance.known_hosts,
        instance.ssh_key,
        instance.inventory,
        instance.volume("node1", "kubelet"),
        instance.seed("head"),
        instance.secret("mysql_root"),
    ):
        assert path.is_relative_to(instance.checkout / ".lab" / "3")


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("9", 9), ("", 0)])
def test_number_from_environment(text: str, number: int) -> None:
    assert names.from_environment({"LAB_INSTANCE": text}).number == number


@pytest.mark.parametrize("text", ["10", "-1", "one", "1.0", "²"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(LabError, match="LAB_INSTANCE"):
        names.from_environment({"LAB_INSTANCE": text})
