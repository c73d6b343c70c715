#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try what the service does in Kubernetes as a dry run; the work is in module_utils/checks/access.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_access_check
short_description: Check that RBAC and admission policies let the service do what recovery does
version_added: 0.1.0
description:
  - Runs with the service's own account. Asks RBAC for every verb, and tries each kind of write as a dry run, which goes
    through admission policies and webhooks and is not kept.
  - The ids are V(kubernetes_rights), V(kubernetes_admits_nodes), V(kubernetes_admits_jobs),
    V(kubernetes_admits_evictions) and V(kubernetes_admits_deletions).
  - A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  nodes:
    description: Names of nodes in Kubernetes. Empty means all that are not of the control plane.
    type: list
    elements: str
    default: []
  most_nodes:
    description: How many of O(nodes) are tried at most.
    type: int
    default: 20
  namespaces:
    description: The namespaces that recovery may act on.
    type: list
    elements: str
    required: true
  image:
    description: Image of the Job that is tried in a namespace without any; it is never pulled.
    type: str
    default: registry.k8s.io/pause:3.10
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    description: Every write is a dry run in any mode.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Ask whether recovery may do its work
  mission_control.job_recovery.kubernetes_access_check:
    kubeconfig: /etc/job-recovery/kubeconfig
    namespaces: [default]
  become: true
  vars:
    ansible_python_interpreter: /opt/job-recovery/venv/bin/python
  register: access
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
      sample: kubernetes_admits_nodes
    title:
      description: What is checked.
      type: str
      returned: always
      sample: Nodes may be cordoned
    required:
      description: What is required.
      type: str
      returned: always
      sample: a dry run passes RBAC and admission
    found:
      description: What was found.
      type: str
      returned: always
      sample: 4 of 4
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

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.access import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
