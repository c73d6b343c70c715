# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm
short_description: The nodes of a Slurm cluster as hosts
version_added: 0.1.0
description:
  - Gives every node of the running cluster as a host, by one call of C(scontrol), so that nobody lists them by hand.
  - Groups are made by partition (C(slurm_partition_main)), base state (C(slurm_base_idle)) and state with its flags
    (C(slurm_state_drain), C(slurm_state_not_responding) ...), with prefixes that can be changed.
  - Texts that people wrote are left out, but for C(slurm_reason), which is marked so that it is never a template.
  - The configuration file ends in C(slurm.yml) or C(slurm.yaml).
options:
  plugin:
    description: Must be V(mission_control.job_recovery.slurm).
    type: str
    required: true
    choices: [mission_control.job_recovery.slurm, slurm]
  bin_dir:
    description: Where Slurm's commands are. Empty takes E(PATH).
    type: path
    env:
      - name: JOB_RECOVERY_SLURM_BIN_DIR
  timeout:
    description: Seconds that the command may take.
    type: int
    default: 10
  partitions:
    description: Only nodes of these partitions. Empty means all nodes.
    type: list
    elements: str
    default: []
  states:
    description: >-
      Only nodes with one of these base states or flags, such as V(IDLE) or V(DRAIN). Empty means all nodes.
    type: list
    elements: str
    default: []
  exclude_states:
    description: No nodes with one of these base states or flags.
    type: list
    elements: str
    default: [FUTURE]
  set_ansible_host:
    description: Whether the variable C(ansible_host) is set to the node's C(NodeAddr).
    type: bool
    default: true
  partition_prefix:
    description: What the groups of partitions begin with.
    type: str
    default: slurm_partition_
  base_prefix:
    description: What the groups of base states begin with.
    type: str
    default: slurm_base_
  state_prefix:
    description: What the groups of state flags begin with.
    type: str
    default: slurm_state_
extends_documentation_fragment:
  - constructed
  - inventory_cache
requirements:
  - Slurm's client commands (20.11 or later)
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
# All nodes, as the running cluster knows them.
plugin: mission_control.job_recovery.slurm
---
# The GPU partition without what is powered down, cached for five minutes, with a group of a hundred big nodes.
plugin: mission_control.job_recovery.slurm
partitions: [gpu]
exclude_states: [FUTURE, POWERED_DOWN]
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: /var/cache/slurm-inventory
cache_timeout: 300
groups:
  big: slurm_memory_mb > 500000
keyed_groups:
  - key: slurm_features
    prefix: feature
compose:
  ansible_user: "'root'"
"""

from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import as_dict

# What becomes a variable (`slurm_...`) of the host. Comments and extra texts are people's own and stay out.
_VARIABLES = (
    "hostname",
    "address",
    "base_state",
    "flags",
    "reason",
    "reason_user",
    "reason_time",
    "boot_time",
    "slurmd_start_time",
    "cpus",
    "sockets",
    "cores_per_socket",
    "threads_per_core",
    "memory_mb",
    "partitions",
    "features",
    "gres",
    "version",
)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """See DOCUMENTATION."""

    NAME = "mission_control.job_recovery.slurm"

    def verify_file(self, path: str) -> bool:
        """Whether the file is one for this plugin, by its name."""
        return bool(super().verify_file(path)) and path.endswith(("slurm.yml", "slurm.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Add the nodes to the inventory.

        Raises:
            AnsibleParserError: Slurm could not be read; an inventory that lacks nodes is none.
        """
        super().parse(inventory, loader, path, cache=cache)
        self._read_config_data(path)
        filters = [self.get_option(name) for name in ("partitions", "states", "exclude_states")]
        for node in self._nodes(path, cache):
            if is_wanted(node, *filters):
                self._add(node)

    def _nodes(self, path: str, cache: bool) -> list[dict[str, Any]]:
        """The nodes as plain data, from the cache where it is used and has them."""
        self.load_cache_plugin()
        key = self.get_cache_key(path)
        use_cache = cache and self.get_option("cache")
        if use_cache:
            try:
                return self._cache[key]
            except KeyError:
                pass
        nodes = self._read()
        if self.get_option("cache"):
            self._cache[key] = nodes
        return nodes

    def _read(self) -> list[dict[str, Any]]:
        slurm = SlurmCli(self.get_option("bin_dir"), self.get_option("timeout"))
        try:
            return [as_dict(node) for node in slurm.nodes()]
        except RecoveryError as exc:
            raise AnsibleParserError("the inventory cannot be read from Slurm: %s" % exc) from exc

    def _add(self, node: dict[str, Any]) -> None:
        name = node["name"]
        self.inventory.add_host(name)
        variables = {"slurm_" + key: node[key] for key in _VARIABLES}
        if self.get_option("set_ansible_host") and node["address"]:
            variables["ansible_host"] = node["address"]
        # ansible-core takes no text of an inventory plugin for a template; this one is also shown to be a person's.
        variables["slurm_reason"] = wrap_var(variables["slurm_reason"])
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        self._group(name, self.get_option("partition_prefix"), node["partitions"])
        self._group(name, self.get_option("base_prefix"), [node["base_state"]])
        self._group(name, self.get_option("state_prefix"), node["flags"])
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _group(self, host: str, prefix: str, words: Iterable[str]) -> None:
        for word in words:
            group = self._sanitize_group_name(prefix + word.lower())
            self.inventory.add_host(host, group=self.inventory.add_group(group))


def is_wanted(
    node: dict[str, Any], partitions: Iterable[str], states: Iterable[str], excluded: Iterable[str]
) -> bool:
    """Whether the filters let a node through: in one of the partitions and states, if named, and not excluded."""
    has = {node["base_state"], *node["flags"]}
    if has.intersection(_upper(excluded)):
        return False
    in_partition = not partitions or bool(set(partitions).intersection(node["partitions"]))
    return in_partition and (not states or bool(has.intersection(_upper(states))))


def _upper(words: Iterable[str]) -> set[str]:
    return {str(word).upper() for word in words}
