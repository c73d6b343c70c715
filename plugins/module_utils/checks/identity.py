# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is every node the machine that its names say: in the inventory, Slurm, Kubernetes, at its SSH address and its BMC.

Recovery reboots and powers off by these names. One that leads to another machine, or two that lead to the same, must be
found before anything is installed. `judge` is pure; `run` asks the BMCs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hosts import grouped, listed
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.drivers import Power
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import (
    parse_uuid,
    same_machine,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.site_command import is_site_address
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    PowerCommands,
    PowerSettings,
)

_FIELDS = (
    "slurm_name",
    "kubernetes_name",
    "ssh_address",
    "bmc_url",
    "hostname",
    "machine_id",
    "boot_id",
    "smbios_uuid",
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist

SPEC: dict[str, Any] = {
    "argument_spec": {
        "nodes": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                **{field: {"type": "str", "default": ""} for field in _FIELDS},
            },
        },
        "slurm_nodes": {"type": "list", "elements": "dict", "default": []},
        "kubernetes_nodes": {"type": "list", "elements": "dict", "default": []},
        "bmc_user": {"type": "str", "default": ""},
        "bmc_password": {"type": "str", "default": "", "no_log": True},
        "bmc_ca": {"type": "str", "default": ""},
        "bmc_timeout": {"type": "float", "default": 10.0},
        "power_commands": {"type": "dict", "default": {}},
    },
    "supports_check_mode": True,
}

# What must be one node's alone, in words.
_OWN = {
    "slurm_name": "name in Slurm",
    "kubernetes_name": "name in Kubernetes",
    "ssh_address": "SSH address",
    "bmc_url": "BMC address",
    "machine_id": "machine-id",
    "smbios_uuid": "SMBIOS UUID",
}
_LEVELS = ("On", "ForceOff")

Answer = Union[PowerState, RecoveryError]


@dataclass(frozen=True)
class Known:
    """What the schedulers say, by the node's name there; an empty mapping where one was not asked."""

    slurm: Mapping[str, Mapping[str, Any]]
    kubernetes: Mapping[str, Mapping[str, Any]]


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Compare names and identities, and ask each BMC who it is. Nothing is changed.

    Returns:
        `{"changed": false, "checks": [...]}`.
    """
    del check_mode  # reads only
    nodes = params["nodes"]
    known = Known(_by_name(params["slurm_nodes"]), _by_name(params["kubernetes_nodes"]))
    checks = judge(nodes, known)
    checks.append(power_path(nodes, ask_bmcs(nodes, params)))
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def judge(nodes: Sequence[Mapping[str, str]], known: Known) -> list[Check]:
    """Names and machines, over all nodes."""
    return [_names(nodes, known), _machines(nodes, known)]


def _names(nodes: Sequence[Mapping[str, str]], known: Known) -> Check:
    """Every name leads to one node, and exists where it should."""
    faults = {node["name"]: "; ".join(_name_faults(node, known)) for node in nodes}
    for name, fault in _shared(nodes, ("slurm_name", "kubernetes_name", "ssh_address", "bmc_url")).items():
        faults[name] = "; ".join(filter(None, (faults[name], fault)))
    return _check(
        "identity_names",
        "Names of the nodes",
        "every name and address leads to one node, and exists there",
        faults,
        "%d nodes" % len(nodes),
        "correct ansible_host, job_recovery_slurm_name, job_recovery_kubernetes_name, job_recovery_ssh_address and "
        "job_recovery_bmc_url of these nodes in the inventory",
    )


def _name_faults(node: Mapping[str, str], known: Known) -> list[str]:
    faults = []
    if not node["slurm_name"] and not node["kubernetes_name"]:
        faults.append("has no name in Slurm or in Kubernetes")
    if known.slurm and node["slurm_name"] and node["slurm_name"] not in known.slurm:
        faults.append("is not known to Slurm")
    if known.kubernetes and node["kubernetes_name"] and node["kubernetes_name"] not in known.kubernetes:
        faults.append("is not known to Kubernetes")
    return faults


def _machines(nodes: Sequence[Mapping[str, str]], known: Known) -> Check:
    """The machine at the SSH address is the one that Slurm and Kubernetes call by the node's name."""
    faults = {node["name"]: "; ".join(_machine_faults(node, known)) for node in nodes}
    for name, fault in _shared(nodes, ("machine_id", "smbios_uuid")).items():
        faults[name] = "; ".join(filter(None, (faults[name], fault)))
    return _check(
        "identity_machines",
        "Machines behind the names",
        "NodeHostName, machine-id and boot ID are the same over SSH, in Slurm and in Kubernetes",
        faults,
        "%d machines" % len(nodes),
        "let each name lead to its own machine; nodes that were cloned from one image need a machine-id of their own "
        "(empty /etc/machine-id in the image)",
    )


def _machine_faults(node: Mapping[str, str], known: Known) -> list[str]:
    faults = []
    hostname = str((known.slurm.get(node["slurm_name"]) or {}).get("hostname") or "")
    if hostname and node["hostname"] and not hostlist.same_host(hostname, node["hostname"]):
        faults.append("Slurm's NodeHostName is not its host name")
    cluster = known.kubernetes.get(node["kubernetes_name"]) or {}
    machine_id, boot_id = cluster.get("machine_id"), cluster.get("boot_id")
    if machine_id and node["machine_id"] and machine_id.replace("-", "") != node["machine_id"]:
        faults.append("Kubernetes knows another machine-id")
    elif boot_id and node["boot_id"] and boot_id != node["boot_id"]:
        faults.append("Kubernetes knows another boot ID (the kubelet does not run there, or has not started yet)")
    return faults


def ask_bmcs(nodes: Sequence[Mapping[str, str]], params: Mapping[str, Any]) -> dict[str, Answer]:
    """By power address the state, or the error. The BMCs' account lies in a private folder meanwhile.

    Raises:
        Unreadable: no private folder can be made.
    """
    given = [node["bmc_url"] for node in nodes if node["bmc_url"]]
    urls = [url for url in given if params["bmc_user"] or is_site_address(url)]
    refused = dict.fromkeys(given, BadInput("no account is given (job_recovery_bmc_user)"))
    if not urls:
        return refused
    try:
        folder = tempfile.mkdtemp(prefix="job-recovery-")  # mode 0700
    except OSError as exc:
        raise Unreadable("no private folder can be made for the BMCs' account (%s)" % type(exc).__name__) from exc
    try:
        account = _private(folder, "account", "%s:%s" % (params["bmc_user"], params["bmc_password"]))
        authority = _private(folder, "ca", params["bmc_ca"]) if params["bmc_ca"] else ""
        power = Power(
            PowerSettings(
                credentials_file=account,
                ca_file=authority,
                timeout=params["bmc_timeout"],
                commands=PowerCommands(**_commands(params.get("power_commands") or {})),
            )
        )
        return {**refused, **power.read_many(urls)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _commands(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def power_path(nodes: Sequence[Mapping[str, str]], answers: Mapping[str, Answer]) -> Check:
    """Where a BMC is given it answers, is the node's own, and can switch it off and on."""
    title, required = "Power by the BMC", "every BMC that is given answers, is the node's own and can switch its power"
    given = [node for node in nodes if node["bmc_url"]]
    without = [node["name"] for node in nodes if not node["bmc_url"]]
    faults = {node["name"]: bmc_fault(node, answers.get(node["bmc_url"])) for node in given}
    silent = {node["name"] for node in given if isinstance(answers.get(node["bmc_url"]), Unreachable)}
    wrong = grouped(faults)
    found = "%d BMCs" % len(given)
    if without:
        found += "; without one: %s" % listed(without)
    if wrong:
        status = UNKNOWN if {name for name, fault in faults.items() if fault} <= silent else FAILED
        hint = "correct job_recovery_bmc_url, the BMCs' account (job_recovery_bmc_user) or job_recovery_bmc_ca"
        return Check("identity_power", title, required, "%s; %s" % (found, wrong), status, hint)
    if without:
        hint = "give them job_recovery_bmc_url: without it a silent node cannot be proved off and waits for Slurm"
        return Check("identity_power", title, required, found, WARNING, hint)
    return Check("identity_power", title, required, found, PASSED)


def bmc_fault(node: Mapping[str, str], answer: Union[Answer, None]) -> str:
    """What is wrong with a node's BMC, in words that are the same for the same cause; empty where nothing is."""
    if answer is None:
        return "its BMC was not asked"
    if isinstance(answer, RecoveryError):
        return "its BMC: %s" % str(answer).replace(node["bmc_url"], "").replace("BMC ", "").strip(" :")
    if parse_uuid(node["smbios_uuid"]) is None:
        return "the node tells no UUID of its own (job_recovery_smbios_uuid_path)"
    if not same_machine(answer.uuid, node["smbios_uuid"]):
        return "its BMC tells another machine's UUID" if parse_uuid(answer.uuid) else "its BMC tells no UUID"
    if is_site_address(node["bmc_url"]):
        return ""  # both levels are the site's own commands, and none is there without the others
    lacking = [level for level in _LEVELS if answer.reset_types and level not in answer.reset_types]
    if not answer.reset_path or lacking:
        return "its BMC offers no %s" % (" and no ".join(lacking) or "reset")
    return ""


def _shared(nodes: Sequence[Mapping[str, str]], fields: Sequence[str]) -> dict[str, str]:
    """Nodes that have in common what must be one's alone."""
    faults: dict[str, list[str]] = {}
    for field in fields:
        values = {node["name"]: _plain(field, node[field]) for node in nodes}
        counts = Counter(values.values())
        for node in nodes:
            if values[node["name"]] and counts[values[node["name"]]] > 1:
                faults.setdefault(node["name"], []).append("shares its %s with another node" % _OWN[field])
    return {name: "; ".join(texts) for name, texts in faults.items()}


def _plain(field: str, value: str) -> str:
    """The value as it is compared. UUIDs that identify nothing are each node's own affair; see `bmc_fault`."""
    if field != "smbios_uuid":
        return value.rstrip("/").lower()
    parsed = parse_uuid(value)
    return "" if parsed is None else str(parsed)


def _check(check_id: str, title: str, required: str, faults: Mapping[str, str], good: str, hint: str) -> Check:
    wrong = grouped(faults)
    return Check(check_id, title, required, wrong or good, FAILED if wrong else PASSED, hint if wrong else "")


def _by_name(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(node.get("name")): node for node in nodes}


def _private(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
        handle.write(text)
    return path
