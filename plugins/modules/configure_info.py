#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: configure_info
short_description: Find what a head node has that the settings name
version_added: 0.1.0
description:
  - Finds the Slurm clusters whose configuration is on the host and whose controller answers, and the sockets of
    database servers; tries a login to a database server.
  - Fails only on wrong use, never because of what it finds.
options:
  slurm_bin_dir:
    description: Folder of Slurm's commands. Empty means on PATH, else where distributions of Slurm put them.
    type: str
    default: ''
  slurm_conf:
    description: The only slurm.conf to look at. Empty means the one that Slurm's commands find, and O(slurm_confs).
    type: str
    default: ''
  slurm_confs:
    description: Where further slurm.conf files may be, as shell patterns.
    type: list
    elements: str
    default:
      - /etc/slurm*/slurm.conf
      - /cm/shared/apps/slurm/var/etc/slurm.conf
      - /cm/shared/apps/slurm/var/etc/*/slurm.conf
  sockets:
    description: Where sockets of database servers may be.
    type: list
    elements: str
    default:
      - /run/mysqld/mysqld.sock
      - /var/lib/mysql/mysql.sock
      - /var/run/mysql/mysql.sock
  database:
    description: A login to try, with the host's client C(mariadb) or C(mysql), which reads no other option file.
    type: dict
    suboptions:
      user:
        description: The account.
        type: str
        default: root
      password:
        description: Its password.
        type: str
        default: ''
      unix_socket:
        description: The server's socket. Empty means by address.
        type: str
        default: ''
      host:
        description: The server's address.
        type: str
        default: 127.0.0.1
      port:
        description: The server's port.
        type: int
        default: 3306
      ca_file:
        description: The CA of the server's certificate.
        type: str
        default: ''
  timeout:
    description: Seconds for each command.
    type: int
    default: 10
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Find the Slurm clusters of this head node
  mission_control.job_recovery.configure_info:
  register: found
"""

RETURN = r"""
slurm_bin_dir:
  description: Folder of Slurm's commands, empty where they are on PATH or nowhere.
  returned: always
  type: str
  sample: /cm/local/apps/slurm/current/bin
slurm:
  description: The clusters.
  returned: always
  type: list
  elements: dict
  contains:
    cluster:
      description: Its ClusterName, empty where it does not answer.
      type: str
      sample: training
    conf:
      description: Its slurm.conf, empty for the one that Slurm's commands find by themselves.
      type: str
      sample: ''
    partitions:
      description: The partitions that have nodes.
      type: list
      elements: str
      sample: [batch, debug]
    error:
      description: Why it does not answer, or empty.
      type: str
      sample: ''
sockets:
  description: Sockets of database servers that are there.
  returned: always
  type: list
  elements: str
  sample: [/run/mysqld/mysqld.sock]
database:
  description: How the login ended; none where none was to be tried.
  returned: always
  type: dict
  contains:
    status:
      description: V(ok), V(refused), V(unreachable), or V(unknown) where it could not be tried.
      type: str
      sample: refused
    message:
      description: What the client said.
      type: str
      sample: "ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)"
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.found import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
