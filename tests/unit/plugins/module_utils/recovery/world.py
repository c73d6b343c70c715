# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small world for the engine's tests: adapters with the real ones' methods, answering from plain attributes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import shell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import connect
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    Limits,
    Scope,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    DONE,
    Machine,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    AccountingRecord,
    Job,
    JobState,
    Node,
    NodeState,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation

UUID = "4c4c4544-0042-3010-8058-c7c04f4a4e32"
OTHER_UUID = "4c4c4544-0042-3010-8058-c7c04f4a4e33"
BOOT = "11111111-1111-4111-8111-111111111111"
NEW_BOOT = "22222222-2222-4222-8222-222222222222"
MACHINE_ID = "0123456789abcdef0123456789abcdef"


class World:
    """Slurm, the nodes and their BMCs in one object; `tools` gives it to the engine."""

    def __init__(self) -> None:
        self.present: dict[str, Node] = {}
        self.job_list: dict[str, Job] = {}
        self.banners: dict[str, str] = {}
        self.probes: dict[str, dict[str, Any]] = {}
        self.powers: dict[str, Any] = {}
        self.reserved: list[Reservation] = []
        self.runs: list[AccountingRecord] = []
        self.slurm_trouble: Optional[RecoveryError] = None

    def add(self, name: str, **fields: Any) -> Machine:
        """A healthy node; its machine."""
        self.present[name] = Node(name=name, base_state="IDLE", partitions=("main",), **fields)
        self.banners["ssh-" + name] = shell.BANNER
        self.probes["ssh-" + name] = probe()
        self.powers["https://bmc/" + name] = PowerState("On", UUID)
        return Machine(name, name, "", "ssh-" + name, "https://bmc/" + name, UUID, MACHINE_ID, BOOT)

    def state(self, name: str, base: str, *flags: str, reason: str = "") -> None:
        """Change a node in Slurm."""
        self.present[name] = replace(self.present[name], base_state=base, flags=flags, reason=reason or None)

    def freeze(self, name: str) -> None:
        """Its kernel takes connections and nothing answers."""
        self.state(name, "IDLE", "NOT_RESPONDING")
        self.banners["ssh-" + name] = shell.SILENT

    def silence(self, name: str, power: str) -> None:
        """Nothing of it answers, Slurm takes it for well, and its BMC says `power`."""
        self.state(name, "ALLOCATED")
        self.banners["ssh-" + name] = shell.NO_ROUTE
        self.powers["https://bmc/" + name] = PowerState(power, UUID)

    # Slurm

    def _slurm_answers(self) -> None:
        for trouble in filter(None, [self.slurm_trouble]):
            raise trouble

    def nodes(self, names: Optional[Iterable[str]] = None, missing_ok: bool = False) -> list[Node]:
        self._slurm_answers()
        wanted = list(self.present) if names is None else list(names)
        return [self.present[name] for name in wanted if name in self.present]

    def node_states(self) -> list[NodeState]:
        return [NodeState(node.name, node.base_state, node.flags, node.reason) for node in self.nodes()]

    def job_states(self, ids: Any = None, nodes: Optional[Iterable[str]] = None, only_states: bool = False) -> list:
        self._slurm_answers()
        wanted = set(nodes or ())
        return [
            JobState(job.id, job.state, job.flags, nodes=job.nodes)
            for job in self.job_list.values()
            if wanted.intersection(job.nodes)
        ]

    def reservations(self) -> list[Reservation]:
        self._slurm_answers()
        return self.reserved

    def jobs(self, ids: Iterable[Any], missing_ok: bool = False) -> list[Job]:
        self._slurm_answers()
        return [self.job_list[str(name)] for name in ids if str(name) in self.job_list]

    def accounting(self, ids: Any = None, since: Any = None, steps: bool = False, nodes: Any = None) -> list[Any]:
        return list(self.runs)

    def submissions(self, uids: Iterable[int], since: int) -> list[AccountingRecord]:
        return []

    def waiting_jobs(self, uid: int) -> list[Job]:
        return [job for job in self.job_list.values() if job.uid == uid and job.state == "PENDING"]

    # the nodes

    def banner(self, addresses: Sequence[str], deadline: Optional[float] = None) -> dict[str, str]:
        return {address: self.banners.get(address, shell.NO_ROUTE) for address in addresses}

    def call(self, requests: Mapping[str, Sequence[str]], deadline: float) -> dict[str, NodeAnswer]:
        return {
            address: NodeAnswer(data=self.probes[address])
            if self.banners.get(address) == shell.BANNER and address in self.probes
            else NodeAnswer(error=Unreachable("node %s: no answer" % address))
            for address in requests
        }

    # the BMCs

    def read_many(self, urls: Sequence[str], deadline: Optional[float] = None) -> dict[str, Any]:
        return {url: self.powers.get(url, Unreachable("BMC %s: no answer" % url)) for url in urls}

    def tools(self, settings: Settings, guard: Callable[[Work], float]) -> Tools:
        return Tools(settings, self, None, self, self, guard, time.time)


def probe(boot: str = BOOT, machine_id: str = MACHINE_ID, slurmd: str = "active") -> dict[str, Any]:
    """What the helper of a node answers."""
    return {"boot_id": boot, "machine_id": machine_id, "units": {"slurmd.service": {"active": slurmd}}}


@dataclass
class ScriptedStep:
    """A step that gives the outcome it is told to, and keeps what it was given."""

    name: str
    outcome: Callable[[Work, Tools], Outcome] = lambda work, tools: Outcome(work.incident, DONE)
    intent: Mapping[str, Any] = field(default_factory=dict)
    acted: list[Work] = field(default_factory=list)

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        return {work.incident: dict(self.intent) for work in works}

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        self.acted += works
        return [self.outcome(work, tools) for work in works]


def settings_of(ledger: LedgerSettings, state_dir: str, **changes: Any) -> Settings:
    """Settings that act, with wide limits; `limits` is a mapping of changes to them."""
    limits = {"blast_radius_percent": 100.0, "blast_radius_nodes": 100, "common_cause_nodes": 100, "cooldown": 0.0}
    limits.update(changes.pop("limits", {}))
    values: dict[str, Any] = {
        "cluster": "lab",
        "mode": "act",
        "stop_file": state_dir + "/STOP",
        "state_dir": state_dir,
        "scope": Scope(partitions=("main",)),
        "ledger": ledger,
        "limits": Limits(**limits),
    }
    values.update(changes)
    return Settings(**values)


def fault_of(*names: str, kind: str = "node_not_responding", suggested: str = "reboot_node") -> Fault:
    """A fresh fault of Slurm nodes."""
    targets = tuple(Target("node", name) for name in names)
    return Fault(kind, "slurm", "lab", "slurm", targets, time.time(), suggested)


def job_fault(*names: str, kind: str = "job_failed", suggested: str = "requeue_job") -> Fault:
    """A fresh fault of Slurm jobs."""
    targets = tuple(Target("job", name) for name in names)
    return Fault(kind, "slurm", "lab", "slurm", targets, time.time(), suggested)


def opened(ledger: LedgerSettings) -> Store:
    """Another session to the same ledger."""
    return Store(connect(ledger))
