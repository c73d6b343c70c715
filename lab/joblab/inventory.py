# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible inventory of an instance: hosts and how to reach them. The site's settings are in inventory/lab/."""

from __future__ import annotations

import json
from typing import Any

from . import bmc, ssh
from .instance import HEAD, Instance


def bmc_url(instance: Instance, node: str) -> str:
    """Redfish URL of the system that is this node."""
    return f"{bmc.url(instance)}/redfish/v1/Systems/{node}"


def content(instance: Instance) -> dict[str, Any]:
    """The inventory as Ansible reads it."""
    hosts = {host: _host(instance, host) for host in instance.hosts}
    nodes = {node: {} for node in instance.nodes}
    return {
        "all": {
            "hosts": hosts,
            "children": {
                "controller": {"hosts": {HEAD: {}}},
                "slurm_controller": {"hosts": {HEAD: {}}},
                "kubernetes_control_plane": {"hosts": {HEAD: {}}},
                "compute": {"hosts": nodes},
            },
            "vars": {
                # where inventory/lab finds this instance's secrets and certificates
                "lab_state": str(instance.state),
                "ansible_user": "root",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_private_key_file": str(instance.ssh_key),
                "ansible_ssh_common_args": _common_arguments(instance),
            },
        }
    }


def _host(instance: Instance, host: str) -> dict[str, str]:
    variables = {"ansible_host": instance.address(host)}
    if host != HEAD:
        variables["job_recovery_bmc_url"] = bmc_url(instance, host)
    return variables


def _common_arguments(instance: Instance) -> str:
    """What ssh.py passes, without the key, which Ansible adds itself."""
    options = ssh.arguments(instance)
    return " ".join(option for option in options if option not in ("-i", str(instance.ssh_key)))


def write(instance: Instance) -> None:
    """Write the inventory. JSON is YAML, and needs no library."""
    instance.inventory.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content(instance), indent=2)
    instance.inventory.write_text(f"# Written by lab/up for instance {instance.number}.\n{text}\n", encoding="utf-8")
