# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that talks to the API server."""

from __future__ import annotations


class ModuleDocFragment:
    """How to reach Kubernetes."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig, or V(in-cluster) for the ServiceAccount of the pod that the module runs in.
      - Empty takes E(KUBECONFIG), else the pod's ServiceAccount where there is one, else C(~/.kube/config).
    type: str
    default: ''
  context:
    description: A context of the kubeconfig. Empty takes its current one.
    type: str
    default: ''
  request_timeout:
    description: Seconds that each request may take.
    type: int
    default: 10
requirements:
  - urllib3 and PyYAML (Python)
  - kubernetes (Python), only for a kubeconfig that gets its credentials from a program or a cloud
"""
