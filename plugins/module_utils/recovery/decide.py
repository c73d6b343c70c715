# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do: which plan for which fault, and which way is next when a step fails. Pure.

The mildest plan that what was found allows, and a ladder with memory: a daemon that was restarted several times is not
restarted again, a node that was rebooted within the reboot window is quarantined. A silent node is powered off only
with a BMC whose UUID is the node's; without one, or with a doubt, Slurm's own verdict (DOWN) is waited for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import POD
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import same_machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import ON
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    gates,
    job_runs,
    plans,
    reported,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import REQUESTED, Case
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook, NodeLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    END,
    NOW,
    REPORT,
    Limits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Wait
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

REPORTED = "report"  # in an incident's memory: what the node reported
MAX_RESTARTS = 3  # of a daemon within the reboot window, before the node is rebooted for it

_REBOOTS = ("reboot_over_ssh", "reboot_by_power")
# Steps of a GPU's reset whose failure a reboot may mend.
_AFTER_RESET = (plans.STOP_GPU_CLIENTS, plans.RESET_GPU, plans.START_GPU_CLIENTS, plans.VERIFY)
_VERDICT_INTERVAL = 60.0
_KUBELET_GRACE = 60.0  # seconds that a node whose kubelet is active may stay not Ready before it is rebooted
_KUBELET_PAUSE = 20.0
_RESET_SECONDS = 900.0  # the node helper's own bound
_REQUEUED = "the job is requeued once nothing of it is left on its nodes"
_NAMED = 8  # jobs in one sentence


@dataclass(frozen=True)
class Decision:
    """What is done.

    Attributes:
        plan: a name of `plans.PLANS`; empty where nothing is (`wait`: yet).
        why: one sentence for the ledger and for people.
        wait: what is waited for before the decision is made again; None where it is made.
        memory: JSON that the steps get with the incident.
    """

    plan: str
    why: str
    wait: Optional[Wait] = None
    memory: Mapping[str, Any] = field(default_factory=dict)


def decide(case: Case) -> Decision:
    """Choose the plan of a case that passed its gates."""
    if not case.is_node:
        return _decide_job(case)
    chosen = _NODE_DECISIONS.get(_wanted(case), _report)(case)
    return _with_memory(case, chosen)


def in_words(decision: Decision) -> str:
    """A decision as one sentence, for people."""
    return "%s (%s)" % (decision.plan or ("to wait" if decision.wait is not None else "to report"), decision.why)


def after_failure(
    plan: str,
    step: str,
    why: str,
    has_bmc: bool,
    reboots_left: bool,
    heard: Optional[bool] = None,
    gone: bool = False,
) -> Decision:
    """The next way after a failed step; an empty plan means that a person is needed.

    Args:
        plan: the incident's plan.
        step: which failed.
        why: as the step says.
        has_bmc: the node has a BMC.
        reboots_left: the node may be rebooted (not yet within the reboot window).
        heard: for a fence that found its node alive for the first time, whether its scheduler hears it; else None.
        gone: for a node whose pods may not go, whether its fault is not there any more.
    """
    if plan == "restart_daemon":
        if reboots_left:
            return Decision("reboot_over_ssh", "the daemon could not be restarted (%s)" % why)
        return Decision("quarantine_node", "the daemon could not be restarted (%s), no reboot is left" % why)
    if plan == "reset_gpu":
        return _after_reset(step, why, reboots_left, gone)
    if plan == "reboot_over_ssh" and step in (plans.REBOOT, plans.AWAIT_BOOT) and has_bmc:
        return Decision("reboot_by_power", "the reboot over SSH failed (%s)" % why)
    if plan == "reboot_over_ssh" and step == plans.AWAIT_DRAINED and gone:
        return Decision("return_node", "it is not rebooted: %s; and the fault is gone" % why)
    if plan == "reboot_by_power" and step == plans.FENCE and heard is not None:
        if heard or not reboots_left:
            return Decision("return_node", "it is not powered off: %s" % why)
        return Decision("reboot_over_ssh", "it is not powered off: %s, and its scheduler does not hear it" % why)
    return Decision("", "%s failed: %s" % (step, why))


def _after_reset(step: str, why: str, reboots_left: bool, gone: bool) -> Decision:
    if gone:
        return Decision("return_node", "it is not reset: %s; and the fault is gone" % why)
    if step in _AFTER_RESET and reboots_left:
        return Decision("reboot_over_ssh", "the reset of the GPU did not help (%s)" % why)
    if step in (plans.STOP_GPU_CLIENTS, plans.RESET_GPU):
        return Decision("quarantine_after_reset", "the GPU could not be reset (%s), no reboot is left" % why)
    return Decision("", "%s failed: %s" % (step, why))


def fallbacks(plan: str) -> tuple[str, ...]:
    """Plans that an incident of this plan may be given within the same run."""
    return {
        "restart_daemon": ("reboot_over_ssh", "reboot_by_power", "quarantine_node", "return_node"),
        "reset_gpu": ("reboot_over_ssh", "reboot_by_power", "quarantine_after_reset", "return_node"),
        "reboot_over_ssh": ("reboot_by_power", "return_node"),
        "reboot_by_power": ("return_node", "reboot_over_ssh"),
    }.get(plan, ())


def first_step(plan: str, done: Mapping[str, bool]) -> str:
    """Where a plan begins when the incident had another one before: holds that are in place are not placed again."""
    for step in plans.PLANS[plan]:
        if not (step in (plans.DRAIN, plans.CORDON) and done.get(step)):
            return step
    return ""


def step_seconds(step: str, limits: Limits) -> float:
    """How long a step may take as a whole, its waits included; infinite for jobs that are waited for to their end."""
    return {
        plans.AWAIT_BOOT: limits.boot_timeout,
        # a job whose pods or processes may live on a lost node waits until that node is fenced, or has booted
        plans.RERUN: limits.boot_timeout + limits.step_timeout,
        plans.END_ORPHANS: limits.boot_timeout + limits.step_timeout,
        plans.RESET_GPU: _RESET_SECONDS,
        plans.AWAIT_DRAINED: math.inf if limits.drain_policy == END else limits.drain_timeout,
        plans.AWAIT_JOB_END: limits.drain_timeout,
    }.get(step, limits.step_timeout)


def holds_node(plan: str) -> bool:
    """Whether a plan takes its node out of service."""
    return plans.DRAIN in plans.PLANS.get(plan, ())


def ends_closed(plan: str) -> bool:
    """Whether the end of a plan is the end of the trouble; a plan without a proof of that leaves it to a person."""
    return plans.CONFIRM in plans.PLANS.get(plan, ())


def _wanted(case: Case) -> str:
    """What to begin from: the kind of fault, or the remediation that a person or the site asks for instead."""
    usual = KINDS[case.kind].remediation if case.kind in KINDS else ""
    if case.kind in reported.KINDS and not case.by_hand:
        return case.kind  # which remediation a report suggests is one of the things to weigh
    if case.by_hand or case.kind == REQUESTED or (case.suggested and case.suggested != usual):
        return case.suggested
    return case.kind


def _decide_job(case: Case) -> Decision:
    wanted = _wanted(case)
    if case.kind == "kubernetes_job_unrecovered":
        owner = case.look.kubernetes.owner if isinstance(case.look, JobLook) and case.look.kubernetes else ""
        return Decision("", "reported: the Job belongs to %s, which did not replace it in time" % printable(owner))
    if case.kind == "kubernetes_workload_unrecovered":
        return Decision("", _of_workload(case))
    if REPORT in (wanted, KINDS[wanted].remediation if wanted in KINDS else "") or _only_told_of(case):
        return Decision("", "reported: what a person should look at is %s" % KINDS[case.kind].meaning)
    if case.scheduler != SLURM:
        return Decision("rerun_kubernetes_job", "the Job is run again under a new name")
    job = case.look.job if isinstance(case.look, JobLook) else None
    if job is None:  # the gate `gone` lets no such job pass but for a person, and the step says so to him
        return Decision("requeue_job", _REQUEUED)
    why = job_runs.the_applications(case.history.former, job) if case.kind == "job_failed" else ""
    if why:
        return Decision("tell_user", "not requeued: %s" % why, memory={"tell": "not requeued: %s" % why})
    memory = {**job_runs.remembered(job), "attempt": [case.history.attempts + 1, gates.attempts_allowed(case)]}
    successor = case.look.successor if isinstance(case.look, JobLook) else None
    if successor is not None and gates.follows(case):
        why = "job %d, which its user holds to follow this one, is released" % successor.id
        return Decision("release_successor", why, memory={**memory, "successor": successor.id})
    return Decision("requeue_job", _REQUEUED, memory=memory)


def _of_workload(case: Case) -> str:
    work = case.look.workload if isinstance(case.look, JobLook) else None
    if work is None:
        return "reported: what a person should look at is %s" % KINDS[case.kind].meaning
    if work.kind != POD:
        return "reported: the %s lost pods and is %s; its owner did not make up for that in time" % (
            printable(work.kind),
            work.state.value,
        )
    whose = "belongs to %s, of which nothing is known" % printable(work.owner) if work.owner else "has no owner"
    return "reported: the pod was ended by its infrastructure and %s" % whose


def _only_told_of(case: Case) -> bool:
    """Whether the job, as it is now, ended in a way that the site does not requeue."""
    job = case.look.job if isinstance(case.look, JobLook) else None
    return (
        case.kind == "job_failed" and job is not None and case.settings.job_ends.of(job.state) == REPORT
    )


def _not_responding(case: Case) -> Decision:
    look = _node(case)
    shell, slurm = look.shell, look.slurm
    if shell is None:
        return _verdict(case, "nobody could look at the node")
    if shell.answers:
        return _alive(case, shell.slurmd, "slurmd")
    if slurm is not None and slurm.responding and slurm.down:
        return _return(case)
    if shell.banner is False:
        return _dead(case)
    # alive in some way: the power is touched only after Slurm has given the node up
    if slurm is not None and slurm.down:
        return _dead(case)
    return _verdict(case, "the node's SSH server answers, its helper does not")


def _alive(case: Case, active: Optional[bool], daemon: str) -> Decision:
    """The node's helper answers: restart the daemon, or reboot over SSH."""
    look = _node(case)
    if not _same_boot(look):
        return Decision("return_node", "the node has rebooted by itself")
    if active is None:
        return _verdict(case, "whether %s is active is not known" % daemon)
    if not active and case.history.restarts < MAX_RESTARTS:
        return Decision("restart_daemon", "%s is dead on a node that is alive, same boot" % daemon)
    if not active:
        return _reboot(case, "reboot_over_ssh", "%s died again after %d restarts" % (daemon, case.history.restarts))
    why = "%s is active and its scheduler gets no answer" % daemon
    if daemon == "slurmd" and look.slurm is not None and not look.slurm.down:
        # a burst of load or a lost packet looks the same for a moment: nothing is rebooted before Slurm gives it up
        return _verdict(case, why)
    if daemon != "slurmd" and case.now - (case.opened_at or case.now) < _KUBELET_GRACE:
        # a kubelet that was just started, or whose API server was away, becomes Ready by itself
        return Decision("", "%s; it may yet become Ready" % why, Wait(waits.TIME, {}, case.now + _KUBELET_PAUSE))
    return _reboot(case, "reboot_over_ssh", why)


def _dead(case: Case) -> Decision:
    """Silent: off by the BMC, if that is the node's; else Slurm's verdict, then the node's return."""
    look = _node(case)
    dumping_until = (case.opened_at or case.now) + case.settings.limits.crash_dump_time
    if look.power is not None and look.power.state == ON and case.now < dumping_until:
        # a kernel that crashed writes its memory away in silence, and reboots by itself afterwards
        return _verdict(case, "the node is silent and has power: a crash dump is given its time", dumping_until)
    if _bmc_is_proved(look):
        how = "silent and off" if look.off else "silent for long" if look.lost else "silent"
        decision = _reboot(case, "reboot_by_power", "the node is %s, and its BMC is proved" % how)
        unnoticed = look.slurm is not None and look.slurm.responding and not look.slurm.down
        by_probes = case.kind == "node_not_responding" and unnoticed
        return replace(decision, memory={plans.BY_PROBES: True}) if by_probes else decision
    if look.slurm is not None and look.slurm.down:
        return Decision("return_node", "Slurm gave the node up; it is awaited, as no BMC of proved identity is there")
    return _verdict(case, "the node is silent and has no BMC of proved identity")


def _daemon_down(case: Case) -> Decision:
    look = _node(case)
    if look.shell is not None and look.shell.answers:
        slurm = case.scheduler == SLURM
        return _alive(case, look.shell.slurmd if slurm else look.shell.kubelet, "slurmd" if slurm else "the kubelet")
    return _heard(case) or _not_responding(case)


def _kubernetes_not_ready(case: Case) -> Decision:
    look = _node(case)
    if look.shell is not None and look.shell.answers:
        return _alive(case, look.shell.kubelet, "the kubelet")
    return _heard(case) or _not_responding(case)


def _heard(case: Case) -> Optional[Decision]:
    """Wait where jobs run on a node that only we do not hear: its power is not cut off under them."""
    return _verdict(case, "the node is silent, and Slurm hears it and runs jobs there") if _runs_on(case) else None


def _runs_on(case: Case) -> bool:
    """Whether Slurm hears a silent node and runs jobs there, and nobody else has missed it."""
    look = _node(case)
    heard = look.slurm is not None and look.slurm.responding and look.slurm.runs_jobs
    deaf = look.shell is not None and look.shell.connects is False
    missed = deaf and look.kubernetes is not None and look.kubernetes.ready != "True"
    return look.silent and heard and not (look.off or look.lost or missed)


def _return(_case: Case) -> Decision:
    return Decision("return_node", "the node is back: it is cleaned, verified and given back")


def _drained(case: Case) -> Decision:
    look = _node(case)
    if look.shell is not None and look.shell.answers:
        return _reboot(case, "reboot_over_ssh", "the node is rebooted once its jobs have ended")
    if _runs_on(case) and _bmc_is_proved(look):  # by its BMC at last, which waits for no job by itself
        return _reboot(case, "reboot_over_ssh", "the node is silent, and rebooted once the jobs that Slurm hears end")
    return _dead(case) if look.silent else _verdict(case, "the node's helper does not answer")


def _reported(case: Case) -> Decision:
    """What the node's kernel log reported: by the catalogue's action, what is there now, and what was done before."""
    look, limits = _node(case), case.settings.limits
    if look.report is None or not look.report.code or case.suggested == REPORT:
        return _report(case)
    since = case.now - limits.reboot_window
    waits_for_jobs = limits.drain_policy != NOW or look.slurm is None or not look.slurm.runs_jobs
    found = reported.remedy(look.report, look.gpu, case.history.repairs, since, waits_for_jobs)
    if found.plan and case.suggested == "quarantine_node":
        return Decision("quarantine_node", found.why)
    if found.plan == "reset_gpu" and case.suggested != "reboot_node":
        return _reset(case, found.why)
    if found.plan == "quarantine":
        return Decision("quarantine_node", found.why)
    return _because(_drained(case), found.why) if found.plan else Decision("", "reported: %s" % found.why)


def _because(decision: Decision, why: str) -> Decision:
    return replace(decision, why="%s: %s" % (why, decision.why))


def _reset(case: Case, why: str = "as asked for") -> Decision:
    """The GPUs of a node that answers; else it is a node's fault."""
    look = _node(case)
    if look.shell is None or not look.shell.answers:
        return _because(_drained(case), why)
    return Decision("reset_gpu", "%s: the GPU is reset once the jobs of the node have ended" % why)


def _restart(_case: Case) -> Decision:
    return Decision("restart_daemon", "as asked for")


def _clean(_case: Case) -> Decision:
    return Decision("clean_spool", "the node is drained and its spool cleaned")


def _suspect(case: Case) -> Decision:
    """Out of service, with the evidence: which jobs failed there, by whose hand and when."""
    failures = _node(case).failures or ()
    named = ", ".join("%s of %s (%s)" % (end.job, end.user, end.state) for end in failures[-_NAMED:])
    users = len({end.user for end in failures})
    why = "the last %d jobs there failed, of %d users: %s" % (len(failures), users, printable(named))
    evidence = [{"job": end.job, "user": end.user, "state": end.state, "at": end.at} for end in failures]
    return Decision("quarantine_node", why, memory={"failures": evidence})


def _quarantine(case: Case) -> Decision:
    return Decision("quarantine_node", "%s: the node is taken out of service for a person to look at" % case.kind)


def _report(case: Case) -> Decision:
    meaning = KINDS[case.kind].meaning if case.kind in KINDS else case.kind
    return Decision("", "reported: what a person should look at is that %s" % meaning)


_NODE_DECISIONS: dict[str, Callable[[Case], Decision]] = {
    "node_not_responding": _not_responding,
    "daemon_down": _daemon_down,
    "node_rebooted": _return,
    "node_back": _return,
    "node_suspect": _suspect,
    "reboot_failed": _quarantine,
    "node_drained": _drained,
    "job_stuck_completing": _drained,
    "gpu_fault": _reported,
    "kernel_fault": _reported,
    "kubernetes_node_not_ready": _kubernetes_not_ready,
    "pod_stuck_terminating": _kubernetes_not_ready,
    "pod_stuck_creating": _report,  # unless the site says otherwise
    "kubernetes_node_condition": _report,  # unless the site's list says otherwise
    # what a person or a site may ask for instead
    "restart_daemon": _restart,
    "reboot_node": _drained,
    "reset_gpu": _reset,
    "return_node": _return,
    "clean_spool": _clean,
    "quarantine_node": _quarantine,
}


def _reboot(case: Case, plan: str, why: str) -> Decision:
    """Once within the reboot window; then the node is quarantined. A person may override the gate `cooldown`."""
    limits = case.settings.limits
    if case.history.reboots and not (case.by_hand and "cooldown" in case.request.override):
        return Decision(
            "quarantine_node",
            "%s, and it was rebooted already within %.0f s: a person should look at it" % (why, limits.reboot_window),
        )
    return Decision(plan, why)


def _verdict(case: Case, why: str, until: Optional[float] = None) -> Decision:
    """Look again when Slurm's state of the node has changed, and now and then besides, or at `until`."""
    look = _node(case)
    until = case.now + _VERDICT_INTERVAL if until is None else until
    if look.slurm is None:
        return Decision("", why, Wait(waits.TIME, {}, until))
    args = {"node": look.slurm.name, "state": look.slurm.state}
    return Decision("", "%s; Slurm's verdict is awaited" % why, Wait(waits.NODE_STATE_CHANGED, args, until))


def _with_memory(case: Case, chosen: Decision) -> Decision:
    """What the steps must know of the node as it was found: its boot, and whether it still is the one on record."""
    look = _node(case)
    memory: dict[str, Any] = dict(chosen.memory)
    if look.machine is not None and look.machine.boot_id:
        memory["boot_id"] = look.machine.boot_id
    if look.report is not None:
        memory[REPORTED] = look.report.as_memory()
    if chosen.plan == "return_node" and look.shell is not None and look.shell.boot_id:
        memory["same_boot"] = _same_boot(look)
    return Decision(chosen.plan, chosen.why, chosen.wait, memory)


def _same_boot(look: NodeLook) -> bool:
    """The boot that the node tells is the one on record, or none is on record."""
    recorded = look.machine.boot_id if look.machine else ""
    told = look.shell.boot_id if look.shell else ""
    return not recorded or not told or recorded == told


def _bmc_is_proved(look: NodeLook) -> bool:
    return (
        look.power is not None
        and look.machine is not None
        and same_machine(look.power.uuid, look.machine.smbios_uuid)
    )


def _node(case: Case) -> NodeLook:
    if not isinstance(case.look, NodeLook):
        raise AssertionError("a job's case where a node's was expected")
    return case.look
