#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the ledger's tables up to date; the work is in module_utils/recovery/ledger/install.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: recovery_ledger
short_description: Bring the recovery's ledger up to date
version_added: 0.1.0
description:
  - Connects to the ledger with the account and the password file that the settings name, and creates or upgrades its
    tables. An upgrade that was interrupted is simply run again.
  - A ledger made by a newer version of the collection is refused.
options:
  settings:
    description: The settings file. Without it E(JOB_RECOVERY_SETTINGS), else C(/etc/job-recovery/settings.yml).
    type: path
  state:
    description:
      - V(migrated) upgrades the tables to this version of the collection.
      - V(reachable) only connects.
    type: str
    choices: [reachable, migrated]
    default: migrated
requirements:
  - PyMySQL
attributes:
  check_mode:
    description: Tells which migrations are missing, and writes nothing.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Bring the ledger up to date
  mission_control.job_recovery.recovery_ledger:
    state: migrated
  vars:
    ansible_python_interpreter: /opt/job-recovery/venv/bin/python
"""

RETURN = r"""
reachable:
  description: Whether the account works.
  returned: success
  type: bool
  sample: true
version:
  description: Version of the tables afterwards.
  returned: when reachable
  type: int
  sample: 1
migrations:
  description: Numbers of the migrations that ran, or would run in check mode.
  returned: when reachable
  type: list
  elements: int
  sample: [1]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.install import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
