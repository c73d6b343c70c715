#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Register nodes in the ledger; the work is in module_utils/recovery/machines.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_machine
short_description: Register the cluster's nodes in the recovery's ledger
version_added: 0.1.0
description:
  - Writes for each node which names it has in Slurm and Kubernetes, how it and its BMC are reached, and who it is.
    A node that is not registered is never acted on.
  - A field that is not given stays as it is.
options:
  state:
    description: V(present) writes the machines, V(absent) removes them.
    type: str
    choices: [present, absent]
    default: present
  machines:
    description: The machines.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The ledger's name; Slurm's NodeName, or the Kubernetes name of a node outside Slurm.
        type: str
        required: true
      slurm_name:
        description: NodeName in Slurm, empty for none.
        type: str
      kubernetes_name:
        description: Name in Kubernetes, empty for none.
        type: str
      ssh_address:
        description: Where its SSH server listens, C(host) or C(host:port).
        type: str
      bmc_url:
        description:
          - The Redfish ComputerSystem of its BMC, C(https://address/redfish/v1/Systems/ID); empty for none.
          - C(site:NAME) where the site's own commands switch it, NAME being what they call it.
        type: str
      smbios_uuid:
        description: Its SMBIOS UUID, as the node itself tells it. Without it the BMC is never used.
        type: str
      machine_id:
        description: Its machine-id.
        type: str
      boot_id:
        description: Its boot ID while it is healthy. One on record is kept; the service brings it up to date.
        type: str
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: Tells what would be changed.
    support: full
  diff_mode:
    description: Shows the machines before and after.
    support: full
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Register a node
  mission_control.job_recovery.recovery_machine:
    machines:
      - name: node7
        slurm_name: node7
        kubernetes_name: node7
        ssh_address: 10.0.0.7
        bmc_url: https://10.1.0.7/redfish/v1/Systems/1
        smbios_uuid: 4c4c4544-0042-3010-8058-c7c04f4a4e32
        machine_id: 0123456789abcdef0123456789abcdef
"""

RETURN = r"""
machines:
  description: Names of the machines that changed.
  returned: success
  type: list
  elements: str
  sample: [node7]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.machines import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
