# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gates: named reasons not to act. Pure functions of fault, look, history, settings and time.

All gates of a phase are evaluated and recorded, and the first that says no, in the order of `GATES`, names the
refusal. What cannot be read means no. A person who asks by hand may override most of them by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import (
    Standing,
    standing,
    taken_by,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import same_machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    looks,
    opt_in,
    present,
    reported,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook, NodeLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    JOB_ENDS,
    OBSERVE,
    REPORT,
    Limits,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist, reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node

REQUESTED = "requested"

# Phases: what an incident is about to do.
OPEN = "open"  # nothing was done yet
CONTINUE = "continue"  # it has acted
GIVE_BACK = "give_back"  # it returns what it took

_RESTORED = "the ledger was restored from an old backup; approve it with `job-recovery approve`"
_FOREIGN = (reasons.PERSON, reasons.TOOL)


@dataclass(frozen=True)
class History:
    """What the ledger knows of the target and of everything else; times in epoch seconds.

    Attributes:
        stopped: who stopped recovery and how, empty where nobody did.
        restored: the ledger looks like one restored from an old backup; nobody approved it yet.
        other_incident: another open incident of the target, or another run's claim, in words.
        ours: the texts under which we hold or held this node.
        last_closed_at: when the last incident of this target ended that had acted.
        reboots: other incidents' reboots of this node within the reboot window.
        restarts: other incidents' restarts of a daemon on it within the reboot window.
        attempts: restarts of this job so far.
        followed: the successor that was released for this very run of the job, empty where none was.
        former: what earlier incidents that restarted this job remember, the newest first; see `job_runs`.
        alike: other targets with a fault of this kind within the window of `common_cause`.
        held: other nodes that we hold out of service (or would hold, when observing).
        machines: nodes that we know.
        failures: failed repairs in a row.
        repairs: earlier repairs of this node for what its kernel's log reported.
    """

    stopped: str = ""
    restored: bool = False
    other_incident: str = ""
    ours: tuple[str, ...] = ()
    last_closed_at: Optional[float] = None
    reboots: int = 0
    restarts: int = 0
    attempts: int = 0
    followed: str = ""
    former: tuple[Mapping[str, Any], ...] = ()
    alike: int = 0
    held: int = 0
    machines: int = 0
    failures: int = 0
    repairs: tuple[reported.Repair, ...] = ()


@dataclass(frozen=True)
class Case:
    """All that a gate may look at.

    Attributes:
        acted: the incident has begun a step (always False for a new fault).
        holds: it has drained its node in Slurm and not begun to give it back.
        cordons: it has cordoned its node in Kubernetes and not begun to give it back.
        opened_at: since when its incident is open, epoch seconds; None for a new fault.
    """

    kind: str
    scheduler: str
    target: Target
    seen_at: float
    look: looks.Look
    history: History
    settings: Settings
    now: float
    suggested: str = ""
    request: Request = field(default_factory=Request)
    acted: bool = False
    holds: bool = False
    cordons: bool = False
    opened_at: Optional[float] = None

    @property
    def is_node(self) -> bool:
        return self.target.kind == NODE

    @property
    def by_hand(self) -> bool:
        return bool(self.request.by)


@dataclass(frozen=True)
class Verdict:
    """What the gates said. `results`: by gate, why not; empty text for yes. `gate` is empty when all said yes."""

    results: Mapping[str, str]
    gate: str = ""
    why: str = ""
    overridden: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.gate


Gate = Callable[[Case], str]


def stopped(case: Case) -> str:
    """The emergency stop. What stands begun in a ledger of an old backup does not go on before a person approves."""
    if case.history.stopped or not (case.history.restored and case.acted):
        return case.history.stopped
    return _RESTORED


def scope(case: Case) -> str:
    """Outside what the settings allow."""
    if isinstance(case.look, NodeLook):
        return _node_scope(case, case.look)
    if case.scheduler == SLURM:
        return _slurm_job_scope(case, case.look)
    namespace = case.target.name.partition("/")[0]
    if namespace in case.settings.scope.namespaces:
        return ""
    return "namespace %s is not in scope.namespaces" % namespace


def age(case: Case) -> str:
    """The look that produced the fault is too old."""
    old = case.now - case.seen_at
    if old > case.settings.limits.max_age:
        return "the look is %.0f s old, the limit is %.0f s" % (old, case.settings.limits.max_age)
    if old < -case.settings.limits.max_age:
        return "the look is %.0f s in the future: clocks differ" % -old
    return ""


def gone(case: Case) -> str:
    """Looked at again, there is no fault of this kind any more (or nobody can tell)."""
    if isinstance(case.look, NodeLook) and case.kind in reported.KINDS:
        return _report_is_old(case, case.look)
    state = present.state_of(case.kind, case.scheduler, case.look, case.settings.kubernetes.node_signs)
    if state.known:
        return "" if state.there else "looked again: %s" % state.why
    return "cannot be looked at: %s" % state.why


def _report_is_old(case: Case, look: NodeLook) -> str:
    """The node is asked whether what it reported is still so; the report alone is nothing."""
    if look.report is None or not look.report.code or not look.report.boot_id:
        return "cannot be looked at: what the node reported is not on record"
    if look.shell is None or not look.shell.boot_id:
        return "cannot be looked at: the node's helper does not answer"
    if looks.KERNEL in look.unknown and look.report.boot_id == look.shell.boot_id:
        return "cannot be looked at: %s" % look.unknown[looks.KERNEL]
    why = reported.why_not_there(
        look.report, look.shell.boot_id, look.told_ago, look.gpu, case.history.repairs, case.now
    )
    return "looked again: %s" % why if why else ""


def identity(case: Case) -> str:
    """Is it the one that the fault and the ledger mean?"""
    if isinstance(case.look, NodeLook):
        return _node_identity(case, case.look)
    if case.look.job is not None and not case.acted and _is_another(case.look.job, case.target.uid):
        return "job %s was submitted again since: another run, or another job of the same number" % case.target.name
    job = case.look.kubernetes
    if job is not None and case.target.uid and job.uid != case.target.uid:
        return "%s is another Job now (uid %s, was %s)" % (case.target.name, job.uid, case.target.uid)
    return ""


def owner(case: Case) -> str:
    """Somebody else's: a person's or another controller's drain, cordon, hold, cancellation or Job."""
    if isinstance(case.look, NodeLook):
        return _slurm_owner(case, case.look) or _kubernetes_owner(case, case.look)
    job, kubernetes_job = case.look.job, case.look.kubernetes
    if job is not None and job.state == "CANCELLED":
        return "the job was cancelled, and Slurm would revive it"
    if kubernetes_job is not None and kubernetes_job.owner and case.suggested != REPORT:
        return "the Job belongs to %s, which restarts it or not" % kubernetes_job.owner
    if case.look.workload is not None and case.look.workload.deleted:
        return "the %s was deleted" % case.look.workload.kind
    if kubernetes_job is not None and kubernetes_job.deleted:
        return "the Job was deleted"
    return ""


def maintenance(case: Case) -> str:
    """Maintenance, a reservation, a power or reboot operation that is not ours, a state that we do not understand."""
    if not isinstance(case.look, NodeLook):
        job = case.look.job
        return "the job's state %s is not understood" % _state(job) if job and not job.understood else ""
    if case.look.kubernetes is not None and case.look.kubernetes.held:
        return "a person asked by annotation to leave the Kubernetes node alone"
    return _slurm_maintenance(case, case.look)


def duplicate(case: Case) -> str:
    """Somebody is at it already."""
    return case.history.other_incident


def opted_in(case: Case) -> str:
    """Has the job's user allowed a restart, and can Slurm do it?"""
    if not isinstance(case.look, JobLook):
        return ""
    consent = consent_of(case.look)
    if follows(case):
        return _no_successor(case.look)
    job = case.look.job
    if job is not None and job.requeue is False:
        return "the job was submitted with --no-requeue"
    if job is not None and job.batch is False:
        return "no batch job: Slurm cannot requeue it"
    if case.settings.jobs == "all":
        return ""
    if consent.problem:
        return "the opt-in cannot be read: %s" % consent.problem
    return "" if consent.allowed else "the user did not opt in"


def follows(case: Case) -> bool:
    """Whether the job's user wants a held successor of the same name to run in place of this job, which has ended."""
    if not isinstance(case.look, JobLook) or case.look.job is None or case.look.job.state == "PENDING":
        return False
    return consent_of(case.look).mode == opt_in.SINGLETON


def _no_successor(look: JobLook) -> str:
    if look.job is not None and look.job.state not in JOB_ENDS:
        return "the job is %s, and its user wants a successor to run only after a failure" % look.job.state
    if looks.SUCCESSOR in look.unknown:
        return "whether its user holds a successor is not known: %s" % look.unknown[looks.SUCCESSOR]
    return "" if look.successor is not None else "its user holds no successor of the same name (singleton_dependency)"


def attempts(case: Case) -> str:
    """Restarted often enough."""
    if not isinstance(case.look, JobLook):
        return ""
    if case.history.followed:
        return "job %s was released to follow it" % case.history.followed
    limit = attempts_allowed(case)
    if case.history.attempts >= limit:
        return "restarted %d times, the limit is %d" % (case.history.attempts, limit)
    return ""


def dependents(case: Case) -> str:
    """Jobs that depend on this one may already be running on what it left."""
    if not isinstance(case.look, JobLook):
        return ""
    return present.dependents(case.look)


def cooldown(case: Case) -> str:
    """An incident of this node ended only just now. Jobs have `attempts` instead: Slurm forgets them in minutes."""
    last = case.history.last_closed_at
    if not case.is_node or last is None or case.now - last >= case.settings.limits.cooldown:
        return ""
    return "the last incident ended %.0f s ago, the limit is %.0f s" % (
        case.now - last,
        case.settings.limits.cooldown,
    )


def is_common(alike: int, limits: Limits) -> bool:
    """Whether so many targets besides one have its fault that it is not that one's own."""
    return alike + 1 >= limits.common_cause_nodes


def common_cause(case: Case) -> str:
    """Many nodes at once have not each broken by themselves."""
    limits = case.settings.limits
    if not case.is_node or not is_common(case.history.alike, limits):
        return ""
    return "%d nodes have %s within %.0f s: a common cause" % (
        case.history.alike + 1,
        case.kind,
        limits.common_cause_window,
    )


def allowed_at_once(machines: int, limits: Limits) -> int:
    """How many nodes of so many may be out of service by us."""
    share = max(1, math.floor(machines * limits.blast_radius_percent / 100))
    return min(share, limits.blast_radius_nodes)


def blast_radius(case: Case) -> str:
    """We hold as many nodes out of service as we may."""
    if not case.is_node:
        return ""
    allowed = allowed_at_once(case.history.machines, case.settings.limits)
    if case.history.held < allowed:
        return ""
    return "%d nodes are held out of service already, the limit is %d" % (case.history.held, allowed)


def is_broken(failures: int, limits: Limits) -> bool:
    """Whether so many repairs failed in a row that no other one is begun."""
    return failures >= limits.breaker_failures


def breaker(case: Case) -> str:
    """Repairs fail one after the other: a person should look first."""
    if not is_broken(case.history.failures, case.settings.limits):
        return ""
    return "the last %d repairs failed; `job-recovery reset-breaker` when you know why" % case.history.failures


def mode(case: Case) -> str:
    """Observing, not acting."""
    if case.history.restored:
        return _RESTORED
    return "mode is observe" if case.settings.mode == OBSERVE else ""


GATES: dict[str, Gate] = {
    "stopped": stopped,
    "scope": scope,
    "age": age,
    "gone": gone,
    "identity": identity,
    "owner": owner,
    "maintenance": maintenance,
    "duplicate": duplicate,
    "opt_in": opted_in,
    "attempts": attempts,
    "dependents": dependents,
    "cooldown": cooldown,
    "common_cause": common_cause,
    "blast_radius": blast_radius,
    "breaker": breaker,
    "mode": mode,
}

_ACTED = ("stopped", "scope", "identity", "owner", "maintenance")
PHASES: dict[str, tuple[str, ...]] = {OPEN: tuple(GATES), CONTINUE: _ACTED, GIVE_BACK: _ACTED}

# About the fault itself: they do not apply when a person asks.
ABOUT_FAULT = ("age", "gone")
NEVER_OVERRIDDEN = ("stopped", "scope", "identity", "duplicate")


def evaluate(case: Case, phase: str) -> Verdict:
    """Ask every gate of the phase. An incident that never acted is always in the phase `open`."""
    names = PHASES[phase if case.acted else OPEN]
    results = {name: GATES[name](case) for name in names if not (case.by_hand and name in ABOUT_FAULT)}
    overridden = tuple(
        name
        for name, why in results.items()
        if why and case.by_hand and name in case.request.override and name not in NEVER_OVERRIDDEN
    )
    for name, why in results.items():
        if why and name not in overridden:
            return Verdict(results, name, why, overridden)
    return Verdict(results, overridden=overridden)


def consent_of(look: JobLook) -> opt_in.OptIn:
    """What the job's user wrote."""
    if look.kubernetes is not None or look.workload is not None:
        return opt_in.parse((look.kubernetes or look.workload).opt_in)
    return opt_in.parse(look.job.comment if look.job else None)


def attempts_allowed(case: Case) -> int:
    """How often a job may be restarted: as it says, else the default, never more than the settings' maximum."""
    said = consent_of(case.look).attempts if isinstance(case.look, JobLook) else None
    limits = case.settings.limits
    return min(limits.default_attempts if said is None else said, limits.max_attempts)


def _is_another(job: Job, submitted: str) -> bool:
    """Whether a job's submission is not the one that was seen: a requeue has a new one, and so has another job."""
    return bool(submitted) and job.submit_time is not None and str(job.submit_time) != submitted


def _node_scope(case: Case, look: NodeLook) -> str:
    allowed = case.settings.scope
    machine = look.machine
    names = {name for name in (case.target.name, machine.name if machine else "") if name}
    if allowed.nodes and not names.intersection(hostlist.expand_all(allowed.nodes)):
        return "node %s is not in scope.nodes" % case.target.name
    if machine is not None and not machine.slurm_name:
        return "" if allowed.nodes else "a node outside Slurm must be named in scope.nodes"
    if look.slurm is None:
        return "the node's partitions are not known: %s" % look.unknown.get(looks.SLURM, "not looked at")
    if set(look.slurm.partitions).intersection(allowed.partitions):
        return ""
    return "partitions %s are not in scope.partitions" % (", ".join(look.slurm.partitions) or "(none)")


def _slurm_job_scope(case: Case, look: JobLook) -> str:
    if look.absent:
        return ""  # named by `gone`
    if look.job is None or not look.job.partition:
        return "the job's partition is not known: %s" % look.unknown.get(looks.SLURM, "Slurm has none")
    outside = set(look.job.partition.split(",")).difference(case.settings.scope.partitions)
    return "partition %s is not in scope.partitions" % ", ".join(sorted(outside)) if outside else ""


def _node_identity(case: Case, look: NodeLook) -> str:
    machine = look.machine
    if machine is None:
        return "node %s is not a machine of the ledger; run the role controller again" % case.target.name
    shell, power = look.shell, look.power
    if shell is not None and shell.machine_id and machine.machine_id and shell.machine_id != machine.machine_id:
        return "SSH reaches a machine with another machine-id than the ledger's"
    told = look.kubernetes.machine_id if look.kubernetes is not None else ""
    if told and machine.machine_id and told != machine.machine_id:
        return "Kubernetes calls a machine with another machine-id by this name; run site.yml again"
    named = look.slurm.hostname if look.slurm is not None else None
    if shell is not None and shell.hostname and named and not hostlist.same_host(shell.hostname, named):
        return "SSH reaches %s, and Slurm means %s by this node; run site.yml again" % (
            ascii(shell.hostname[:64]),
            ascii(named[:64]),
        )
    if power is not None and machine.smbios_uuid and not same_machine(power.uuid, machine.smbios_uuid):
        return "the BMC drives a system with another UUID than the node's"
    return ""


def _slurm_owner(case: Case, look: NodeLook) -> str:
    node = look.slurm
    if node is None:
        has_slurm = look.machine is not None and look.machine.slurm_name
        why = look.unknown.get(looks.SLURM, "not looked at")
        return "the node's reason is not known: %s" % why if has_slurm else ""
    if case.holds and node.in_service:
        return "somebody gave the node back while it was being repaired"
    owners = {reasons.reason_owner(node.reason, ours) for ours in case.history.ours or ("",)}
    if reasons.OURS in owners:
        return ""
    if owners.intersection(_FOREIGN) and not owners.intersection((reasons.SLURM, reasons.NOBODY)):
        return "somebody else's reason: %s" % ascii(reasons.clean_text(node.reason or "", 120))
    if reasons.NOBODY in owners and node.draining_or_drained:
        return "drained without a reason"
    return ""


def _kubernetes_owner(case: Case, look: NodeLook) -> str:
    node = look.kubernetes
    if look.kubernetes_deleted:
        return "somebody deleted the node from Kubernetes; if that is meant, run site.yml again"
    if node is None:
        known = look.machine is not None and look.machine.kubernetes_name
        why = look.unknown.get(looks.KUBERNETES)
        return "the node's cordon is not known: %s" % why if known and why else ""
    if standing(node) is Standing.FOREIGN:
        return "cordoned by somebody else"
    others = taken_by(node, case.settings.kubernetes.others_taints)
    if others:
        return "another controller has the node: %s" % others
    if standing(node) is Standing.LIFTED and case.acted:
        return "somebody lifted our cordon"
    if standing(node) is Standing.FREE and case.cordons:
        return "our cordon is gone: the node was deleted and added again, or given back"
    return ""


def _slurm_maintenance(case: Case, look: NodeLook) -> str:
    node = look.slurm
    if node is None:
        return ""  # named by `owner` and `scope`
    if not node.understood:
        return "the state %s is not understood" % ascii(node.state)
    if node.in_maintenance:
        return "the node is reserved or in maintenance (%s)" % node.state
    if node.powering:
        return "Slurm's power saving has the node (%s)" % node.state
    if node.rebooting and not case.acted:
        return "somebody asked Slurm to reboot the node (%s)" % node.state
    return "" if case.acted else _reserved(case, look, node)


def _reserved(case: Case, look: NodeLook, node: Node) -> str:
    """A reservation that is active, or one for maintenance that would begin in the middle of the repair."""
    if look.reservations is None:
        why = look.unknown.get(looks.RESERVATIONS)
        return "the reservations of the node are not known: %s" % why if why else ""
    limits = case.settings.limits
    until = case.now + limits.boot_timeout + (limits.drain_timeout if node.runs_jobs and node.responding else 0.0)
    for each in look.reservations:
        if each.is_active(case.now):
            return "the reservation %s has the node" % ascii(each.name[:64])
        if each.maintenance and each.start < until and not each.is_over(case.now):
            return "the maintenance %s begins in %.0f s, before a repair would be over" % (
                ascii(each.name[:64]),
                each.start - case.now,
            )
    return ""


def _state(job: Optional[object]) -> str:
    return ascii("+".join((job.state,) + job.flags)) if job is not None else "?"
