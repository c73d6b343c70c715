#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the password of Grafana's administrator; the work is in module_utils/grafana_password.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: grafana_password
short_description: Change the password of Grafana's administrator from the generated one to the site's
version_added: 0.1.0
description:
  - Through Grafana's API, once. The new password is tried first, so that a second run changes nothing and fails no
    login.
  - The chart's Secret keeps the generated password, which is then worth nothing. Where Grafana's database does not last
    (no persistence), a new pod begins with the generated one again; M(mission_control.job_recovery.grafana_check)
    tells.
options:
  user:
    description: The administrator's name. Empty takes the one in the Secret.
    type: str
    default: ""
  password:
    description: The new password. One of this and O(password_file) is required.
    type: str
  password_file:
    description: A file whose only line is the new password.
    type: path
  old_password:
    description: The present password, where it is not the generated one. With O(user), no Secret is read.
    type: str
extends_documentation_fragment:
  - mission_control.job_recovery.grafana
  - mission_control.job_recovery.web
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    description: Logs in, and does not change the password.
    support: full
  diff_mode:
    description: There is no diff of passwords.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Give Grafana's administrator the password that is kept in Vault
  mission_control.job_recovery.grafana_password:
    url: https://192.0.2.10/grafana
    ca_file: /etc/ssl/cluster-ca.crt
    password: "{{ vault_grafana_password }}"
  no_log: true
"""

RETURN = r"""
user:
  description: Whose password it is.
  returned: success
  type: str
  sample: admin
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.grafana_password import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
