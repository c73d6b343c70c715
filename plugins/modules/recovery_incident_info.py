#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the ledger; the work is in module_utils/recovery/report.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_incident_info
short_description: Read incidents, their steps and refusals from the ledger
version_added: 0.1.0
description:
  - Returns incidents with the times of their steps, and what was refused and why, the newest first.
  - Texts of users (reasons, names) come as they were written. Escape them where they are shown.
options:
  incidents:
    description: Only these incidents, by number.
    type: list
    elements: int
    default: []
  states:
    description: Only incidents in one of these states.
    type: list
    elements: str
    choices: [open, waiting, escalated, closed]
    default: []
  names:
    description: Only those of these nodes, machines or jobs.
    type: list
    elements: str
    default: []
  since:
    description: Only those opened, or refused, since then (seconds since the epoch).
    type: float
    default: 0.0
  limit:
    description: At most so many incidents, and so many refusals.
    type: int
    default: 100
  machines:
    description: Return the machines of the ledger too.
    type: bool
    default: false
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: It only reads.
    support: full
  diff_mode:
    description: It only reads.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: What is open, and what waits for a person
  mission_control.job_recovery.recovery_incident_info:
    states: [open, waiting, escalated]
  register: ledger
"""

RETURN = r"""
incidents:
  description: The incidents, each with its C(steps) and its C(evidence). Times are seconds since the epoch.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Its number.
      type: int
      sample: 7
    target:
      description: The node or the job.
      type: str
      sample: node7
    fault_kind:
      description: The kind of the fault that opened it.
      type: str
      sample: node_not_responding
    state:
      description: V(open), V(waiting), V(escalated) (for a person) or V(closed).
      type: str
      sample: waiting
    plan:
      description: What is done.
      type: str
      sample: reboot_by_power
    step:
      description: The step at which it stands.
      type: str
      sample: await_boot
    why:
      description: Why it stands there.
      type: str
      sample: the boot of node7 is awaited
    waits_for:
      description: The kind of what it waits for, empty while it waits for nothing.
      type: str
      sample: node_registered
    waits_until:
      description: When it looks again by itself, null while it waits for nothing.
      type: float
      sample: 1790001800.5
    requested_by:
      description: Who asked for it by hand, empty where nobody did.
      type: str
      sample: alice
    seen_at:
      description: When the fault was seen.
      type: float
      sample: 1790000000.25
    opened_at:
      description: When it was opened.
      type: float
      sample: 1790000002.5
    closed_at:
      description: When it ended, null while it is open.
      type: float
      sample: 1790000060.5
    evidence_folder:
      description: The folder on the controller with what was collected from the node; empty where nothing was.
      type: str
      sample: /var/lib/job-recovery/evidence/incident-7
    steps:
      description: Its steps in the order in which they began.
      type: list
      elements: dict
      sample: [{"step": "drain", "status": "done", "started_at": 1790000002.6, "finished_at": 1790000002.9}]
refusals:
  description: What was refused, counted by target, kind and gate; none where O(incidents) or O(states) is given.
  returned: success
  type: list
  elements: dict
  sample: [{"target": "node8", "fault_kind": "node_not_responding", "gate": "owner", "times": 3}]
overview:
  description:
    - What stands where, whatever was asked for. C(going_on) with what each waits for and until when, C(for_a_person)
      with C(what_to_do) and the folder on the controller with the node's C(evidence), C(refusals) of the last day by
      gate, C(last_acts), C(commands) that people gave, C(breaker), C(stopped), C(restored), C(mode), C(cluster), and
      C(silent_agents), the nodes whose agent is not heard while others are.
  returned: success
  type: dict
  sample:
    for_a_person:
      - incident: 7
        target: node7
        fault_kind: node_not_responding
        why: "verify failed: the health command of node7 says no: GPU 3 is missing"
        evidence: /var/lib/job-recovery/evidence/incident-7/node7
        what_to_do: "repair it, then `job-recovery release 7`; or have it tried again: `job-recovery retry 7`"
machines:
  description: The machines of the ledger.
  returned: when O(machines) is true
  type: list
  elements: dict
  sample: [{"name": "node7", "slurm_name": "node7", "kubernetes_name": "", "ssh_address": "10.0.0.7"}]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.report import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
