# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looked at again: is the fault still there? One pure rule for each kind; the gate `gone` and the decisions use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import signs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import looks
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook, Look, NodeLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JOB_ENDS, NodeSign
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node, NodeState

# A node that did not answer may meanwhile answer and be DOWN for it, or have rebooted: the same trouble, further on.
_SILENCE = ("node_not_responding", "node_back", "node_rebooted")


@dataclass(frozen=True)
class Presence:
    """Whether a fault is there. Where `known` is false nobody can tell, and `why` says what could not be read."""

    known: bool
    there: bool = False
    why: str = ""


THERE = Presence(True, True)


def state_of(kind: str, scheduler: str, look: Look, node_signs: Sequence[NodeSign] = ()) -> Presence:
    """Whether a fault of this kind is there now.

    Args:
        node_signs: the conditions and taints that mean a fault (`settings.kubernetes.node_signs`).
    """
    if isinstance(look, JobLook):
        return _JOB_RULES.get(kind, _not_to_be_seen)(look)
    if kind == "daemon_down":
        return _daemon_down(scheduler, look)
    if kind == "kubernetes_node_condition":
        return _sick(look, node_signs)
    return _NODE_RULES.get(kind, _not_to_be_seen)(look)


def shows(kind: str, scheduler: str, look: Look, node_signs: Sequence[NodeSign] = ()) -> bool:
    """Whether the look shows this fault; false for kinds that no look can show."""
    if kind not in _JOB_RULES and kind not in _NODE_RULES and kind not in ("daemon_down", "kubernetes_node_condition"):
        return False
    state = state_of(kind, scheduler, look, node_signs)
    return state.known and state.there


def is_well(look: Look) -> bool:
    """Whether an escalated incident's target needs nobody any more. What cannot be looked at is not well."""
    if isinstance(look, NodeLook):
        slurm, kubernetes = look.slurm, look.kubernetes
        if look.unknown or look.kubernetes_deleted or (slurm is None and kubernetes is None):
            return False
        slurm_well = slurm is None or (slurm.understood and slurm.responding and not slurm.out_of_service)
        return slurm_well and (kubernetes is None or (kubernetes.ready == "True" and not kubernetes.unschedulable))
    if look.absent:
        return True
    if look.job is not None:
        return look.job.state in ("RUNNING", "COMPLETED", "CANCELLED") and not look.job.completing
    if look.workload is not None:
        return look.workload.state in (State.RUNNING, State.COMPLETE)
    running = look.kubernetes is not None and look.kubernetes.state.value in ("running", "complete")
    return running and not look.stalled


def dependents(look: JobLook) -> str:
    """Why a job may not run again for those that depend on it; the empty text where none of them may run by now."""
    if looks.DEPENDENTS in look.unknown:
        return "whether jobs that depend on it already run is not known: %s" % look.unknown[looks.DEPENDENTS]
    return "jobs that depend on it may already run: %s" % ", ".join(look.dependents[:5]) if look.dependents else ""


def understood(look: Look) -> bool:
    """Whether Slurm's word for the target is known here; a slurmctld that was just started says UNKNOWN of nodes."""
    found = look.slurm if isinstance(look, NodeLook) else look.job
    return found is None or found.understood


def slurm_fault(node: Node) -> Optional[str]:
    """The kind of fault that Slurm's own state shows, None for none."""
    seen = detect.node_fault(NodeState(node.name, node.base_state, node.flags, node.reason))
    return seen.kind if seen else None


def _not_to_be_seen(_look: Look) -> Presence:
    """Kinds that are events and no states, such as a kernel message."""
    return THERE


def _by_slurm(*kinds: str) -> Callable[[NodeLook], Presence]:
    def rule(look: NodeLook) -> Presence:
        if look.slurm is None:
            return _unknown(look, looks.SLURM)
        found = slurm_fault(look.slurm)
        if found in kinds:
            return THERE
        return Presence(True, False, "the node is %s" % look.slurm.state)

    return rule


def _not_responding(look: NodeLook) -> Presence:
    """As Slurm says; or it does not know yet, and we do."""
    by_slurm = _by_slurm(*_SILENCE)(look)
    return THERE if by_slurm.known and (look.off or look.lost) else by_slurm


def _daemon_down(scheduler: str, look: NodeLook) -> Presence:
    if look.shell is None or not look.shell.answers:
        # it may be the whole node by now: still a fault, and the decision looks at what is left of it
        return THERE if look.silent else _unknown(look, looks.SHELL)
    active = look.shell.slurmd if scheduler == SLURM else look.shell.kubelet
    if active is None:
        return _unknown(look, looks.SHELL)
    return Presence(True, False, "the daemon is active") if active else THERE


def _kubernetes_not_ready(look: NodeLook) -> Presence:
    if look.kubernetes is None or look.kubernetes.ready is None:
        return _unknown(look, looks.KUBERNETES)
    return Presence(True, False, "the node is Ready") if look.kubernetes.ready == "True" else THERE


def _sick(look: NodeLook, node_signs: Sequence[NodeSign]) -> Presence:
    if look.kubernetes is None:
        return _unknown(look, looks.KUBERNETES)
    if look.kubernetes.ready != "True":
        return Presence(False, False, "the node is not Ready, and what its agents said last is old")
    if signs.shown(look.kubernetes, node_signs) is None:
        return Presence(True, False, "no condition or taint of the node says that it is sick")
    return THERE


def _pods_stuck(look: NodeLook) -> Presence:
    if look.stuck_pods is None:
        return _unknown(look, looks.PODS)
    return THERE if look.stuck_pods else Presence(True, False, "no pod of the node is stuck")


def _jobs_stuck(look: NodeLook) -> Presence:
    if look.stuck_jobs is None:
        return _unknown(look, looks.JOBS)
    return THERE if look.stuck_jobs else Presence(True, False, "no job is COMPLETING there past its time")


def _suspect(look: NodeLook) -> Presence:
    if look.failures is None:
        return _unknown(look, looks.JOBS)
    return THERE if look.failures else Presence(True, False, "jobs of several users have not failed there in a row")


def _slurm_job(rule: Callable[[Job], str]) -> Callable[[JobLook], Presence]:
    """`rule` says why the fault is not there, or the empty text."""

    def judged(look: JobLook) -> Presence:
        if look.absent:
            return Presence(True, False, "Slurm has forgotten the job (MinJobAge)")
        if look.job is None:
            return _unknown(look, looks.SLURM)
        why = rule(look.job)
        return Presence(True, False, why) if why else THERE

    return judged


def _job_failed(job: Job) -> str:
    if job.state in JOB_ENDS and not job.completing:
        return ""
    return "the job is %s" % job.state


def _hung(job: Job) -> str:
    return "" if job.state == "RUNNING" and not job.completing else "the job is %s" % job.state


def _launch_held(job: Job) -> str:
    return "" if job.held_by_slurm else "the job is %s and not held for a failed launch" % job.state


def _stale_spool(look: JobLook) -> Presence:
    if look.absent:
        return Presence(True, False, "Slurm has forgotten the job (MinJobAge)")
    if look.left_overs is None:
        return _unknown(look, looks.SPOOL)
    if look.left_overs:
        return THERE
    if looks.SPOOL in look.unknown:
        return _unknown(look, looks.SPOOL)
    return Presence(True, False, "nothing of the job's ended steps is left on its nodes")


def _kubernetes_job_failed(look: JobLook) -> Presence:
    if look.absent:
        return Presence(True, False, "there is no such Job any more")
    if look.kubernetes is None:
        return _unknown(look, looks.KUBERNETES)
    if look.kubernetes.state in (JobState.FAILED, JobState.FAILING):
        return THERE
    return Presence(True, False, "the Job is %s" % look.kubernetes.state.value)


def _kubernetes_job_stalled(look: JobLook) -> Presence:
    if look.absent:
        return Presence(True, False, "there is no such Job any more")
    if look.kubernetes is None:
        return _unknown(look, looks.KUBERNETES)
    if look.stalled:
        return THERE
    return Presence(True, False, "the Job is %s and has changed in time" % look.kubernetes.state.value)


def _workload_unrecovered(look: JobLook) -> Presence:
    if look.absent:
        return Presence(True, False, "there is no such work any more")
    if look.workload is None:
        return _unknown(look, looks.KUBERNETES)
    if look.workload.state in (State.RUNNING, State.SUSPENDED, State.COMPLETE):
        return Presence(True, False, "the %s is %s" % (look.workload.kind, look.workload.state.value))
    return THERE


def _unknown(look: Look, part: str) -> Presence:
    return Presence(False, False, look.unknown.get(part, "%s was not looked at" % part))


_NODE_RULES: dict[str, Callable[[NodeLook], Presence]] = {
    "node_not_responding": _not_responding,
    "node_rebooted": _by_slurm("node_rebooted"),
    "node_back": _by_slurm("node_back"),
    "node_drained": _by_slurm("node_drained"),
    "node_misconfigured": _by_slurm("node_misconfigured"),
    "reboot_failed": _by_slurm("reboot_failed"),
    "kubernetes_node_not_ready": _kubernetes_not_ready,
    "pod_stuck_terminating": _pods_stuck,
    "pod_stuck_creating": _pods_stuck,
    "job_stuck_completing": _jobs_stuck,
    "node_suspect": _suspect,
}
_JOB_RULES: dict[str, Callable[[JobLook], Presence]] = {
    "job_failed": _slurm_job(_job_failed),
    "job_launch_held": _slurm_job(_launch_held),
    "job_hung": _slurm_job(_hung),
    "stale_spool": _stale_spool,
    "kubernetes_job_failed": _kubernetes_job_failed,
    "kubernetes_job_unrecovered": _kubernetes_job_failed,
    "kubernetes_job_stalled": _kubernetes_job_stalled,
    "kubernetes_workload_unrecovered": _workload_unrecovered,
}
