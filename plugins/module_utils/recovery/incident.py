# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `recovery_incident`: claim targets at the beginning of a run, release them at its end.

Its third state, `canary`, notes that an event has come the whole way from a source to a playbook.
"""

from __future__ import annotations

import os
import pwd
import time
from typing import Any, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import canary, gates, holder
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import (
    JOB,
    NODE,
    REMEDIATIONS,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.claim import Answer, Claimer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    KUBERNETES,
    SLURM,
    Fault,
    Target,
    parse_event,
    valid_job_name,
    valid_node_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.tools import make_tools
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist

SPEC: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "required": True, "choices": ["claimed", "released", "canary"]},
        "remediation": {"type": "str", "choices": list(REMEDIATIONS)},
        "fault": {"type": "dict"},
        "due": {
            "type": "dict",
            "options": {
                "incidents": {"type": "list", "elements": "int", "required": True},
                "dispatch": {"type": "int", "default": 0},
            },
        },
        "canary": {"type": "dict", "options": {"number": {"type": "int", "required": True}}},
        "nodes": {"type": "list", "elements": "str"},
        "jobs": {"type": "list", "elements": "str"},
        "reason": {"type": "str"},
        "override": {"type": "list", "elements": "str", "default": []},
        "requested_by": {"type": "str"},
        "token": {"type": "str", "no_log": False},
        "settings": {"type": "path"},
    },
    "mutually_exclusive": [("fault", "due", "nodes", "jobs")],
    "required_if": [("state", "released", ("token",)), ("state", "canary", ("canary",))],
    "supports_check_mode": False,
}

_MAX_INCIDENTS = 20000


class Incomplete(RecoveryError):
    """Fewer results than claims: somewhere a claimed incident was not brought to an answer."""


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Claim or release; see the module's documentation for what comes back."""
    settings = load(params["settings"])
    with open_store(settings.ledger) as store:
        if params["state"] == "released":
            return release(store, params["token"])
        if params["state"] == "canary":
            store.control.put(canary.SEEN, str(params["canary"]["number"]), holder.describe())
            return {"changed": False}
        return _claim(store, settings, params).as_dict()


def release(store: Store, token: str) -> dict[str, Any]:
    """End a run: free its claims and account for every incident that it had.

    Raises:
        BadInput: no run has this token.
        Incomplete: an incident was claimed and no step gave a result for it, or another run took it over.
    """
    owed = store.claims.claimed(token)
    if owed is None:
        raise BadInput("no run has the token %s" % ascii(token)[:60])
    claims = store.claims.of_run(token)
    answered = [claim["incident"] for claim in claims if claim["results"]]
    silent = [claim["incident"] for claim in claims if not claim["results"]]
    store.claims.release(token)
    if len(answered) < owed:
        raise Incomplete(
            "%d incidents were claimed and %d gave a result (without: %s; taken over by another run: %d)"
            % (owed, len(answered), ", ".join("#%d" % number for number in silent) or "-", owed - len(claims)),
            "they stay open, and the next run goes on with them",
            claimed=owed,
            answered=len(answered),
        )
    incidents = [
        {
            "incident": incident.id,
            "target": incident.target.name,
            "state": incident.state,
            "plan": incident.plan,
            "step": incident.step,
            "why": incident.why,
            "waits_for": incident.wait.kind if incident.wait else "",
        }
        for incident in store.incidents.many(answered)
    ]
    return {"changed": bool(incidents), "claimed": owed, "answered": len(answered), "incidents": incidents}


def _claim(store: Store, settings: Settings, params: dict[str, Any]) -> Answer:
    """Read the request first: what is ill-formed begins no run."""
    due = params["due"]
    fault, request = (None, Request()) if due else _wish(settings, params)
    dispatch = due["dispatch"] if due else 0
    token = store.claims.begin(params["remediation"] or "advance", holder.describe(), settings.limits.lease, dispatch)
    claimer = Claimer(store, settings, make_tools(settings), token)
    try:
        answer = claimer.due(_numbers(due["incidents"]), dispatch) if fault is None else claimer.fault(fault, request)
    except BaseException:
        store.claims.release(token)  # nothing was begun: nobody has to wait for the lease to end
        raise
    if not answer.incidents:
        store.claims.release(token)
    return answer


def _wish(settings: Settings, params: dict[str, Any]) -> tuple[Fault, Request]:
    if params["fault"]:
        fault = parse_event({"fault": params["fault"]})
        if fault.cluster != settings.cluster:
            raise BadInput("the fault is of cluster %s, this is %s" % (fault.cluster, settings.cluster))
        if fault.kind == gates.REQUESTED:
            raise BadInput("an event cannot ask for a remediation", "use nodes or jobs, and a reason")
        return _suggested(fault, params["remediation"]), Request()
    targets = params["nodes"] or params["jobs"]
    if not targets:
        raise BadInput("nothing to do: give fault, due, nodes or jobs")
    if not params["reason"] or not params["reason"].strip():
        raise BadInput("a reason is needed", "say why, with -e reason='...'")
    if not params["remediation"]:
        raise BadInput("a remediation is needed for nodes and jobs")
    override = _gate_names(params["override"])
    unknown = sorted(set(override).difference(gates.GATES))
    if unknown:
        raise BadInput("no gate is named %s" % ", ".join(map(ascii, unknown)), "use %s" % ", ".join(gates.GATES))
    never = sorted(set(override).intersection(gates.NEVER_OVERRIDDEN))
    if never:
        raise BadInput("the gates %s cannot be overridden" % ", ".join(never))
    request = Request(params["requested_by"] or caller(), params["reason"].strip(), override)
    return _requested(settings, params), request


def _gate_names(given: Sequence[str]) -> tuple[str, ...]:
    """Names of gates; `-e override=[cooldown,owner]` is text to Ansible, and comes split at its commas."""
    names = [name.strip(" []'\"") for name in given]
    return tuple(name for name in names if name)


def _suggested(fault: Fault, remediation: Optional[str]) -> Fault:
    """The rule's own remediation counts: a site changes it there."""
    if not remediation or remediation == fault.suggested:
        return fault
    return Fault(
        fault.kind,
        fault.scheduler,
        fault.cluster,
        fault.source,
        fault.targets,
        fault.seen_at,
        remediation,
        fault.evidence_ref,
    )


def _requested(settings: Settings, params: dict[str, Any]) -> Fault:
    if params["nodes"]:
        # a host list with commas in brackets was split at them by Ansible
        names = hostlist.expand(",".join(params["nodes"]))
        bad = [name for name in names if not valid_node_name(name)]
        scheduler = SLURM if settings.slurm.enabled else KUBERNETES
        targets = [Target(NODE, name) for name in names]
    else:
        names = list(params["jobs"])
        scheduler = KUBERNETES if all("/" in name for name in names) else SLURM
        bad = [name for name in names if not valid_job_name(name, scheduler)]
        targets = [Target(JOB, name) for name in names]
    if bad:
        raise BadInput("%s is no name of a node or job" % ascii(bad[0])[:80])
    return Fault(
        kind=gates.REQUESTED,
        scheduler=scheduler,
        cluster=settings.cluster,
        source="person",
        targets=tuple(dict.fromkeys(targets)),
        seen_at=time.time(),
        suggested=params["remediation"],
    )


def _numbers(incidents: Sequence[int]) -> list[int]:
    if len(incidents) > _MAX_INCIDENTS or any(number <= 0 for number in incidents):
        raise BadInput("due: incidents are 1 to %d numbers" % _MAX_INCIDENTS)
    return list(incidents)


def caller() -> str:
    """The login name of the person at the keyboard, behind sudo too."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = "uid %d" % os.getuid()
    behind = os.environ.get("SUDO_USER", "")
    return "%s as %s" % (behind, name) if behind and behind != name else name
