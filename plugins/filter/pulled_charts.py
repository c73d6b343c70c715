# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What registries are asked before charts are installed; the work is in module_utils/registry/pulled.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: pulled_charts
short_description: The registries, repositories and charts that an installation of charts will need
version_added: 0.1.0
description:
  - Adds to what a site gives for M(mission_control.job_recovery.registry_check) what its releases come from, with the
    accounts that the role C(charts) will use.
  - Archives, folders, and charts whose account only a file holds are left out.
options:
  _input:
    description: The lists C(registries), C(repositories) and C(charts) that the site gives itself.
    type: dict
    required: true
  releases:
    description: The releases, as C(charts_releases) of the role C(charts).
    type: list
    elements: dict
    required: true
  common:
    description: The account for all that have none, C(username), C(password), C(password_file), C(docker_config), and
      C(ca_file).
    type: dict
    required: true
  site:
    description: The C(address) of the site's own repository, C(username) and C(password).
    type: dict
    required: true
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Show what would be asked
  ansible.builtin.debug:
    msg: >-
      {{ {'registries': [], 'repositories': [], 'charts': []}
         | mission_control.job_recovery.pulled_charts(
             releases=[{'name': 'a', 'namespace': 'a', 'chart': 'oci://registry.example.org/charts/a'}],
             common={'username': '', 'password': ''}, site={'address': '', 'username': '', 'password': ''}) }}
"""

RETURN = r"""
_value:
  description: The three lists.
  type: dict
"""

from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.pulled import wanted


class FilterModule:
    """The filter plugin."""

    def filters(self) -> dict[str, Any]:
        """See the documentation above."""
        return {"pulled_charts": wanted}
