#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run steps for a run's incidents; the work is in module_utils/recovery/frame.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_step
short_description: Run steps for the incidents of a run
version_added: 0.1.0
description:
  - Runs each step for all incidents of the run that stand before it, and writes down what was intended and what became
    of it. Incidents that do not stand before a step are left alone, so that one pass over all steps in their order
    advances every incident as far as it can go.
  - The emergency stop, the run's token and its lease are looked at right before each act.
  - A step that failed is no failure of the module. The incident goes another way or is left for a person.
options:
  steps:
    description:
      - Names of the steps, as RV(mission_control.job_recovery.recovery_incident#module:steps) gave them. They are run
        in their one order, whatever the order here.
    type: list
    elements: str
    required: true
    choices:
      - restart_daemon
      - drain
      - cordon
      - await_drained
      - save_evidence
      - stop_gpu_clients
      - reset_gpu
      - start_gpu_clients
      - reboot
      - fence
      - down
      - release_pods
      - free_jobs
      - power_on
      - await_boot
      - await_job_end
      - diagnose
      - end_orphans
      - clean_spool
      - verify
      - uncordon
      - resume
      - requeue
      - rerun
      - release_successor
      - tell
      - confirm
  token:
    description: The run's token, as M(mission_control.job_recovery.recovery_incident) gave it.
    type: str
    required: true
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: A step acts or does not act.
    support: none
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Run the steps in their one order
  mission_control.job_recovery.recovery_step:
    steps: "{{ claim.steps }}"
    token: "{{ claim.token }}"
"""

RETURN = r"""
results:
  description:
    - One for each incident and step that was run.
    - C(status) is V(done), V(waiting) or V(failed); V(stopped) by the emergency stop; V(lost) where another run has
      the incident now; V(interrupted) where nothing is known, so that the step is repeated.
  returned: success
  type: list
  elements: dict
  sample: [{"incident": 7, "target": "node7", "step": "await_boot", "status": "waiting", "why": "it boots"}]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.frame import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
