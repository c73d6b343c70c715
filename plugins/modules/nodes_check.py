#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge what nodes told about themselves; the work is in module_utils/checks/nodes.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodes_check
short_description: Check that nodes can be reached, as root, and tell which boot this is
version_added: 0.1.0
description:
  - Judges the output of one C(raw) command on every node, which the role preflight runs, in one place and for all nodes
    at once.
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  names:
    description: The nodes' names in the inventory.
    type: list
    elements: str
    required: true
  results:
    description:
      - The result of the C(raw) command on each of O(names), in the same order. Its C(stdout) has lines C(name=value)
        with the names C(uid), C(boot_id), C(machine_id), C(python), C(asked) and C(clock) (seconds since the epoch, of
        the machine that asked and of the node), C(slurmd_enabled) and C(kubelet_enabled) (as C(systemctl is-enabled)
        says), for RV(machines) with C(memory_kb), C(sockets), C(cores) and C(threads), for RV(nodes)
        with its fields, for RV(addresses) with C(addresses), and for RV(back_ends) and RV(storage_gb) with any number
        of lines C(fs=KIND FREE_KB MOUNT_POINT SOURCE); other lines are left out. A result that is C(unreachable), or
        has no C(stdout), means that the node was not reached.
    type: list
    elements: dict
    required: true
  heads:
    description: Those of O(names) that are head nodes, for RV(machines).
    type: list
    elements: str
    default: []
  compute:
    description: Those of O(names) that run jobs, for RV(machines).
    type: list
    elements: str
    default: []
  oldest_python:
    description: The oldest Python that will do on the nodes.
    type: str
    default: "3.9"
  max_clock_seconds:
    description: How far a node's clock may be off.
    type: int
    default: 10
  storage_path:
    description: The folder on the head nodes whose free space is RV(storage_gb).
    type: str
    default: /var/lib
  back_ends:
    description: Where volumes lie, as RV(mission_control.job_recovery.kubernetes_check#module:storage).
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Judge two nodes
  mission_control.job_recovery.nodes_check:
    names: [node1, node2]
    results:
      - stdout: |
          uid=0
          boot_id=1b4e28ba-2fa1-11d2-883f-0016d3cca427
          machine_id=4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6
          python=3.11
          asked=1796039583
          clock=1796039584
      - unreachable: true
"""

RETURN = r"""
checks:
  description: One entry for each requirement, over all nodes.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the check.
      type: str
      returned: always
      sample: nodes_reachable
    title:
      description: What is checked, in a few words.
      type: str
      returned: always
      sample: Nodes answer
    required:
      description: What is required.
      type: str
      returned: always
      sample: every node answers by SSH
    found:
      description: What was found.
      type: str
      returned: always
      sample: "1 of 2: not node2"
    status:
      description: V(passed), V(failed), V(warning), or V(unknown) where it cannot be told.
      type: str
      returned: always
      sample: failed
    hint:
      description: What to do when it is not passed.
      type: str
      returned: always
      sample: bring them up, correct ansible_host, or take them out of the inventory
machines:
  description: The numbers of each machine, for M(mission_control.job_recovery.hardware_check).
  returned: success
  type: list
  elements: dict
  sample: [{"name": "node1", "head": false, "memory_mb": 515000, "sockets": 2, "cores_per_socket": 28, "threads": 112}]
nodes:
  description: Names and identity of each node that answered, for M(mission_control.job_recovery.identity_check).
  returned: success
  type: list
  elements: dict
  sample:
    - name: node1
      slurm_name: node1
      kubernetes_name: node1
      ssh_address: 10.141.0.1
      bmc_url: https://10.148.0.1/redfish/v1/Systems/1
      hostname: node1
      machine_id: 4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6
      boot_id: 1b4e28ba-2fa1-11d2-883f-0016d3cca427
      smbios_uuid: 4c4c4544-0042-3010-8058-c7c04f4a4e32
slurm_names:
  description: Slurm's names of the nodes that answered.
  returned: success
  type: list
  elements: str
  sample: [node1]
addresses:
  description: All addresses of the head nodes.
  returned: success
  type: list
  elements: str
  sample: [10.141.255.254]
back_ends:
  description: What is free where volumes lie, decimal gigabytes by the host that sees it.
  returned: success
  type: list
  elements: dict
  sample:
    - {class: nfs-client, default: true, where: "NFS 10.141.255.254:/cm/shared/volumes", free: {head1: 5120.4}}
storage_gb:
  description: The least that a head node has free, in decimal gigabytes.
  returned: when every head node told it
  type: float
  sample: 512.3
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.nodes import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
