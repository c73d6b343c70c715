#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who the nodes are before recovery is installed; the work is in module_utils/checks/identity.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: identity_check
short_description: Check that every name of a node leads to the same machine
version_added: 0.1.0
description:
  - Compares names and identities of the nodes as the inventory, the nodes themselves, Slurm and Kubernetes tell them,
    and asks every BMC for its system's UUID. Nothing is changed; no power is touched.
  - The ids are V(identity_names), V(identity_machines) and V(identity_power).
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  nodes:
    description: The nodes, as RV(mission_control.job_recovery.nodes_check#module:nodes).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name in the inventory.
        type: str
        required: true
      slurm_name:
        description: NodeName in Slurm, empty for none.
        type: str
        default: ""
      kubernetes_name:
        description: Name in Kubernetes, empty for none.
        type: str
        default: ""
      ssh_address:
        description: Where its SSH server listens.
        type: str
        default: ""
      bmc_url:
        description: The Redfish ComputerSystem of its BMC; empty for none.
        type: str
        default: ""
      hostname:
        description: Its own host name.
        type: str
        default: ""
      machine_id:
        description: Its machine-id.
        type: str
        default: ""
      boot_id:
        description: Its boot ID.
        type: str
        default: ""
      smbios_uuid:
        description: Its SMBIOS UUID, as the node itself tells it.
        type: str
        default: ""
  slurm_nodes:
    description: What Slurm says, as RV(mission_control.job_recovery.slurm_check#module:nodes).
    type: list
    elements: dict
    default: []
  kubernetes_nodes:
    description: What Kubernetes says, as RV(mission_control.job_recovery.kubernetes_check#module:nodes).
    type: list
    elements: dict
    default: []
  bmc_user:
    description: The BMCs' account.
    type: str
    default: ""
  bmc_password:
    description: Its password.
    type: str
    default: ""
  bmc_ca:
    description: The certificate (PEM) of the authority of the BMCs. Without it the system's authorities are trusted.
    type: str
    default: ""
  bmc_timeout:
    description: Deadline in seconds for each BMC.
    type: float
    default: 10.0
  power_commands:
    description:
      - The site's own power commands, for nodes whose C(bmc_url) is C(site:NAME); as C(job_recovery_power_commands) of
        the role C(job_recovery).
    type: dict
    default: {}
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Check that the names of two nodes are not mixed up
  mission_control.job_recovery.identity_check:
    nodes:
      - name: node1
        slurm_name: node1
        ssh_address: 10.141.0.1
        hostname: node1
        machine_id: 4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6
      - name: node2
        slurm_name: node2
        ssh_address: 10.141.0.2
        hostname: node2
        machine_id: 5c3e7b4d0a5a4ce1b4b2e1d3c4b5f607
    slurm_nodes:
      - {name: node1, hostname: node1}
      - {name: node2, hostname: node2}
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
      sample: identity_power
    title:
      description: What is checked, in a few words.
      type: str
      returned: always
      sample: Power by the BMC
    required:
      description: What is required.
      type: str
      returned: always
      sample: every BMC that is given answers, is the node's own and can switch its power
    found:
      description: What was found.
      type: str
      returned: always
      sample: "4 BMCs; node[1-2]: its BMC tells another machine's UUID"
    status:
      description: V(passed), V(failed), V(warning), or V(unknown) where it cannot be told.
      type: str
      returned: always
      sample: failed
    hint:
      description: What to do when it is not passed.
      type: str
      returned: always
      sample: correct job_recovery_bmc_url, the BMCs' account (job_recovery_bmc_user) or job_recovery_bmc_ca
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.identity import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
