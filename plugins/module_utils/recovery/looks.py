# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at a target gave: frozen values, made by `observe`, judged by `gates` and `decide`.

A part that could not be read is None, and `unknown` says why, by part. None never means "all is well".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobView, NodeView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import Workload
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import proves_off
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.reported import (
    GpuLook,
    Report,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import End

# Parts of a look, as they stand in `unknown`.
SLURM = "slurm"
KUBERNETES = "kubernetes"
SHELL = "shell"
POWER = "power"
SPOOL = "spool"
PODS = "pods"
JOBS = "jobs"
DEPENDENTS = "dependents"
SUCCESSOR = "successor"
RESERVATIONS = "reservations"
KERNEL = "kernel"


@dataclass(frozen=True)
class ShellLook:
    """The node over SSH.

    Attributes:
        banner: whether the SSH server told its banner; a frozen node takes the connection and stays silent.
        answers: whether the node helper answered.
        connects: whether the SSH port answered at all, be it by refusing; None: nobody asked.
        boot_id, machine_id, hostname: as the node itself says; empty where it did not answer.
        slurmd, kubelet: whether the daemon is active; None where that is not known.
    """

    banner: Optional[bool] = None
    answers: bool = False
    boot_id: str = ""
    machine_id: str = ""
    slurmd: Optional[bool] = None
    kubelet: Optional[bool] = None
    hostname: str = ""
    connects: Optional[bool] = None


@dataclass(frozen=True)
class PowerLook:
    """The node's BMC: `state` is On, Off or another word of Redfish, `uuid` the system's that it drives."""

    state: str
    uuid: str


@dataclass(frozen=True)
class NodeLook:
    """A node.

    Attributes:
        stuck_pods: the number of pods that are Terminating past their time, or, for a fault of that kind, of owners
            whose pods get no sandbox; None where nobody looked.
        reservations: Slurm's that have the node, active and to come; None where nobody looked.
        stuck_jobs: ids of jobs that are COMPLETING on it past their time, None where nobody looked.
        failures: the last runs of jobs on it that failed in a row, oldest first, None where nobody looked.
        kubernetes_deleted: Kubernetes says that it has no such node; then `kubernetes` is None and nothing is unknown.
        long_silent: the event source that probes it has not heard it for `limits.silence` seconds.
        report: what the node reported of itself, for a fault of that kind.
        told_ago: seconds since the kernel's log of its present boot said so last; None: it does not say so, or nobody
            looked (then `unknown` has KERNEL).
        gpu: the GPU that the report is about; None where it is about none, or nobody looked.
    """

    machine: Optional[Machine] = None
    slurm: Optional[Node] = None
    kubernetes: Optional[NodeView] = None
    shell: Optional[ShellLook] = None
    power: Optional[PowerLook] = None
    stuck_pods: Optional[int] = None
    reservations: Optional[tuple[Reservation, ...]] = None
    stuck_jobs: Optional[tuple[str, ...]] = None
    failures: Optional[tuple[End, ...]] = None
    kubernetes_deleted: bool = False
    long_silent: bool = False
    report: Optional[Report] = None
    told_ago: Optional[float] = None
    gpu: Optional[GpuLook] = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def off(self) -> bool:
        """Its network does not answer, and its own BMC, of proved identity, says that it is off: it is dead."""
        return (
            self._deaf
            and self.machine is not None
            and proves_off(self.power, self.machine.smbios_uuid)
        )

    @property
    def lost(self) -> bool:
        """Its network has not answered for long, and does not now. Whether it is dead, nobody knows."""
        return self._deaf and self.long_silent

    @property
    def _deaf(self) -> bool:
        return self.shell is not None and self.shell.connects is False

    @property
    def silent(self) -> bool:
        """Its SSH server was asked and told no banner."""
        return self.shell is not None and self.shell.banner is False


@dataclass(frozen=True)
class JobLook:
    """A job.

    Attributes:
        absent: the scheduler says that there is no such job (any more).
        left_overs: by node, what of ended steps is left there (`files`, `orphans`), in words; empty mapping: nothing
            is left anywhere; None where nobody looked.
        dependents: ids of jobs that depend on this one and have already been allowed to run; None: nobody looked.
        successor: the job that its user holds to follow this one; None: there is none, or nobody looked.
        stalled: a Kubernetes Job has not changed for as long as its user says.
        workload: work of Kubernetes that is no Job.
    """

    job: Optional[Job] = None
    kubernetes: Optional[JobView] = None
    absent: bool = False
    left_overs: Optional[Mapping[str, str]] = None
    dependents: Optional[tuple[str, ...]] = None
    successor: Optional[Job] = None
    stalled: bool = False
    workload: Optional[Workload] = None
    unknown: Mapping[str, str] = field(default_factory=dict)


Look = Union[NodeLook, JobLook]
