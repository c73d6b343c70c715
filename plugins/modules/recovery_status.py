#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look whether the recovery works; the work is in module_utils/checks/recovery.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_status
short_description: Check that the recovery's service runs, hears, sees and writes
version_added: 0.1.0
description:
  - Runs on the controller, as root, with the Python that the service has.
  - The ids are V(recovery_service), V(recovery_watchdog), V(recovery_source_NAME) for each of O(sources),
    V(recovery_ledger), V(recovery_canary), V(recovery_stopped), V(recovery_breaker) and V(recovery_incidents).
  - A requirement that is not met does not fail the module; it fails only on wrong use and without settings.
options:
  settings:
    description: The settings file. Without it the controller's own.
    type: path
  sources:
    description: The event sources that must be there.
    type: list
    elements: str
    required: true
  canary:
    description:
      - Whether an event is sent the whole way now, to a playbook and into the ledger, and waited for. It changes
        nothing else. Not in check mode.
      - Without it, the last one of those that go every five minutes is looked at.
    type: bool
    default: false
  canary_timeout:
    description: Seconds that it may take.
    type: float
    default: 60.0
  service:
    description: The service's unit.
    type: str
    default: job-recovery.service
  watchdog:
    description: The name that the watchdog's timer and service have in common.
    type: str
    default: job-recovery-watchdog
  timeout:
    description: Deadline in seconds of each question to systemd.
    type: float
    default: 10.0
attributes:
  check_mode:
    description: Sends no event.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Prove that an event travels the whole way
  mission_control.job_recovery.recovery_status:
    sources: [ledger, slurm, loss, kubernetes]
    canary: true
  become: true
  vars:
    ansible_python_interpreter: /opt/job-recovery/venv/bin/python
  register: recovery
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
      sample: recovery_canary
    title:
      description: What is checked.
      type: str
      returned: always
      sample: The way of an event
    required:
      description: What is required.
      type: str
      returned: always
      sample: an event travels to a playbook and into the ledger
    found:
      description: What was found.
      type: str
      returned: always
      sample: an event that was asked for arrived after 2.7 s
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      returned: always
      sample: passed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      returned: always
      sample: ""
standing:
  description:
    - What goes on and waits for what, what is left to people and what they can do, refusals of the last day by gate,
      the last acts and commands, as printable lines. Empty where the ledger does not answer.
  returned: success
  type: list
  elements: str
  sample:
    - "going on:"
    - "  #7 node7: node_not_responding (reboot_by_power, await_boot), waits for node_registered until 2026-11-30
      18:30:00: the boot of node7 is awaited"
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.recovery import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
