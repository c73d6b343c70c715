#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check Slurm before recovery is installed; the work is in module_utils/checks/slurm.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_check
short_description: Check that Slurm is fit for recovery
version_added: 0.1.0
description:
  - Asks Slurm on this host, and tells for every requirement whether it is met. Nothing is changed.
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  bin_dir:
    description: The folder of Slurm's commands. Without it they are found on E(PATH).
    type: path
  timeout:
    description: Deadline in seconds of every command.
    type: float
    default: 10.0
  nodes:
    description: Names of nodes that Slurm must know.
    type: list
    elements: str
    default: []
  partitions:
    description: Partitions that must have nodes.
    type: list
    elements: str
    default: []
  on_active_controller:
    description: Whether this host must be the one whose slurmctld acts.
    type: bool
    default: true
  oldest_version:
    description: The oldest version of Slurm that will do.
    type: str
    default: "22.05"
  newest_version:
    description: The newest version of Slurm that recovery was tried with; a newer one is a warning.
    type: str
    default: "24.11"
  min_job_age:
    description: Seconds for which slurmctld must remember finished jobs (MinJobAge).
    type: int
    default: 300
  attempts:
    description: How often recovery requeues one job; MaxBatchRequeue must allow it.
    type: int
    default: 3
  user:
    description: A user that must have exactly Slurm's administrator level. Without it that is not asked.
    type: str
    default: ""
  user_is_made:
    description: Whether the installation makes O(user) an administrator, so that it need not be one yet.
    type: bool
    default: false
  reachable_only:
    description: Whether it is enough that Slurm answers, where only Kubernetes jobs are recovered.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Check Slurm on the head node
  mission_control.job_recovery.slurm_check:
    nodes: [node1, node2]
    partitions: [main]
  register: slurm

- name: Show what is not as it should be
  ansible.builtin.debug:
    var: slurm.checks | rejectattr('status', 'eq', 'passed')
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
      sample: slurm_job_comment
    title:
      description: What is checked, in a few words.
      type: str
      returned: always
      sample: Job comments are kept
    required:
      description: What is required.
      type: str
      returned: always
      sample: AccountingStoreFlags=job_comment
    found:
      description: What was found.
      type: str
      returned: always
      sample: AccountingStoreFlags=job_comment,job_script
    status:
      description: V(passed), V(failed), V(warning), or V(unknown) where it cannot be told.
      type: str
      returned: always
      sample: passed
    hint:
      description: What to do when it is not passed.
      type: str
      returned: always
      sample: ""
version:
  description: Slurm's version; empty when Slurm gave no answer.
  returned: success
  type: str
  sample: 24.11.5
slurmd_spool_dir:
  description: SlurmdSpoolDir as it stands in the configuration, with its C(%h) and C(%n).
  returned: success
  type: str
  sample: /var/spool/slurmd/%n
spool_dirs:
  description: slurmd's spool of each node by NodeName, with C(%h) and C(%n) resolved.
  returned: success
  type: dict
  sample: {"node1": "/var/spool/slurmd"}
nodes:
  description: Slurm's nodes, for M(mission_control.job_recovery.hardware_check); empty when Slurm gave no answer.
  returned: success
  type: list
  elements: dict
  sample:
    - name: node1
      hostname: node1
      address: 10.141.0.1
      memory_mb: 515000
      sockets: 2
      cores_per_socket: 28
      threads: 112
      version: 24.11.5
state_save_location:
  description: slurmctld's StateSaveLocation.
  returned: success
  type: str
  sample: /var/spool/slurmctld
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.slurm import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
