# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger tells people: incidents with their steps and times, refusals, machines. The module
`recovery_incident_info`, and the command `job-recovery incidents`.

Everything is plain data. Free text stays as it was written and is escaped by whoever shows it.
"""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import rows
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    Incident,
    StepRow,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
    plain,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import overview
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import load

STATES = (rows.OPEN, rows.WAITING, rows.ESCALATED, rows.CLOSED)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "incidents": {"type": "list", "elements": "int", "default": []},
        "states": {"type": "list", "elements": "str", "choices": list(STATES), "default": []},
        "names": {"type": "list", "elements": "str", "default": []},
        "since": {"type": "float", "default": 0.0},
        "limit": {"type": "int", "default": 100},
        "machines": {"type": "bool", "default": False},
        "settings": {"type": "path"},
    },
    "supports_check_mode": True,
}


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{incidents, refusals, overview, machines}`, the newest first."""
    settings = load(params["settings"])
    with open_store(settings.ledger) as store:
        answer = report(
            store, params["incidents"], params["states"], params["names"], params["since"], params["limit"]
        )
        answer["overview"] = overview(settings, store)
        if params["machines"]:
            answer["machines"] = [machine.__dict__ for machine in store.machines.all()]
    return {"changed": False, **answer}


def report(
    store: Store,
    numbers: Sequence[int] = (),
    states: Sequence[str] = (),
    names: Sequence[str] = (),
    since: float = 0.0,
    limit: int = 100,
) -> dict[str, Any]:
    """Incidents with their steps and evidence, and refusals; every filter that is given must hold."""
    incidents = store.incidents.report(numbers, states, names, since, max(1, min(limit, 10000)))
    found = [incident.id for incident in incidents]
    steps: dict[int, list[dict[str, Any]]] = {}
    for row in store.steps.of(found):
        steps.setdefault(row.incident, []).append(_step(row))
    evidence: dict[int, list[dict[str, Any]]] = {}
    for record in _evidence(store, found):
        evidence.setdefault(record["incident"], []).append(record)
    refusals = [] if numbers or states else plain(store.records.refusals(names, since, limit))
    return {
        "incidents": [
            {**_incident(incident), "steps": steps.get(incident.id, []), "evidence": evidence.get(incident.id, [])}
            for incident in incidents
        ],
        "refusals": [{**row, "target": row["target_key"].rpartition(":")[2]} for row in refusals],
    }


def _evidence(store: Store, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """What is kept with these incidents, and what came with the faults that it refers to, as theirs."""
    kept = plain(store.records.evidence(numbers))
    wanted = {record["body"].get("evidence_ref"): record["incident"] for record in kept}
    told = plain(store.records.told_with(sorted(number for number in wanted if isinstance(number, int) and number)))
    return kept + [{**record, "incident": wanted[record["id"]]} for record in told]


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "target": incident.target.name,
        "target_kind": incident.target.kind,
        "machine": incident.machine,
        "scheduler": incident.scheduler,
        "fault_kind": incident.fault_kind,
        "source": incident.source,
        "requested_by": incident.request.by,
        "request_reason": incident.request.reason,
        "override": list(incident.request.override),
        "state": incident.state,
        "plan": incident.plan,
        "step": incident.step,
        "reason": incident.reason,
        "why": incident.why,
        "acted": incident.acted,
        "evidence_folder": str(incident.memory.get("evidence") or ""),
        "waits_for": incident.wait.kind if incident.wait else "",
        "waits_until": incident.wait.until if incident.wait else None,
        "seen_at": incident.seen_at,
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "closed_at": incident.closed_at,
    }


def _step(row: StepRow) -> dict[str, Any]:
    return {
        "step": row.step,
        "round": row.round,
        "status": row.status,
        "why": row.why,
        "intent": dict(row.intent),
        "proof": dict(row.proof),
        "started_at": row.started_at,
        "last_started_at": row.last_started_at,
        "finished_at": row.finished_at,
    }
