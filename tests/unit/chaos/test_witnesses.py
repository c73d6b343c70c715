# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's witnesses leave behind becomes facts: lines as slurmctld 24.11.5 wrote them, journals as jobs do."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.mission_control.job_recovery.tests.chaos import witnesses
from ansible_collections.mission_control.job_recovery.tests.chaos.facts import COMPLETED, FAILED, KILLED, Hold, Requeue

OURS = "job-recovery #1 node_not_responding"
LOG = """\
[2026-11-30T22:49:30.842] debug:  _job_requeue_op: JobId=1 state 0x8000 reason 0 priority 1
[2026-11-30T22:52:27.897] update_node: node node3 reason set to: job-recovery #1 node_not_responding
[2026-11-30T22:52:27.897] update_node: node node3 state set to DRAINING
[2026-11-30T22:52:28.046] agent/is_node_resp: node:node3 RPC:REQUEST_PING : Communication connection failure
[2026-11-30T22:52:29.791] update_node: node node3 reason set to: job-recovery #1 node_not_responding
[2026-11-30T22:52:29.791] requeue job JobId=2 due to failure of node node3
[2026-11-30T22:52:29.791] update_node: node node3 state set to DOWN
[2026-11-30T22:52:33.743] Node node3 rebooted 3 secs ago
[2026-11-30T22:52:41.346] update_node: node node3 state set to IDLE
[2026-11-30T22:53:00.000] update_node: node node1 reason set to: flaky power supply
[2026-11-30T22:53:00.000] update_node: node node1 state set to DRAINED
[2026-11-30T22:53:01.000] update_node: node node1 reason set to: job-recovery #2 node_back
[2026-11-30T22:53:01.000] update_node: node node1 state set to DRAINED
"""
BEGIN = 1796079000.0  # 2026-11-30 22:50 UTC


def test_restarts_that_were_asked_for_are_told_from_slurms_own():
    assert witnesses.requeues(LOG, 0) == [
        Requeue(BEGIN - 29.158, 1, asked=True), Requeue(BEGIN + 149.791, 2, asked=False)
    ]
    assert [each.job for each in witnesses.requeues(LOG, BEGIN)] == [2]
    assert witnesses.requeues(LOG, BEGIN, [(BEGIN + 140, BEGIN + 150)]) == []


def test_a_hold_lasts_until_somebody_takes_it_back_or_over():
    assert witnesses.holds(LOG, BEGIN) == [
        Hold(BEGIN + 147.897, "node3", OURS, BEGIN + 161.346),
        Hold(BEGIN + 180, "node1", "flaky power supply", BEGIN + 181),
        Hold(BEGIN + 181, "node1", "job-recovery #2 node_back"),
    ]


RUN = "100.5 begin node1,node2\n101.0 beat node1\n101.2 beat node2\n102.0 beat node1\n"


@pytest.mark.parametrize(
    ("journal", "now", "restarts", "until", "end"),
    [
        (RUN + "110.0 completed\n", 200, (), 110.0, COMPLETED),
        (RUN + "103.0 failed\n", 200, (), 103.0, FAILED),
        (RUN + "103.0 failed\n108.0 beat node2\n", 200, (), 108.0, FAILED),
        (RUN, 103, (), None, ""),
        (RUN, 200, (), 104.5, KILLED),
        (RUN, 200, (Requeue(103.25, 7), Requeue(90.0, 7), Requeue(102.5, 8)), 103.25, KILLED),
    ],
)
def test_a_run_ends_as_its_journal_says(journal, now, restarts, until, end):
    (life,) = witnesses.lives({"7.uuid": journal}, now, restarts)
    assert (life.job, life.nodes, life.at, life.until, life.end) == (7, ("node1", "node2"), 100.5, until, end)


def test_what_wrote_no_begin_was_no_run():
    assert witnesses.lives({"7.uuid": "101.0 beat node1\n"}, 200) == []


@pytest.mark.parametrize(("srun", "end"), [('"$@"', COMPLETED), ("exit 1", FAILED)])
def test_the_script_writes_what_is_read(tmp_path, srun, end):
    for name, text in (("srun", f'shift; SLURMD_NODENAME=node1; export SLURMD_NODENAME; {srun}'),
                       ("scontrol", "printf 'node1\\nnode2\\n'")):
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    folder = tmp_path / "journals"
    folder.mkdir()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash", "-s"], input=witnesses.script(str(folder), 1), text=True, env=environment,
                          check=False, timeout=30)  # fmt: skip
    assert done.returncode == int(end == FAILED)
    (life,) = witnesses.lives({path.name: path.read_text() for path in folder.iterdir()}, 1e12)
    assert (life.job, life.nodes, life.end) == (7, ("node1", "node2"), end)
