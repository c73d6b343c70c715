# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hardware import (
    BackEnd,
    Hardware,
    Thresholds,
    cluster_cpus,
    hardware_sources,
    head_node_memory,
    joined,
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
    assert check.found == "smallest 8.4 GB of 2 nodes; too little: n1: 8.4 GB; not known of n2"


def test_many_nodes_are_not_all_named():
    check = node_memory([Hardware("n%d" % number, 1.0) for number in range(1, 1001)], WANTED)
    assert check.found == "smallest 0.0 GB of 1000 nodes; too little: n[1-1000]: 0.0 GB"


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


@pytest.mark.parametrize(
    ("head", "ends", "status", "words"),
    [
        (30.0, [("nfs", True, {"head1": 512.0})], "passed", "default class nfs, there: 512.0 GB free (seen on head1)"),
        (30.0, [("nfs", True, {"head1": 3.0})], "failed", "3.0 GB free"),
        (3.0, [("nfs", True, {"head1": 512.0})], "failed", "head node 3.0 GB"),
        (None, [("nfs", True, {"head1": 512.0})], "passed", "512.0 GB"),
        (30.0, [("ceph", True, {})], "unknown", "default class ceph, there: not known"),
        (30.0, [("ceph", False, {})], "passed", "class ceph, there: not known"),  # nobody gets it unasked
        (30.0, [("local", True, {"n1": 9.0, "n2": 90.0})], "warning", "from 9.0 to 90.0 GB free, too little on n1"),
        (30.0, [("local", True, {"n1": 9.0, "n2": 8.0})], "failed", "too little on n[1-2]"),
        (30.0, [("local", True, {"n1": 90.0, "n2": 80.0})], "passed", "from 80.0 to 90.0 GB free"),
        (30.0, [("a", True, {"n1": 90.0}), ("b", False, {"n1": 1.0})], "passed", "class b, there: 1.0 GB"),
        (30.0, [("l", True, {"n1": 90.0}), ("l", True, {"n1": 1.0})], "failed", "1.0 GB"),  # two paths of one class
    ],
)
def test_storage_is_what_is_free_where_volumes_lie(head, ends, status, words):
    back_ends = [BackEnd(name, default, "there", free) for name, default, free in ends]
    check = persistent_storage(head, WANTED, back_ends)
    assert (check.status, words in check.found) == (status, True), check.found
    assert bool(check.hint) == (status != "passed")


OWN = {"name": "n1", "memory_mb": 128000.0, "sockets": 2, "cores_per_socket": 16, "threads": 64}


@pytest.mark.parametrize(
    ("slurm", "kubernetes", "status", "words"),
    [
        ({}, {}, "passed", "agreed on 1 nodes"),
        ({"sockets": 64, "cores_per_socket": 1}, {}, "warning", "n1: Slurm says 64 cores, it has 32"),
        ({"memory_mb": 256000.0}, {}, "warning", "Slurm promises 268 GB, it has 134"),
        ({"memory_mb": 120000.0}, {}, "passed", "agreed"),  # a site leaves some to the system
        ({"memory_mb": 1.0}, {}, "warning", "Slurm uses only 0 GB of its 134"),  # RealMemory was forgotten
        ({}, {"threads": 32}, "warning", "Kubernetes sees 32 threads, it has 64"),
        ({}, {"memory_mb": 64000.0}, "warning", "Kubernetes sees 67 GB, it has 134"),
        ({}, {"memory_mb": 126000.0}, "passed", "agreed"),
        ({"sockets": None}, {"threads": None}, "passed", "agreed"),  # who says nothing does not disagree
    ],
)
def test_sources_that_disagree_are_named(slurm, kubernetes, status, words):
    machines = joined([OWN], [{**OWN, **slurm}], [{**OWN, **kubernetes}])
    check = hardware_sources(machines)
    assert (check.status, words in check.found) == (status, True), check.found


def test_one_disagreement_of_a_thousand_nodes_is_one_line():
    nodes = [{**OWN, "name": "n%04d" % number} for number in range(1000)]
    check = hardware_sources(joined(nodes, [{**node, "sockets": 1} for node in nodes], []))
    assert check.found == "n[0000-0999]: Slurm says 16 cores, it has 32"


def test_names_differ_between_the_systems():
    node = {**OWN, "slurm_name": "gpu7", "kubernetes_name": ""}
    (machine,) = joined([node], [{**OWN, "name": "gpu7", "sockets": 1}], [{**OWN, "threads": 1}])
    assert (machine.slurm.sockets, machine.kubernetes) == (1, None)
    assert hardware_sources(joined([{**OWN, "slurm_name": "other"}], [OWN], [])).status == "warning"


@pytest.mark.parametrize(
    ("own", "cores", "threads", "source"),
    [
        ({"name": "n1"}, 32, 64, "Slurm"),
        ({"name": "n1", "threads": 48, "memory_mb": 1.0}, 32, 48, "Slurm"),
        (OWN, 32, 64, ""),
    ],
)
def test_what_a_machine_did_not_tell_others_tell(own, cores, threads, source):
    (machine,) = joined([own], [OWN], [{"name": "n1", "threads": 1, "memory_mb": 5.0}])
    assert (machine.best.cores, machine.best.threads, machine.best.source) == (cores, threads, source)
    assert ("(n1: as told by Slurm)" in cluster_cpus([machine.best], WANTED).found) == bool(source)


def test_kubernetes_knows_threads_only():
    (machine,) = joined([{"name": "n1"}], [], [{"name": "n1", "threads": 64, "memory_mb": 64000.0}])
    assert (machine.best.cores, machine.best.threads) == (None, 64)
    assert cluster_cpus([machine.best], WANTED).status == "unknown"
    assert node_memory([machine.best], WANTED).status == "passed"


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
