# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger knows of a node's reports: which report an incident is about, and how earlier ones were answered."""

from __future__ import annotations

from typing import Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, reported
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.decide import REPORTED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import REQUESTED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    Incident,
    StepRow,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import DONE

_REBOOTING = (plans.REBOOT, plans.FENCE)


def of_fault(store: Store, fault: Fault, key: str) -> Optional[reported.Report]:
    """The report that a fault's event refers to, if it is one about this very target."""
    if fault.kind not in reported.KINDS or not fault.evidence_ref:
        return None
    row = store.records.kept_as(fault.evidence_ref)
    if row is None or (row["target_key"], row["kind"]) != (key, fault.kind):
        return None
    return reported.parse(row["body"])


def of_incident(incident: Optional[Incident]) -> Optional[reported.Report]:
    """The report that an incident is about."""
    remembered = incident.memory.get(REPORTED) if incident is not None else None
    return reported.parse(remembered) if remembered else None


def repairs_of(store: Store, key: str, besides: int) -> tuple[reported.Repair, ...]:
    """Earlier repairs of a node for its reports, and resets that a person asked for."""
    incidents = store.incidents.acted_upon(key, (*reported.KINDS, REQUESTED), besides)
    steps: dict[int, list[StepRow]] = {incident.id: [] for incident in incidents}
    for row in store.steps.of(list(steps)) if steps else ():
        steps[row.incident].append(row)
    found = [_repair(incident, steps[incident.id]) for incident in incidents]
    return tuple(repair for repair in found if repair is not None)


def _repair(incident: Incident, steps: list[StepRow]) -> Optional[reported.Repair]:
    """The firmest that was begun; None where the node was neither reset nor rebooted."""
    report = of_incident(incident) or reported.Report("")
    for how, names in ((reported.REBOOTED, _REBOOTING), (reported.RESET, (plans.RESET_GPU,))):
        rows = [row for row in steps if row.step in names]
        if rows:
            until = max((row.finished_at for row in rows if row.status == DONE and row.finished_at), default=None)
            at = min(row.started_at for row in rows)
            return reported.Repair(incident.id, report.code, report.device, how, at, until)
    return None
