# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engineer of a step meets: the work given to it, and the outcome it gives back.

The frame (`recovery_step`) claims nothing and decides nothing: for the incidents of this run whose next step it is, it
checks the emergency stop, the token and the lease, writes `started` with the step's intent, calls `act` once for the
whole list, and writes the outcomes. A step's `act` therefore

- reads the state again right before each write and does nothing that has already happened (a run that was killed in
  the middle is repeated with the intent of the first time);
- asks `tools.guard(work)` right before each write: it raises `Lost` when the claim, the lease or the stop says no, and
  returns the seconds that are left, which bound the write's deadline;
- gives back exactly one outcome for every work it was given, and never raises for one target's trouble.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Protocol, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target

DONE = "done"
WAITING = "waiting"
FAILED = "failed"


class Lost(RecoveryError):
    """This run may not act for this incident any more: stopped, the lease is over, or the claim is another run's."""


@dataclass(frozen=True)
class Machine:
    """A node as the ledger knows it: one machine, its names in every system, and its identity while it was healthy.

    Times are epoch seconds. Empty text means that the machine has no such name or that it was never seen.
    """

    name: str  # Slurm's NodeName, or the Kubernetes name where there is no Slurm; the ledger's key
    slurm_name: str = ""
    kubernetes_name: str = ""
    ssh_address: str = ""
    bmc_url: str = ""  # https://address[:port]/redfish/v1/Systems/ID, or site:NAME
    smbios_uuid: str = ""
    machine_id: str = ""
    boot_id: str = ""  # the last one seen while healthy
    boot_seen_at: Optional[float] = None


@dataclass(frozen=True)
class Wait:
    """What an incident waits for, looked at by the ledger source, until when at most.

    Attributes:
        kind: a name of `waits.KINDS`.
        args: JSON, what the evaluation of this kind needs (recorded boot ID, job ids, restart counts ...).
        until: epoch seconds; when it is over the run goes on and the step decides what that means.
    """

    kind: str
    args: Mapping[str, Any]
    until: float


@dataclass(frozen=True)
class Work:
    """One incident at one step.

    Attributes:
        incident: its number.
        step: the step's name.
        target: what it is about.
        fault_kind: the kind of the fault that opened it.
        plan: the incident's plan, by name.
        machine: the node's record for a node, None for a job.
        reason: the exact text under which we drain and down this incident's node (ours = this text).
        intent: what was written when this step started the first time; empty on the first time.
        memory: what earlier steps remembered (JSON).
        first_started_at: epoch seconds of the step's first `started`.
        deadline: epoch seconds until which the step as a whole, waits included, may take.
        overridden: gates that a person's request overrode.
    """

    incident: int
    step: str
    target: Target
    fault_kind: str
    plan: str
    machine: Optional[Machine]
    reason: str
    intent: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    first_started_at: float = 0.0
    deadline: float = 0.0
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of one work.

    Attributes:
        incident: its number.
        status: `done`, `waiting` (with `wait`), or `failed` (with `why`).
        why: one sentence for people: the thing, the cause, the next step.
        wait: what it waits for.
        remember: JSON merged into the incident's memory.
        proof: JSON that shows why it is done; kept with the step.
    """

    incident: int
    status: str
    why: str = ""
    wait: Optional[Wait] = None
    remember: Mapping[str, Any] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tools:
    """The adapters that a step may use; each has deadlines of its own, each is None where the site has no such thing.

    Attributes:
        settings: `settings.Settings`.
        slurm: `slurm.cli.SlurmCli`.
        kubernetes: `kubernetes.client.KubernetesClient`.
        nodes: `nodes.shell.NodeShell`, SSH to the node helper.
        power: `power.redfish.Power`.
        guard: raises `Lost`, else returns the seconds left (see above).
        now: epoch seconds.
        machines: the ledger's machines by these names of Slurm; a name that the ledger does not know is left out.
        all_machines: every machine that the ledger knows.
    """

    settings: Any
    slurm: Any
    kubernetes: Any
    nodes: Any
    power: Any
    guard: Callable[[Work], float]
    now: Callable[[], float]
    machines: Callable[[Sequence[str]], Mapping[str, Machine]] = lambda _names: {}
    all_machines: Callable[[], Sequence[Machine]] = tuple


class Step(Protocol):
    """One step. `intend` is pure reading and is written down before `act` runs."""

    name: str

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """By incident: what must be known later to tell whether the act has happened (boot ID, restart count ...)."""

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """Do it, and give one outcome for each work."""
