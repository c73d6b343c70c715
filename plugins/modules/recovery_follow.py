#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow incidents until they are over; the work is in module_utils/recovery/follow.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_follow
short_description: Follow incidents until they are over
version_added: 0.1.0
description:
  - Shows each step of the incidents when it begins and what becomes of it, until all of them are over.
  - The service goes on with the incidents meanwhile. Where it does not run, they are advanced from here, by the same
    claims, gates and steps.
  - It fails when an incident is left to a person, and when the time is over; nothing is lost then.
  - The emergency stop holds; a stopped incident is followed until somebody resumes or the time is over.
options:
  incidents:
    description: Their numbers.
    type: list
    elements: int
    required: true
  timeout:
    description: How long to follow them at most, in seconds.
    type: float
    default: 7200.0
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: It may advance incidents.
    support: none
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Wait for what was begun
  mission_control.job_recovery.recovery_follow:
    incidents: [7, 8]
    timeout: 1800
"""

RETURN = r"""
incidents:
  description: How each of them ended.
  returned: always
  type: list
  elements: dict
  sample: [{"incident": 7, "target": "node7", "state": "closed", "why": "the node is idle"}]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.follow import (
    SPEC,
    run,
    run_and_tell,
)

__all__ = ("SPEC", "main", "run", "run_and_tell")  # the action plugin `direct` takes them from here


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
