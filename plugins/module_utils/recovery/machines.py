# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the ledger: the nodes' names in every system and who they are. The module `recovery_machine`."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import (
    parse_address,
    valid_boot_id,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.drivers import check_address
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import parse_uuid
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.site_command import (
    check_commands,
    is_site_address,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import valid_node_name
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Duplicate
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

SPEC: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "machines": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "slurm_name": {"type": "str"},
                "kubernetes_name": {"type": "str"},
                "ssh_address": {"type": "str"},
                "bmc_url": {"type": "str"},
                "smbios_uuid": {"type": "str"},
                "machine_id": {"type": "str"},
                "boot_id": {"type": "str"},
            },
        },
        "settings": {"type": "path"},
    },
    "supports_check_mode": True,
}

_MACHINE_ID = re.compile(r"[0-9a-f]{32}\Z")
_CONFIGURED = ("slurm_name", "kubernetes_name", "ssh_address", "bmc_url", "smbios_uuid", "machine_id", "boot_id")


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Write the machines, or remove them: `{changed, diff, machines: [names that changed]}`."""
    wanted = {str(item["name"]): item for item in params["machines"]}
    for item in wanted.values():
        check(item)
    settings = load(params["settings"])
    if any(is_site_address(item.get("bmc_url") or "") for item in wanted.values()):
        check_commands(settings.power)  # at installation, and not when a node is down
    with open_store(settings.ledger) as store:
        known = store.machines.get(list(wanted))
        if params["state"] == "absent":
            return _remove(store, known, check_mode)
        after = {name: merged(known.get(name), item) for name, item in wanted.items()}
        changed = [name for name, machine in after.items() if machine != known.get(name)]
        if not check_mode:
            for name in changed:
                _put(store, after[name])
        return {"changed": bool(changed), "machines": changed, "diff": _diff(known, after, changed)}


def check(item: Mapping[str, Any]) -> None:
    """Refuse a machine with a field that cannot be one.

    Raises:
        BadInput: naming the field.
    """
    for field in ("name", "slurm_name", "kubernetes_name"):
        if item.get(field) and not valid_node_name(item[field]):
            shown = ascii(item[field])[:80]
            raise BadInput("machine %s: %s is %s, no name of a node" % (_shown(item), field, shown))
    if item.get("ssh_address"):
        parse_address(item["ssh_address"], 22)
    if item.get("bmc_url"):
        check_address(item["bmc_url"])
    if item.get("smbios_uuid") and parse_uuid(item["smbios_uuid"]) is None:
        raise BadInput("machine %s: smbios_uuid identifies nothing" % _shown(item), "leave it out")
    if item.get("machine_id") and not _MACHINE_ID.match(item["machine_id"]):
        raise BadInput("machine %s: machine_id is not 32 hexadecimal digits" % _shown(item))
    if item.get("boot_id") and not valid_boot_id(item["boot_id"]):
        raise BadInput("machine %s: boot_id is none" % _shown(item))


def merged(known: Any, item: Mapping[str, Any]) -> Machine:
    """The machine as it will be: a field that is not given stays as it is.

    A boot ID that is on record stays, too: it was seen while the node was healthy, and the proof that a node rebooted
    is that it has another one now. The next look at the healthy node brings it up to date.
    """
    before = known or Machine(name=item["name"])
    given = {field: item[field] for field in _CONFIGURED if item.get(field) is not None}
    if before.boot_id:
        given.pop("boot_id", None)
    return replace(before, **given)


def _put(store: Store, machine: Machine) -> None:
    try:
        store.machines.put(machine)
    except Duplicate as exc:
        raise BadInput(
            "machine %s: another machine of the ledger has its name in Slurm or Kubernetes" % machine.name,
            "remove that one first (state: absent)",
        ) from exc


def _remove(store: Store, known: Mapping[str, Machine], check_mode: bool) -> dict[str, Any]:
    if not check_mode:
        for name in known:
            store.machines.forget(name)
    return {"changed": bool(known), "machines": sorted(known), "diff": _diff(known, {}, sorted(known))}


def _diff(before: Mapping[str, Machine], after: Mapping[str, Machine], names: Any) -> dict[str, Any]:
    def shown(machines: Mapping[str, Machine]) -> dict[str, Any]:
        return {name: asdict(machines[name]) for name in names if name in machines}

    return {"before": shown(before), "after": shown(after)}


def _shown(item: Mapping[str, Any]) -> str:
    return ascii(item["name"])[:80]
