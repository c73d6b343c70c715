#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask Loki's API through its Ingress; the work is in module_utils/checks/loki.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: loki_check
short_description: Check that Loki's API wants credentials and gives logs to whoever has them
version_added: 0.1.0
description:
  - Really asks, through the Ingress, for the label names of the last hours, without credentials, with a wrong password
    and with the right one.
  - The ids are V(loki_tls) (HTTPS with a certificate that is trusted), V(loki_closed) (401 without credentials and with
    wrong ones) and V(loki_access) (Loki answers to the credentials that are given).
  - Redirects to a login page, answers of the gateway, and Loki's own question for a tenant are told apart from Loki's
    API being open or closed.
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  user:
    description: The user that the Ingress knows.
    type: str
    required: true
  password:
    description: The user's password.
    type: str
    required: true
  tenant:
    description: The tenant whose logs are asked for (C(X-Scope-OrgID)), where Loki has several.
    type: str
    default: ""
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
  - mission_control.job_recovery.web
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Ask Loki by the cluster's address
  mission_control.job_recovery.loki_check:
    url: https://loki.example.org
    address: 192.0.2.10
    ca_file: /etc/ssl/cluster-ca.crt
    user: recovery
    password: "{{ vault_loki_password }}"
  register: loki

- name: Stop where anybody can read the logs
  ansible.builtin.assert:
    that: loki.checks | selectattr('status', 'eq', 'failed') | length == 0
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
      sample: loki_closed
    title:
      description: What is checked.
      type: str
      returned: always
      sample: Loki is closed to strangers
    required:
      description: What is required.
      type: str
      returned: always
      sample: HTTP 401 without and with wrong credentials
    found:
      description: What was found.
      type: str
      returned: always
      sample: "without credentials: HTTP 401, a web page; with a wrong password: HTTP 401, a web page"
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
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.loki import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
