# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.nodes import (
    SPEC,
    run,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

GOOD = {
    "uid": "0",
    "boot_id": "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
    "machine_id": "4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6",
    "python": "3.13",
    "memory_kb": "16384000",
    "sockets": "2",
    "cores": "56",
    "threads": "112",
    "fs": "ext4 97656250 / /dev/sda1",
    "asked": "1796039583",
    "clock": "1796039584",
    "slurm_name": "n1",
    "kubernetes_name": "n1",
    "slurmd_enabled": "enabled",
    "kubelet_enabled": "enabled",
}


NUMBERS = {
    "memory_mb": 16000.0,
    "sockets": 2,
    "cores_per_socket": 28,
    "threads": 112,
    "slurm_name": "n1",
    "kubernetes_name": "n1",
}


def told(**other):
    lines = ["Welcome to the cluster, x=y", *("%s=%s" % item for item in {**GOOD, **other}.items())]
    return {"stdout": "\r\n".join(lines), "rc": 0}


def check(results, heads=(), compute=(), **other):
    names = ["node%d" % number for number in range(len(results))]
    params = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    given = {"names": names, "results": results, "heads": list(heads), "compute": list(compute), **other}
    return run({**params, **given}, False)


def statuses(results):
    names = ["node%d" % number for number in range(len(results))]
    return {item["id"]: item["status"] for item in check(results, compute=names)["checks"]}


def test_all_is_well():
    assert set(statuses([told(), told()]).values()) == {"passed"}


@pytest.mark.parametrize(
    ("check_id", "other"),
    [
        ("nodes_root", {"uid": "1000"}),
        ("nodes_boot_id", {"boot_id": ""}),
        ("nodes_boot_id", {"boot_id": "Welcome"}),
        ("nodes_machine_id", {"machine_id": "uninitialized"}),
        ("nodes_python", {"python": ""}),
        ("nodes_python", {"python": "3.6"}),
        ("nodes_python", {"python": "2.7"}),
        ("nodes_clock", {"clock": "1796039500"}),
        ("nodes_clock", {"clock": "1796039600"}),
        ("nodes_clock", {"clock": "0"}),  # a board whose battery is empty
        ("nodes_slurmd_enabled", {"slurmd_enabled": "disabled"}),
        ("nodes_slurmd_enabled", {"slurmd_enabled": "masked"}),
        ("nodes_slurmd_enabled", {"slurmd_enabled": ""}),
        ("nodes_kubelet_enabled", {"kubelet_enabled": "disabled"}),
    ],
)
def test_one_bad_node_of_two_is_named(check_id, other):
    results = [told(), told(**other)]
    found = {item["id"]: item for item in check(results, compute=["node0", "node1"])["checks"]}
    assert {item_id for item_id, item in found.items() if item["status"] != "passed"} == {check_id}
    assert "node1" in found[check_id]["found"]
    assert "node0" not in found[check_id]["found"]
    assert found[check_id]["hint"]


@pytest.mark.parametrize("result", [{"unreachable": True, "msg": "no route"}, {"failed": True, "msg": "skipped"}])
def test_a_node_that_was_not_reached_fails_one_check_only(result):
    found = statuses([told(), result])
    assert [item_id for item_id, status in found.items() if status == "failed"] == ["nodes_reachable"]


@pytest.mark.parametrize(
    ("result", "status", "found"),
    [
        (told(), "passed", "1 of 1"),
        ({"unreachable": True, "msg": "No route to host"}, "failed", "0 of 1; node1: no route to it"),
        ({"failed": True, "stdout": "", "stderr": "sudo: a password is required"}, "failed", "0 of 1; node1: become"),
    ],
)
def test_a_lost_head_node_is_told_before_all_else(result, status, found):
    first = check([told(), result], heads=["node1"], compute=["node0"])["checks"][0]
    assert (first["id"], first["status"]) == ("head_reachable", status)
    assert first["found"].startswith(found)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"msg": "ssh: connect to host 10.0.0.7 port 22: No route to host"}, "no route to it"),
        ({"msg": "ssh: connect to host 10.0.0.7 port 22: Connection timed out"}, "no answer in time"),
        ({"msg": "root@10.0.0.7: Permission denied (publickey)."}, "SSH: permission denied"),
        ({"msg": "Host key verification failed."}, "its host key is not known"),
        ({"msg": "Could not resolve hostname n7: Name or service not known"}, "its name cannot be resolved"),
        ({"failed": True, "stdout": "", "stderr": "sudo: a password is required"}, "become: sudo wants a password"),
        ({"msg": "\x1b[2Jsomething odd"}, "it gives no answer"),
    ],
)
def test_nodes_that_are_lost_are_grouped_by_the_reason(said, reason):
    unreachable = {} if "stdout" in said else {"unreachable": True}
    results = [told(), *({**said, **unreachable} for dummy in range(3))]
    found = {item["id"]: item for item in check(results)["checks"]}
    assert "1 of 4; node[1-3]: %s" % reason in found["nodes_reachable"]["found"]


def test_a_thousand_nodes_are_one_line_each():
    results = [{"unreachable": True, "msg": "No route to host"} for dummy in range(400)] + [
        told(machine_id="", python="3.6") for dummy in range(600)
    ]
    found = {item["id"]: item["found"] for item in check(results)["checks"]}
    assert found["nodes_reachable"] == "600 of 1000; node[0-9,10-399]: no route to it"
    assert found["nodes_python"] == "0 of 600; node[400-999]: 3.6"


def test_what_a_node_says_is_data():
    results = [told(python="\x1b[2J{{ 1 }}", hostname="x" * 5000, fs="ext4 1 relative /dev/sda")]
    result = check(results, compute=["node0"])
    assert all(item["found"].isprintable() for item in result["checks"])
    assert len(result["nodes"][0]["hostname"]) == 4000


# A banner before the answers, CR line ends, an empty boot ID: only a well-formed one counts.
@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("uid=0\nboot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427", "passed"),
        ("*** authorized use only: a=b ***\r\nuid=0\r\nboot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427\r\n", "passed"),
        ("uid=0\nboot_id=", "failed"),
        ("uid=0\nboot_id=1B4E28BA-2FA1-11D2-883F-0016D3CCA427", "failed"),
        ("uid=0\nboot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "failed"),
        ("uid=0\nboot_id=cat: /proc/sys/kernel/random/boot_id: No such file", "failed"),
        ("uid=0", "failed"),
    ],
)
def test_only_a_well_formed_boot_id_counts(output, status):
    found = {item["id"]: item["status"] for item in check([{"rc": 0, "stdout": output}])["checks"]}
    assert found["nodes_boot_id"] == status


def test_daemons_count_where_the_node_belongs_to_the_system():
    results = [told(kubernetes_name="", kubelet_enabled=""), told(slurm_name="", slurmd_enabled="disabled")]
    found = {item["id"]: item["found"] for item in check(results, compute=["node0", "node1"])["checks"]}
    assert found["nodes_slurmd_enabled"] == "1 of 1"
    assert found["nodes_kubelet_enabled"] == "1 of 1"
    assert "nodes_slurmd_enabled" not in {item["id"] for item in check(results)["checks"]}  # heads run no jobs


def test_the_numbers_for_the_hardware():
    result = check([told(), told(sockets="", memory_kb="x")], heads=["node0"], compute=["node0", "node1"])
    assert result["machines"] == [
        {**NUMBERS, "name": "node0", "head": False},
        {"name": "node1", "head": False, "threads": 112, "slurm_name": "n1", "kubernetes_name": "n1"},
        {**NUMBERS, "name": "node0", "head": True},
    ]
    assert result["storage_gb"] == 100.0
    assert check([told(fs="ext4 0 /var /dev/sda2")], heads=["node0"])["storage_gb"] == 0.0


def test_storage_that_one_head_did_not_tell_is_not_known():
    assert check([told(), {"unreachable": True}], heads=["node0", "node1"])["storage_gb"] is None


def test_names_and_results_must_belong_together():
    with pytest.raises(BadInput):
        check([told()], names=["a", "b"])


def test_names_and_identity_are_handed_on():
    results = [told(bmc_url="https://b/1", ssh_address="10.0.0.1", hostname="n1", smbios_uuid="u"), told(uid="")]
    result = check(results, compute=["node0", "node1"])
    assert [node["name"] for node in result["nodes"]] == ["node0"]
    node = result["nodes"][0]
    assert (node["slurm_name"], node["bmc_url"], node["hostname"]) == ("n1", "https://b/1", "n1")
    assert result["slurm_names"] == ["n1", "n1"]


# ---- what is free where volumes lie ----

MOUNTS = {
    "head": ["ext4 100000000 / /dev/sda1", "xfs 5000000000 /cm/shared /dev/md0"],
    "n1": ["ext4 50000000 / /dev/sda1", "nfs4 4900000000 /cm/shared 10.0.0.254:/cm/shared", "xfs 9000000 /opt /dev/b"],
    "n2": ["ext4 60000000 / /dev/sda1", "nfs4 4800000000 /cm/shared 10.0.0.254:/cm/shared", "bad line"],
}


@pytest.mark.parametrize(
    ("end", "free"),
    [
        ({"kind": "node", "path": "/opt/local-path-provisioner"}, {"n1": 9.2, "n2": 61.4}),
        ({"kind": "shared", "path": "/cm/shared/volumes"}, {"n2": 4915.2}),
        ({"kind": "nfs", "server": "10.0.0.254", "path": "/cm/shared/volumes"}, {"n2": 4915.2}),  # mounted
        ({"kind": "nfs", "server": "head", "path": "/cm/shared/volumes"}, {"head": 5120.0}),  # its own disk
        ({"kind": "nfs", "server": "10.0.0.253", "path": "/export"}, {"head": 102.4}),  # by its address
        ({"kind": "nfs", "server": "filer", "path": "/cm/shared"}, {}),
        ({"kind": "nfs", "server": "10.0.0.254", "path": "/other"}, {}),
        ({"kind": "other", "provisioner": "rbd.csi.ceph.com"}, {}),
        ({"kind": "node", "path": ""}, {}),
    ],
)
def test_what_is_free_where_volumes_lie(end, free):
    hosts = {"head": "10.0.0.253 fd00::1", "n1": "10.0.0.1", "n2": "10.0.0.2"}
    results = [
        {"stdout": "uid=0\nhostname=%s\naddresses=%s\nfs=%s" % (name, addresses, "\nfs=".join(MOUNTS[name]))}
        for name, addresses in hosts.items()
    ]
    given = {"names": ["head", "n1", "n2"], "back_ends": [{"class": "c", "default": True, **end}]}
    (measured,) = check(results, heads=["head"], compute=["n1", "n2"], **given)["back_ends"]
    assert measured["free"] == free
    assert measured["where"]
