#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check Grafana's login page and its administrator's password; the work is in checks/grafana.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: grafana_check
short_description: Check that Grafana answers, and who knows its administrator's password
version_added: 0.1.0
description:
  - The ids are V(grafana_login) (the login page comes through the Ingress, from a Grafana whose database answers),
    V(grafana_password) (the administrator's password is not the one that the chart generated; a warning where it is)
    and V(grafana_secret_readers) (who can read the chart's Secret, or start pods beside it that can).
  - Grafana locks a user out after five wrong passwords within five minutes. With O(password) given and right, none is
    tried that may be wrong; without it, each run tries the generated one, which fails once it is changed.
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  password:
    description: The administrator's password as the site knows it.
    type: str
  readers:
    description:
      - Who may read the Secret, as RV(readers[].subject) names them, such as V(User bob), V(Group ops) or
        V(ServiceAccount prometheus/kube-prometheus-stack-grafana). The control plane and C(system:masters) always may.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
  - mission_control.job_recovery.grafana
  - mission_control.job_recovery.web
  - mission_control.job_recovery.kubernetes
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Look at Grafana by the cluster's address
  mission_control.job_recovery.grafana_check:
    url: https://192.0.2.10/grafana/login
    ca_file: /etc/ssl/cluster-ca.crt
    password: "{{ vault_grafana_password }}"
  register: grafana

- name: Show who can read its Secret
  ansible.builtin.debug:
    var: grafana.readers
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
      sample: grafana_password
    title:
      description: What is checked.
      type: str
      returned: always
      sample: Grafana's administrator
    required:
      description: What is required.
      type: str
      returned: always
      sample: a password that is not the generated one
    found:
      description: What was found.
      type: str
      returned: always
      sample: "'admin' has the generated password"
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      returned: always
      sample: warning
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      returned: always
      sample: change it with the playbook grafana.yml (job_recovery_grafana_password)
readers:
  description: Everybody who can read the Secret, by RBAC. Empty, too, where that cannot be told; see RV(checks).
  returned: success
  type: list
  elements: dict
  contains:
    subject:
      description: Who, in one text.
      type: str
      returned: always
      sample: ServiceAccount prometheus/kube-prometheus-stack-operator
    kind:
      description: V(User), V(Group) or V(ServiceAccount).
      type: str
      returned: always
      sample: ServiceAccount
    name:
      description: The name.
      type: str
      returned: always
      sample: kube-prometheus-stack-operator
    namespace:
      description: The namespace of a ServiceAccount, else empty.
      type: str
      returned: always
      sample: prometheus
    how:
      description: V(reads the Secret), or V(starts pods beside it), which can mount it.
      type: str
      returned: always
      sample: reads the Secret
    through:
      description: The bindings that give the right.
      type: list
      elements: str
      returned: always
      sample: [ClusterRoleBinding kube-prometheus-stack-operator]
    built_in:
      description: Whether it is a part of the control plane, or its all-powerful group.
      type: bool
      returned: always
      sample: false
    everybody:
      description: Whether that is every account, or every pod.
      type: bool
      returned: always
      sample: false
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.grafana import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
