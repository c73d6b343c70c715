#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claim targets of a fault, or release them; the work is in module_utils/recovery/incident.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_incident
short_description: Claim the targets of a fault, and release them
version_added: 0.1.0
description:
  - With O(state=claimed) it claims each target in the ledger, looks at it now, runs the gates, decides, and writes the
    decision. What comes back is the work of this run. A refusal is no failure.
  - With O(state=released) it ends the run, and fails when an incident that was claimed got no result.
  - One refused target neither refuses nor delays the others.
options:
  state:
    description:
      - V(claimed) begins a run, V(released) ends it.
      - V(canary) notes that an event has come the whole way from a source to a playbook.
    type: str
    required: true
    choices: [claimed, released, canary]
  remediation:
    description: The remediation that the rule or the person suggests. The decision may be a milder or a firmer one.
    type: str
    choices:
      - restart_daemon
      - reboot_node
      - return_node
      - clean_spool
      - requeue_job
      - rerun_kubernetes_job
      - reset_gpu
      - quarantine_node
      - report
  fault:
    description: The fault of an event, as the event sources send it.
    type: dict
  due:
    description: Open incidents that go on, as the event source C(ledger) sends them.
    type: dict
    suboptions:
      incidents:
        description: Their numbers.
        type: list
        elements: int
        required: true
      dispatch:
        description: Number of the dispatch; an older one than the incident's last is refused. V(0) takes any.
        type: int
        default: 0
  canary:
    description: The canary of an event.
    type: dict
    suboptions:
      number:
        description: Its number.
        type: int
        required: true
  nodes:
    description: Nodes for which a person asks for O(remediation); host lists such as V(node[1-4]) are understood.
    type: list
    elements: str
  jobs:
    description: Jobs for which a person asks, Slurm's ids, or C(namespace/name) of Kubernetes Jobs.
    type: list
    elements: str
  reason:
    description: Why the person asks. Needed with O(nodes) and O(jobs).
    type: str
  override:
    description:
      - Gates that shall not stop what the person asks for, by name; recorded with who asked.
      - C(stopped), C(scope), C(identity) and C(duplicate) cannot be overridden.
    type: list
    elements: str
    default: []
  requested_by:
    description: Who asks (default the login name).
    type: str
  token:
    description: The run's token, as O(state=claimed) gave it.
    type: str
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: A claim is made or not made.
    support: none
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Claim the targets of an event
  mission_control.job_recovery.recovery_incident:
    state: claimed
    remediation: reboot_node
    fault: "{{ ansible_eda.event.fault }}"
  register: claim

- name: Ask for a reboot by hand
  mission_control.job_recovery.recovery_incident:
    state: claimed
    remediation: reboot_node
    nodes: ["node[1-2]"]
    reason: new firmware
    override: [cooldown]
  register: claim

- name: End the run
  mission_control.job_recovery.recovery_incident:
    state: released
    token: "{{ claim.token }}"
"""

RETURN = r"""
token:
  description: The run's token, for M(mission_control.job_recovery.recovery_step) and for the release.
  returned: when claimed
  type: str
  sample: 0f4be3c1d5b64a6f9a1c2d3e4f506172
incidents:
  description: The work of this run; after a release the incidents that it had.
  returned: when claimed or released
  type: list
  elements: dict
  sample: [{"incident": 7, "target": "node7", "plan": "reboot_by_power", "step": "drain"}]
steps:
  description: The steps that may still have to be run for them, in their one order.
  returned: when claimed
  type: list
  elements: str
  sample: [drain, cordon, fence, down, release_pods, free_jobs, power_on, await_boot]
refused:
  description: Targets for which nothing is done, with the gate that said no.
  returned: when claimed
  type: list
  elements: dict
  sample: [{"target": "node8", "gate": "owner", "why": "somebody else's reason: 'bob: disk'"}]
attached:
  description: Targets that have an open incident already; the fault was kept with it.
  returned: when claimed
  type: list
  elements: dict
  sample: [{"target": "node9", "incident": 6}]
waiting:
  description: Incidents that wait for something before they can be decided.
  returned: when claimed
  type: list
  elements: dict
  sample: [{"incident": 8, "target": "node10", "why": "the node is silent and has no BMC of proved identity"}]
ended:
  description: Incidents that ended by this claim, as the fault is gone or only reported.
  returned: when claimed
  type: list
  elements: dict
  sample: [{"incident": 5, "target": "node3", "why": "gone: looked again: the node is IDLE"}]
told:
  description: One line for each target, for a person; control characters stand as escapes.
  returned: when claimed
  type: list
  elements: str
  sample: ["node7: incident #7 begins: reboot_by_power", "node8: refused by the gate owner: somebody else's reason"]
claimed:
  description: How many incidents the run had.
  returned: when released
  type: int
  sample: 2
answered:
  description: For how many of them a step gave a result.
  returned: when released
  type: int
  sample: 2
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.incident import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
