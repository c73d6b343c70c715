#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_node
short_description: Take Kubernetes nodes out of service and give them back
version_added: 0.1.0
description:
  - Cordons, drains, fences and uncordons nodes, and touches only what is its own.
  - A cordon is its own when the node bears the annotation C(mission-control/job-recovery) and the API server's own
    account of field managers says that this module's write was the last one to cordon it. A node that somebody else
    cordoned, or that bears the annotation C(mission-control/hold), is refused.
  - Each write is made against the version of the node that was just read, and planned again where something slipped in.
options:
  names:
    description: The nodes' names in Kubernetes.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(cordoned) makes the nodes unschedulable, with the annotation that says whose cordon it is.
      - V(drained) also evicts their pods within the disruption budgets. Pods of DaemonSets, mirror pods, finished pods
        and pods made after the cordon do not count.
      - V(fenced) puts the taint C(node.kubernetes.io/out-of-service) on the nodes, by which the cluster gives up their
        pods and volumes at once. It is refused without O(power_off_proved).
      - V(uncordoned) gives the nodes back; this module's out-of-service taint goes too.
    type: str
    required: true
    choices: [cordoned, drained, fenced, uncordoned]
  incident:
    description:
      - For whom the nodes are cordoned. A cordon of one incident is not lifted for another.
      - Empty means by hand, which may lift every cordon that this module made.
    type: str
    default: ''
  timeout:
    description: Seconds to go on asking for evictions and waiting for pods to end; V(0) asks once.
    type: int
    default: 60
  unmanaged_pods:
    description: Whether O(state=drained) may evict pods that no controller makes again.
    type: str
    choices: [refuse, evict]
    default: refuse
  local_data:
    description: Whether O(state=drained) may evict pods with an emptyDir volume, whose content is lost by it.
    type: str
    choices: [refuse, evict]
    default: evict
  power_off_proved:
    description: The caller has proved that the nodes' power is off, for O(state=fenced).
    type: bool
    default: false
  tolerate:
    description: End without failure also where a node is refused, waiting or failed; RV(results) tells.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    support: full
    description: Can run in check mode and tell what would be changed.
  diff_mode:
    support: full
    description: Tells what was changed, or would be in check mode.
seealso:
  - module: mission_control.job_recovery.kubernetes_job
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Take two nodes out of service and let their pods move within ten minutes
  mission_control.job_recovery.kubernetes_node:
    names: [node1, node2]
    state: drained
    timeout: 600
    kubeconfig: /etc/job-recovery/kubeconfig

- name: Give them back
  mission_control.job_recovery.kubernetes_node:
    names: [node1, node2]
    state: uncordoned
    kubeconfig: /etc/job-recovery/kubeconfig
"""

RETURN = r"""
results:
  description: What became of each node, in the order of O(names). A failed module returns it too.
  returned: when the API server was reached
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: node1
    status:
      description: One of V(done), V(refused), V(waiting) and V(failed).
      type: str
      sample: waiting
    why:
      description: One sentence where it is not simply done.
      type: str
      sample: "1 pods left: web/front-0 (disruption budget front allows no eviction now)"
    before:
      description: Unschedulable, whose (incident), out-of-service taint of ours, evictions.
      type: dict
      sample: {unschedulable: false, incident: null, out_of_service: false, evicted: 0}
    after:
      description: The same afterwards.
      type: dict
      sample: {unschedulable: true, incident: "", out_of_service: false, evicted: 3}
    pods:
      description: The pods that are left, why, and the disruption budget that forbids their eviction at present.
      type: list
      elements: dict
      returned: when O(state=drained)
      sample:
        - pod: web/front-0
          why: disruption budget front allows no eviction now
          budget: front
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.node_module import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
