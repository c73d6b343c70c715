# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The looks of the source `node_agent`: agents' reports are kept in the ledger, acknowledged, and sent as faults."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time
from typing import Any, Callable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent import protocol
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener import believe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener.server import (
    Arrival,
    Bucket,
    Server,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import silent_agents
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

SOURCE = believe.SOURCE
_LOOK_EVERY = 1.0  # seconds, when no agent says anything
_MACHINES_EVERY, _MACHINES_SOON = 60.0, 2.0  # the latter when an agent of an unknown node spoke
_REPORTS = (100.0, 1.0)  # of one node: at once, and in a second
_HEARD_EVERY = 15.0  # seconds between two writes of who was heard
_RESOLVED_FOR = 600.0
_RESOLVE_DEADLINE = 5.0


class Book:
    """The reports in the ledger, and which faults of them last. Blocking: for one thread at a time.

    Args:
        steady: seconds that never go back.

    Attributes:
        machines: the nodes by each of their names.
        stranger: whether an agent of a node that is not among them spoke, which may have been registered since.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._session = LedgerSession()
        self._machines_at = float("-inf")
        self._restored = False
        self._held: dict[tuple, believe.Held] = {}
        self._boots: dict[str, str] = {}
        self._resend = Resend()
        self._sent: set[tuple] = set()
        self._rooms: dict[str, Bucket] = {}
        self._heard: dict[str, float] = {}
        self._heard_at = float("-inf")
        self.machines: dict[str, Machine] = {}
        self.stranger = False

    def look(self, settings: Settings, arrivals: list[tuple[Arrival, Machine]]) -> tuple[list, list]:
        """Keep what arrived: the answers, in its order, and the events to send.

        Raises:
            RecoveryError: the ledger cannot be asked; nothing is acknowledged.
        """
        with self._session.open(settings) as store:
            self._refresh(store, settings)
            now = store.now()
            answers = [self._keep(store, arrival, machine, now) for arrival, machine in arrivals]
            self._hear([machine.name for _arrival, machine in arrivals], settings.state_dir, now)
            return answers, self._events(store, settings.cluster, now)

    def close(self) -> None:
        """End the session; the next look opens another."""
        self._session.close()

    def _hear(self, names: list[str], state_dir: str, now: float) -> None:
        """Keep who was heard; without that nobody is told who is silent, and the reports count for more."""
        self._heard.update(dict.fromkeys(names, now))
        if self._heard and self._steady() - self._heard_at >= _HEARD_EVERY:
            self._heard_at = self._steady()
            known = {machine.name for machine in self.machines.values()}
            self._heard = {name: at for name, at in self._heard.items() if name in known}
            with contextlib.suppress(OSError):
                silent_agents.save(state_dir, self._heard)

    def _refresh(self, store: Store, settings: Settings) -> None:
        if self._steady() - self._machines_at >= (_MACHINES_SOON if self.stranger else _MACHINES_EVERY):
            self.stranger = False
            known = store.machines.all()
            self.machines = {
                name: machine
                for machine in known
                for name in (machine.kubernetes_name, machine.slurm_name, machine.name)
                if name
            }
            self._machines_at = self._steady()
        if not self._restored:
            self._restore(store)
            self._heard = silent_agents.load(settings.state_dir)
            self._restored = True

    def _restore(self, store: Store) -> None:
        """What was reported before a restart and may last."""
        for row in store.records.kept(SOURCE, believe.LASTS):
            machine = self.machines.get(row["target_key"].partition(":")[2])
            if machine is not None and believe.is_evidence(row["body"]):
                self._hold(machine, row["body"], row["id"], row["last_at"])
                self._boots[machine.name] = row["body"]["boot_id"]

    def _hold(self, machine: Machine, body: dict[str, Any], evidence: int, at: float) -> None:
        fault = believe.held(machine, body, evidence, at)
        if fault is not None:
            self._held[fault.key] = fault

    def _keep(self, store: Store, arrival: Arrival, machine: Machine, now: float) -> protocol.Answer:
        message = arrival.message
        self._boots[machine.name] = message.boot_id
        room = self._rooms.setdefault(machine.name, Bucket(*_REPORTS, self._steady()))
        taken, refused = [], {}
        for each in message.reports:
            if not room.take(1, self._steady()):
                break  # the agent keeps the rest
            try:
                report = protocol.report_of(each)
            except protocol.Malformed as exc:
                refused[protocol.id_of(each)] = str(exc)
                continue
            self._write(store, machine, believe.evidence_of(report, message.boot_id), now)
            taken.append(report["id"])
        return protocol.Answer(message.answer, taken, refused)

    def _write(self, store: Store, machine: Machine, body: dict[str, Any], now: float) -> None:
        before = self._held.get((machine.name, body["code"], body["device"], body["boot_id"]))
        number = before.evidence if before is not None and store.records.renew(before.evidence, body) else 0
        if not number:
            number = store.records.keep("node:" + machine.name, believe.kind_of(body), SOURCE, body)
        self._hold(machine, body, number, now)

    def _events(self, store: Store, cluster: str, now: float) -> list[dict[str, Any]]:
        due = self._resend.due(list(self._held), self._steady())
        if not due:
            return []
        since = {
            name: believe.Since(**told)
            for name, told in store.incidents.since_of({self._held[key].machine for key in due}).items()
        }
        events = []
        for key in due:
            fault = self._held[key]
            told = since.get(fault.machine, believe.Since())
            if believe.is_over(fault, told, self._boots.get(fault.machine, fault.boot_id), now):
                del self._held[key]
                self._sent.discard(key)
            elif key not in self._sent or believe.is_sent_again(fault, told):
                self._sent.add(key)
                events.append(believe.event_of(fault, cluster, now))
        return events


class AgentWatch:
    """See above. All of it belongs to one event loop, but for the ledger, which has a thread."""

    def __init__(self, log: logging.Logger) -> None:
        self._book = Book()
        self._server = Server(self._take, log)
        self._arrived = asyncio.Event()
        self._waiting: list[tuple[Arrival, Machine, asyncio.Future]] = []
        self._addresses: dict[str, tuple[float, frozenset[str]]] = {}

    async def look(self, settings: Settings) -> list[dict[str, Any]]:
        """Wait a moment for reports; the events to send.

        Raises:
            RecoveryError: nobody can listen, or the ledger cannot be asked. Nothing is acknowledged then.
        """
        await self._server.listen(settings.agents)
        if not settings.agents.port:
            return []
        try:
            await asyncio.wait_for(self._arrived.wait(), _LOOK_EVERY)
        except asyncio.TimeoutError:
            pass
        self._arrived.clear()
        arrived, self._waiting = self._waiting, []
        try:
            told = [(arrival, machine) for arrival, machine, _future in arrived]
            answers, events = await asyncio.to_thread(self._book.look, settings, told)
        except Exception as exc:
            for _arrival, _machine, future in arrived:
                if not future.done():
                    future.set_exception(Unreachable("reports cannot be kept now: %s" % type(exc).__name__))
            raise
        for (_arrival, _machine, future), answer in zip(arrived, answers):
            if not future.done():
                future.set_result(answer)
        return events

    async def close(self) -> None:
        """Listen no more, and end the session with the ledger."""
        await self._server.close()
        self._book.close()

    async def _take(self, arrival: Arrival) -> protocol.Answer:
        machine = self._book.machines.get(arrival.message.node)
        if machine is None:
            self._book.stranger = True
            raise Absent("no node is called %s" % arrival.message.node, "it is registered by site.yml")
        believe.check_sender(arrival.proved, machine, await self._addresses_of(machine))
        future: asyncio.Future = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, machine, future))
        self._arrived.set()
        return await future

    async def _addresses_of(self, machine: Machine) -> frozenset[str]:
        """A machine's IPv4 addresses, which is what munge knows, as its names tell them now or did a moment ago."""
        at, known = self._addresses.get(machine.name, (float("-inf"), frozenset()))
        if known and time.monotonic() - at < _RESOLVED_FOR:
            return known
        names = {machine.ssh_address, machine.slurm_name, machine.kubernetes_name} - {""}
        try:
            found = await asyncio.wait_for(asyncio.to_thread(resolve, sorted(names)), _RESOLVE_DEADLINE)
        except asyncio.TimeoutError:
            raise Unreachable("the addresses of %s cannot be found out in time" % machine.name) from None
        self._addresses[machine.name] = (time.monotonic(), found)
        return found


def resolve(names: list[str]) -> frozenset[str]:
    """The IPv4 addresses of names and addresses. A name that means the own machine tells nothing about another one."""
    found: set[str] = set()
    for name in names:
        try:
            found.add(str(ipaddress.IPv4Address(name)))
            continue
        except ValueError:
            pass
        try:
            answers = {str(told[4][0]) for told in socket.getaddrinfo(name, None, socket.AF_INET)}
        except OSError:
            continue
        found |= {address for address in answers if not ipaddress.ip_address(address).is_loopback}
    return frozenset(found)
