#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ask_nodes
short_description: Run one command on many hosts by one task
version_added: 0.1.0
description:
  - Runs a command that only reads on many hosts of the inventory, over the connection and with the privileges that the
    inventory gives each of them, as M(ansible.builtin.raw) would, and returns all results at once.
  - For a thousand hosts it takes a fraction of the time of a task on every host.
  - A host that cannot be reached, or whose variables are wrong, does not fail the module. That is its result.
options:
  names:
    description: The hosts' names in the inventory.
    type: list
    elements: str
    required: true
  command:
    description: The name of the variable that holds the command. It is templated with the variables of each host.
    type: str
    required: true
  at_once:
    description: How many hosts are asked at the same time at most.
    type: int
    default: 50
  timeout:
    description: Seconds for each host. What has not answered by then counts as unreachable, and is not waited for.
    type: int
    default: 60
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
notes:
  - The command runs in check mode as well.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Ask the nodes for their kernel
  mission_control.job_recovery.ask_nodes:
    names: "{{ groups['compute'] }}"
    command: kernel_of_a_node
  vars:
    kernel_of_a_node: echo {{ inventory_hostname | quote }} $(uname -r)
"""

RETURN = r"""
answers:
  description: One for each of O(names), in the same order.
  returned: success
  type: list
  elements: dict
  contains:
    rc:
      description: The command's exit code.
      type: int
      returned: when the host was reached
      sample: 0
    stdout:
      description: The command's output.
      type: str
      returned: when the host was reached
      sample: "node1 6.1.0-43-amd64"
    stderr:
      description: What the command complained of.
      type: str
      returned: when the host was reached
      sample: ""
    unreachable:
      description: The host could not be reached, or did not answer in time.
      type: bool
      returned: then
      sample: true
    failed:
      description: The host could not be asked, for example because a variable is not defined.
      type: bool
      returned: then
      sample: true
    msg:
      description: Why there is no answer.
      type: str
      returned: when there is none
      sample: "Failed to connect to the host via ssh: ssh: connect to host node1 port 22: No route to host"
"""

from ansible.module_utils.basic import AnsibleModule

SPEC = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "command": {"type": "str", "required": True},
        "at_once": {"type": "int", "default": 50},
        "timeout": {"type": "int", "default": 60},
    },
    "supports_check_mode": True,
}


def main() -> None:
    """Say that the action plugin of this name does the work: only ansible-playbook knows the other hosts."""
    AnsibleModule(**SPEC).fail_json(msg="ask_nodes is run by its action plugin, which is missing")


if __name__ == "__main__":
    main()
