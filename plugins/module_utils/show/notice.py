# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `incident_notice`: incidents that people are told of, in words, for a site's own task file.

The text of an incident was written by users of the cluster in part. It is made harmless to a terminal here, and as the
result of a module it is never taken for a template.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    Incident,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import open_store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import clock, what_to_do
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NOTICES, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "notices": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "incident": {"type": "int", "required": True},
                "state": {"type": "str", "choices": list(NOTICES), "required": True},
            },
        },
        "settings": {"type": "path"},
    },
    "supports_check_mode": True,
}

_SUBJECT = 120  # characters


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, cluster, subject, text, incidents}`; see `told`.

    Raises:
        BadInput: none of the incidents is in the ledger.
    """
    settings = load(params["settings"])
    numbers = [each["incident"] for each in params["notices"]]
    with open_store(settings.ledger) as store:
        found = {incident.id: incident for incident in store.incidents.many(numbers)}
    incidents = [
        told(found[each["incident"]], each["state"]) for each in params["notices"] if each["incident"] in found
    ]
    if not incidents:
        raise BadInput("incident_notice: the ledger has no such incident: %s" % numbers)
    return {
        "changed": False,
        "cluster": settings.cluster,
        "subject": subject(settings.cluster, incidents),
        "text": text(incidents),
        "incidents": incidents,
    }


def told(incident: Incident, state: str) -> dict[str, Any]:
    """What is said of an incident, all of it printable; times in epoch seconds. Pure.

    Args:
        state: of NOTICES, what is to be told; the incident may have gone on since.
    """
    kind = KINDS.get(incident.fault_kind)
    return {
        "incident": incident.id,
        "state": state,
        "target": printable(incident.target.name),
        "target_kind": incident.target.kind,
        "machine": printable(incident.machine),
        "scheduler": incident.scheduler,
        "fault_kind": incident.fault_kind,
        "meaning": kind.meaning if kind else incident.fault_kind,
        "remediation": incident.plan or incident.suggested,
        "why": printable(incident.why),
        "requested_by": printable(incident.request.by),
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "what_to_do": what_to_do(incident) if state == incident.state == ESCALATED else "",
    }


def subject(cluster: str, incidents: Sequence[Mapping[str, Any]]) -> str:
    """One short printable line. Pure."""
    first = incidents[0]
    more = " and %d more" % (len(incidents) - 1) if len(incidents) > 1 else ""
    return ("job-recovery %s: %s %s%s" % (cluster, first["target"], first["state"], more))[:_SUBJECT]


def text(incidents: Sequence[Mapping[str, Any]]) -> str:
    """All of them, some lines each, with a newline at the end of each. Pure."""
    return "\n".join("\n".join(_lines(each)) + "\n" for each in incidents)


def _lines(each: Mapping[str, Any]) -> list[str]:
    ended: Optional[float] = each["closed_at"]
    until = ", %s" % clock(ended) if ended else ""
    lines = [
        "#%d %s %s: %s" % (each["incident"], each["target_kind"], each["target"], each["state"]),
        "  fault: %s (%s)" % (each["fault_kind"], each["meaning"]),
        "  when: %s%s" % (clock(each["opened_at"]), until),
        "  remediation: %s" % (each["remediation"] or "-"),
        "  why: %s" % (each["why"] or "-"),
    ]
    return [*lines, "  what to do: %s" % each["what_to_do"]] if each["what_to_do"] else lines
