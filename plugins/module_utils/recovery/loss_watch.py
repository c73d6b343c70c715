# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching for nodes that are lost under opted-in jobs, before Slurm notices. The I/O around `loss`.

Nodes that run opted-in jobs are probed about once a second; on small clusters some others too, to bear witness. Whom to
probe, and which nodes Slurm takes for well, comes from the looks of `SlurmWatch`; addresses and BMCs come from the
ledger. The BMC of a silent node is asked every other second.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any, Callable, Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import probe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import (
    NodeShell,
    parse_address,
    resolve,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.drivers import Power
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import proves_off
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates, loss, silence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    NODE,
    SLURM,
    Target,
    build_event,
    valid_node_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import open_store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node, NodeGroup
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import SlurmWatch

SOURCE = "loss"
KIND = "node_not_responding"

_PROBED_AT_LEAST = 10  # nodes, with witnesses, where the cluster has so many
_QUIET_AT_ONCE = 1500  # nodes in one round, the longest unasked first
_THOROUGH_AT_ONCE = 64
_QUIET_SECONDS = 0.5
_THOROUGH_SECONDS = 1.2  # the kernel repeats an unanswered SYN after one second
_ALWAYS_THOROUGH = 60.0  # seconds for which a node is not knocked at that answers the thorough probe alone
_KNOWN_FOR = 60.0  # seconds until the ledger is asked for the machines again
_RESOLVED_FOR = 300.0
_RESOLVED_AT_ONCE = 500
_BMC_EVERY = 2.0
_BMC_SECONDS = 3.0
_SLURMD_PORT = 6818


def now() -> loss.Moment:
    """This moment. CLOCK_BOOTTIME goes on while the machine sleeps; while a virtual machine is paused, none may."""
    return loss.Moment(time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def read_machines(settings: Settings) -> list[Machine]:
    """Every machine of the ledger.

    Raises:
        RecoveryError: the ledger cannot be asked.
    """
    with open_store(settings.ledger) as store:
        return store.machines.all()


class LossWatch:
    """What the source remembers between two rounds; nothing of it is needed after a restart.

    Args:
        watch: whose looks at Slurm tell which nodes are worth a probe.
        slurm: an `AsyncSlurmCli`.
        machines: reads the ledger's machines; blocking.
        moment: tells the time.
    """

    def __init__(
        self,
        watch: SlurmWatch,
        slurm: Any,
        machines: Callable[[Settings], list[Machine]] = read_machines,
        moment: Callable[[], loss.Moment] = now,
    ) -> None:
        self._watch, self._slurm = watch, slurm
        self._read_machines, self._moment = machines, moment
        self._log = logging.getLogger("job_recovery.%s" % SOURCE)
        self._tracks: dict[str, loss.Track] = {}
        self._before: Optional[loss.Moment] = None
        self._took, self._interval = 0.0, 1.0
        self._machines: dict[str, Machine] = {}
        self._machines_at = -math.inf
        self._slurmd_port = _SLURMD_PORT
        self._refreshing: Optional[asyncio.Task[None]] = None
        self._asking: Optional[asyncio.Task[None]] = None
        self._bmc_at: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._expanded: dict[str, frozenset[str]] = {}
        self._thorough_until: dict[str, float] = {}
        self._numeric: dict[str, tuple[str, float]] = {}
        self._resend = Resend()
        self._recorded = False

    async def look(self, settings: Settings) -> list[dict[str, Any]]:
        """Probe once what is worth it, and return the events to send.

        Raises:
            Partial: something is withheld, and why.
            RecoveryError: nothing is known of the machines.
        """
        self._interval = settings.slurm.probe_interval or settings.slurm.interval
        if not (settings.slurm.enabled and settings.slurm.probe_interval):
            return self._nobody(settings)
        wanted = self._watch.opted_in.nodes(settings.scope.partitions)
        if not wanted:
            return self._nobody(settings)
        await self._know_machines(settings)
        well = self._well()
        candidates = sorted(wanted.intersection(well, self._machines))
        others = sorted(well.intersection(self._machines).difference(candidates))
        witnesses = others[: max(0, _PROBED_AT_LEAST - len(candidates))]
        probed = {name: self._machines[name] for name in [*candidates, *witnesses]}
        if not candidates:
            return self._nobody(settings)
        before, look = self._before, await self._round(settings, probed)
        self._before, self._took = look.ended, look.ended.up - look.began.up
        self._tell_of_standstill(before, look)
        tracks = {name: track for name, track in self._tracks.items() if name in probed}
        self._tracks = loss.follow(tracks, before, look)
        rules = loss.Rules(
            settings.limits.silence, gates.allowed_at_once(len(self._machines), settings.limits)
        )
        self._ask_bmcs(settings, probed, rules.allowed)
        known = candidates if self._watch.sees() else ()
        return self._told(settings, loss.judge(self._tracks, known, rules, look.ended.up), look.ended)

    def pause(self) -> float:
        """Seconds until the next round."""
        return max(0.05, self._interval - self._took)

    def close(self) -> None:
        """End what is under way."""
        for task in (self._refreshing, self._asking):
            if task is not None:
                task.cancel()

    # whom

    def _nobody(self, settings: Settings) -> list[dict[str, Any]]:
        self._tracks, self._before, self._took = {}, None, 0.0
        return self._told(settings, loss.Verdict(), self._moment())

    async def _know_machines(self, settings: Settings) -> None:
        """The machines, once known, are renewed beside the rounds: the ledger may be slow."""
        at = self._moment().up
        if self._refreshing is not None and self._refreshing.done():
            task, self._refreshing = self._refreshing, None
            if isinstance(task.exception(), RecoveryError):
                self._log.warning("the machines are not read anew: %s", task.exception())
            else:
                task.result()
        if self._refreshing is None and at - self._machines_at >= _KNOWN_FOR:
            self._machines_at = at
            self._refreshing = asyncio.ensure_future(self._refresh(settings))
        if not self._machines and self._refreshing is not None:
            task, self._refreshing = self._refreshing, None
            try:
                await task
            except BaseException:
                self._machines_at = -math.inf
                raise

    async def _refresh(self, settings: Settings) -> None:
        machines = await asyncio.to_thread(self._read_machines, settings)
        self._machines = {
            machine.slurm_name: machine
            for machine in machines
            if machine.slurm_name and machine.ssh_address and valid_node_name(machine.slurm_name)
        }
        try:
            port = str((await self._slurm.config()).get("SlurmdPort", ""))
        except RecoveryError:  # the wrong port of a node that is alive answers too, by refusing
            return
        if port.isdigit() and 0 < int(port) < 65536:
            self._slurmd_port = int(port)

    def _well(self) -> set[str]:
        """Nodes that Slurm takes for well; else it has its own verdict, or the node is silent by somebody's wish."""
        groups = [group for group in self._watch.groups if _is_well(group)]
        self._expanded = {
            group.hosts: self._expanded.get(group.hosts) or frozenset(hostlist.expand(group.hosts)) for group in groups
        }
        return set().union(*self._expanded.values())

    # probes

    async def _round(self, settings: Settings, probed: Mapping[str, Machine]) -> loss.Round:
        """Ask those in doubt thoroughly, and the others quietly; who is silent then is in doubt in the next round."""
        began = self._moment()
        doubt = [name for name in probed if self._in_doubt(name, began.up)]
        thorough = self._longest_unasked(doubt, _THOROUGH_AT_ONCE)
        quiet = self._longest_unasked(set(probed).difference(doubt), _QUIET_AT_ONCE)
        addresses = {name: probed[name].ssh_address for name in thorough}
        numeric = await self._resolved({name: probed[name].ssh_address for name in quiet}, began.up)
        quietly, thoroughly = await asyncio.gather(
            asyncio.to_thread(probe.quiet, set(numeric.values()), _QUIET_SECONDS),
            probe.thorough(
                NodeShell(settings.nodes), list(addresses.values()), self._slurmd_port, _THOROUGH_SECONDS
            ),
        )
        seen: dict[str, Optional[bool]] = {name: thoroughly[address] for name, address in addresses.items()}
        for name in quiet:
            if quietly.get(numeric.get(name, "")):
                seen[name] = True
                self._thorough_until.pop(name, None)
            else:
                self._thorough_until[name] = began.up + _ALWAYS_THOROUGH
        self._asked = {**{name: self._asked.get(name, 0.0) for name in probed}, **dict.fromkeys(seen, began.up)}
        self._thorough_until = {name: until for name, until in self._thorough_until.items() if name in probed}
        return loss.Round(began, self._moment(), seen)

    def _in_doubt(self, name: str, at: float) -> bool:
        track = self._tracks.get(name)
        return (track is not None and track.misses > 0) or self._thorough_until.get(name, 0.0) > at

    def _longest_unasked(self, names: Iterable[str], number: int) -> list[str]:
        """So many of these nodes: the silent ones, and of the others those that were asked longest ago."""
        names = list(names)
        if len(names) <= number:
            return names
        silent = {name for name in names if name in self._tracks and self._tracks[name].misses}
        return sorted(names, key=lambda name: (name not in silent, self._asked.get(name, 0.0)))[:number]

    async def _resolved(self, addresses: Mapping[str, str], at: float) -> dict[str, str]:
        """By node its numeric address, as far as it is known or found at once; a thorough probe resolves by itself."""
        oldest, never = at - _RESOLVED_FOR, ("", -math.inf)
        some = [each for each in addresses.values() if self._numeric.get(each, never)[1] < oldest][:_RESOLVED_AT_ONCE]
        found = await asyncio.gather(*(_resolve(each) for each in some), return_exceptions=True)
        for address, numeric in zip(some, found):
            if isinstance(numeric, str):
                self._numeric[address] = (numeric, at)
        return {name: self._numeric[each][0] for name, each in addresses.items() if each in self._numeric}

    # BMCs

    def _ask_bmcs(self, settings: Settings, probed: Mapping[str, Machine], allowed: int) -> None:
        """Ask the BMCs of silent nodes, beside the rounds; of none where so many are silent that nothing is said."""
        silent = [name for name, track in self._tracks.items() if track.misses]
        if self._asking is not None:
            if not self._asking.done():
                return
            task, self._asking = self._asking, None
            task.result()
        at = self._moment().up
        self._bmc_at = {name: self._bmc_at[name] for name in silent if name in self._bmc_at}
        due = [
            name for name in silent if probed[name].bmc_url and at - self._bmc_at.get(name, -math.inf) >= _BMC_EVERY
        ]
        if due and len(silent) <= allowed:
            self._bmc_at.update(dict.fromkeys(due, at))
            self._asking = asyncio.ensure_future(self._ask(settings, {name: probed[name] for name in due}, at))

    async def _ask(self, settings: Settings, machines: Mapping[str, Machine], at: float) -> None:
        urls = [machine.bmc_url for machine in machines.values()]
        states = await asyncio.to_thread(Power(settings.power).read_many, urls, _BMC_SECONDS)
        for name, machine in machines.items():
            off = proves_off(states[machine.bmc_url], machine.smbios_uuid)
            if name in self._tracks:
                self._tracks[name] = loss.told(self._tracks[name], off, at)

    # what is said

    def _tell_of_standstill(self, before: Optional[loss.Moment], look: loss.Round) -> None:
        if any(track.misses for track in self._tracks.values()) and loss.stood_still(before, look):
            self._log.warning("this machine or process stood still: the nodes' silence is measured anew")

    def _told(self, settings: Settings, verdict: loss.Verdict, at: loss.Moment) -> list[dict[str, Any]]:
        trouble = verdict.withheld and "%s; Slurm's verdict is awaited" % verdict.withheld
        if verdict.silent or self._recorded:
            try:
                silence.write(settings, verdict.silent, at.wall)
                self._recorded = bool(verdict.silent)
            except OSError as exc:
                trouble = trouble or "silence cannot be recorded: %s" % exc.strerror
        seen = [("dead", name) for name in verdict.dead] + [("silent", name) for name in verdict.silent]
        names = [name for _state, name in self._resend.due(seen, at.up)]
        targets = [Target(NODE, name) for name in names]
        events = [build_event(KIND, SLURM, settings.cluster, SOURCE, targets, at.wall)] if targets else []
        if trouble:
            raise Partial(RecoveryError(trouble), events)
        return events


async def _resolve(address: str) -> str:
    host, port = parse_address(address, _SLURMD_PORT)
    return await resolve(host, port, _QUIET_SECONDS)


def _is_well(group: NodeGroup) -> bool:
    node = Node("", group.base_state, group.flags)
    return node.understood and node.responding and not (node.down or node.powering or node.rebooting)
