#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Take Slurm nodes out of service and give them back
version_added: 0.1.0
description:
  - Drains nodes, sets them down and gives them back, by one call for all of them, and touches only what is its own.
  - The reason of a person or of another tool is never overwritten, and a node that bears one is never given back.
    Reasons that Slurm itself wrote (C(Kill task failed), C(Not responding) ...) may be replaced; the earlier text is in
    RV(results).
  - Slurm compares nothing when it writes. So every node is read right before and right after, and a person's drain that
    slipped in while a node was given back is put back with its own reason.
  - A node with a state flag that this module does not know, and a node that C(scontrol reboot) has, are not touched.
options:
  names:
    description: The nodes, as names or host lists such as V(gpu[001-004]).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) lets no new job onto the nodes. While jobs run there, a node's status is C(waiting).
      - V(down) makes Slurm end and requeue what it believes to run on the nodes. Only for nodes that are proved dead or
        cut off, or the job runs twice.
      - V(resumed) gives the nodes back, once slurmd has registered.
    type: str
    required: true
    choices: [drained, down, resumed]
  reason:
    description:
      - The reason to set, needed for O(state=drained) and O(state=down).
      - It becomes one line of at most 200 characters, without control characters and double quotes.
    type: str
  ours:
    description:
      - The reason that was set when the nodes were taken out of service. With O(state=resumed) only nodes that bear it
        now, as it is or with what C(scontrol reboot) adds to it, are given back.
      - With the other states, nodes that bear it get the new reason.
    type: str
  ours_by_name:
    description: The same by the node's name, where the nodes bear different reasons.
    type: dict
  booted_after:
    description:
      - Seconds since the epoch. With O(state=resumed) only a boot after this time counts as registered; a minute less
        is allowed for clocks.
    type: int
extends_documentation_fragment:
  - mission_control.job_recovery.slurm
  - mission_control.job_recovery.slurm.tolerate
attributes:
  check_mode:
    description: Reads and decides the same, and writes nothing.
    support: full
  diff_mode:
    description: Shows the nodes' states before and after.
    support: full
notes:
  - The account needs Slurm's administrator level.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Drain two nodes
  mission_control.job_recovery.slurm_node:
    names: ["gpu[001-002]"]
    state: drained
    reason: "fan 3 to be replaced (ticket 4711)"

- name: Give them back
  mission_control.job_recovery.slurm_node:
    names: ["gpu[001-002]"]
    state: resumed
    ours: "fan 3 to be replaced (ticket 4711)"
"""

RETURN = r"""
results:
  description: What became of every node. A module that fails returns it too, unless nothing could be read.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The node.
      type: str
      sample: gpu001
    status:
      description: C(done), C(refused), C(waiting) or C(failed).
      type: str
      sample: done
    why:
      description: >-
        One word for it. Refused: C(owner_person), C(owner_tool), C(owner_slurm), C(owner_unknown), C(rebooting),
        C(misconfigured), C(not_understood). Waiting: C(draining), C(not_registered), C(not_booted), C(rebooting),
        C(powering). Failed: C(absent), C(not_applied), C(out_of_service_again), C(unknown), or the cause that Slurm
        gave.
      type: str
      sample: ""
    changed:
      description: Whether this node was changed.
      type: bool
      sample: true
    before:
      description: The node as it was right before; null if it does not exist.
      type: dict
      sample: {"base_state": "IDLE", "flags": [], "reason": null, "reason_user": null, "reason_time": null,
               "boot_time": 1758466931, "slurmd_start_time": 1758466999}
    after:
      description: The node as it was right after, or in check mode would be.
      type: dict
      sample: {"base_state": "IDLE", "flags": ["DRAIN"], "reason": "fan 3 to be replaced", "reason_user": "root",
               "reason_time": 1758467000, "boot_time": 1758466931, "slurmd_start_time": 1758466999}
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.node_state import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
