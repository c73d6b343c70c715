# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's kernel says comes to the right remediation, by way of the agent on the node and real munge."""

from __future__ import annotations

import shlex
import time

from watching import incidents, settled, sleep_until, steps_of

LOG = "/run/job-recovery-kernel.log"  # job_recovery_agent_kernel_log of the lab's inventory
XID79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID31 = "NVRM: Xid (PCI:0000:05:00): 31, pid=2512125, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"


def kernel_says(cluster, node, *texts):
    lines = "".join("4,%d,%d,-;%s\n" % (number, number * 1000, text) for number, text in enumerate(texts))
    cluster.on(node, "printf %%s %s >> %s" % (shlex.quote(lines), LOG))


def test_a_gpu_that_fell_off_the_bus_costs_one_reboot(cluster):
    node = "node2"
    before = cluster.on(node, "cat /proc/sys/kernel/random/boot_id")
    began = time.monotonic()
    kernel_says(cluster, node, "usb 1-1: new high-speed USB device", XID79)
    sleep_until(lambda: incidents(cluster, node), 30)
    print("the incident was opened after at most %.1f s" % (time.monotonic() - began))
    (row,) = settled(cluster, node)
    assert (row["fault_kind"], row["source"], row["state"]) == ("gpu_fault", "node_agent", "closed"), row
    assert len(steps_of(row, "reboot")) == 1, row
    assert cluster.on(node, "cat /proc/sys/kernel/random/boot_id") != before
    assert cluster.node(node).in_service


def test_an_applications_own_fault_and_a_flood_are_nobodys_repair(cluster):
    kernel_says(cluster, "node3", *["usb 1-1: flood %d" % number for number in range(1000)], XID31)
    flood = "yes '4,1,1000,-;usb 2-2: flood' | head -n 100000 >> %s" % LOG
    cluster.on("node3", flood)
    time.sleep(10)
    assert incidents(cluster) == []
    assert cluster.on("node3", "systemctl is-active job-recovery-agent") == "active"
