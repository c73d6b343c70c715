# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hardware import (
    Hardware,
    Thresholds,
    cluster_cpus,
    head_node_memory,
    node_memory,
    persistent_storage,
    run,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

WANTED = Thresholds()


@pytest.mark.parametrize(
    ("memory_mb", "status"),
    [
        (15900.0, "passed"),  # 16 GiB built in, what Linux shows of it: 16.7 GB
        (15259.0, "passed"),  # 16.0 GB
        (15258.0, "failed"),
        (7800.0, "failed"),
        (None, "unknown"),
    ],
)
def test_memory_of_nodes(memory_mb, status):
    assert node_memory([Hardware("n1", 64000.0), Hardware("n2", memory_mb)], WANTED).status == status


def test_a_node_that_is_too_small_is_named_and_outweighs_one_that_is_not_known():
    check = node_memory([Hardware("n1", 8000.0), Hardware("n2"), Hardware("n3", 64000.0)], WANTED)
    assert check.status == "failed"
    assert check.found == "smallest 8.4 GB of 2 nodes; too little on n1 (8.4 GB); not known of n2"


def test_many_nodes_are_not_all_named():
    check = node_memory([Hardware("n%d" % number, 1.0) for number in range(1000)], WANTED)
    assert check.found.endswith("and 995 more")


@pytest.mark.parametrize(
    ("nodes", "status", "words"),
    [
        ([Hardware("a", sockets=2, cores_per_socket=16, threads=64)], "passed", "32 cores, 64 threads"),
        ([Hardware("a", sockets=2, cores_per_socket=8, threads=32)], "warning", "16 cores, 32 threads"),
        ([Hardware("a", sockets=2, cores_per_socket=4, threads=16)], "failed", "8 cores, 16 threads"),
        ([Hardware("a", sockets=2, cores_per_socket=15)], "passed", "30 cores, 30 threads"),
        ([Hardware("a", threads=64)], "unknown", "cores of a are not known"),
        ([Hardware("a", sockets=2, cores_per_socket=16), Hardware("b")], "passed", "cores of b are not known"),
        ([Hardware("head", sockets=2, cores_per_socket=32, head=True)], "unknown", "0 nodes"),
        ([], "unknown", "0 nodes"),
    ],
)
def test_cores(nodes, status, words):
    check = cluster_cpus(nodes, WANTED)
    assert check.status == status
    assert words in check.found
    assert bool(check.hint) == (status != "passed")


def test_a_head_node_is_judged_apart():
    nodes = [Hardware("head", 48000.0, head=True), Hardware("n1", 64000.0)]
    assert (head_node_memory(nodes, WANTED).status, node_memory(nodes, WANTED).status) == ("failed", "passed")
    assert head_node_memory(nodes[1:], WANTED).status == "unknown"


@pytest.mark.parametrize(("size", "status"), [(20.0, "passed"), (19.9, "failed"), (None, "unknown")])
def test_storage(size, status):
    assert persistent_storage(size, WANTED).status == status


def test_the_module():
    params = {
        "nodes": [{"name": "n1", "memory_mb": 4000.0, "sockets": 1, "cores_per_socket": 2, "threads": 4, "head": None}],
        "storage_gb": 5.0,
        "min_node_memory_gb": 1.0,
        "min_cluster_cores": 2,
        "min_head_memory_gb": 1.0,
        "min_storage_gb": 1.0,
    }
    result = run(params, False)
    assert [(check["id"], check["status"]) for check in result["checks"]] == [
        ("node_memory", "passed"),
        ("cluster_cpus", "passed"),
        ("head_node_memory", "unknown"),
        ("persistent_storage", "passed"),
    ]
    with pytest.raises(BadInput):
        run(dict(params, min_storage_gb=-1.0), False)
