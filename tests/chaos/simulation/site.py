# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated site: a cluster, a ledger on a real MariaDB, controllers, what is done to them; at its end, the facts.

One thread and one clock: the same plan gives the same story, step by step.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Iterable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils import parallel
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import sight
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    frame,
    holder,
    incident,
    observe,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target, build_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import session
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    KubernetesSettings,
    LedgerSettings,
    Limits,
    NodeSettings,
    NodeSign,
    Scope,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    Machine,
    Tools,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import common
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import job_state
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.detect import Seen
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import events_of

from ..facts import Breakage, Record, Stop, Wish, row_of
from .adapters import DEVICE, Bmcs, Shell, Slurm
from .api import ApiClient, Mirror
from .clock import Clock
from .controller import Controller
from .gangs import CORDONED, Gang
from .kubernetes import NAMESPACE, SICK, Kubernetes
from .ledger import Ledger
from .slurmctld import Slurmctld, Wanted
from .strikes import Points, Process

OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":%d}}'
TICK = 2.0
LIMITS = Limits(
    cooldown=30.0, boot_timeout=240.0, drain_timeout=240.0, step_timeout=120.0, blast_radius_percent=100.0,
    common_cause_nodes=100, breaker_failures=100,
)  # fmt: skip


class Site:
    """See the module. `patch` puts the simulated clock and adapters in place of the real ones.

    Args:
        both: the nodes are in Kubernetes, too.
    """

    def __init__(
        self, ledger: LedgerSettings, folder: Path, patch: pytest.MonkeyPatch, both: bool = False, **limits: Any
    ) -> None:
        self.clock = Clock()
        self.points = Points(self._pause)
        self.ledger = Ledger(ledger, self.clock, self.points)
        self.ctld = Slurmctld(self.clock)
        self.hardware = self.ctld.hardware
        self.slurm = Slurm(self.ctld, self.points)
        self.shell, self.bmcs = Shell(self.ctld, self.points), Bmcs(self.ctld, self.points)
        self.kubernetes = Kubernetes(self.clock, self.hardware)
        self.hardware.follow(self.kubernetes.heard, self.kubernetes.process_ended)
        self.api = ApiClient(self.kubernetes, self.points)
        self.both = both
        self.breakages: list[Breakage] = []
        self._mending: dict[int, Callable[[], bool]] = {}
        self.stops: list[Stop] = []
        self.wishes: list[Wish] = []
        self.dead: set[str] = set()
        self.failed_runs: list[str] = []
        self.deaths_are_seen = True  # on the host of the controller; else leases have to end
        self._folder, self._limits = folder, replace(LIMITS, **limits)
        _put_in_place(self, patch)
        self.controllers = [self._controller("head1")]

    # what the cluster is

    def add_nodes(self, count: int) -> list[str]:
        """Nodes in service, known to the ledger."""
        names = ["node%d" % number for number in range(1, count + 1)]
        with self.ledger.open() as store:
            for name in names:
                self.ctld.add_node(name)
                if self.both:
                    self.kubernetes.add_node(name)
                machine = self.hardware.machines[name]
                pods = name if self.both else ""
                store.machines.put(
                    Machine(
                        name, name, pods, "ssh-" + name, "https://bmc/redfish/v1/Systems/" + name, machine.uuid,
                        machine.machine_id, machine.boot_id, self.clock.time(),
                    )
                )  # fmt: skip
        return names

    def submit(self, number: int, nodes: int = 1, seconds: float = 150.0, fails: int = 0, allowed: int = 3) -> None:
        """A job that opted in."""
        self.ctld.submit(number, Wanted(nodes, seconds, fails, allowed), OPT_IN % allowed)

    def submit_gang(self, gang: Gang) -> None:
        """A Kubernetes Job that opted in."""
        self.kubernetes.submit(gang)

    def second_controller(self) -> None:
        """Somebody starts another one on another host."""
        self.controllers.append(self._controller("head2"))

    def _controller(self, name: str) -> Controller:
        state_dir = self._folder / name
        state_dir.mkdir(exist_ok=True)
        settings = Settings(
            cluster="lab", mode="act", stop_file=str(state_dir / "STOP"), state_dir=str(state_dir),
            scope=Scope(partitions=("main",), namespaces=(NAMESPACE,)), ledger=self.ledger.settings,
            limits=self._limits, nodes=NodeSettings(evidence_kib=0, job_log_kib=0),
            kubernetes=KubernetesSettings(
                kubeconfig="simulated" if self.both else "", eviction_timeout=60.0,
                node_signs=(NodeSign(condition=SICK, remediation="reboot_node"),),
            ),
        )  # fmt: skip
        return Controller(name, settings, self)

    # what is broken

    def break_(
        self, target: str, is_whole: Callable[[], bool], boots: int = 1, fatal: bool = True, resets: int = 0
    ) -> None:
        """Note a fault from now on, until it is whole."""
        self.breakages.append(Breakage(self.clock.time(), target, None, boots, fatal, resets))
        self._mending[len(self.breakages) - 1] = is_whole

    def _look_at_breakages(self) -> None:
        for number, is_whole in list(self._mending.items()):
            if is_whole():
                self.breakages[number] = replace(self.breakages[number], until=self.clock.time())
                del self._mending[number]

    def set_stop(self) -> None:
        """The emergency stop, on every controller."""
        with self.ledger.open() as store:
            store.control.put(stop.STOP, "", "alice")
        self.stops.append(Stop(self.clock.time()))

    def lift_stop(self) -> None:
        with self.ledger.open() as store:
            store.control.remove(stop.STOP)
        self.stops[-1] = replace(self.stops[-1], until=self.clock.time())

    def drain_by_person(self, name: str, reason: str) -> None:
        """A person takes a node, whoever has it."""
        self.ctld.update_node([name], "DRAIN", reason, "alice")
        self.wishes.append(Wish(self.clock.time(), name, reason))

    def cordon_by_person(self, name: str) -> None:
        """A person takes a node in Kubernetes, whoever has it."""
        self.kubernetes.cordon_by_person(name, False)
        self.kubernetes.cordon_by_person(name, True)
        self.wishes.append(Wish(self.clock.time(), name, CORDONED))

    def uncordon_by_person(self, name: str) -> None:
        """A person gives a node back, whoever has it."""
        self.kubernetes.cordon_by_person(name, False)
        self._cordon_is_over(name)

    def delete_node_by_person(self, name: str) -> None:
        """A person deletes the Node object, and with it whatever cordon it had."""
        self.kubernetes.delete_node(name)
        self._cordon_is_over(name)

    def _cordon_is_over(self, name: str) -> None:
        self.wishes = [wish for wish in self.wishes if (wish.node, wish.reason) != (name, CORDONED)]

    def storm(self, name: str, times: int) -> None:
        """The rulebook gets one fault of a node so many times."""
        event = events_of([("node_not_responding", "", Seen("node_not_responding", name))], "lab", self.clock.time())[0]
        self.controllers[0].owed += [event] * times

    def report(self, name: str, code: str, boot_id: str) -> None:
        """The agent of a node reports a GPU's fault, as often as it likes."""
        body = {"code": code, "action": "reset_gpu", "severity": "fatal", "device": DEVICE, "boot_id": boot_id}
        with self.ledger.open() as store:
            number = store.records.keep("node:" + name, "gpu_fault", "node_agent", body)
        target = [Target("node", name)]
        event = build_event("gpu_fault", "slurm", "lab", "node_agent", target, self.clock.time(), None, number)
        self.controllers[0].owed.append(event)

    def approve(self) -> None:
        """A person approves the ledger as it is."""
        for controller in self.controllers:
            with self.ledger.open() as store:
                stop.approve(controller.settings, store)

    # time

    def step(self) -> None:
        """A little time, and a look of each controller."""
        self.clock.sleep(TICK)
        self._look_at_breakages()
        for controller in self.controllers:
            controller.tick()

    def run(self, seconds: float) -> None:
        """Let the site live for so long."""
        until = self.clock.time() + seconds
        while self.clock.time() < until:
            self.step()

    def settle(self, quiet: float, longest: float) -> None:
        """Let it live until nothing has been going on for `quiet` seconds, or for `longest` seconds."""
        until = self.clock.time() + longest
        quiet_since = self.clock.time()
        while self.clock.time() < min(until, quiet_since + quiet):
            self.step()
            if self._goes_on():
                quiet_since = self.clock.time()

    def _goes_on(self) -> bool:
        live = self.ledger.rows("SELECT id FROM incidents WHERE state IN ('open', 'waiting')")
        slurm = any(job.state in ("RUNNING", "PENDING") for job in self.ctld.jobs.values())
        return bool(live) or slurm or self.kubernetes.goes_on()

    def _pause(self, process: Process, seconds: float) -> None:
        """A process sleeps, everything else goes on."""
        until = self.clock.time() + seconds
        kept, self.points.in_transaction = self.points.in_transaction, 0
        while self.clock.time() < until and not process.dead:
            self.step()
        self.points.in_transaction = kept

    # for the engine

    @property
    def controller(self) -> Controller:
        """Whose code runs now."""
        process = self.points.running
        return next((each for each in self.controllers if process and each.name == process.controller), None) or (
            self.controllers[0]
        )

    def tools(self, settings: Settings, guard: Any = None, machines: Any = None, all_machines: Any = tuple) -> Tools:
        """Stands in for `make_tools`."""
        known = machines or (lambda _names: {})
        api = self.api if self.both else None
        return Tools(settings, self.slurm, api, self.shell, self.bmcs, guard, self.clock.time, known, all_machines)

    def is_dead(self, told: str) -> bool:
        return self.deaths_are_seen and told in self.dead

    # the facts

    def record(self, most_held: Optional[int] = None) -> Record:
        """What the witnesses tell."""
        claims = self.ledger.rows("SELECT target_key FROM claims WHERE lease_until > %f" % self.clock.time())
        claimed = {row["target_key"] for row in claims}
        rows = [row_of(row, claimed) for row in self.ledger.rows("SELECT * FROM incidents")]
        return Record(
            now=self.clock.time(),
            breakages=tuple(self.breakages),
            boots=tuple(self.hardware.boots),
            switches=tuple(self.hardware.switches),
            lives=(*self.ctld.lives(), *self.kubernetes.lives()),
            requeues=(*self.ctld.requeues, *self.kubernetes.requeues),
            holds=(*self.ctld.holds, *self.kubernetes.holds),
            rows=tuple(rows),
            stops=tuple(self.stops),
            wishes=tuple(self.wishes),
            forced=tuple(self.kubernetes.forced),
            allowed=(
                *((job, wanted.allowed) for job, wanted in self.ctld.wanted.items()),
                *((gang.number, gang.allowed) for gang in self.kubernetes.gangs.values()),
            ),
            most_held=most_held,
            resets=tuple(self.hardware.resets),
            stopped_services=tuple(
                name for name, machine in self.hardware.machines.items() if machine.up and not machine.gpu.services
            ),
        )

    def close(self) -> None:
        self.ledger.close()


class _AtOnce:
    """Stands in for a pool of threads: one thread, so that a story can be told again."""

    def __init__(self, *_workers: Any) -> None:
        pass

    def __enter__(self) -> _AtOnce:
        return self

    def __exit__(self, *_exc: object) -> None:
        pass

    def submit(self, do: Callable[..., Any], *args: Any) -> Future:
        future: Future = Future()
        future.set_result(do(*args))
        return future

    def map(self, do: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [do(item) for item in items]


def _put_in_place(site: Site, patch: pytest.MonkeyPatch) -> None:
    """The clock, the adapters and the sessions of this site under the real modules. No rule is touched."""
    ours = {time.time: site.clock.time, time.monotonic: site.clock.time, time.sleep: site.clock.sleep}
    change = job_state.Change.__init__  # its defaults were bound when the module was read
    bound = tuple(ours.get(each, each) if callable(each) else each for each in change.__defaults__)
    patch.setattr(change, "__defaults__", bound)
    for real, simulated in ours.items():
        patch.setattr(time, real.__name__, simulated)
    patch.setattr(sight, "Mirror", Mirror)
    patch.setattr(sight, "KubernetesClient", lambda *_args, **_named: site.api)
    for module in (observe, parallel, common):
        patch.setattr(module, "ThreadPoolExecutor", _AtOnce)
    for module in (incident, frame, session):
        patch.setattr(module, "open_store", site.ledger.open)
    for module in (incident, frame):
        patch.setattr(module, "make_tools", site.tools)
        patch.setattr(module, "load", lambda _path: site.controller.settings)
    find = frame.find_step

    def find_step(name: str) -> Any:
        site.points.running.begin(name)
        return find(name)

    patch.setattr(frame, "find_step", find_step)
    patch.setattr(holder, "describe", lambda: site.points.running.name if site.points.running else "test")
    patch.setattr(holder, "is_dead", site.is_dead)
    patch.setattr(os, "cpu_count", lambda: 8)
