# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.slurm import (
    Said,
    Wanted,
    judge,
    run,
    spool_fault,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.commands import Controller
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStoreFlags": "job_comment,job_script",
    "JobRequeue": "1",
    "MinJobAge": "300 sec",
    "ReturnToService": "1",
    "SLURM_VERSION": "24.11.5",
    "SlurmUser": "slurm(64030)",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "StateSaveLocation": "/var/spool/slurmctld",
}
NODES = [Node("node1", "IDLE", partitions=("main",)), Node("node2", "IDLE", partitions=("main", "long"))]
SPOOLS = {"node1": "/var/spool/slurmd", "node2": "/var/spool/slurmd"}
UP = [Controller("primary", "head1", True), Controller("backup", "head2", True)]
FAILED_OVER = [Controller("primary", "head1", False), Controller("backup", "head2", True)]
ALL_DOWN = [Controller("primary", "head1", False)]


def status_of(check_id, config=(), controllers=tuple(UP), level=None, **wanted):
    said = Said(list(controllers), {**CONFIG, **dict(config)}, NODES, spool_dirs=SPOOLS, admin_level=level)
    found = {check.id: check for check in judge(said, Wanted(**wanted))}
    assert len(found) >= 9
    if found[check_id].status != "passed":
        assert found[check_id].hint, "a check that does not pass says what to do"
    return found[check_id].status


@pytest.mark.parametrize(
    ("controllers", "hostnames", "status"),
    [
        (UP, ["head1"], "passed"),
        (UP, ["head1.cluster.example"], "passed"),
        (UP, ["head2"], "failed"),
        (FAILED_OVER, ["head2"], "passed"),
        (FAILED_OVER, ["head1"], "failed"),
        (ALL_DOWN, ["head1"], "unknown"),
        (UP, ["login", "head"], "failed"),
    ],
)
def test_the_passive_head_node_is_refused(controllers, hostnames, status):
    assert status_of("slurm_active_controller", controllers=controllers, hostnames=hostnames) == status


@pytest.mark.parametrize(
    ("check_id", "config", "status"),
    [
        ("slurm_version", {"SLURM_VERSION": "22.05.9"}, "passed"),
        ("slurm_version", {"SLURM_VERSION": "21.08.8"}, "failed"),
        ("slurm_version", {"SLURM_VERSION": "unheard of"}, "unknown"),
        ("slurm_job_requeue", {"JobRequeue": "0"}, "warning"),
        ("slurm_job_requeue", {"JobRequeue": ""}, "unknown"),
        ("slurm_job_comment", {"AccountingStoreFlags": "job_script"}, "failed"),
        ("slurm_job_comment", {"AccountingStoreFlags": ""}, "failed"),
        ("slurm_job_comment", {"AccountingStoreFlags": "JOB_COMMENT"}, "passed"),
        ("slurm_accounting", {"AccountingStorageType": "accounting_storage/none"}, "warning"),
        ("slurm_min_job_age", {"MinJobAge": "2 sec"}, "warning"),
        ("slurm_min_job_age", {"MinJobAge": "0 sec"}, "passed"),  # never forgotten
        ("slurm_min_job_age", {"MinJobAge": ""}, "unknown"),
        ("slurm_return_to_service", {"ReturnToService": "0"}, "passed"),
        ("slurm_return_to_service", {"ReturnToService": "2"}, "warning"),
        ("slurm_return_to_service", {"ReturnToService": "3"}, "unknown"),
    ],
)
def test_what_the_configuration_says(check_id, config, status):
    assert status_of(check_id, config) == status


@pytest.mark.parametrize(
    ("user", "level", "config", "status"),
    [
        ("job-recovery", "Administrator", {}, "passed"),
        ("job-recovery", "Operator", {}, "failed"),
        ("job-recovery", None, {}, "failed"),
        ("slurm", None, {}, "passed"),
        ("job-recovery", None, {"AccountingStorageType": ""}, "failed"),
    ],
)
def test_who_may_change_nodes(user, level, config, status):
    assert status_of("slurm_rights", config, user=user, level=level) == status


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"nodes": ["node1", "node2"], "partitions": ["main"]}, "passed"),
        ({"nodes": ["node3"]}, "failed"),
        ({"partitions": ["batch"]}, "failed"),
    ],
)
def test_the_inventory_against_slurm(wanted, status):
    assert status_of("slurm_nodes", **wanted) == status


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/var/spool/slurmd", ""),
        ("/var/spool/slurm/node1", ""),
        ("/var/spool/slurmd/", ""),
        ("", "no absolute path"),
        ("spool/slurmd", "no absolute path"),
        ("/", "shares"),
        ("/tmp", "shares"),
        ("/var/spool/", "shares"),
        ("/var/spool/../spool", "shares"),
        ("/var/spool/slurmd/../x", "characters"),
        ("/var/spool/slurm d", "characters"),
        ("/var/spool/slurm*", "characters"),
        ("/var/spool/slurm%n", "characters"),
        ("/var/spool/slurmd\n", "characters"),
        ("/var/spool/slurmctld", "StateSaveLocation"),
        ("/" + "a" * 66, ""),
        ("/" + "a" * 80, "too long"),
    ],
)
def test_spools_that_can_be_cleaned(path, fault):
    found = spool_fault(path, "/var/spool/slurmctld")
    assert fault in found
    assert bool(found) is bool(fault)


def test_one_bad_spool_of_many_is_named():
    spools = {"node1": "/var/spool/slurmd", "node2": "/tmp"}
    said = Said(UP, CONFIG, NODES, spool_dirs=spools)
    check = next(check for check in judge(said, Wanted()) if check.id == "slurm_spool_dir")
    assert check.status == "failed"
    assert "node2" in check.found
    assert "node1" not in check.found


def test_no_answer_is_one_failed_check(tmp_path):
    params = {"bin_dir": str(tmp_path), "timeout": 1.0, "nodes": [], "partitions": [], "on_active_controller": True}
    result = run({**params, "oldest_version": "22.05", "min_job_age": 300, "user": ""}, False)
    assert [(check["id"], check["status"]) for check in result["checks"]] == [("slurm_reachable", "failed")]
    assert (result["spool_dirs"], result["version"]) == ({}, "")
