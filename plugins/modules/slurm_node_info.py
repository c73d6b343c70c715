#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_info
short_description: Read nodes of a Slurm cluster
version_added: 0.1.0
description:
  - Reads nodes by one call, with their full state. Slurm's short forms lose all flags but one; these are complete.
  - Texts that people wrote (C(reason), C(comment), C(extra)) are returned unchanged and must be treated as data.
options:
  names:
    description: The nodes, as names or host lists such as V(gpu[001-004]). Empty means all.
    type: list
    elements: str
    default: []
  tolerate:
    description: Leave out names that Slurm does not know, instead of failing.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.slurm
attributes:
  check_mode:
    description: Reads in check mode too.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Read four nodes
  mission_control.job_recovery.slurm_node_info:
    names: ["gpu[001-004]"]
  register: gpu

- name: Read all nodes with the commands of a certain installation
  mission_control.job_recovery.slurm_node_info:
    bin_dir: /opt/slurm/bin
  register: cluster
"""

RETURN = r"""
nodes:
  description: The nodes, in the order in which they were named.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: NodeName.
      type: str
      sample: gpu001
    hostname:
      description: NodeHostName, which differs from the name on some sites; null if unknown.
      type: str
      sample: gpu001
    address:
      description: NodeAddr; null if unknown.
      type: str
      sample: 10.0.0.11
    base_state:
      description: >-
        DOWN, IDLE, ALLOCATED, ERROR, MIXED, FUTURE, UNKNOWN or INVALID.
      type: str
      sample: IDLE
    flags:
      description: All flags of the state, upper case, sorted. One that this module does not know is there too.
      type: list
      elements: str
      sample: [DRAIN, NOT_RESPONDING]
    reason:
      description: The reason of a drain or failure; null if there is none.
      type: str
      sample: Kill task failed
    reason_user:
      description: Who gave the reason.
      type: str
      sample: root
    reason_time:
      description: When, in seconds since the epoch.
      type: int
      sample: 1758467000
    boot_time:
      description: When the node started, as slurmd told when it registered, in seconds since the epoch.
      type: int
      sample: 1758466931
    slurmd_start_time:
      description: When slurmd started, in seconds since the epoch.
      type: int
      sample: 1758466999
    cpus:
      description: Configured CPUs (threads).
      type: int
      sample: 32
    sockets:
      description: Configured sockets.
      type: int
      sample: 2
    cores_per_socket:
      description: Configured cores of each socket.
      type: int
      sample: 8
    threads_per_core:
      description: Configured threads of each core.
      type: int
      sample: 2
    memory_mb:
      description: Configured memory in MB (2^20 bytes).
      type: int
      sample: 515000
    partitions:
      description: The partitions that the node is in.
      type: list
      elements: str
      sample: [main, debug]
    features:
      description: The node's available features.
      type: list
      elements: str
      sample: [ib, a100]
    gres:
      description: Configured generic resources as Slurm spells them; null if there are none.
      type: str
      sample: gpu:a100:8
    version:
      description: The version of the node's slurmd; null if it never registered.
      type: str
      sample: 24.11.5
    os:
      description: What slurmd says of its operating system.
      type: str
      sample: "Linux 6.8.0-1029 #32-Ubuntu SMP"
    comment:
      description: The node's comment.
      type: str
      sample: null
    extra:
      description: The node's extra text.
      type: str
      sample: null
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.info import (
    NODE_SPEC as SPEC,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.info import (
    run_nodes as run,
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
