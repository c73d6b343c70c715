# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes and their BMCs as small state machines, and the processes of jobs on them: the physical truth.

Nothing here knows of Slurm or of the recovery. What happens is told to whoever listens, and written to the facts.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from ..facts import Boot, Reset, Switch
from .clock import Clock

BOOT_SECONDS = 20.0


@dataclass
class Bmc:
    """A BMC.

    Attributes:
        uuid: what it tells; another node's where cables were swapped.
        slow: seconds until it carries out what it accepted.
        deaf: it accepts and never does it.
        silent: it gives no answer.
        lies: it says Off whatever is.
        drives: the node whose power it really switches.
    """

    drives: str
    uuid: str
    slow: float = 0.0
    deaf: bool = False
    silent: bool = False
    lies: bool = False


@dataclass
class Process:
    """What of one run of a job lives on one node. Of an orphan nobody in Slurm knows any more."""

    job: int
    run: int
    pid: int
    orphan: bool = False


@dataclass
class Gpu:
    """A node's GPU, what of it the kernel's log of this boot says, and the services that have it open.

    Attributes:
        recovery: what its driver says is needed.
        told: by code when the log said it last.
        stuck: a reset does not help.
        services: whether they run.
        records: what the node keeps of resets, by their names, until it boots.
    """

    recovery: str = "None"
    told: dict[str, float] = field(default_factory=dict)
    stuck: bool = False
    services: bool = True
    records: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Machine:
    """One node's hardware and kernel."""

    name: str
    uuid: str
    machine_id: str
    boot_id: str
    booted_at: float
    slurmd_started_at: float
    power: str = "On"
    up: bool = True
    frozen: bool = False
    cut: bool = False
    slurmd: bool = True
    kubelet: Optional[bool] = None  # None: the node is not in Kubernetes
    sick: bool = False  # its kernel has a fault that only a boot ends
    boots: int = 0
    processes: list[Process] = field(default_factory=list)
    spool: set[int] = field(default_factory=set)
    gpu: Gpu = field(default_factory=Gpu)

    @property
    def reachable(self) -> bool:
        """Somebody over the network gets an answer of a program on it."""
        return self.up and not self.frozen and not self.cut

    @property
    def slurmd_answers(self) -> bool:
        return self.reachable and self.slurmd

    @property
    def kubelet_answers(self) -> bool:
        return self.reachable and self.kubelet is True


class Hardware:
    """All machines and BMCs.

    Args:
        changed: called with a machine's name when slurmd or the kubelet may have begun or ended to answer.
        ended: called with a process that is gone, and its machine's name.
    """

    def __init__(self, clock: Clock, changed: Callable[[str], None], ended: Callable[[Process, str], None]) -> None:
        self.clock = clock
        self.machines: dict[str, Machine] = {}
        self.bmcs: dict[str, Bmc] = {}
        self.boots: list[Boot] = []
        self.switches: list[Switch] = []
        self.resets: list[Reset] = []
        self._listening, self._mourning = [changed], [ended]
        self._pid = 1000

    def follow(self, changed: Callable[[str], None], ended: Callable[[Process, str], None]) -> None:
        """Somebody else wants to know the same."""
        self._listening.append(changed)
        self._mourning.append(ended)

    def _changed(self, name: str) -> None:
        for tell in self._listening:
            tell(name)

    def _ended(self, process: Process, name: str) -> None:
        for tell in self._mourning:
            tell(process, name)

    def add(self, name: str) -> Machine:
        """A machine that is up since an hour, with a BMC."""
        number = len(self.machines) + 1
        began = self.clock.time() - 3600
        made = Machine(name, str(uuid.UUID(int=number << 64 | 7)), "%032x" % number, _boot_id(name, 0), began, began)
        self.machines[name] = made
        self.bmcs[name] = Bmc(name, made.uuid)
        return made

    # what happens to a machine

    def freeze(self, name: str) -> None:
        """Its kernel takes connections, and nothing on it goes on."""
        self.machines[name].frozen = True
        self._changed(name)

    def thaw(self, name: str) -> None:
        """It goes on, if it is still the same boot."""
        self.machines[name].frozen = False
        self._changed(name)

    def cut(self, name: str, cut: bool) -> None:
        """Take its network away, or give it back; its processes go on."""
        self.machines[name].cut = cut
        self._changed(name)

    def kill_slurmd(self, name: str) -> None:
        """The daemon alone dies; jobs go on."""
        self.machines[name].slurmd = False
        self._changed(name)

    def start_slurmd(self, name: str) -> None:
        """As systemd does."""
        machine = self.machines[name]
        machine.slurmd, machine.slurmd_started_at = True, self.clock.time()
        self._changed(name)

    def set_kubelet(self, name: str, alive: bool) -> None:
        """It dies alone, or systemd starts it; pods go on."""
        self.machines[name].kubelet = alive
        self._changed(name)

    def set_power(self, name: str, level: str) -> None:
        """Off takes everything with it at once; On boots."""
        machine = self.machines[name]
        if machine.power == level:
            return
        machine.power = level
        if level == "Off":
            self._go_down(machine)
        else:
            self._boot(machine)

    def reboot(self, name: str) -> None:
        """An orderly reboot, ordered on the machine."""
        machine = self.machines[name]
        if machine.up:
            self._go_down(machine)
            self._boot(machine)

    # GPUs

    def break_gpu(self, name: str, code: str, stuck: bool = False) -> None:
        """The kernel's log says so, and jobs go on."""
        gpu = self.machines[name].gpu
        gpu.recovery, gpu.stuck, gpu.told[code] = "Reset", stuck, self.clock.time()

    def reset_gpu(self, name: str) -> bool:
        """The driver resets it, and whatever used it is gone; whether that helped."""
        gpu = self.machines[name].gpu
        self.resets.append(Reset(self.clock.time(), name))
        self.end(name, lambda _process: True)
        gpu.recovery = gpu.recovery if gpu.stuck else "None"
        return not gpu.stuck

    # processes

    def begin(self, job: int, run: int, name: str) -> None:
        """A process of a job's run begins on a machine."""
        self._pid += 1
        self.machines[name].processes.append(Process(job, run, self._pid))

    def end(self, name: str, which: Callable[[Process], bool]) -> list[int]:
        """Processes of a machine end; their numbers."""
        machine = self.machines[name]
        doomed = [process for process in machine.processes if which(process)]
        machine.processes = [process for process in machine.processes if process not in doomed]
        for process in doomed:
            self._ended(process, name)
        return [process.pid for process in doomed]

    def _go_down(self, machine: Machine) -> None:
        machine.up = machine.frozen = machine.slurmd = machine.sick = False
        machine.kubelet = None if machine.kubelet is None else False
        self.end(machine.name, lambda _process: True)
        self._changed(machine.name)

    def _boot(self, machine: Machine) -> None:
        machine.boots += 1
        boot = machine.boots

        def is_up() -> None:
            if machine.power != "On" or machine.boots != boot:
                return
            now = self.clock.time()
            machine.up, machine.booted_at, machine.boot_id = True, now, _boot_id(machine.name, boot)
            machine.slurmd, machine.slurmd_started_at = True, now + 1
            machine.kubelet = None if machine.kubelet is None else True
            machine.spool.clear()  # systemd-tmpfiles
            machine.gpu = Gpu()
            self.boots.append(Boot(now, machine.name, machine.boot_id))
            self._changed(machine.name)

        self.clock.after(BOOT_SECONDS, is_up)

    # BMCs

    def reset(self, name: str, level: str) -> None:
        """A BMC accepts a level that its machine has not."""
        bmc = self.bmcs[name]
        self.switches.append(Switch(self.clock.time(), bmc.drives, level))
        if not bmc.deaf:
            self.clock.after(bmc.slow, lambda: self.set_power(bmc.drives, level))
            self.clock.sleep(0.0)


def _boot_id(name: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, "%s boot %d" % (name, number)))
