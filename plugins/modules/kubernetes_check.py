#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_check
short_description: Check that a Kubernetes cluster has what recovery needs
version_added: 0.1.0
description:
  - Looks for components and settings by what they are (images, labels, APIs, configuration that pods really mount), not
    by what they are called. Reads only.
  - The ids are V(prometheus_operator), V(prometheus_adapter), V(promtail), V(metrics_server), V(kube_state_metrics),
    V(ingress_nginx), V(kyverno), V(storage_local_path), V(storage_nfs_default), V(loki_datasource),
    V(loki_ingress_auth) and V(promtail_no_var_log).
  - RV(checks[].found) begins with V(present), V(broken) (there, but not working), V(absent), V(warning) or V(unknown).
    What may not be read is unknown, which is never passed.
  - Fails only on wrong use, never because of what it finds.
options:
  only:
    description: Ids to check. Empty checks all.
    type: list
    elements: str
    default: []
  recommended:
    description: Ids that are recommended only, so that they warn where they would fail.
    type: list
    elements: str
    default: []
  nfs_provisioners:
    description: Names of StorageClass provisioners that are known to serve NFS although their names do not say so.
    type: list
    elements: str
    default: []
  hardened:
    description:
      - Whether recovery is installed and proved, and C(harden.yml) has been run since. V(kyverno) may then be there.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    support: full
    description: Changes nothing in any mode.
  diff_mode:
    support: none
    description: Changes nothing.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Look whether the cluster is fit
  mission_control.job_recovery.kubernetes_check:
    kubeconfig: /etc/job-recovery/kubeconfig
  register: kubernetes

- name: Stop where it is not
  ansible.builtin.assert:
    that: kubernetes.checks | rejectattr('status', 'in', ['passed', 'warning']) | length == 0
"""

RETURN = r"""
checks:
  description: One entry for each requirement.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: A word that scripts can rely on.
      type: str
      sample: metrics_server
    title:
      description: What is looked at.
      type: str
      sample: Metrics Server
    required:
      description: What should be there.
      type: str
      sample: Metrics Server answers for metrics.k8s.io
    found:
      description: What is there.
      type: str
      sample: "present: Deployment kube-system/metrics-server 1/1, APIService v1beta1.metrics.k8s.io"
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      sample: passed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      sample: ""
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.kubernetes import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
