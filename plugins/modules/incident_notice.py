#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say in words what people are told of incidents; the work is in module_utils/show/notice.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: incident_notice
short_description: Say in words what became of incidents
version_added: 0.1.0
description:
  - Reads incidents in the ledger and returns what people are told of them, for a site's own tasks that send it by mail
    or into a chat. Changes nothing.
  - Users of the cluster wrote some of the text (names of jobs, reasons). It is printable, and Ansible does not take it
    for a template; whoever shows it as HTML must escape it.
options:
  notices:
    description: The incidents that are told of.
    type: list
    elements: dict
    required: true
    suboptions:
      incident:
        description: Its number.
        type: int
        required: true
      state:
        description: What is told of it.
        type: str
        choices: [opened, recovered, escalated, ended]
        required: true
  settings:
    description: The settings file. Without it the controller's own.
    type: path
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
seealso:
  - module: mission_control.job_recovery.recovery_incident_info
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Say what became of an incident
  mission_control.job_recovery.incident_notice:
    notices:
      - {incident: 7, state: escalated}
  register: job_recovery_notice

- name: Show it
  ansible.builtin.debug:
    msg: "{{ job_recovery_notice.text }}"
"""

RETURN = r"""
cluster:
  description: The cluster's name.
  returned: success
  type: str
  sample: hpc1
subject:
  description: One short line.
  returned: success
  type: str
  sample: "job-recovery hpc1: node7 escalated"
text:
  description: Some lines for each incident.
  returned: success
  type: str
  sample: |
    #7 node node7: escalated
      fault: node_not_responding (Slurm gets no answer from the node)
      when: 2026-11-30 18:00:00, 2026-11-30 18:31:12
      remediation: reboot_by_power
      why: node7 did not register within 1800 s
      what to do: repair it, then `job-recovery release 7`; or have it tried again: `job-recovery retry 7`
incidents:
  description: The same as data, in the order of O(notices); those that the ledger does not have are left out.
  returned: success
  type: list
  elements: dict
  contains:
    incident:
      description: Its number.
      type: int
      returned: always
      sample: 7
    state:
      description: What is told of it.
      type: str
      returned: always
      sample: escalated
    target:
      description: The node or job.
      type: str
      returned: always
      sample: node7
    target_kind:
      description: V(node) or V(job).
      type: str
      returned: always
      sample: node
    machine:
      description: The node's name in the ledger; empty for a job.
      type: str
      returned: always
      sample: node7
    scheduler:
      description: V(slurm) or V(kubernetes).
      type: str
      returned: always
      sample: slurm
    fault_kind:
      description: What was wrong.
      type: str
      returned: always
      sample: node_not_responding
    meaning:
      description: The same in words.
      type: str
      returned: always
      sample: Slurm gets no answer from the node
    remediation:
      description: What was done, or suggested.
      type: str
      returned: always
      sample: reboot_by_power
    why:
      description: The last thing that the incident tells.
      type: str
      returned: always
      sample: node7 did not register within 1800 s
    requested_by:
      description: Who asked for it; empty for a fault that was noticed.
      type: str
      returned: always
      sample: ""
    opened_at:
      description: When it was opened, epoch seconds.
      type: float
      returned: always
      sample: 1796061600.25
    closed_at:
      description: When it ended, epoch seconds; none while it goes on.
      type: float
      returned: always
      sample: 1796063472.5
    what_to_do:
      description: What a person can do; empty where nothing is to be done.
      type: str
      returned: always
      sample: "repair it, then `job-recovery release 7`; or have it tried again: `job-recovery retry 7`"
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.notice import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
