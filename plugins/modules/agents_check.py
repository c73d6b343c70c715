#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge what nodes told about their helper; the work is in module_utils/checks/agents.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agents_check
short_description: Check that every node has the node helper, and which
version_added: 0.1.0
description:
  - Judges the output of one C(raw) command on every node, which the role status runs, in one place and for all nodes at
    once.
  - The ids are V(agents_reached), V(agents_installed), V(agents_version), V(agents_working), V(agents_key) and
    V(agents_boot_cleaning).
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
        with the names C(helper), C(launcher), C(key), C(tmpfiles) and C(probe); other lines are left out. A result that
        is C(unreachable) or has no C(stdout) means that the node was not reached.
    type: list
    elements: dict
    required: true
  helper:
    description: The folder of this collection's helper on this machine, to compare with.
    type: path
    required: true
  slurm:
    description: Those of O(names) that Slurm knows, whose spool must be cleaned at boot.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Judge two nodes
  mission_control.job_recovery.agents_check:
    names: [node1, node2]
    results:
      - stdout: |
          helper=
          launcher=
      - unreachable: true
    helper: ~/.ansible/collections/ansible_collections/mission_control/job_recovery/plugins/module_utils/node
"""

RETURN = r"""
checks:
  description: One entry for each requirement.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the check.
      type: str
      returned: always
      sample: agents_installed
    title:
      description: What is checked.
      type: str
      returned: always
      sample: The helper on the nodes
    required:
      description: What is required.
      type: str
      returned: always
      sample: every node has the node helper
    found:
      description: What was found.
      type: str
      returned: always
      sample: "3 of 4: not node2"
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      returned: always
      sample: failed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      returned: always
      sample: run site.yml; where nodes boot from an image, install the role node_agent into the image, too
helper:
  description: SHA-256 of this collection's helper.
  returned: success
  type: str
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
without:
  description: Nodes that were reached and have no helper.
  returned: success
  type: list
  elements: str
  sample: [node2]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.agents import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
