# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that reads the account that Grafana's chart generated."""

from __future__ import annotations


class ModuleDocFragment:
    """Where the chart keeps it."""

    DOCUMENTATION = r"""
options:
  namespace:
    description: The namespace of Grafana's Secret.
    type: str
    default: prometheus
  secret:
    description: The Secret in which the chart keeps the generated account.
    type: str
    default: kube-prometheus-stack-grafana
  user_key:
    description: The key of the user in it.
    type: str
    default: admin-user
  password_key:
    description: The key of the password in it.
    type: str
    default: admin-password
"""
