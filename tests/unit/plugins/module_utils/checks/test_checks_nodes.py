# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.nodes import run
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
    "storage_kb": "97656250",
}


def told(**other):
    lines = ["Welcome to the cluster, x=y", *("%s=%s" % item for item in {**GOOD, **other}.items())]
    return {"stdout": "\r\n".join(lines), "rc": 0}


def check(results, heads=(), compute=()):
    names = ["node%d" % number for number in range(len(results))]
    params = {"names": names, "results": results, "heads": list(heads), "compute": list(compute)}
    return run({**params, "oldest_python": "3.9"}, False)


def statuses(results):
    return {item["id"]: item["status"] for item in check(results)["checks"]}


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
    ],
)
def test_one_bad_node_of_two_is_named(check_id, other):
    results = [told(), told(**other)]
    found = {item["id"]: item for item in check(results)["checks"]}
    assert {item_id for item_id, item in found.items() if item["status"] != "passed"} == {check_id}
    assert "node1" in found[check_id]["found"]
    assert "node0" not in found[check_id]["found"]
    assert found[check_id]["hint"]


@pytest.mark.parametrize("result", [{"unreachable": True, "msg": "no route"}, {"failed": True, "msg": "skipped"}])
def test_a_node_that_was_not_reached_fails_one_check_only(result):
    found = statuses([told(), result])
    assert [item_id for item_id, status in found.items() if status == "failed"] == ["nodes_reachable"]


def test_the_numbers_for_the_hardware():
    result = check([told(), told(sockets="", memory_kb="x")], heads=["node0"], compute=["node0", "node1"])
    assert result["machines"] == [
        {"name": "node0", "head": False, "memory_mb": 16000.0, "sockets": 2, "cores_per_socket": 28, "threads": 112},
        {"name": "node1", "head": False, "threads": 112},
        {"name": "node0", "head": True, "memory_mb": 16000.0, "sockets": 2, "cores_per_socket": 28, "threads": 112},
    ]
    assert result["storage_gb"] == 100.0


def test_storage_that_one_head_did_not_tell_is_not_known():
    assert check([told(), {"unreachable": True}], heads=["node0", "node1"])["storage_gb"] is None


def test_names_and_results_must_belong_together():
    with pytest.raises(BadInput):
        run({"names": ["a", "b"], "results": [told()], "heads": [], "compute": [], "oldest_python": "3.9"}, False)
