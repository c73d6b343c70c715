# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the service's account in Kubernetes; the work is in module_utils/kubernetes/account.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: kubernetes_account
short_description: The Kubernetes objects of an account that may do what recovery does, and nothing else
version_added: 0.1.0
description:
  - Gives the Namespace, ServiceAccount, token Secret, ClusterRoles and bindings of the recovery's account, for
    M(kubernetes.core.k8s). Whoever is not allowed to make them can hand them to who is.
options:
  _terms:
    description: Namespaces in which Jobs may be run again.
    type: list
    elements: str
    required: true
  namespace:
    description: The account's own namespace.
    type: str
    default: job-recovery
  account:
    description: The account's name.
    type: str
    default: job-recovery
  owners:
    description: The site's rows of owners (C(job_recovery_kubernetes_owners)), whose objects are to be seen.
    type: list
    elements: dict
    default: []
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Show the objects
  ansible.builtin.debug:
    msg: "{{ query('mission_control.job_recovery.kubernetes_account', 'default', 'training') }}"
"""

RETURN = r"""
_raw:
  description: The objects, in the order in which they can be made.
  type: list
  elements: dict
"""

from typing import Any, Optional

from ansible.plugins.lookup import LookupBase
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.account import objects
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner


class LookupModule(LookupBase):
    """The lookup plugin."""

    def run(self, terms: list[str], variables: Optional[dict[str, Any]] = None, **kwargs: Any) -> list[dict[str, Any]]:
        """See the documentation above."""
        self.set_options(var_options=variables, direct=kwargs)
        own = [JobOwner(**row) for row in self.get_option("owners")]
        return objects(self.get_option("namespace"), self.get_option("account"), terms, own)
