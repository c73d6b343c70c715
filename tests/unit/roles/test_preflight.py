# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pre-flight as it is run, where the head node cannot be reached: an executable in the place of `ssh` says so."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

from ansible_collections.mission_control.job_recovery.tests.stand_ins.charts import ChartRepository

PLAYBOOK = pathlib.Path(__file__).resolve().parents[3] / "playbooks/preflight.yml"
ORDER = ("failed ", "unknown ", "warning ", "passed ")
SSH = """#!/bin/sh
case "$*" in *head1*) echo 'ssh: connect to host head1 port 22: No route to host' >&2; exit 255 ;; esac
printf 'uid=0\\nboot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427\\nmachine_id=4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6\\n'
printf 'memory_kb=33554432\\nsockets=2\\ncores=32\\nthreads=64\\nslurm_name=node1\\npython=3.11\\n'
"""


def test_without_a_head_node_there_is_a_table_all_the_same(tmp_path: pathlib.Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    report = tmp_path / "preflight.json"
    variables = {
        "ansible_user": "root", "ansible_ssh_executable": str(ssh), "ansible_ssh_retries": 0,
        "job_recovery_cluster": "c", "job_recovery_partitions": ["batch"], "job_recovery_kubernetes": False,
        "preflight_active_command": "is-active", "preflight_report": str(report), "preflight_page": "",
    }
    with ChartRepository() as charts:
        charts.ingress = ("$oauthtoken", "nvapi-secret")
        charts.put("tool", "1.0.0", b"archive")
        releases = [{"name": "t", "namespace": "t", "chart": "tool", "repository": charts.address, "version": "1.0.0"},
                    {"name": "j", "namespace": "j", "chart": "{{ charts_folder }}/job-recovery"}]
        told = {"job_recovery_chart_repository": charts.address + "/", "job_recovery_registry_password": "nvapi-secret",
                "charts_releases": releases, "job_recovery_kubernetes": True, "job_recovery_namespaces": ["default"],
                "job_recovery_kubernetes_admin_kubeconfig": str(tmp_path / "nowhere")}
        ended = preflight(tmp_path, {**variables, **told})
    assert ended.returncode != 0, ended.stdout
    checks = {check["id"]: check for check in json.loads(report.read_text())["checks"]}
    assert checks["head_reachable"]["found"] == "0 of 1; head1: no route to it"
    statuses = {name: check["status"] for name, check in checks.items()}
    for name, status in (
        ("head_reachable", "failed"), ("head_node_memory", "unknown"), ("slurm_reachable", "unknown"),
        ("identity_names", "unknown"), ("database_login", "unknown"), ("active_head", "unknown"),
        ("node_memory", "passed"), ("nodes_root", "passed"), ("chart_repositories", "passed"),
        ("registry_charts", "passed"), ("prometheus_operator", "unknown"),
    ):
        assert statuses[name] == status, (name, checks[name])
    # the table is shown as lines, the head node before all else
    lines = [line for line in ended.stdout.splitlines() if line.startswith(tuple(ORDER))]
    assert lines[0].startswith("failed   head_reachable "), ended.stdout
    assert len(lines) == len(checks)
    assert "requirements are not met: head_reachable" in ended.stdout
    assert "nvapi-secret" not in ended.stdout + ended.stderr


def preflight(tmp_path: pathlib.Path, variables: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    groups = {"controller": {"hosts": {"head1": {}}}, "compute": {"hosts": {"node1": {}}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": variables, "children": groups}}))
    return subprocess.run(
        ["ansible-playbook", "-vvv", "-i", str(tmp_path / "hosts.json"), str(PLAYBOOK)],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "no_proxy": "*"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=240, check=False,
    )
