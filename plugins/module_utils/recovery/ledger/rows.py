# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger's rows are outside of it: frozen values, plain types, epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Row, unpack
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Wait

# States of an incident. OPEN and WAITING go on by themselves; ESCALATED waits for a person, and while its node is held
# by us no other incident of that node is opened; CLOSED is over.
OPEN = "open"
WAITING = "waiting"
ESCALATED = "escalated"
CLOSED = "closed"
LIVE = (OPEN, WAITING)

# The kind of the evidence that holds what the gates said when an incident was decided.
DECISION = "decision"

# Statuses of a step besides step.DONE and step.FAILED.
STARTED = "started"
PAUSED = "waiting"


@dataclass(frozen=True)
class Request:
    """A person's wish behind an incident; empty for a fault that was noticed."""

    by: str = ""
    reason: str = ""
    override: tuple[str, ...] = ()


@dataclass(frozen=True)
class Incident:
    """One incident; see the table `incidents`."""

    id: int
    key: str
    target: Target
    scheduler: str
    fault_kind: str
    source: str
    suggested: str
    state: str
    machine: str = ""
    request: Request = field(default_factory=Request)
    plan: str = ""
    round: int = 0
    step: str = ""
    acted: bool = False
    memory: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    why: str = ""
    wait: Optional[Wait] = None
    dispatch: int = 0
    dispatch_until: Optional[float] = None
    dispatch_tries: int = 0
    seen_at: float = 0.0
    opened_at: float = 0.0
    updated_at: float = 0.0
    closed_at: Optional[float] = None

    @property
    def width(self) -> int:
        """How many nodes the widest job has that waits for this incident, as far as it is known."""
        told = self.memory.get("job_nodes")
        return told if isinstance(told, int) else 0


def widest_first(incidents: Iterable[Incident]) -> list[Incident]:
    """Those whose job has the most nodes first: it must not wait for a queue of small ones. Else the oldest."""
    return sorted(incidents, key=lambda incident: (-incident.width, incident.id))


@dataclass(frozen=True)
class StepRow:
    """One step of an incident; `tries` counts its starts since it last gave an outcome."""

    incident: int
    round: int
    step: str
    status: str
    tries: int = 0
    intent: Mapping[str, Any] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    started_at: float = 0.0
    last_started_at: float = 0.0
    finished_at: Optional[float] = None


def target_key(target: Target, scheduler: str, machine: str = "") -> str:
    """The one key of a target: a node's is its machine's name, whatever scheduler told of it."""
    if target.kind == NODE:
        return "node:%s" % (machine or target.name)
    return "job:%s:%s" % (scheduler, target.name)


def machine_of(row: Row) -> Machine:
    """A row of `machines`."""
    return Machine(
        name=row["name"],
        slurm_name=row["slurm_name"] or "",
        kubernetes_name=row["kubernetes_name"] or "",
        ssh_address=row["ssh_address"],
        bmc_url=row["bmc_url"],
        smbios_uuid=row["smbios_uuid"],
        machine_id=row["machine_id"],
        boot_id=row["boot_id"],
        boot_seen_at=row["boot_seen_at"],
    )


def incident_of(row: Row) -> Incident:
    """A row of `incidents`."""
    request = unpack(row["request"])
    return Incident(
        id=row["id"],
        key=row["target_key"],
        target=Target(row["target_kind"], row["target_name"], row["target_uid"]),
        scheduler=row["scheduler"],
        fault_kind=row["fault_kind"],
        source=row["source"],
        suggested=row["suggested"],
        state=row["state"],
        machine=row["machine"] or "",
        request=Request(row["requested_by"], str(request.get("reason", "")), tuple(request.get("override", ()))),
        plan=row["plan"],
        round=row["round"],
        step=row["step"],
        acted=bool(row["acted"]),
        memory=unpack(row["memory"]),
        reason=row["reason"],
        why=row["why"],
        wait=Wait(row["wait_kind"], unpack(row["wait_args"]), row["wait_until"] or 0.0) if row["wait_kind"] else None,
        dispatch=row["dispatch"],
        dispatch_until=row["dispatch_until"],
        dispatch_tries=row["dispatch_tries"],
        seen_at=row["seen_at"],
        opened_at=row["opened_at"],
        updated_at=row["updated_at"],
        closed_at=row["closed_at"],
    )


def step_of(row: Row) -> StepRow:
    """A row of `steps`."""
    return StepRow(
        incident=row["incident"],
        round=row["round"],
        step=row["step"],
        status=row["status"],
        tries=row["tries"],
        intent=unpack(row["intent"]),
        proof=unpack(row["proof"]),
        why=row["why"],
        started_at=row["started_at"],
        last_started_at=row["last_started_at"],
        finished_at=row["finished_at"],
    )
