# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A step for all incidents of a run that stand before it: check, write the intent, act, write the outcomes.

What a killed run leaves is `started` without an outcome: the next run repeats the step with the intent of the first
time. What a run that slept over its lease has left to do, it may not do: `Guard` raises before each act, and nothing
that it still writes reaches the ledger.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    decide,
    gates,
    holder,
    looks,
    observe,
    plans,
    stop,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    PAUSED,
    Incident,
    StepRow,
    widest_first,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    finished,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    DONE,
    FAILED,
    WAITING,
    Lost,
    Machine,
    Outcome,
    Step,
    Tools,
    Wait,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.tools import make_tools

SPEC: dict[str, Any] = {
    "argument_spec": {
        "steps": {"type": "list", "elements": "str", "required": True, "choices": list(plans.ORDER)},
        "token": {"type": "str", "required": True, "no_log": False},
        "settings": {"type": "path"},
    },
    "supports_check_mode": False,
}

# Statuses of a result besides the step's own: nothing was written for the incident, and it goes on later.
LOST = "lost"
STOPPED = "stopped"
INTERRUPTED = "interrupted"

MAX_TRIES = 5  # starts of a step without any outcome (its run was killed each time) before a person is asked

_REBOOTING = (plans.REBOOT, plans.FENCE)
_LOOKS_AROUND = (*_REBOOTING, plans.RESET_GPU)  # before them it is asked once more whether it is the node's own fault
_SLOT_PAUSE = 10.0
_COMMON_CAUSE_PAUSE = 30.0


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module `recovery_step`: `{results: [{incident, target, step, status, why}], changed}`.

    All steps of a run go through one session of the ledger and one set of adapters.
    """
    settings = load(params["settings"])
    results: list[dict[str, Any]] = []
    with open_store(settings.ledger) as store:
        store.claims.held_by(params["token"], holder.describe())
        guard = Guard(store, settings, params["token"])

        def machines(names: Sequence[str]) -> Mapping[str, Machine]:
            return store.machines.resolve(looks.SLURM, names)

        frame = Frame(store, settings, params["token"], make_tools(settings, guard, machines, store.machines.all))
        for name in plans.in_order(set(params["steps"])):
            results += frame.run(find_step(name))
    return {"results": results, "changed": any(result["status"] in (DONE, WAITING, FAILED) for result in results)}


def find_step(name: str) -> Step:
    """A step by name.

    Raises:
        BadInput: this version has no such step.
    """
    from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import STEPS

    if name not in STEPS:
        raise BadInput("step %s is not known to this version" % name)
    return STEPS[name]


class Guard:
    """May this run act for this work now? Steps call it right before each act, from any thread.

    It looks at the emergency stop, the token and the lease (by the database's clock), and lengthens the lease.
    """

    def __init__(self, store: Store, settings: Settings, token: str) -> None:
        self._store, self._settings, self._token = store, settings, token
        self._keys: dict[int, str] = {}
        self._lock = threading.Lock()

    def know(self, incidents: Sequence[Incident]) -> None:
        """Tell which target is whose incident's."""
        self._keys.update({incident.id: incident.key for incident in incidents})

    def __call__(self, work: Work) -> float:
        """Seconds left of the lease.

        Raises:
            Lost: stopped, or the claim is not this run's any more.
            RecoveryError: the ledger cannot be asked, so nobody may act.
        """
        with self._lock:
            by_file = stop.stopped_by_file(self._settings.stop_file)
            if by_file:
                raise Stopped(by_file)
            key = self._keys.get(work.incident)
            if key is None:
                raise Lost("incident %d is not of this run" % work.incident)
            self._renew(key)
            return self._settings.limits.lease

    def _renew(self, key: str) -> None:
        """The ledger's stop, the token and the lease in one statement; then which of them said no."""
        try:
            self._store.claims.renew(key, self._token, self._settings.limits.lease, unless=stop.STOP)
        except Lost:
            reason = stop.stopped(self._settings, self._store)
            if reason:
                raise Stopped(reason) from None
            raise


class Stopped(Lost):
    """The emergency stop."""


@dataclass(frozen=True)
class _Begun:
    incident: Incident
    row: StepRow
    work: Work


class Frame:
    """One pass of one step over a run's incidents."""

    def __init__(self, store: Store, settings: Settings, token: str, tools: Tools) -> None:
        self._store, self._settings, self._token, self._tools = store, settings, token, tools

    def run(self, step: Step) -> list[dict[str, Any]]:
        """Do the step for all incidents of the run that stand before it; one result for each."""
        self._store.claims.renew_all(self._token, self._settings.limits.lease)
        incidents = widest_first(self._store.incidents.claimed(self._token, step.name))
        if not incidents:
            return []
        reason = stop.stopped(self._settings, self._store)
        if reason:
            return [self._uncertain(incident, STOPPED, Stopped(reason)) for incident in incidents]
        if isinstance(self._tools.guard, Guard):
            self._tools.guard.know(incidents)
        results = []
        begun = []
        works = self._works(incidents)
        intents = self._intents(step, works)
        for incident in incidents:
            answer = self._begin(incident, works[incident.id], intents.get(incident.id, {}))
            if isinstance(answer, _Begun):
                begun.append(answer)
            else:
                results.append(answer)
        return results + self._act(step, begun)

    def _works(self, incidents: Sequence[Incident]) -> dict[int, Work]:
        machines = self._store.machines.get([incident.machine for incident in incidents if incident.machine])
        rows = {row.incident: row for row in self._step_rows(incidents)}
        return {
            incident.id: self._work(incident, machines.get(incident.machine), rows.get(incident.id))
            for incident in incidents
        }

    def _step_rows(self, incidents: Sequence[Incident]) -> list[StepRow]:
        rounds = {incident.id: incident for incident in incidents}
        return [
            row
            for row in self._store.steps.of(list(rounds))
            if row.round == rounds[row.incident].round and row.step == rounds[row.incident].step
        ]

    def _work(self, incident: Incident, machine: Optional[Machine], row: Optional[StepRow]) -> Work:
        started = row.started_at if row else self._tools.now()
        return Work(
            incident=incident.id,
            step=incident.step,
            target=incident.target,
            fault_kind=incident.fault_kind,
            plan=incident.plan,
            machine=machine,
            reason=incident.reason,
            intent=row.intent if row else {},
            memory=incident.memory,
            first_started_at=started,
            deadline=started + decide.step_seconds(incident.step, self._settings.limits),
            overridden=incident.request.override,
        )

    def _intents(self, step: Step, works: Mapping[int, Work]) -> dict[int, dict[str, Any]]:
        """What must be known later, for those that begin this step for the first time."""
        first = [work for work in works.values() if not work.intent]
        return step.intend(first, self._tools) if first else {}

    def _begin(self, incident: Incident, work: Work, intent: Mapping[str, Any]) -> Any:
        """Write `started`; a `_Begun`, or the result that says why the step does not begin now."""
        common = self._common_cause(incident) if incident.step in _LOOKS_AROUND else ""
        if common:
            wait = Wait(waits.TIME, {}, self._tools.now() + _COMMON_CAUSE_PAUSE)
            return self._settle(incident, Outcome(incident.id, WAITING, common, wait))
        try:
            row = self._start(incident, intent)
        except Lost as exc:
            return _result(incident, LOST, str(exc))
        if row is None:
            limit = self._settings.limits.max_parallel_reboots
            wait = Wait(waits.TIME, {}, self._tools.now() + _SLOT_PAUSE)
            return self._settle(incident, Outcome(incident.id, WAITING, "%d nodes reboot already" % limit, wait))
        if row.tries > MAX_TRIES:
            why = "the step was begun %d times and its run died each time" % (row.tries - 1)
            return self._settle(incident, Outcome(incident.id, FAILED, why))
        seconds = decide.step_seconds(incident.step, self._settings.limits)
        work = replace(
            work, intent=row.intent, first_started_at=row.started_at, deadline=row.started_at + seconds
        )
        return _Begun(incident, row, work)

    def _common_cause(self, incident: Incident) -> str:
        """Why a node is not rebooted now: so many others have the same fault by now that it is not the node's."""
        limits = self._settings.limits
        alike = self._store.incidents.alike(incident.fault_kind, incident.key, limits.common_cause_window)
        if incident.request.by or not gates.is_common(alike, limits):
            return ""
        return "%d nodes have %s: a common cause, no node is repaired for it" % (alike + 1, incident.fault_kind)

    def _start(self, incident: Incident, intent: Mapping[str, Any]) -> Optional[StepRow]:
        """The step's row; None when as many nodes reboot as may."""
        store = self._store
        if incident.step not in _REBOOTING:
            return store.steps.start(incident, self._token, intent)

        def start_in_turn() -> Optional[StepRow]:
            store.control.lock("reboots")  # two runs must not both count before either has begun
            others = store.steps.under_way(_REBOOTING, plans.AWAIT_BOOT, incident.id)
            if others >= self._settings.limits.max_parallel_reboots:
                return None
            return store.steps.start(incident, self._token, intent)

        return store.claims.hold(incident.key, self._token, start_in_turn)

    def _act(self, step: Step, begun: Sequence[_Begun]) -> list[dict[str, Any]]:
        if not begun:
            return []
        try:
            outcomes = step.act([each.work for each in begun], self._tools)
        except Stopped as exc:
            return [self._uncertain(each.incident, STOPPED, exc) for each in begun]
        except Lost as exc:
            return [self._uncertain(each.incident, LOST, exc) for each in begun]
        except RecoveryError as exc:  # nothing is known of any of them: the step is repeated, with its intent
            return [self._uncertain(each.incident, INTERRUPTED, exc) for each in begun]
        by_incident = {outcome.incident: outcome for outcome in outcomes}
        defect = "step %s gave no outcome" % step.name
        return [
            self._settle(each.incident, by_incident.get(each.incident.id, Outcome(each.incident.id, FAILED, defect)))
            for each in begun
        ]

    def _uncertain(self, incident: Incident, status: str, exc: RecoveryError) -> dict[str, Any]:
        """No outcome is written: the incident stays where it is, and is dispatched again with back-off."""
        try:
            self._store.claims.settle(incident, self._token, {}, changes.note(str(exc)))
        except Lost:
            return _result(incident, LOST, str(exc))
        return _result(incident, status, str(exc))

    def _settle(self, incident: Incident, outcome: Outcome) -> dict[str, Any]:
        """Write an outcome and what follows from it, if the claim is still this run's."""
        status = PAUSED if outcome.status == WAITING else outcome.status
        step = finished(status, outcome.why, outcome.proof)
        try:
            self._store.claims.settle(incident, self._token, step, self._following(incident, outcome))
        except Lost as exc:
            return _result(incident, LOST, str(exc))
        if outcome.status == DONE and incident.step == plans.CONFIRM and incident.target.kind == NODE:
            remember_healthy(self._store, self._tools, [incident.machine])
        return _result(incident, outcome.status, outcome.why)

    def _following(self, incident: Incident, outcome: Outcome) -> changes.Columns:
        """What becomes of the incident by an outcome of its step."""
        memory = {**incident.memory, **outcome.remember}
        if outcome.status == WAITING and outcome.wait is not None:
            return changes.wait(outcome.wait, outcome.why, memory)
        if outcome.status != DONE:
            return self._after_failure(incident, outcome, memory)
        following = plans.next_step(plans.PLANS[incident.plan], incident.step)
        if following:
            return changes.advance(following, incident.why, memory)
        if decide.ends_closed(incident.plan):
            return changes.close(outcome.why, memory)
        if incident.target.kind != NODE:
            return changes.escalate(incident.why, memory)
        return changes.escalate(
            "%s: held out of service for a person to look at" % (incident.why or incident.fault_kind), memory
        )

    def _after_failure(self, incident: Incident, outcome: Outcome, memory: Mapping[str, Any]) -> changes.Columns:
        machine = self._store.machines.get([incident.machine]).get(incident.machine) if incident.machine else None
        window = self._settings.limits.reboot_window
        reboots = self._store.steps.begun_lately(incident.machine, _REBOOTING, window, incident.id) if machine else 0
        chosen = decide.after_failure(
            incident.plan,
            incident.step,
            outcome.why,
            bool(machine and machine.bmc_url),
            not reboots,
            None if incident.memory.get(plans.ANSWERS_AGAIN) else outcome.proof.get(plans.ANSWERS_AGAIN),
            outcome.proof.get(plans.FAULT_GONE) is True,
        )
        if not chosen.plan:
            return changes.escalate(chosen.why, memory)
        done = {row.step: True for row in self._store.steps.of([incident.id]) if row.status == DONE}
        first = decide.first_step(chosen.plan, done)
        return changes.plan(chosen.plan, first, chosen.why, memory, new_round=True)


def remember_healthy(store: Store, tools: Tools, names: Sequence[str]) -> None:
    """Note the boot IDs of nodes that are healthy now. One that does not answer keeps the one on record."""
    machines = store.machines.get(names)
    for name, shell in observe.probe(tools, machines.values()).items():
        if shell.boot_id:
            store.machines.seen_healthy(name, shell.boot_id, shell.machine_id)


def _result(incident: Incident, status: str, why: str) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "target": incident.target.name,
        "step": incident.step,
        "status": status,
        "why": why,
    }
