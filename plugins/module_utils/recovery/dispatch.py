# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which open incidents go on now: their wait is over, or the run that had them died. The ledger source's look.

One look a second serves all waits. What is due is sent as one event `{"due": {"incidents": [...], "dispatch": n}}`;
until when it is on its way is written down first, so that it is sent again, with back-off, only if that run died. A run
whose processes are dead on this host is ended here, so that its incidents go on before its lease is over.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs as kubernetes_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import path_of
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import job_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    canary,
    evidence,
    holder,
    left_over,
    observe,
    stop,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    OPEN,
    Incident,
    widest_first,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Tools, Wait
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.tools import make_tools
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JobState, Node

MAX_IN_ONE = 500  # incidents in one run
CANARY_EVERY = 300.0
REFRESH_EVERY = 60.0
REFRESH_AT_ONCE = 32  # nodes whose helpers are asked for their boot IDs in one refresh
_REFRESH_AGE = 3600.0
_BOOT_SLACK = 60.0  # Slurm's BootTime moves within one boot
_EXPIRE_EVERY = 3600.0
_KEEP = 90 * 86400.0
_ARRIVAL = 15.0  # seconds that an engine under load may need from the event to the claim
_MAX_BACK_OFF = 300.0
_FREE_TRIES = 3  # dispatches of one step without a pause between them
_MAX_PAUSE = 30.0
_REVISIT = 600.0
_REVISITED = 200  # escalated incidents that one look is about; the next one is about the next


@dataclass(frozen=True)
class Waiting:
    """An incident that nobody is busy with, and what it waits for; None: it can go on at once."""

    incident: Incident
    wait: Optional[Wait]


def waiting_of(incident: Incident, machine: Optional[Machine]) -> Waiting:
    """What an idle incident waits for. An escalated one waits for its target to be well by somebody's hand."""
    if incident.state != ESCALATED:
        return Waiting(incident, incident.wait if incident.state != OPEN else None)
    until = incident.updated_at + _REVISIT
    if incident.target.kind == NODE and machine is not None and machine.slurm_name:
        return Waiting(incident, Wait(waits.NODE_IN_SERVICE, {"node": machine.slurm_name}, until))
    if incident.target.kind == NODE and machine is not None and machine.kubernetes_name:
        return Waiting(incident, Wait(waits.KUBERNETES_NODE_READY, {"node": machine.kubernetes_name}, until))
    if incident.scheduler == SLURM:
        return Waiting(incident, Wait(waits.JOB_RUNNING, {"job": incident.target.name}, until))
    return Waiting(incident, Wait(waits.TIME, {}, until))


def pick(
    waiting: Sequence[Waiting], look: waits.CheapLook, now: float, room: int, ahead: float = 0.0
) -> dict[int, float]:
    """What is sent now: by incident the seconds that its dispatch may be on its way. Pure.

    Args:
        room: how many more runs may be going.
        ahead: seconds that the ledger's clock is ahead of `now`.
    """
    if room <= 0:
        return {}
    due = widest_first(
        each.incident
        for each in waiting
        if now + ahead - each.incident.updated_at >= pause(each.incident.dispatch_tries)
        and (each.wait is None or waits.due(each.wait, look, now))
    )
    return {incident.id: on_its_way(incident.dispatch_tries) for incident in due[:MAX_IN_ONE]}


def on_its_way(tries: int) -> float:
    """Seconds until a dispatch counts as lost."""
    return min(_ARRIVAL * 2 ** min(tries, 8), _MAX_BACK_OFF)


def pause(tries: int) -> float:
    """Seconds between an incident's last change and its next dispatch, the longer the more came to nothing."""
    return 0.0 if tries < _FREE_TRIES else min(2.0 ** min(tries - _FREE_TRIES + 1, 8), _MAX_PAUSE)


class LedgerWatch:
    """The looks of the ledger source. Blocking: for a thread of its own, one call at a time.

    Args:
        make: makes the adapters of a look.
        wall: epoch seconds.
        steady: seconds that never go back, for what is done now and then.
    """

    def __init__(
        self,
        make: Callable[[Settings], Tools] = make_tools,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._wall, self._steady = make, wall, steady
        self._session = LedgerSession()
        self._begun = False
        self._canary_at = -math.inf
        self._refreshed_at = -math.inf
        self._expired_at = -math.inf

    def look(self, settings: Settings) -> list[dict[str, Any]]:
        """One look: the events to send.

        Raises:
            RecoveryError: the ledger cannot be asked. Nothing is begun meanwhile.
        """
        with self._session.open(settings) as store:
            return self._look(settings, store)

    def close(self) -> None:
        """End the session; the next look opens another."""
        self._session.close()

    def _look(self, settings: Settings, store: Store) -> list[dict[str, Any]]:
        now = self._wall()
        if not self._begun:
            store.incidents.undispatch()
            self._begun = True
        bury_dead(store)
        events = self._canary(store, now)
        idle = store.incidents.idle()
        if not stop.stopped(settings, store) and idle:
            events += due_events(store, self._make(settings), idle, now)
        self._housekeeping(settings, store, now)
        return events

    def _canary(self, store: Store, now: float) -> list[dict[str, Any]]:
        """An event that travels the whole way to a playbook and back into the ledger."""
        if self._steady() - self._canary_at < CANARY_EVERY and not canary.send_now(store):
            return []
        self._canary_at = self._steady()
        number = int(now)
        store.control.put(canary.SENT, str(number), "ledger")
        return [{"canary": {"number": number}}]

    def _housekeeping(self, settings: Settings, store: Store, now: float) -> None:
        if self._steady() - self._expired_at >= _EXPIRE_EVERY:
            self._expired_at = self._steady()
            store.records.expire(_KEEP)
            store.commands.expire(_KEEP)
            live = {incident.id for incident in store.incidents.live()}
            evidence.prune(settings.state_dir, settings.nodes.evidence_incidents, live)
        if self._steady() - self._refreshed_at >= REFRESH_EVERY:
            self._refreshed_at = self._steady()
            tools = self._make(settings)
            refresh_identities(store, tools, now)
            if tools.slurm is not None:
                for number in left_over.take_up(store, _read(lambda: tools.slurm.nodes(None)) or []):
                    stop.raise_mark(settings, store, number)


def due_events(store: Store, tools: Tools, idle: set[int], now: float) -> list[dict[str, Any]]:
    """The event of those of the idle incidents that go on now, noted as being on its way; no event where none does."""
    incidents = in_turn([incident for incident in store.incidents.live() if incident.id in idle], now)
    machines = store.machines.get([incident.machine for incident in incidents if incident.machine])
    waiting = [waiting_of(incident, machines.get(incident.machine)) for incident in incidents]
    look = cheap_look(tools, waits.wanted([each.wait for each in waiting if each.wait is not None]))
    # what was changed when is told by the database's clock, which need not be ours
    chosen = pick(waiting, look, now, (os.cpu_count() or 1) - store.claims.going(), store.now() - now)
    if not chosen:
        return []
    return [{"due": {"incidents": sorted(chosen), "dispatch": store.incidents.dispatch(chosen)}}]


def in_turn(incidents: Sequence[Incident], now: float) -> list[Incident]:
    """All that go on, and of the escalated ones, of which a storm may leave ten thousand, some in their turn. Pure."""
    escalated = [incident for incident in incidents if incident.state == ESCALATED]
    going_on = [incident for incident in incidents if incident.state != ESCALATED]
    if len(escalated) <= _REVISITED:
        return [*going_on, *escalated]
    start = int(now) * _REVISITED % len(escalated)
    return [*going_on, *(escalated + escalated)[start : start + _REVISITED]]


def bury_dead(store: Store) -> list[str]:
    """End the runs whose processes are dead on this host, so that nobody waits for their leases; their tokens."""
    dead = {token: told for token, told in store.claims.holders().items() if holder.is_dead(told)}
    return [token for token, told in dead.items() if store.claims.bury(token, told)]


def cheap_look(tools: Tools, wanted: waits.Wanted) -> waits.CheapLook:
    """Look at what the waits need, each scheduler on its own: what cannot be read is None."""
    nodes = _read(lambda: _node_states(tools, wanted.nodes)) if wanted.nodes and tools.slurm is not None else None
    back = [name for name in wanted.registered if nodes and name in nodes and nodes[name].responding]
    registered = _read(lambda: _full_nodes(tools, back)) if back else None
    jobs = _read(lambda: _job_states(tools, wanted.jobs)) if wanted.jobs and tools.slurm is not None else None
    return waits.CheapLook(
        nodes=nodes,
        registered=registered,
        jobs=jobs,
        kubernetes_nodes=_kubernetes(tools, wanted.kubernetes_nodes, kubernetes_nodes.read_node),
        kubernetes_jobs=_kubernetes(
            tools, wanted.kubernetes_jobs, lambda client, name: job_view(kubernetes_jobs.read_job(client, name))
        ),
        pods=_kubernetes(tools, wanted.pods, _pod_is_there),
    )


def refresh_identities(store: Store, tools: Tools, now: float) -> int:
    """Note the boot IDs of nodes that are healthy and whose record is old; how many helpers were asked.

    Only nodes that are in service, without an open incident, the longest unseen first.
    """
    busy = {incident.machine for incident in store.incidents.live()}
    nodes = _read(lambda: {node.name: node for node in tools.slurm.nodes(None)}) if tools.slurm is not None else None
    stale = [
        machine
        for machine in store.machines.all()
        if machine.name not in busy and machine.ssh_address and _is_stale(machine, nodes, now)
    ]
    stale.sort(key=lambda machine: machine.boot_seen_at or 0.0)
    chosen = stale[:REFRESH_AT_ONCE]
    for name, shell in observe.probe(tools, chosen).items():
        if shell.boot_id:
            store.machines.seen_healthy(name, shell.boot_id, shell.machine_id)
    return len(chosen)


def _is_stale(machine: Machine, nodes: Optional[Mapping[str, Node]], now: float) -> bool:
    """Whether the boot on record may not be the present one of a node that is healthy."""
    if not machine.slurm_name:
        return machine.boot_seen_at is None or now - machine.boot_seen_at > _REFRESH_AGE
    node = (nodes or {}).get(machine.slurm_name)
    if node is None or not node.understood or not node.registered or node.out_of_service:
        return False
    if machine.boot_seen_at is None or now - machine.boot_seen_at > _REFRESH_AGE:
        return True
    return (node.boot_time or 0) > machine.boot_seen_at + _BOOT_SLACK


def _node_states(tools: Tools, names: frozenset[str]) -> dict[str, Node]:
    return {state.name: state.node for state in tools.slurm.node_states() if state.name in names}


def _full_nodes(tools: Tools, names: Sequence[str]) -> dict[str, Node]:
    return {node.name: node for node in tools.slurm.nodes(sorted(names), missing_ok=True)}


def _job_states(tools: Tools, ids: frozenset[str]) -> dict[str, JobState]:
    found: dict[str, JobState] = {}
    for state in tools.slurm.job_states(sorted(ids)):
        found[str(state.id)] = state
        if state.array_job_id and state.array_task_id is not None:
            found["%d_%d" % (state.array_job_id, state.array_task_id)] = state
    return found


def _kubernetes(tools: Tools, names: frozenset[str], read: Callable[[Any, str], Any]) -> Optional[dict[str, Any]]:
    """By name what was read; a name whose reading failed is missing. None where nothing is wanted."""
    if not names or tools.kubernetes is None:
        return None
    values = {name: _read(lambda name=name: read(tools.kubernetes, name)) for name in sorted(names)}
    return {name: value for name, value in values.items() if value is not None}


def _pod_is_there(client: Any, name: str) -> bool:
    namespace, _slash, pod = name.partition("/")
    return client.find(path_of("v1", "pods", namespace, pod)) is not None


def _read(read: Callable[[], Any]) -> Any:
    """What was read, None where it cannot be: its own source tells about the outage."""
    try:
        return read()
    except RecoveryError:
        return None
