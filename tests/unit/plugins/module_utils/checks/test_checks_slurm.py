# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.slurm import (
    SPEC,
    Said,
    Wanted,
    judge,
    run,
    spool_fault,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.commands import (
    Controller,
    resolve_spool_dir,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.parse_text import parse_config

CAPTURES = pathlib.Path(__file__).resolve().parents[1] / "slurm" / "captures"
CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStoreFlags": "job_comment,job_script",
    "JobRequeue": "1",
    "MaxBatchRequeue": "5",
    "MessageTimeout": "10 sec",
    "MinJobAge": "300 sec",
    "RebootProgram": "/usr/sbin/reboot",
    "ReturnToService": "1",
    "SLURM_VERSION": "24.11.5",
    "SlurmUser": "slurm(64030)",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmdTimeout": "300 sec",
    "UnkillableStepTimeout": "60 sec",
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
        ("slurm_version", {"SLURM_VERSION": "25.05.1"}, "warning"),  # newer than any that was tried
        ("slurm_max_batch_requeue", {}, "passed"),
        ("slurm_max_batch_requeue", {"MaxBatchRequeue": "1"}, "warning"),
        ("slurm_max_batch_requeue", {"MaxBatchRequeue": "0"}, "warning"),
        ("slurm_max_batch_requeue", {"MaxBatchRequeue": ""}, "unknown"),
        ("slurm_slurmd_timeout", {}, "passed"),
        ("slurm_slurmd_timeout", {"SlurmdTimeout": "0 sec"}, "warning"),  # never DOWN
        ("slurm_slurmd_timeout", {"SlurmdTimeout": "65533 sec"}, "warning"),
        ("slurm_slurmd_timeout", {"SlurmdTimeout": "INFINITE"}, "unknown"),
        ("slurm_unkillable_timeout", {}, "passed"),
        ("slurm_unkillable_timeout", {"UnkillableStepTimeout": "30 sec"}, "warning"),
        ("slurm_unkillable_timeout", {"MessageTimeout": "60 sec"}, "warning"),  # 300 s would be its default then
        ("slurm_unkillable_timeout", {"UnkillableStepTimeout": "300 sec", "MessageTimeout": "60 sec"}, "passed"),
        ("slurm_unkillable_timeout", {"UnkillableStepTimeout": "86400 sec"}, "warning"),
        ("slurm_unkillable_timeout", {"UnkillableStepTimeout": ""}, "unknown"),
        ("slurm_reboot_program", {}, "passed"),
        ("slurm_reboot_program", {"RebootProgram": "/usr/sbin/shutdown -r now"}, "passed"),
        ("slurm_reboot_program", {"RebootProgram": ""}, "warning"),
        ("slurm_reboot_program", {"RebootProgram": "reboot"}, "warning"),
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
        ("job-recovery", "None", {}, "failed"),
        ("slurm", None, {}, "warning"),  # may more than it needs
        ("root", None, {}, "warning"),
        ("slurm", None, {"AccountingStorageType": ""}, "passed"),  # there is no other way
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
    params = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    result = run({**params, "bin_dir": str(tmp_path), "timeout": 1.0}, False)
    assert [(check["id"], check["status"]) for check in result["checks"]] == [("slurm_reachable", "failed")]
    assert (result["spool_dirs"], result["version"], result["nodes"]) == ({}, "", [])


def test_every_finding_says_what_to_set():
    """A hint about a setting of slurm.conf names it."""
    for check in judge(Said(UP, {}, NODES, spool_dirs=SPOOLS), Wanted()):
        name = check.found.split("=", 1)[0]
        if check.status != "passed" and "=" in check.found:
            assert name in check.hint or "slurmdbd" in check.hint, check


@pytest.mark.parametrize(
    ("level", "trouble", "made", "status"),
    [
        (None, "sacctmgr: no answer", False, "unknown"),  # slurmdbd is down: nobody knows
        (None, "sacctmgr: no answer", True, "unknown"),
        (None, "", True, "passed"),
        ("Operator", "", True, "passed"),
        ("Administrator", "", False, "passed"),
    ],
)
def test_rights_that_the_installer_gives_or_nobody_knows(level, trouble, made, status):
    said = Said(UP, CONFIG, NODES, spool_dirs=SPOOLS, admin_level=level, level_trouble=trouble)
    found = {check.id: check for check in judge(said, Wanted(user="job-recovery", user_is_made=made))}
    assert found["slurm_rights"].status == status
    assert found["slurm_reachable"].status == "passed"


@pytest.mark.parametrize(
    ("versions", "status", "words"),
    [
        (["24.11.5", "24.11.5"], "passed", "24.11.5 on 2"),
        (["24.11.5", "24.11.1"], "passed", "24.11.1 on 1"),
        (["24.11.5", "24.05.3"], "warning", "24.05.3 on 1"),
        (["24.11.5", "25.05.0"], "failed", "newer than slurmctld: node1"),
        ([None, None], "passed", "no node tells"),
    ],
)
def test_versions_of_the_nodes(versions, status, words):
    nodes = [Node("node%d" % number, "IDLE", version=version) for number, version in enumerate(versions)]
    check = next(one for one in judge(Said(UP, CONFIG, nodes), Wanted()) if one.id == "slurm_node_versions")
    assert (check.status, words in check.found) == (status, True), check.found


# P5: the first %h is NodeHostName, the first %n NodeName; both differ on some sites.
@pytest.mark.parametrize(
    ("template", "node", "path"),
    [
        ("/var/spool/slurm/%n", Node("n1", "IDLE", hostname="host1"), "/var/spool/slurm/n1"),
        ("/var/spool/slurm/%h", Node("n1", "IDLE", hostname="host1"), "/var/spool/slurm/host1"),
        ("/var/spool/%h/%n", Node("n1", "IDLE", hostname="host1"), "/var/spool/host1/n1"),
        ("/var/spool/%n/%n", Node("n1", "IDLE", hostname="host1"), "/var/spool/n1/%n"),
        ("/var/spool/slurm/%h", Node("n1", "IDLE"), "/var/spool/slurm/n1"),
    ],
)
def test_the_spool_of_a_node(template, node, path):
    assert resolve_spool_dir(template, node) == path


@pytest.mark.parametrize(
    ("template", "status", "words"),
    [
        ("/var/spool/slurmd", "failed", "n[1-2]: shares it with another slurmd on host1"),
        ("/var/spool/slurmd.%n", "passed", "SlurmdSpoolDir=/var/spool/slurmd.%n"),
        ("/var/spool/%n/%n", "failed", "has characters other than"),
        ("/var/spool/" + "a" * 60 + "/%h/%n", "failed", "is too long for sockets"),
    ],
)
def test_spools_of_several_slurmd_on_one_host(template, status, words):
    nodes = [Node("n1", "IDLE", hostname="host1"), Node("n2", "IDLE", hostname="host1"), Node("n3", "IDLE")]
    spools = {node.name: resolve_spool_dir(template, node) for node in nodes}
    said = Said(UP, {**CONFIG, "SlurmdSpoolDir": template}, nodes, spool_dirs=spools)
    check = next(one for one in judge(said, Wanted()) if one.id == "slurm_spool_dir")
    assert (check.status, words in check.found) == (status, True), check.found


def test_a_thousand_bad_spools_are_one_line():
    nodes = [Node("node%04d" % number, "IDLE") for number in range(1000)]
    said = Said(UP, CONFIG, nodes, spool_dirs={node.name: "/tmp" for node in nodes})
    check = next(one for one in judge(said, Wanted()) if one.id == "slurm_spool_dir")
    assert check.found == "SlurmdSpoolDir=/var/spool/slurmd: node[0000-0999]: shares /tmp with others"


def test_a_real_configuration():
    """All that a Slurm 24.11.5 says of its configuration, as the lab has it."""
    text = (CAPTURES / "scontrol_config-24.11.5.txt").read_text()
    config = parse_config(text)
    found = {check.id: check.status for check in judge(Said(UP, config, NODES, spool_dirs=SPOOLS), Wanted())}
    assert set(found.values()) == {"passed"}, found


def test_only_whether_slurm_answers(fake):
    params = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    result = run({**params, "bin_dir": fake, "reachable_only": True}, False)
    assert [(check["id"], check["status"]) for check in result["checks"]] == [("slurm_reachable", "passed")]


def test_the_nodes_are_told_for_the_hardware(fake):
    params = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    result = run({**params, "bin_dir": fake, "on_active_controller": False, "user": "job-recovery"}, False)
    assert [node["name"] for node in result["nodes"]] == ["node1"]
    assert result["nodes"][0]["sockets"] == 2
    found = {check["id"]: check for check in result["checks"]}
    # sacctmgr of this world does not answer: all else is judged all the same
    assert found["slurm_rights"]["status"] == "unknown"
    assert found["slurm_spool_dir"]["status"] == "passed"


@pytest.fixture
def fake(tmp_path):
    """Commands that say what a small cluster says; sacctmgr fails as it does when slurmdbd is down."""
    config = "\n".join("%s = %s" % each for each in CONFIG.items())
    node = {
        "name": "node1",
        "hostname": "node1",
        "state": ["IDLE"],
        "partitions": ["main"],
        "sockets": 2,
        "cores": 8,
        "cpus": 32,
        "real_memory": 64000,
        "version": "24.11.5",
    }
    scontrol = """#!/bin/sh
case "$*" in
  ping) echo 'Slurmctld(primary) at head1 is UP' ;;
  'show config') cat <<'END'
%s
END
    ;;
  '--all --json show node') cat <<'END'
%s
END
    ;;
  *) echo "unknown arguments $*" >&2; exit 97 ;;
esac
""" % (config, json.dumps({"nodes": [node], "errors": []}))
    (tmp_path / "scontrol").write_text(scontrol)
    (tmp_path / "sacctmgr").write_text(
        "#!/bin/sh\necho 'Problem talking to the database: Connection refused' >&2; exit 1\n"
    )
    for name in ("scontrol", "sacctmgr"):
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)
