#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hardware_check
short_description: Check that the cluster's hardware is enough for recovery
version_added: 0.1.0
description:
  - Judges numbers that are given to it, for example facts of the nodes or what Slurm says of them. It measures nothing.
  - The ids are V(node_memory), V(cluster_cpus), V(head_node_memory) and V(persistent_storage), and V(hardware_sources)
    where O(slurm_nodes) or O(kubernetes_nodes) is given, which warns where they disagree with O(nodes).
  - Gigabytes are decimal and compared with what the operating system reports. Cores are sockets times cores of each;
    where only threads reach the number it is a warning. A number that was not given is unknown, which is never passed.
  - Fails only on wrong use, never because of what it finds.
options:
  nodes:
    description: The machines. A machine that is head node and node of the cluster is given twice, once for each role.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name, for the result.
        type: str
        required: true
      memory_mb:
        description: Its memory in MiB, as the operating system, Slurm or the kubelet reports it.
        type: float
      sockets:
        description: Its processor sockets.
        type: int
      cores_per_socket:
        description: The cores of each.
        type: int
      threads:
        description: All its hardware threads.
        type: int
      head:
        description: It is a head node, which counts for its own memory only.
        type: bool
        default: false
      slurm_name:
        description: Its name in O(slurm_nodes). Without it O(nodes[].name), empty for none.
        type: str
      kubernetes_name:
        description: Its name in O(kubernetes_nodes). Without it O(nodes[].name), empty for none.
        type: str
  slurm_nodes:
    description:
      - What Slurm says of the machines, as RV(mission_control.job_recovery.slurm_check#module:nodes). Used where a
        machine did not tell a number, and compared with what it told.
    type: list
    elements: dict
    default: []
  kubernetes_nodes:
    description: The same of Kubernetes, as RV(mission_control.job_recovery.kubernetes_check#module:nodes).
    type: list
    elements: dict
    default: []
  storage_gb:
    description: Persistent storage on the head node in decimal gigabytes.
    type: float
  back_ends:
    description:
      - Where volumes of the cluster's StorageClasses lie, as
        RV(mission_control.job_recovery.nodes_check#module:back_ends).
      - Those of the default class must have O(min_storage_gb) free.
    type: list
    elements: dict
    default: []
    suboptions:
      class:
        description: Name of the StorageClass.
        type: str
        required: true
      default:
        description: Whether claims that name no class get it.
        type: bool
        default: false
      where:
        description: Where it is, in words.
        type: str
        required: true
      free:
        description: What is free there in decimal gigabytes, by the host that sees it; empty where nobody can tell.
        type: dict
        default: {}
  min_node_memory_gb:
    description: What every node needs, in decimal gigabytes.
    type: float
    default: 16.0
  min_cluster_cores:
    description: What all nodes together need.
    type: int
    default: 30
  min_head_memory_gb:
    description: What a head node needs, in decimal gigabytes.
    type: float
    default: 64.0
  min_storage_gb:
    description: The persistent storage needed, in decimal gigabytes.
    type: float
    default: 20.0
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Judge two nodes and the head node
  mission_control.job_recovery.hardware_check:
    nodes:
      - {name: node1, memory_mb: 515000, sockets: 2, cores_per_socket: 28, threads: 112}
      - {name: node2, memory_mb: 515000, sockets: 2, cores_per_socket: 28, threads: 112}
      - {name: head, memory_mb: 128000, head: true}
    storage_gb: 500
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
      sample: cluster_cpus
    title:
      description: What is looked at.
      type: str
      sample: CPU cores of the cluster
    required:
      description: What should be there.
      type: str
      sample: at least 30 CPU cores in the cluster
    found:
      description: What is there.
      type: str
      sample: 112 cores, 224 threads on 2 nodes
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      sample: passed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      sample: ""
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hardware import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
