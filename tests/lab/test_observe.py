# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observing: nothing on the cluster changes, and the ledger tells what acting would do."""

from __future__ import annotations

from controller import by_hand, settings_changed, submit
from joblab import power
from joblab.demo.cases import fault
from watching import incidents, settled, sleep_until

#: Faults of three kinds, and the plan that acting would begin.
EXPECTED = {"node3": "restart_daemon", "node4": "reboot_by_power"}


def would_do(cluster, target):
    """The plan that was only noted for a target; None where nothing was noted yet."""
    found = [row for row in cluster.ledger(cluster.begun)["refusals"] if row["target"] == target]
    noted = [row["plan"] for row in found if row["gate"] == "mode"]
    return noted[0] if noted else None


def test_nothing_changes_and_the_ledger_tells(cluster):
    with settings_changed(cluster, 's/^mode: .*/mode: "observe"/'):
        fault(cluster.instance, "kill_slurmd", "node3")
        fault(cluster.instance, "freeze", "node4")
        job = submit(cluster, "exit 1", {"nodes": "1", "nodelist": "node1", "job-name": "fails", "output": "/dev/null"})
        for target, plan in {**EXPECTED, str(job): "requeue_job"}.items():
            assert sleep_until(lambda target=target: would_do(cluster, target), 120, 1.0) == plan
        refused = by_hand(cluster, "reboot_node", nodes="node2", reason="new firmware")
        assert refused.rc != 0
        assert "node2: refused by the gate mode" in refused.output, refused.output
        assert not incidents(cluster)
        assert cluster.on("node3", "systemctl is-active slurmd") == "failed"
        assert power.power_state(cluster.instance, "node4") is power.Power.ON
        assert (cluster.job(job).state, cluster.job(job).restarts) == ("FAILED", 0)
        for node in cluster.instance.nodes:
            assert not cluster.node(node).reason.startswith("job-recovery")
        fault(cluster.instance, "thaw", "node4")
    # the same fault, still there, is repaired as soon as recovery may act
    assert settled(cluster, "node3")[0]["state"] == "closed"
    assert cluster.on("node3", "systemctl is-active slurmd") == "active"
