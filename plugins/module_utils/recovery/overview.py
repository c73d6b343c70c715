# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands where, for people: what goes on and waits for what, what is left to them and what they can do about it,
what was refused by which gate, the last acts, the last commands, and the breaker.

Everything is plain data; free text stays as it was written and is escaped by whoever shows it.
"""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    breaker,
    gates,
    plans,
    silent_agents,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, KINDS, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    Incident,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

_DAY = 86400.0
# Steps that only wait, look or tell.
_NO_ACTS = (
    plans.AWAIT_DRAINED,
    plans.SAVE_EVIDENCE,
    plans.AWAIT_BOOT,
    plans.AWAIT_JOB_END,
    plans.DIAGNOSE,
    plans.VERIFY,
    plans.TELL,
    plans.CONFIRM,
)
_ACTS = tuple(step for step in plans.ORDER if step not in _NO_ACTS)


def overview(settings: Settings, store: Store, limit: int = 20) -> dict[str, Any]:
    """The whole; times in epoch seconds, lists of what has happened at most `limit` long, the newest first.

    Returns:
        `{cluster, mode, stopped, restored, breaker: {node | job: {failures, limit, broken}}, going_on: [incident],
        for_a_person: [incident with what_to_do], refusals: [{gate, targets, times, last_at, why}], last_acts:
        [{incident, target, step, status, at, why}], commands: [{command, subject, who, reason, at}], silent_agents:
        [{node, heard_at}]}`; refusals are those of the last day, and an incident is `{incident, target, target_kind,
        fault_kind, plan, step, why, waits_for, waits_until, since, requested_by, evidence}`, `evidence` being a folder
        on the controller.
    """
    live = store.incidents.live()
    since = store.now() - _DAY
    return {
        "cluster": settings.cluster,
        "mode": settings.mode,
        "stopped": stop.stopped(settings, store),
        "restored": stop.restored(settings, store),
        "breaker": {kind: breaker_state(settings, store, kind) for kind in (NODE, JOB)},
        "going_on": [_open(incident) for incident in live if incident.state != ESCALATED],
        "for_a_person": [
            {**_open(incident), "what_to_do": what_to_do(incident)} for incident in live if incident.state == ESCALATED
        ],
        "refusals": store.records.by_gate(since),
        "last_acts": store.steps.latest(_ACTS, limit),
        "commands": store.commands.since(0.0, limit),
        "silent_agents": [vars(each) for each in agents_silent(settings, store)],
    }


def agents_silent(settings: Settings, store: Store) -> list[silent_agents.Silent]:
    """Nodes whose agents are silent; none where no agents report."""
    if not settings.agents.port:
        return []
    return silent_agents.silent(silent_agents.load(settings.state_dir), settings.agents.silent_after, store.now())


def what_to_do(incident: Incident) -> str:
    """What a person can do about an incident that was left to him. Pure."""
    if not incident.acted:
        return "nothing was done to it; repair what the reason names, and this ends by itself"
    if incident.target.kind == JOB:
        return "look why, then `job-recovery retry %d`; or leave the job as it is" % incident.id
    if incident.memory.get(plans.TAKEN_OVER):
        return "somebody else has the node; when he gives it back this ends by itself"
    if plans.DRAIN not in plans.PLANS.get(incident.plan, ()):
        return "repair it; when it is well this ends by itself, or `job-recovery retry %d`" % incident.id
    return "repair it, then `job-recovery release %d`; or have it tried again: `job-recovery retry %d`" % (
        incident.id,
        incident.id,
    )


def lines(seen: Mapping[str, Any], limit: int = 20) -> list[str]:
    """The overview as printable lines, for a terminal and a log."""
    made: list[str] = []
    for kind, state in seen["breaker"].items():
        if state["broken"]:
            told = (kind, state["failures"])
            made.append("breaker: the last %s repairs failed (%d), nothing new is begun; `reset-breaker`" % told)
    made += _section("going on", [_going_on(each) for each in seen["going_on"]], limit)
    made += _section("for a person", [_for_a_person(each) for each in seen["for_a_person"]], limit)
    silent = ["%s, heard last at %s" % (each["node"], clock(each["heard_at"])) for each in seen["silent_agents"]]
    made += _section("agents that are silent while others are heard", silent, limit)
    made += _section("refused in the last day", [_refusal(each) for each in seen["refusals"]], limit)
    made += _section("last acts", [_act(each) for each in seen["last_acts"]], limit)
    made += _section("last commands", [_command(each) for each in seen["commands"]], limit)
    return [printable(line) for line in made]


def clock(moment: Optional[float]) -> str:
    """A moment in local time, as people read it; `-` for none."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else "-"


def breaker_state(settings: Settings, store: Store, kind: str) -> dict[str, Any]:
    """Of the breaker for nodes or jobs: `{failures, limit, broken}`."""
    failures = breaker.failures(store, kind, settings.limits)
    return {
        "failures": failures,
        "limit": settings.limits.breaker_failures,
        "broken": gates.is_broken(failures, settings.limits),
    }


def _open(incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "target": incident.target.name,
        "target_kind": incident.target.kind,
        "fault_kind": incident.fault_kind,
        "plan": incident.plan,
        "step": incident.step,
        "why": incident.why,
        "waits_for": incident.wait.kind if incident.wait else "",
        "waits_until": incident.wait.until if incident.wait else None,
        "since": incident.opened_at,
        "requested_by": incident.request.by,
        "evidence": str(incident.memory.get("evidence") or ""),
    }


def _section(title: str, told: Sequence[str], limit: int) -> list[str]:
    if not told:
        return []
    more = ["  and %d more; `job-recovery incidents`" % (len(told) - limit)] if len(told) > limit else []
    return ["%s:" % title, *("  " + line for line in told[:limit]), *more]


def _going_on(each: Mapping[str, Any]) -> str:
    stands = "%s, %s" % (each["plan"] or "not decided", each["step"]) if each["step"] else each["plan"] or "not decided"
    waits = ", waits for %s until %s" % (each["waits_for"], clock(each["waits_until"])) if each["waits_for"] else ""
    return "#%d %s: %s (%s)%s: %s" % (
        each["incident"],
        each["target"],
        each["fault_kind"],
        stands,
        waits,
        each["why"] or "-",
    )


def _for_a_person(each: Mapping[str, Any]) -> str:
    kind = KINDS.get(each["fault_kind"])
    evidence = " (evidence: %s)" % each["evidence"] if each["evidence"] else ""
    return "#%d %s since %s: %s. %s%s. -> %s" % (
        each["incident"],
        each["target"],
        clock(each["since"]),
        kind.meaning if kind else each["fault_kind"],
        each["why"] or "-",
        evidence,
        each["what_to_do"],
    )


def _refusal(each: Mapping[str, Any]) -> str:
    return "%s: %d times, %d targets, last at %s: %s" % (
        each["gate"],
        each["times"],
        each["targets"],
        clock(each["last_at"]),
        each["why"],
    )


def _act(each: Mapping[str, Any]) -> str:
    why = ": %s" % each["why"] if each["why"] else ""
    return "%s #%d %s: %s %s%s" % (
        clock(each["at"]),
        each["incident"],
        each["target"],
        each["step"],
        each["status"],
        why,
    )


def _command(each: Mapping[str, Any]) -> str:
    subject = " " + each["subject"] if each["subject"] else ""
    reason = ": %s" % each["reason"] if each["reason"] else ""
    return "%s %s%s by %s%s" % (clock(each["at"]), each["command"], subject, each["who"], reason)
