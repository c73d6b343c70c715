# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claim targets, look at them now, run the gates, decide, and write it down.

Claim and commit; look, outside any transaction; judge purely; write. A run that dies anywhere in here leaves a claim
whose lease ends, or an open incident that was not begun: both are taken up again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    breaker,
    decide,
    gates,
    holds,
    job_history,
    looks,
    observe,
    plans,
    present,
    report_history,
    reported,
    stop,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import Case, History, Verdict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Duplicate
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    DECISION,
    ESCALATED,
    LIVE,
    Incident,
    Request,
    target_key,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import Look
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import REPORT, Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    Lost,
    Machine,
    Tools,
    Wait,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

_RETRY_UNREADABLE = 15.0  # seconds until an incident whose target cannot be looked at is looked at again
_RETRY_REFUSED = 60.0  # until one that may not go on is asked for again
_REBOOTING = (plans.REBOOT, plans.FENCE)
_ALREADY = "incident #%d is open"
_OTHER_RUN = "another run has it just now"


@dataclass
class Answer:
    """What the module returns; every target of the request stands in exactly one of the lists."""

    token: str
    incidents: list[dict[str, Any]] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    attached: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As the module's result."""
        steps: set[str] = set()
        for incident in self.incidents:
            steps.update(remaining(incident["plan"], incident["step"]))
        return {
            "token": self.token,
            "incidents": self.incidents,
            "steps": plans.in_order(steps),
            "refused": self.refused,
            "attached": self.attached,
            "waiting": self.waiting,
            "ended": self.ended,
            "told": self.told(),
            "changed": bool(self.incidents or self.waiting or self.ended),
        }

    def told(self) -> list[str]:
        """One printable line for each target, for a person."""
        lines = [
            "%s: incident #%d begins: %s" % (each["target"], each["incident"], each["plan"]) for each in self.incidents
        ]
        lines += ["%s: incident #%d waits: %s" % _named(each, "incident", "why") for each in self.waiting]
        lines += ["%s: incident #%d ends: %s" % _named(each, "incident", "why") for each in self.ended]
        lines += ["%s: incident #%d has it already" % _named(each, "incident") for each in self.attached]
        lines += ["%s: refused by the gate %s: %s" % _named(each, "gate", "why") for each in self.refused]
        return [printable(line) for line in lines]


def _named(each: Mapping[str, Any], *fields: str) -> tuple[Any, ...]:
    return (each["target"], *(each[name] for name in fields))


@dataclass(frozen=True)
class _Subject:
    """One target of this run on its way through the gates."""

    target: Target
    key: str
    machine: Optional[Machine]
    incident: Optional[Incident] = None
    report: Optional[reported.Report] = None


def remaining(plan: str, step: str) -> list[str]:
    """The steps that an incident may still do in this run, those of the plans that it may fall back to included."""
    steps = list(plans.PLANS[plan])
    left = steps[steps.index(step):] if step in steps else []
    # a fence that finds its node alive goes on behind it in this run, or in the next
    behind = plans.ORDER.index(plans.FENCE) if plan == "reboot_by_power" else -1
    for fallback in decide.fallbacks(plan):
        left += [name for name in plans.PLANS[fallback] if plans.ORDER.index(name) > behind]
    return left


class Claimer:
    """Claims for one run.

    Args:
        token: of the run, which `Claims.begin` gave.
    """

    def __init__(self, store: Store, settings: Settings, tools: Tools, token: str) -> None:
        self._store, self._settings, self._tools = store, settings, tools
        self._answer = Answer(token)
        self._token = token
        self._stopped = stop.stopped(settings, store)
        self._restored = stop.restored(settings, store)

    # a fault, noticed or asked for

    def fault(self, fault: Fault, request: Request) -> Answer:
        """Claim the targets of a fault and decide what is done about each."""
        subjects = []
        for subject in self._subjects(fault):
            known = self._store.incidents.open_of([subject.key]).get(subject.key)
            if known is not None and not (known.state == ESCALATED and (request.by or _gives_way(known, fault))):
                self._attach(fault, subject, known, request)
            elif not self._store.claims.take(subject.key, self._token, self._lease):
                self._refuse_fault(fault, subject, Verdict({"duplicate": _OTHER_RUN}, "duplicate", _OTHER_RUN))
            else:
                report = report_history.of_fault(self._store, fault, subject.key) or report_history.of_incident(known)
                subjects.append(_Subject(subject.target, subject.key, subject.machine, known, report))
        seen = self._look(subjects, fault.scheduler, {subject.target: fault.kind for subject in subjects}, True)
        self._store.claims.renew_all(self._token, self._lease)
        for subject in self._widest_first(subjects):
            try:
                self._judge_fault(fault, subject, request, seen[subject.target], len(subjects))
            except Lost:  # this run slept over its lease, and what it saw is old
                self._refused(subject.target, "duplicate", _OTHER_RUN)
        return self._answer

    def _widest_first(self, subjects: Sequence[_Subject]) -> list[_Subject]:
        """Where not all may be repaired at once, the nodes of the job that has the most of them come first."""
        names = {each.key: each.machine.slurm_name for each in subjects if each.machine is not None}
        widths = observe.widths(self._tools, list(names.values())) if len(names) > 1 else {}
        return sorted(subjects, key=lambda each: -widths.get(names.get(each.key, ""), 0))

    def _subjects(self, fault: Fault) -> list[_Subject]:
        """The targets with their machines and keys; names of one machine or one job are one subject."""
        nodes = [target.name for target in fault.targets if target.kind == NODE]
        machines = self._store.machines.resolve(fault.scheduler, nodes) if nodes else {}
        missing = [name for name in nodes if name not in machines]
        if missing and fault.kind == gates.REQUESTED:  # a person may use the ledger's own name
            machines.update(self._store.machines.get(missing))
        named = self._job_names([target for target in fault.targets if target.kind == JOB], fault.scheduler)
        subjects: dict[str, _Subject] = {}
        for target in fault.targets:
            machine = machines.get(target.name) if target.kind == NODE else None
            target = named.get(target, target)
            key = target_key(target, fault.scheduler, machine.name if machine else "")
            subjects.setdefault(key, _Subject(target, key, machine))
        return list(subjects.values())

    def _job_names(self, targets: Sequence[Target], scheduler: str) -> dict[Target, Target]:
        """Tasks of arrays and components of heterogeneous jobs under the one id by which Slurm requeues them."""
        composed = [target for target in targets if not target.name.isdigit()]
        if scheduler != looks.SLURM or not composed:
            return {}
        found = observe.look_at_jobs(dict.fromkeys(composed, ""), scheduler, self._tools, self._machines_of)
        return {
            target: Target(JOB, str(look.job.het_job_id or look.job.id), target.uid)
            for target, look in found.items()
            if look.job is not None
        }

    def _attach(self, fault: Fault, subject: _Subject, known: Incident, request: Request) -> None:
        body = {"kind": fault.kind, "seen_at": fault.seen_at, "evidence_ref": fault.evidence_ref}
        self._store.records.attach(known.id, subject.key, fault.kind, fault.source, body)
        if request.by:
            why = _ALREADY % known.id
            self._refuse_fault(fault, subject, Verdict({"duplicate": why}, "duplicate", why))
        else:
            self._answer.attached.append({"target": subject.target.name, "incident": known.id})

    def _judge_fault(self, fault: Fault, subject: _Subject, request: Request, look: Look, together: int) -> None:
        case = Case(
            kind=fault.kind,
            scheduler=fault.scheduler,
            target=subject.target,
            seen_at=fault.seen_at,
            look=look,
            history=self._history(subject, fault.kind, look, together),
            settings=self._settings,
            now=self._tools.now(),
            suggested=fault.suggested,
            request=request,
        )
        verdict = gates.evaluate(case, gates.OPEN)
        if not verdict.passed:
            plan = ""
            if verdict.gate == "mode":
                decision = decide.decide(case)
                plan, told = decision.plan, decide.in_words(decision)
                verdict = replace(verdict, why="%s; acting would be: %s" % (verdict.why, told))
            self._refuse_fault(fault, subject, verdict, plan)
            self._store.claims.drop(subject.key, self._token)
            return
        decision = decide.decide(case)
        incident = subject.incident
        if incident is not None and not request.by:
            self._end(incident, "only reported; %s is there now" % fault.kind)
            incident = None
        incident = incident or self._open(fault, subject, request)
        if incident is None:
            self._store.claims.drop(subject.key, self._token)
            return
        self._note_gates(fault, incident, verdict, decision)
        asked = {**changes.asked(request), "suggested": fault.suggested} if subject.incident else {}
        self._write_decision(incident, decision, self._room(case), asked)

    def _note_gates(self, fault: Fault, incident: Incident, verdict: Verdict, decision: decide.Decision) -> None:
        """Keep what the gates said when it was decided, and which evidence came with the fault, for people."""
        body = {
            "decided": decide.in_words(decision),
            "passed": [name for name in verdict.results if name not in verdict.overridden],
            "overridden": {name: verdict.results[name] for name in verdict.overridden},
            "evidence_ref": fault.evidence_ref,
        }
        self._store.records.attach(incident.id, incident.key, DECISION, "recovery", body)

    def _open(self, fault: Fault, subject: _Subject, request: Request) -> Optional[Incident]:
        try:
            machine = subject.machine.name if subject.machine else ""
            incident = self._store.incidents.open(fault, subject.target, subject.key, machine, request)
        except Duplicate:  # another run opened one since we looked, and its lease is over already
            known = self._store.incidents.open_of([subject.key]).get(subject.key)
            if known is not None:
                self._attach(fault, subject, known, request)
            return None
        stop.raise_mark(self._settings, self._store, incident.id)
        return incident

    def _refuse_fault(self, fault: Fault, subject: _Subject, verdict: Verdict, plan: str = "") -> None:
        self._store.records.refuse(
            subject.key, fault.kind, fault.source, verdict.gate, verdict.why, verdict.results, plan
        )
        self._refused(subject.target, verdict.gate, verdict.why)

    # incidents that go on

    def due(self, numbers: Sequence[int], dispatch: int) -> Answer:
        """Take up open incidents: their wait is over, or their run died.

        Args:
            dispatch: only those that this dispatch is for; 0 for any (by hand).
        """
        subjects: dict[str, list[_Subject]] = {}
        for incident in self._store.incidents.many(numbers):
            if incident.state not in LIVE + (ESCALATED,) or (dispatch and incident.dispatch != dispatch):
                self._refused(incident.target, "duplicate", "closed, or dispatched again since")
            elif not self._store.claims.take(incident.key, self._token, self._lease, incident.id):
                self._refused(incident.target, "duplicate", _OTHER_RUN)
            else:
                machine = self._store.machines.get([incident.machine]).get(incident.machine)
                report = report_history.of_incident(incident)
                subject = _Subject(incident.target, incident.key, machine, incident, report)
                subjects.setdefault(incident.scheduler, []).append(subject)
        for scheduler, some in subjects.items():
            for full in (True, False):
                self._continue([subject for subject in some if self._needs_full_look(subject) is full], scheduler, full)
        return self._answer

    def _needs_full_look(self, subject: _Subject) -> bool:
        incident = _incident(subject)
        return incident.state != ESCALATED and not _goes_on(incident)

    def _continue(self, subjects: Sequence[_Subject], scheduler: str, full: bool) -> None:
        if not subjects:
            return
        kinds = {subject.target: _incident(subject).fault_kind for subject in subjects}
        seen = self._look(subjects, scheduler, kinds, full)
        self._store.claims.renew_all(self._token, self._lease)
        for subject in subjects:
            incident, look = _incident(subject), seen[subject.target]
            try:
                if incident.state == ESCALATED:
                    self._revisit(subject, incident, look)
                else:
                    self._judge_incident(subject, incident, look)
            except Lost:  # this run slept over its lease, and what it saw is old
                self._refused(subject.target, "duplicate", _OTHER_RUN)

    def _judge_incident(self, subject: _Subject, incident: Incident, look: Look) -> None:
        now = self._tools.now()
        case = Case(
            kind=incident.fault_kind,
            scheduler=incident.scheduler,
            target=incident.target,
            seen_at=now,  # it was looked at just now
            look=look,
            history=self._history(subject, incident.fault_kind, look, 1),
            settings=self._settings,
            now=now,
            suggested=incident.suggested,
            request=incident.request,
            acted=_goes_on(incident),
            holds=plans.is_held(incident.plan, incident.step),
            cordons=plans.is_cordoned(incident.plan, incident.step),
            opened_at=incident.opened_at,
        )
        verdict = gates.evaluate(case, gates.CONTINUE)
        if not verdict.passed:
            self._refuse_incident(subject, incident, look, verdict)
        elif incident.plan:
            self._store.claims.decide(incident, self._token, changes.resume())
            self._hand_out(incident, incident.plan, incident.step)
        else:
            self._write_decision(incident, decide.decide(case), self._room(case))

    def _refuse_incident(self, subject: _Subject, incident: Incident, look: Look, verdict: Verdict) -> None:
        self._store.records.refuse(
            subject.key,
            incident.fault_kind,
            incident.source,
            verdict.gate,
            verdict.why,
            verdict.results,
            incident.plan,
            incident.id,
        )
        why = "%s: %s" % (verdict.gate, verdict.why)
        if verdict.gate == "stopped":
            self._store.claims.decide(incident, self._token, changes.note(why))
        elif not incident.acted:
            self._end(incident, why)
        elif not incident.plan:  # a person asked to go on with it, and it may not: it is his again
            self._store.claims.decide(incident, self._token, changes.escalate(why, incident.memory))
        elif verdict.gate in ("owner", "identity") and not look.unknown:
            memory = {**incident.memory, plans.TAKEN_OVER: verdict.gate == "owner"}
            taken = changes.escalate("a person took over? %s" % why, memory)
            self._store.claims.decide(incident, self._token, taken)
        else:
            pause = _RETRY_UNREADABLE if look.unknown or not present.understood(look) else _RETRY_REFUSED
            wait = Wait(waits.TIME, {}, self._tools.now() + pause)
            self._store.claims.decide(incident, self._token, changes.wait(wait, why, incident.memory))
        self._refused(incident.target, verdict.gate, verdict.why)
        self._store.claims.drop(subject.key, self._token)

    def _revisit(self, subject: _Subject, incident: Incident, look: Look) -> None:
        """An escalated incident ends when its target is well again, by whoever's hand."""
        signs = self._settings.kubernetes.node_signs
        if present.is_well(look) and not present.shows(incident.fault_kind, incident.scheduler, look, signs):
            self._end(incident, "well again, not by us")
        else:
            self._store.claims.decide(incident, self._token, changes.note(incident.why))
        self._store.claims.drop(subject.key, self._token)

    def _end(self, incident: Incident, why: str) -> None:
        self._store.claims.decide(incident, self._token, changes.close(why, incident.memory))
        self._answer.ended.append({"incident": incident.id, "target": incident.target.name, "why": why})

    # shared

    @property
    def _lease(self) -> float:
        return self._settings.limits.lease

    @cached_property
    def _machines(self) -> int:
        """How many nodes are known; counted once for all targets of the run."""
        return len(self._store.machines.all())

    def _room(self, case: Case) -> Optional[int]:
        """How many nodes may be held when this one is taken out of service; None where that does not matter."""
        if not case.is_node or case.acted or (case.by_hand and "blast_radius" in case.request.override):
            return None
        return gates.allowed_at_once(case.history.machines, self._settings.limits)

    def _write_decision(
        self,
        incident: Incident,
        decision: decide.Decision,
        room: Optional[int],
        asked: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write what is done, or that it is waited for, or that a person gets it.

        Args:
            room: how many nodes may be held out of service; None for any number.
            asked: columns of a person's wish to go on with an incident that was left to him; nothing that it remembered
                of the repair before holds any more.
        """
        memory = {**({} if asked else incident.memory), **decision.memory}
        if decision.plan:
            step = decide.first_step(decision.plan, {})
            again = incident.round > 0 or incident.acted or bool(incident.plan)
            change = {**changes.plan(decision.plan, step, decision.why, memory, new_round=again), **asked}
            room = room if decide.holds_node(decision.plan) else None
            if holds.take(self._store, self._settings.limits, incident, self._token, change, room):
                self._hand_out(incident, decision.plan, step)
            else:
                self._no_room(incident, not asked)
            return
        told = {"incident": incident.id, "target": incident.target.name, "why": decision.why}
        if decision.wait is not None:
            # what it did before is over: when it goes on it is decided anew
            change = {**changes.wait(decision.wait, decision.why, memory), "plan": "", "step": "", **asked}
            self._answer.waiting.append(told)
        else:
            change = {**changes.escalate(decision.why, memory), **asked}
            self._answer.ended.append(told)
        self._store.claims.decide(incident, self._token, change)
        self._store.claims.drop(incident.key, self._token)

    def _no_room(self, incident: Incident, fresh: bool) -> None:
        """Another run took the last node that may be held while this one decided."""
        why = "other nodes were taken out of service in the same moment"
        self._store.records.refuse(
            incident.key, incident.fault_kind, incident.source, "blast_radius", why, {"blast_radius": why}
        )
        if fresh:  # else it stays a person's
            change = changes.close("blast_radius: %s" % why, incident.memory)
            self._store.claims.decide(incident, self._token, change)
        self._refused(incident.target, "blast_radius", why)
        self._store.claims.drop(incident.key, self._token)

    def _hand_out(self, incident: Incident, plan: str, step: str) -> None:
        self._store.claims.bind(incident.key, self._token, incident.id)
        self._answer.incidents.append(
            {"incident": incident.id, "target": incident.target.name, "plan": plan, "step": step}
        )

    def _refused(self, target: Target, gate: str, why: str) -> None:
        self._answer.refused.append({"target": target.name, "gate": gate, "why": why})

    def _look(
        self, subjects: Sequence[_Subject], scheduler: str, kinds: Mapping[Target, str], full: bool
    ) -> dict[Target, Look]:
        seen: dict[Target, Look] = {}
        nodes = {subject.target: subject.machine for subject in subjects if subject.target.kind == NODE}
        jobs = {target: kind if full else "" for target, kind in kinds.items() if target.kind == JOB}
        if nodes:
            reports = {subject.target: subject.report for subject in subjects if subject.report is not None}
            seen.update(observe.look_at_nodes(nodes, kinds, self._tools, full, self._past_of, reports))
        if jobs:
            seen.update(observe.look_at_jobs(jobs, scheduler, self._tools, self._machines_of))
        return seen

    def _machines_of(self, names: Sequence[str]) -> dict[str, Machine]:
        return self._store.machines.resolve(looks.SLURM, names)

    def _past_of(self, names: Sequence[str]) -> dict[str, observe.Past]:
        """What is known of the jobs of these nodes, by Slurm's names."""
        since = self._tools.now() - self._settings.limits.suspect_window
        return job_history.of_nodes(self._store, self._machines_of(names), names, since)

    def _history(self, subject: _Subject, kind: str, look: Look, together: int) -> History:
        store, limits = self._store, self._settings.limits
        number = subject.incident.id if subject.incident else 0
        if subject.target.kind == JOB:
            known = job_history.of_job(store, subject.key, look, limits)
            return History(
                stopped=self._stopped,
                restored=self._restored,
                attempts=known.attempts,
                former=known.former,
                followed=known.followed,
                failures=breaker.failures(store, subject.target.kind, limits),
            )
        machine = subject.machine.name if subject.machine else ""
        alike = store.incidents.alike(kind, subject.key, limits.common_cause_window)
        return History(
            stopped=self._stopped,
            restored=self._restored,
            ours=tuple(store.incidents.reasons_of(subject.key)),
            last_closed_at=store.incidents.last_closed(subject.key, number),
            reboots=store.steps.begun_lately(machine, _REBOOTING, limits.reboot_window, number),
            restarts=store.steps.begun_lately(machine, (plans.RESTART_DAEMON,), limits.reboot_window, number),
            alike=max(alike, together - 1),
            held=holds.besides(store, self._settings, subject.key),
            machines=self._machines,
            failures=breaker.failures(store, subject.target.kind, limits),
            repairs=report_history.repairs_of(store, subject.key, number) if kind in reported.KINDS else (),
        )


def _gives_way(known: Incident, fault: Fault) -> bool:
    """Whether an incident that only told a person of a fault makes room for a fault that is repaired."""
    only_told = not known.acted and not known.plan and known.suggested == REPORT
    return only_told and known.fault_kind != fault.kind and fault.suggested != REPORT


def _goes_on(incident: Incident) -> bool:
    """Whether it is in the middle of a repair; what a person asked for, and what had to wait, is decided anew."""
    return incident.acted and bool(incident.plan)


def _incident(subject: _Subject) -> Incident:
    if subject.incident is None:
        raise AssertionError("a subject without its incident")
    return subject.incident
