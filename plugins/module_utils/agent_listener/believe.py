# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller makes of an agent's reports. Pure.

A report is believed only of the node whose own munged made the credential, and only if root asked for it. It is never
more than a fault to be looked at: the gate `gone` asks the node itself before anything is done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.munge import Decoded
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Forbidden
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import model
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    KUBERNETES,
    SLURM,
    Target,
    build_event,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

SOURCE = "node_agent"
ROOT = 0
LASTS = 3600.0  # seconds after which a report that nothing came of is history
REPORT = "report"  # the remediation
_GPU_FAMILIES = ("xid", "sxid")
# The remediation that is suggested; what asks for nothing here is kept and no fault.
_SUGGESTED = {
    model.RESET_GPU: "reset_gpu",
    model.REBOOT: "reboot_node",
    model.DRAIN_AND_REPORT: "quarantine_node",
    model.REPORT: REPORT,
}
# What of a report is kept as evidence.
_EVIDENCE = (
    "code",
    "family",
    "verdict",
    "action",
    "severity",
    "device",
    "cause",
    "count",
    "first",
    "last",
    "boot_id",
    "lines",
)


@dataclass(frozen=True)
class Held:
    """A fault that an agent reported and that lasts until something shows that it is over.

    Attributes:
        machine: the ledger's name of the node.
        target: the node by its scheduler's name.
        at: epoch seconds of its last line, as the node's clock told them.
        boot_id: the boot of the node that it is about.
        evidence: the ledger's row.
    """

    machine: str
    scheduler: str
    target: Target
    kind: str
    suggested: str
    code: str
    device: str
    boot_id: str
    at: float
    evidence: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same fault of the same thing in the same boot has the same one."""
        return (self.machine, self.code, self.device, self.boot_id)


@dataclass(frozen=True)
class Since:
    """What happened to a machine, as the ledger knows it.

    Attributes:
        closed_at: epoch seconds at which an incident of it was closed the last time, None for never.
        busy: whether an incident of it is open.
        boot_id: its boot when it was last seen healthy, at `boot_seen_at`.
    """

    closed_at: Optional[float] = None
    busy: bool = False
    boot_id: str = ""
    boot_seen_at: Optional[float] = None


def check_sender(proved: Decoded, machine: Machine, addresses: Collection[str]) -> None:
    """Whether a credential speaks for a machine.

    Args:
        proved: what the credential proves.
        addresses: the machine's own.

    Raises:
        Forbidden: a user's credential, or another host's.
    """
    if proved.uid != ROOT:
        raise Forbidden("a report by the user with uid %d is not believed" % proved.uid)
    if proved.address not in addresses:
        raise Forbidden(
            "a credential of %s says nothing about %s" % (proved.address, machine.name),
            "its own are %s; munged's --origin chooses what it tells" % (", ".join(sorted(addresses)) or "unknown"),
        )


def kind_of(report: Mapping[str, Any]) -> str:
    """The kind of fault that a report is about."""
    return "gpu_fault" if report["family"] in _GPU_FAMILIES else "kernel_fault"


def suggested(report: Mapping[str, Any]) -> str:
    """The remediation that a report suggests; empty where it asks for none. What is unknown is only reported."""
    remediation = _SUGGESTED.get(report["action"], "")
    if remediation == "reset_gpu" and kind_of(report) != "gpu_fault":
        return REPORT
    return REPORT if remediation and report["verdict"] == model.UNKNOWN else remediation


def is_evidence(body: Mapping[str, Any]) -> bool:
    """Whether a row of the ledger is what `evidence_of` made."""
    return set(_EVIDENCE) <= set(body)


def evidence_of(report: Mapping[str, Any], boot_id: str) -> dict[str, Any]:
    """What is kept of a report that came in the boot `boot_id`: one of an earlier boot is history from the first."""
    kept = {key: report[key] for key in _EVIDENCE}
    return kept if report["boot_id"] == boot_id else {**kept, "earlier_boot": True}


def held(machine: Machine, report: Mapping[str, Any], evidence: int, now: float) -> Optional[Held]:
    """The fault that evidence tells; None where it asks for nothing, is of an earlier boot, or no scheduler's node's.

    A report that was long on its way is as old as what it tells.
    """
    remediation = suggested(report)
    name = machine.slurm_name or machine.kubernetes_name
    if not remediation or not name or report.get("earlier_boot"):
        return None
    return Held(
        machine=machine.name,
        scheduler=SLURM if machine.slurm_name else KUBERNETES,
        target=Target(NODE, name),
        kind=kind_of(report),
        suggested=remediation,
        code=report["code"],
        device=report["device"],
        boot_id=report["boot_id"],
        at=now if report["last"] is None else min(now, report["last"]),
        evidence=evidence,
    )


def is_over(fault: Held, since: Since, boot_id: str, now: float) -> bool:
    """Whether a fault needs no sending any more.

    It is when the node has rebooted (its agent or its helper told another boot afterwards), when an incident of the
    node was closed after it (what a person or we decided then stands), or when it is old.

    Args:
        boot_id: of the boot that the node's agent spoke from last.
    """
    if now - fault.at > LASTS or boot_id != fault.boot_id:
        return True
    if since.closed_at is not None and since.closed_at > fault.at:
        return True
    return (since.boot_seen_at or 0.0) > fault.at and since.boot_id not in ("", fault.boot_id)


def is_sent_again(fault: Held, since: Since) -> bool:
    """Whether a fault that lasts is sent once more: not where it was only to be told, or somebody is at work."""
    return fault.suggested != REPORT and not since.busy


def event_of(fault: Held, cluster: str, now: float) -> dict[str, Any]:
    """The event that tells of a fault: identifiers only."""
    return build_event(
        fault.kind, fault.scheduler, cluster, SOURCE, [fault.target], now, fault.suggested, fault.evidence
    )
