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
        with the names C(uid), C(boot_id), C(machine_id) and C(python), and for RV(machines) with C(memory_kb),
        C(sockets), C(cores), C(threads) and C(storage_kb); other lines are left out. A result that is C(unreachable)
        or has no C(stdout) means that the node was not reached.
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
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
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
