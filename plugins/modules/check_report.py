#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lay out the results of checks; the work is in module_utils/checks/report.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_report
short_description: Make one table, one file and one page of the results of many checks
version_added: 0.1.0
description:
  - Takes the C(checks) of any number of check modules, sorts failures to the top, and tells which of them stop an
    installation.
options:
  checks:
    description: The lists of the check modules, joined.
    type: list
    elements: dict
    required: true
  accept:
    description: Ids of checks that the site accepts as they are; they become warnings.
    type: list
    elements: str
    default: []
  dest:
    description:
      - Where the checks are written as JSON, with C(title), C(counts) and C(unmet). Without it nowhere.
    type: path
  html:
    description: Where the checks are written as one self-contained HTML page. Without it nowhere.
    type: path
  title:
    description: The report's title, in the file and on the page.
    type: str
    default: Pre-flight
  width:
    description: Width of the table in characters.
    type: int
    default: 118
  show:
    description:
      - Whether the table is shown, line by line and whatever the verbosity. Only where the task runs on the machine of
        ansible-playbook (C(delegate_to=localhost)).
    type: bool
    default: false
  notes:
    description: Lines that are shown below the table.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Lays out the table, and writes neither file nor page.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Check Slurm
  mission_control.job_recovery.slurm_check:
  register: slurm

- name: Lay out the result
  mission_control.job_recovery.check_report:
    checks: "{{ slurm.checks }}"
    accept: [slurm_min_job_age]
    show: true
  delegate_to: localhost
"""

RETURN = r"""
table:
  description: The table's lines, failures first.
  returned: success
  type: list
  elements: str
  sample:
    - "passed   slurm_version  Slurm's version: 24.11.5 (required: 22.05 or newer)"
unmet:
  description: Ids of the checks that failed or cannot be told, and are not accepted.
  returned: success
  type: list
  elements: str
  sample: []
counts:
  description: Number of checks by status.
  returned: success
  type: dict
  sample: {"failed": 0, "unknown": 0, "warning": 1, "passed": 17}
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.report import SPEC, run, run_and_tell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module

__all__ = ("SPEC", "main", "run", "run_and_tell")  # the action plugin `direct` takes them from here


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
