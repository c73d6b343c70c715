#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: configure
short_description: Ask for the settings of a site, test them, and write them
version_added: 0.1.0
description:
  - Runs for the head node, on the machine that runs ansible-playbook. What the inventory or the command line gives is
    not asked; the rest is, with what was found to choose from. Each topic is tested as soon as it is answered.
  - Where nobody can be asked, it takes what is found without a doubt and fails naming everything that is missing. More
    than one Slurm cluster or Kubernetes context is a doubt.
  - Settings go into C(job_recovery.yml) of the folder, secrets into its C(vault.yml), encrypted by Ansible Vault with
    the password of this run. What stands in these files and in others of the folder is kept.
options:
  dest:
    description: The folder C(group_vars/all) of the inventory.
    type: str
    required: true
  vault_password_file:
    description:
      - A file with the vault's password, for a run that was started without one.
      - Where there is neither, a person is asked for a new one.
    type: str
    default: ''
  ask:
    description: Whether a person may be asked, if there is a terminal.
    type: bool
    default: true
  timeout:
    description: Seconds for each thing that is asked on the cluster.
    type: int
    default: 10
attributes:
  check_mode:
    support: full
    description: Asks and tests, and writes nothing.
  diff_mode:
    support: full
    description: Shows settings, and of secrets only that they change.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Configure the recovery
  mission_control.job_recovery.configure:
    dest: "{{ inventory_dir }}/group_vars/all"
"""

RETURN = r"""
dest:
  description: The file of settings.
  returned: always
  type: str
  sample: /root/inventory/mine/group_vars/all/job_recovery.yml
"""
