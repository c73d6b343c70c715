#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the ledger's database before recovery is installed; the work is in module_utils/checks/database.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: database_check
short_description: Check that the recovery's ledger can be made
version_added: 0.1.0
description:
  - Logs in as the database's administrator, and looks whether it may make a database and an account. Judges the
    host pattern that the ledger's account is limited to. Nothing is changed.
  - The ids are V(database_login), V(database_version), V(database_rights), V(database_clock) and, where O(account_host)
    or O(addresses) is given, V(database_account_host).
  - Uses PyMySQL where this Python has it, else the client program of MariaDB or MySQL. The password is in no argument.
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  login:
    description: Whether to log in. Without it only O(account_host) is judged, which can be done anywhere.
    type: bool
    default: true
  host:
    description: The server's address.
    type: str
    default: 127.0.0.1
  port:
    description: The server's port.
    type: int
    default: 3306
  unix_socket:
    description: The server's socket on this host, in the place of O(host) and O(port).
    type: str
    default: ""
  user:
    description: The administrator's account.
    type: str
    default: root
  password:
    description: Its password.
    type: str
    default: ""
  ca_file:
    description: A file on this host with the authority of the server's certificate. Without it TLS is not demanded.
    type: str
    default: ""
  timeout:
    description: Deadline in seconds for each answer.
    type: float
    default: 5.0
  account_host:
    description: The host pattern that the ledger's account is limited to.
    type: str
    default: ""
  addresses:
    description: All addresses of the controller.
    type: list
    elements: str
    default: []
  seen_as:
    description: The host under which the server sees the controller, where it is known (RV(seen_as)).
    type: str
    default: ""
requirements:
  - PyMySQL, or the client program of MariaDB or MySQL, where O(login=true)
  - netaddr, for O(account_host)
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Look whether root may log in by the socket
  mission_control.job_recovery.database_check:
    unix_socket: /run/mysqld/mysqld.sock
  register: database

- name: Judge the pattern of the ledger's account
  mission_control.job_recovery.database_check:
    login: false
    account_host: 10.141.0.0/255.255.0.0
    addresses: [10.141.255.254]
  delegate_to: localhost
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
      sample: database_login
    title:
      description: What is checked, in a few words.
      type: str
      returned: always
      sample: The database administrator's account
    required:
      description: What is required.
      type: str
      returned: always
      sample: root logs in
    found:
      description: What was found.
      type: str
      returned: always
      sample: root@localhost on the database at /run/mysqld/mysqld.sock
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
seen_as:
  description: The host under which the server sees this one; empty where it is not known.
  returned: success
  type: str
  sample: 10.141.255.254
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.database import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
