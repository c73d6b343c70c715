#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: validate_settings
short_description: Name every setting of this collection's roles that cannot be
version_added: 0.1.0
description:
  - Compares the variables of the task's host with the specifications of roles of this collection, as Ansible does
    before each role, but for many roles at once and with one sentence for each mistake.
  - Runs on the machine that runs ansible-playbook, and asks the host for nothing.
options:
  roles:
    description: Names of the roles, without the collection's.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    description: Changes nothing in any case.
  diff_mode:
    support: none
    description: There is no diff.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Name the settings that cannot be
  mission_control.job_recovery.validate_settings:
    roles: [job_recovery, preflight]
"""

RETURN = r"""
mistakes:
  description: One sentence for each.
  returned: always
  type: list
  elements: str
  sample:
    - "- job_recovery_mode: value of job_recovery_mode must be one of: observe, act, got: perhaps"
"""
