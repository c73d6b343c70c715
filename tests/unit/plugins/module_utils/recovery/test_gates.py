# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every gate, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    OUT_OF_SERVICE,
    Condition,
    JobState,
    JobView,
    NodeView,
    Taint,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import Hold
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import Workload
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import Case, History
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import (
    JobLook,
    NodeLook,
    PowerLook,
    ShellLook,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.reported import Report
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    KubernetesSettings,
    Limits,
    NodeSign,
    Scope,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import End

UNRECOVERED, RERUN = "kubernetes_job_unrecovered", "rerun_kubernetes_job"
OUR_CORDON = NodeView("k1", unschedulable=True, ownership=Hold("7").as_text())
LIFTED = replace(OUR_CORDON, unschedulable=False)
NOW = 1_800_000_000.0
UUID = "4c4c4544-0042-3010-8058-c7c04f4a4e32"
SWAPPED = "44454c4c-4200-1030-8058-c7c04f4a4e32"  # the same sixteen bytes, as an old BMC prints them
OTHER = "4c4c4544-0042-3010-8058-c7c04f4a4e33"
OURS = "job-recovery #7 node_not_responding"
MACHINE = Machine("n1", "n1", "k1", "10.0.0.1", "https://bmc/n1", UUID, "a" * 32, "boot")
SETTINGS = Settings(
    cluster="lab", mode="act", scope=Scope(("main", "gpu"), (), ("default",)), limits=Limits(cooldown=300.0)
)
SINGLETON = '{"APS":{"auto_resume_mode":"singleton_dependency"}}'
CONSENT = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":2}}'


def node(base: str = "DOWN", *flags: str, reason: Optional[str] = "Not responding", **fields: Any) -> Node:
    return Node("n1", base, flags, reason=reason, partitions=fields.pop("partitions", ("main",)), **fields)


def case(look: Any = None, **changes: Any) -> Case:
    """A case that every gate lets through, with changes; `history` and `settings` may be mappings of changes."""
    history = History(**{"machines": 100, **changes.pop("history", {})})
    settings = replace(SETTINGS, **changes.pop("settings", {}))
    limits = changes.pop("limits", {})
    if limits:
        settings = replace(settings, limits=replace(settings.limits, **limits))
    target = Target("job", "7") if isinstance(look, JobLook) else Target("node", "n1")
    kind = "job_failed" if isinstance(look, JobLook) else "node_not_responding"
    values: dict[str, Any] = {
        "kind": kind,
        "scheduler": "slurm",
        "target": target,
        "seen_at": NOW - 1,
        "look": look if look is not None else healthy(),
        "history": history,
        "settings": settings,
        "now": NOW,
    }
    return Case(**{**values, **changes})


def healthy(**changes: Any) -> NodeLook:
    return replace(NodeLook(machine=MACHINE, slurm=node("DOWN", "NOT_RESPONDING")), **changes)


def reserved(*made: Reservation, **changes: Any) -> Case:
    return case(healthy(reservations=made, **changes))


def soon(seconds: int) -> Reservation:
    return Reservation("bios", ("n1",), ("MAINT", "SPEC_NODES"), int(NOW) + seconds, int(NOW) + 9999)


DEAF = ShellLook(False, connects=False)
REPORT = Report("xid79", "reboot", "fatal", "0000:05:00", "boot-1")
TELLS = ShellLook(True, True, "boot-1")


def unnoticed(shell: Optional[ShellLook], **changes: Any) -> Case:
    """A node that Slurm takes for well."""
    return case(healthy(**{"slurm": node("ALLOCATED", reason=None), "shell": shell, **changes}))


def named(hostname: str, in_slurm: Optional[str]) -> Case:
    """A node that calls itself so, and that Slurm's NodeHostName calls so."""
    shell = ShellLook(True, True, "boot", "a" * 32, hostname=hostname)
    return case(healthy(shell=shell, slurm=replace(node("IDLE"), hostname=in_slurm)))


def job(state: str = "FAILED", *flags: str, **changes: Any) -> JobLook:
    fields = {"partition": "main", "comment": CONSENT, "requeue": True, "batch": True, **changes}
    return JobLook(job=Job(7, state, flags, **fields))


def kubernetes_case(look: JobLook, **changes: Any) -> Case:
    target = Target("job", "default/train", "uid-1")
    return case(look, **{"kind": "kubernetes_job_failed", "scheduler": "kubernetes", "target": target, **changes})


def kubernetes_job(**changes: Any) -> JobLook:
    fields = {"state": JobState.FAILED, "uid": "uid-1", "opt_in": CONSENT, **changes}
    return JobLook(kubernetes=JobView("default", "train", **fields))


def work(state: State = State.WAITING, **changes: Any) -> Case:
    one = Workload("PyTorchJob", "default", "train", "uid-1", state, **{"opt_in": CONSENT, **changes})
    return kubernetes_case(JobLook(workload=one), kind="kubernetes_workload_unrecovered", suggested="report")


def tainted(key: str, value: str = "") -> NodeView:
    return NodeView("k1", ready="Unknown", taints=(Taint(key, value, "NoExecute"),))


def sick_case(node: Optional[NodeView]) -> Case:
    chosen = KubernetesSettings(node_signs=(NodeSign(condition="Sick"),))
    return case(healthy(kubernetes=node), kind="kubernetes_node_condition", settings={"kubernetes": chosen})


@pytest.mark.parametrize("made", [case(), case(job()), kubernetes_case(kubernetes_job())])
def test_nothing_in_the_way(made: Case) -> None:
    verdict = gates.evaluate(made, gates.OPEN)
    assert (verdict.gate, verdict.why) == ("", "")
    assert list(verdict.results) == list(gates.GATES)


# name, a case, the beginning of why not (empty text: it passes)
ROWS: list[tuple[str, Case, str]] = [
    ("stopped", case(history={"stopped": "stopped by bob"}), "stopped by bob"),
    # scope
    ("scope", case(healthy(slurm=node(partitions=("other",)))), "partitions other are not"),
    ("scope", case(healthy(slurm=node(partitions=("other", "gpu")))), ""),
    ("scope", case(healthy(slurm=node(partitions=()))), "partitions (none)"),
    (
        "scope",
        case(healthy(slurm=None, unknown={"slurm": "time-out"})),
        "the node's partitions are not known: time-out",
    ),
    ("scope", case(settings={"scope": Scope(("main",), ("n[2-9]",))}), "node n1 is not in scope.nodes"),
    ("scope", case(settings={"scope": Scope(("main",), ("n[1-9]",))}), ""),
    ("scope", case(healthy(machine=replace(MACHINE, slurm_name=""), slurm=None)), "a node outside Slurm"),
    (
        "scope",
        case(healthy(machine=replace(MACHINE, slurm_name=""), slurm=None), settings={"scope": Scope(("m",), ("n1",))}),
        "",
    ),
    ("scope", case(job(partition="other")), "partition other"),
    ("scope", case(job(partition="main,other")), "partition other"),
    ("scope", case(job(partition=None)), "the job's partition is not known"),
    ("scope", case(JobLook(unknown={"slurm": "down"})), "the job's partition is not known: down"),
    (
        "scope",
        kubernetes_case(kubernetes_job(), target=Target("job", "kube-system/x", "uid-1")),
        "namespace kube-system",
    ),
    # age
    ("age", case(seen_at=NOW - 120), ""),
    ("age", case(seen_at=NOW - 121), "the look is 121 s old"),
    ("age", case(seen_at=NOW + 121), "the look is 121 s in the future"),
    # gone
    ("gone", case(healthy(slurm=node("IDLE", reason=None))), "looked again: the node is IDLE"),
    ("gone", case(healthy(slurm=node("IDLE", "NOT_RESPONDING", reason=None))), ""),
    ("gone", case(healthy(slurm=node("DOWN", reason="Not responding"))), ""),  # node_back by now
    ("gone", case(healthy(slurm=node("DOWN", reason="Node unexpectedly rebooted"))), ""),
    ("gone", case(healthy(slurm=None, unknown={"slurm": "no answer"})), "cannot be looked at: no answer"),
    # what Slurm does not know yet: proved off, or silent for long by the source's record, and silent now
    ("gone", unnoticed(DEAF, power=PowerLook("Off", UUID)), ""),
    ("gone", unnoticed(DEAF, power=PowerLook("Off", SWAPPED)), ""),
    ("gone", unnoticed(DEAF, power=PowerLook("Off", OTHER)), "looked again: the node is ALLOCATED"),
    ("gone", unnoticed(DEAF, power=PowerLook("On", UUID)), "looked again"),
    ("gone", unnoticed(DEAF, power=PowerLook("unknown", UUID)), "looked again"),
    ("gone", unnoticed(DEAF, power=PowerLook("Off", UUID), machine=replace(MACHINE, smbios_uuid="")), "looked again"),
    ("gone", unnoticed(DEAF), "looked again"),
    ("gone", unnoticed(ShellLook(True, connects=True), power=PowerLook("Off", UUID)), "looked again"),
    ("gone", unnoticed(ShellLook(False, connects=True), power=PowerLook("Off", UUID)), "looked again"),  # frozen
    ("gone", unnoticed(ShellLook(connects=True), power=PowerLook("Off", UUID)), "looked again"),  # it refuses
    ("gone", unnoticed(None, power=PowerLook("Off", UUID)), "looked again"),  # we could not ask
    ("gone", unnoticed(DEAF, long_silent=True), ""),
    ("gone", unnoticed(DEAF, long_silent=True, power=PowerLook("On", UUID)), ""),
    ("gone", unnoticed(ShellLook(False, connects=True), long_silent=True), "looked again"),
    ("gone", unnoticed(None, long_silent=True), "looked again"),
    (
        "gone",
        unnoticed(DEAF, long_silent=True, slurm=None, unknown={"slurm": "no answer"}),
        "cannot be looked at: no answer",
    ),
    ("gone", case(kind="node_back"), "looked again"),
    ("gone", case(healthy(slurm=node("DOWN")), kind="node_back"), ""),
    ("gone", case(healthy(slurm=node("IDLE", "DRAIN", reason="Kill task failed")), kind="node_drained"), ""),
    ("gone", case(healthy(slurm=node("IDLE", "DRAIN", reason="bob")), kind="node_drained"), "looked again"),
    ("gone", case(healthy(shell=ShellLook(True, True, "boot", "", False)), kind="daemon_down"), ""),
    (
        "gone",
        case(healthy(shell=ShellLook(True, True, "boot", "", True)), kind="daemon_down"),
        "looked again: the daemon",
    ),
    ("gone", case(healthy(shell=ShellLook(True, True, "boot", "", None)), kind="daemon_down"), "cannot be looked at"),
    ("gone", case(healthy(shell=ShellLook(False)), kind="daemon_down"), ""),
    ("gone", case(healthy(kubernetes=NodeView("k1", ready="Unknown")), kind="kubernetes_node_not_ready"), ""),
    ("gone", case(healthy(kubernetes=NodeView("k1", ready="True")), kind="kubernetes_node_not_ready"), "looked again"),
    ("gone", case(healthy(kubernetes=NodeView("k1")), kind="kubernetes_node_not_ready"), "cannot be looked at"),
    ("gone", sick_case(NodeView("k1", ready="True", conditions=(Condition("Sick", "True"),))), ""),
    ("gone", sick_case(NodeView("k1", ready="True", conditions=(Condition("Sick", "False"),))), "looked again: no"),
    ("gone", sick_case(NodeView("k1", ready="True", conditions=(Condition("Other", "True"),))), "looked again"),
    ("gone", sick_case(NodeView("k1", ready="Unknown", conditions=(Condition("Sick", "True"),))), "cannot be looked"),
    ("gone", sick_case(None), "cannot be looked at"),
    ("gone", case(healthy(stuck_pods=2), kind="pod_stuck_creating"), ""),
    ("gone", case(healthy(stuck_pods=0), kind="pod_stuck_creating"), "looked again"),
    ("gone", case(healthy(), kind="pod_stuck_creating"), "cannot be looked at"),
    ("gone", case(healthy(stuck_pods=2), kind="pod_stuck_terminating"), ""),
    ("gone", case(healthy(stuck_pods=0), kind="pod_stuck_terminating"), "looked again"),
    ("gone", case(healthy(), kind="pod_stuck_terminating"), "cannot be looked at"),
    ("gone", case(healthy(), kind="gpu_fault"), "cannot be looked at"),
    ("gone", case(healthy(shell=TELLS, report=REPORT, told_ago=1.0), kind="gpu_fault"), ""),
    ("gone", case(healthy(report=REPORT, told_ago=1.0), kind="kernel_fault"), "cannot be looked at"),
    ("gone", case(healthy(shell=TELLS, report=REPORT), kind="kernel_fault"), "looked again"),
    ("gone", case(healthy(shell=TELLS, report=REPORT, unknown={"kernel": "no"}), kind="gpu_fault"), "cannot be looked"),
    ("gone", case(job("RUNNING")), "looked again: the job is RUNNING"),
    ("gone", case(job("NODE_FAIL")), ""),
    ("gone", case(JobLook(absent=True)), "looked again: Slurm has forgotten the job"),
    ("gone", case(job("PENDING", priority=0, state_reason="launch_failed_requeued_held"), kind="job_launch_held"), ""),
    ("gone", case(job("PENDING", priority=0, state_reason="JobHeldUser"), kind="job_launch_held"), "looked again"),
    ("gone", case(job("PENDING", priority=5), kind="job_launch_held"), "looked again"),
    ("gone", case(job("FAILED", "COMPLETING")), "looked again: the job is FAILED"),
    ("gone", case(healthy(stuck_jobs=("7",)), kind="job_stuck_completing"), ""),
    ("gone", case(healthy(stuck_jobs=()), kind="job_stuck_completing"), "looked again: no job"),
    ("gone", case(healthy(), kind="job_stuck_completing"), "cannot be looked at"),
    ("gone", case(healthy(failures=(End("7", "a", "FAILED", 1),)), kind="node_suspect"), ""),
    ("gone", case(healthy(failures=()), kind="node_suspect"), "looked again: jobs of several users"),
    (
        "gone",
        case(healthy(unknown={"jobs": "sacct is silent"}), kind="node_suspect"),
        "cannot be looked at: sacct is silent",
    ),
    ("gone", case(replace(job("PENDING"), left_overs={"n1": "2 files"}), kind="stale_spool"), ""),
    ("gone", case(replace(job("PENDING"), left_overs={}), kind="stale_spool"), "looked again: nothing of the job"),
    ("gone", case(job("PENDING"), kind="stale_spool"), "cannot be looked at"),
    (
        "gone",
        case(replace(job("PENDING"), left_overs={}, unknown={"spool": "n2 is silent"}), kind="stale_spool"),
        "cannot be looked at: n2 is silent",
    ),
    ("gone", kubernetes_case(kubernetes_job(state=JobState.RUNNING)), "looked again: the Job is running"),
    ("gone", kubernetes_case(kubernetes_job(state=JobState.FAILING)), ""),
    ("gone", kubernetes_case(JobLook(absent=True)), "looked again: there is no such Job"),
    # identity
    ("identity", case(job("FAILED", submit_time=100), target=Target("job", "7", "100")), ""),
    ("identity", case(job("FAILED", submit_time=200), target=Target("job", "7", "100")), "job 7 was submitted again"),
    ("identity", case(job("FAILED", submit_time=200), target=Target("job", "7", "100"), acted=True), ""),
    ("identity", case(job("FAILED"), target=Target("job", "7", "100")), ""),
    ("identity", case(job("FAILED", submit_time=200), target=Target("job", "7")), ""),
    ("identity", case(healthy(machine=None)), "node n1 is not a machine of the ledger"),
    ("identity", case(healthy(shell=ShellLook(True, True, "boot", "b" * 32))), "SSH reaches a machine with another"),
    ("identity", case(healthy(shell=ShellLook(True, True, "boot", "a" * 32))), ""),
    ("identity", case(healthy(shell=ShellLook(False))), ""),
    ("identity", case(healthy(kubernetes=NodeView("k1", machine_id="a" * 32))), ""),
    ("identity", case(healthy(kubernetes=NodeView("k1"))), ""),
    ("identity", case(healthy(kubernetes=NodeView("k1", machine_id="b" * 32))), "Kubernetes calls a machine"),
    (
        "identity",
        case(healthy(machine=replace(MACHINE, machine_id=""), kubernetes=NodeView("k1", machine_id="b" * 32))),
        "",
    ),
    ("identity", named("gpu07.cluster.example", "GPU07"), ""),
    ("identity", named("gpu07", "gpu08"), "SSH reaches 'gpu07', and Slurm means 'gpu08' by this node"),
    ("identity", named("", "gpu08"), ""),
    ("identity", named("gpu07", None), ""),
    ("identity", case(healthy(power=PowerLook("On", UUID.upper()))), ""),
    ("identity", case(healthy(power=PowerLook("On", SWAPPED))), ""),
    ("identity", case(healthy(power=PowerLook("On", OTHER))), "the BMC drives a system with another UUID"),
    ("identity", case(healthy(power=PowerLook("On", ""))), "the BMC drives a system with another UUID"),
    ("identity", case(healthy(machine=replace(MACHINE, smbios_uuid=""), power=PowerLook("On", OTHER))), ""),
    ("identity", kubernetes_case(kubernetes_job(uid="uid-2")), "default/train is another Job now"),
    # owner
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason="bob: disk"))), "somebody else's reason: 'bob: disk'"),
    (
        "owner",
        case(healthy(slurm=node("IDLE", "DRAIN", reason="\x1b[31m{{ x }}"))),
        "somebody else's reason: '[31m{{ x }}'",
    ),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason="NHC: gpu"))), "somebody else's reason"),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason="slurm-operator: x"))), "somebody else's reason"),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason="[node_problem] x"))), "somebody else's reason"),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason=None))), "drained without a reason"),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason="Kill task failed"))), ""),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason=OURS))), "somebody else's reason"),
    ("owner", case(healthy(slurm=node("IDLE", "DRAIN", reason=OURS)), history={"ours": (OURS,)}), ""),
    (
        "owner",
        case(healthy(slurm=node("IDLE", "DRAIN", reason=OURS + " : reboot issued")), history={"ours": ("x", OURS)}),
        "",
    ),
    (
        "owner",
        case(healthy(slurm=node("IDLE", "DRAIN", reason=OURS + ", Kill task failed")), history={"ours": ("x", OURS)}),
        "",
    ),
    (
        "owner",
        case(healthy(slurm=node("IDLE", "DRAIN", reason=OURS + ", bob was here")), history={"ours": (OURS,)}),
        "somebody else's reason",
    ),
    ("owner", case(healthy(slurm=None)), "the node's reason is not known"),
    ("owner", case(healthy(kubernetes=NodeView("k1", unschedulable=True))), "cordoned by somebody else"),
    ("owner", case(healthy(kubernetes=NodeView("k1"))), ""),
    ("owner", case(healthy(kubernetes_deleted=True)), "somebody deleted the node from Kubernetes"),
    ("owner", case(healthy(kubernetes_deleted=True), acted=True), "somebody deleted the node from Kubernetes"),
    ("gone", case(healthy(kubernetes_deleted=True), kind="kubernetes_node_not_ready"), "cannot be looked at"),
    ("owner", case(healthy(kubernetes=tainted("medik8s.io/remediation"))), "another controller has the node: medik8s"),
    ("owner", case(healthy(kubernetes=tainted("ToBeDeletedByClusterAutoscaler"))), "another controller has the node"),
    ("owner", case(healthy(kubernetes=tainted("medik8s.io/x")), acted=True), "another controller has the node"),
    ("owner", case(healthy(kubernetes=tainted("medik8s.iox/y"))), ""),
    ("owner", case(healthy(kubernetes=tainted("node.kubernetes.io/unreachable"))), ""),
    ("owner", case(healthy(kubernetes=tainted(OUT_OF_SERVICE, "nodeshutdown"))), "another controller has the node"),
    ("owner", case(healthy(kubernetes=tainted(OUT_OF_SERVICE, "job-recovery")), acted=True), ""),
    ("owner", case(healthy(kubernetes=NodeView("k1", deleted=True))), "another controller has the node: its deletion"),
    ("owner", case(healthy(kubernetes=OUR_CORDON), acted=True, cordons=True), ""),
    ("owner", case(healthy(kubernetes=LIFTED), acted=True, cordons=True), "somebody lifted our cordon"),
    ("owner", case(healthy(kubernetes=LIFTED)), ""),  # of an incident that is over
    ("owner", case(healthy(kubernetes=NodeView("k1")), acted=True, cordons=True), "our cordon is gone"),
    ("owner", case(healthy(kubernetes=NodeView("k1")), acted=True), ""),  # given back by us
    ("owner", case(healthy(unknown={"kubernetes": "HTTP 503"})), "the node's cordon is not known: HTTP 503"),
    ("owner", case(job("CANCELLED")), "the job was cancelled"),
    ("owner", kubernetes_case(kubernetes_job(owner="CronJob/nightly")), "the Job belongs to CronJob/nightly"),
    ("owner", kubernetes_case(kubernetes_job(owner="JobSet/s"), kind=UNRECOVERED, suggested="report"), ""),
    ("owner", kubernetes_case(kubernetes_job(owner="JobSet/s"), kind=UNRECOVERED, suggested=RERUN), "the Job belongs"),
    ("gone", kubernetes_case(kubernetes_job(), kind=UNRECOVERED, suggested="report"), ""),
    ("gone", kubernetes_case(JobLook(absent=True), kind=UNRECOVERED, suggested="report"), "looked again"),
    ("owner", kubernetes_case(kubernetes_job(deleted=True)), "the Job was deleted"),
    ("owner", work(), ""),
    ("owner", work(owner="RayJob/r"), ""),
    ("owner", work(deleted=True), "the PyTorchJob was deleted"),
    ("gone", work(), ""),
    ("gone", work(State.FAILED), ""),
    ("gone", work(State.UNKNOWN), ""),
    ("gone", work(State.RUNNING), "looked again: the PyTorchJob is running"),
    ("gone", work(State.SUSPENDED), "looked again: the PyTorchJob is suspended"),
    ("gone", work(State.COMPLETE), "looked again: the PyTorchJob is complete"),
    ("gone", replace(work(), look=JobLook(absent=True)), "looked again: there is no such work any more"),
    ("gone", replace(work(), look=JobLook(unknown={"kubernetes": "HTTP 403"})), "cannot be looked at: HTTP 403"),
    ("scope", work(), ""),
    ("scope", replace(work(), target=Target("job", "kube-system/x", "uid-1")), "namespace kube-system"),
    # maintenance
    ("maintenance", case(healthy(slurm=node("IDLE", "MAINTENANCE"))), "the node is reserved or in maintenance"),
    ("maintenance", case(healthy(slurm=node("IDLE", "RESERVED"))), "the node is reserved or in maintenance"),
    ("maintenance", case(healthy(slurm=node("IDLE", "REBOOT_ISSUED"))), "somebody asked Slurm to reboot"),
    ("maintenance", case(healthy(slurm=node("IDLE", "REBOOT_ISSUED")), acted=True), ""),
    ("maintenance", case(healthy(slurm=node("IDLE", "POWERED_DOWN")), acted=True), "Slurm's power saving has the node"),
    ("maintenance", case(healthy(slurm=node("IDLE", "?"))), "the state 'IDLE+?' is not understood"),
    ("maintenance", case(healthy(slurm=node("UNHEARD_OF"))), "the state 'UNHEARD_OF' is not understood"),
    ("maintenance", case(healthy(kubernetes=NodeView("k1", held=True))), "a person asked by annotation"),
    ("maintenance", reserved(), ""),
    ("maintenance", reserved(Reservation("team", ("n1",), (), NOW - 60, NOW + 60)), "the reservation 'team' has"),
    ("maintenance", reserved(Reservation("forever", ("n1",), (), NOW - 60)), "the reservation 'forever' has"),
    ("maintenance", reserved(Reservation("past", ("n1",), ("MAINT",), NOW - 60, NOW)), ""),
    ("maintenance", reserved(Reservation("team", ("n1",), (), NOW + 60, NOW + 90)), ""),
    ("maintenance", reserved(soon(1799)), "the maintenance 'bios' begins in 1799 s"),
    ("maintenance", reserved(soon(1800)), ""),
    ("maintenance", reserved(soon(1800), slurm=node("ALLOCATED", "DRAIN")), "the maintenance 'bios' begins in 1800 s"),
    ("maintenance", reserved(soon(1800), slurm=node("ALLOCATED", "NOT_RESPONDING")), ""),
    ("maintenance", reserved(soon(5400), slurm=node("ALLOCATED", "DRAIN")), ""),
    ("maintenance", replace(reserved(soon(60)), acted=True), ""),  # it has begun: the node is given back before
    ("maintenance", case(healthy(unknown={"reservations": "time-out"})), "the reservations of the node are not known"),
    ("maintenance", case(job("FAILED", "UNHEARD_OF")), "the job's state 'FAILED+UNHEARD_OF' is not understood"),
    # duplicate
    ("duplicate", case(history={"other_incident": "incident #3 is open"}), "incident #3 is open"),
    # opt_in
    ("opt_in", case(job(comment=None)), "the user did not opt in"),
    ("opt_in", case(job(comment="my job")), "the user did not opt in"),
    ("opt_in", case(job(comment='{"APS":{"auto_resume_mode":"yes"}}')), "the opt-in cannot be read: auto_resume_mode"),
    ("opt_in", case(job(comment='{"APS":')), "the opt-in cannot be read: no JSON"),
    ("opt_in", case(job(comment=None), settings={"jobs": "all"}), ""),
    ("opt_in", case(job(requeue=False)), "the job was submitted with --no-requeue"),
    ("opt_in", case(job(batch=False), settings={"jobs": "all"}), "no batch job"),
    ("opt_in", kubernetes_case(kubernetes_job(opt_in=None)), "the user did not opt in"),
    ("opt_in", case(replace(job(comment=SINGLETON), successor=Job(8, "PENDING"))), ""),
    ("opt_in", case(replace(job(comment=SINGLETON, requeue=False, batch=False), successor=Job(8, "PENDING"))), ""),
    ("opt_in", case(job(comment=SINGLETON)), "its user holds no successor"),
    ("opt_in", case(job(comment=SINGLETON), settings={"jobs": "all"}), "its user holds no successor"),
    (
        "opt_in",
        case(replace(job(comment=SINGLETON), unknown={"successor": "squeue is silent"})),
        "whether its user holds a successor is not known: squeue is silent",
    ),
    ("opt_in", case(replace(job("COMPLETED", comment=SINGLETON), successor=Job(8, "PENDING"))), "the job is COMPLETED"),
    ("opt_in", case(job("PENDING", comment=SINGLETON), kind="stale_spool"), ""),
    # attempts
    ("attempts", case(job(), history={"attempts": 1}), ""),
    ("attempts", case(job(), history={"followed": "8"}), "job 8 was released to follow it"),
    ("attempts", case(job(), history={"attempts": 2}), "restarted 2 times, the limit is 2"),
    (
        "attempts",
        case(job(comment='{"APS":{"auto_resume_mode":"requeue"}}'), history={"attempts": 3}),
        "restarted 3 times, the limit is 3",
    ),
    (
        "attempts",
        case(job(comment=CONSENT.replace("2", "999")), history={"attempts": 10}),
        "restarted 10 times, the limit is 10",
    ),
    ("attempts", case(job(comment=CONSENT.replace("2", "0"))), "restarted 0 times, the limit is 0"),
    # dependents
    ("dependents", case(replace(job(), dependents=("8", "9"))), "jobs that depend on it may already run: 8, 9"),
    ("dependents", case(replace(job(), dependents=())), ""),
    (
        "dependents",
        case(replace(job(), unknown={"dependents": "sacct is silent"})),
        "whether jobs that depend on it already run is not known: sacct is silent",
    ),
    # cooldown
    ("cooldown", case(history={"last_closed_at": NOW - 299}), "the last incident ended 299 s ago"),
    ("cooldown", case(history={"last_closed_at": NOW - 300}), ""),
    ("cooldown", case(job(), history={"last_closed_at": NOW - 1}), ""),
    # common_cause
    ("common_cause", case(history={"alike": 2}), ""),
    ("common_cause", case(history={"alike": 3}), "4 nodes have node_not_responding within 300 s"),
    # blast_radius
    ("blast_radius", case(history={"held": 9}), ""),
    ("blast_radius", case(history={"held": 10}), "10 nodes are held out of service already, the limit is 10"),
    ("blast_radius", case(history={"held": 1}, limits={"blast_radius_nodes": 1}), "1 nodes are held"),
    ("blast_radius", case(history={"held": 0}, limits={"blast_radius_percent": 0.1}), ""),
    ("blast_radius", case(history={"held": 1}, limits={"blast_radius_percent": 0.1}), "1 nodes are held"),
    ("blast_radius", case(job(), history={"held": 99}), ""),
    *[
        ("blast_radius", case(history={"machines": machines, "held": held}), why)
        for machines, held, why in (
            (1, 0, ""),
            (1, 1, "1 nodes are held out of service already, the limit is 1"),
            (2, 0, ""),
            (2, 1, "1 nodes are held"),
            (3, 0, ""),
            (3, 1, "1 nodes are held"),
            (19, 1, "1 nodes are held"),
            (20, 1, ""),
            (20, 2, "2 nodes are held"),
            (288, 9, ""),
            (288, 10, "10 nodes are held out of service already, the limit is 10"),
            (10000, 10, "10 nodes are held"),
        )
    ],
    ("blast_radius", case(history={"machines": 288, "held": 27}, limits={"blast_radius_nodes": 100}), ""),
    ("blast_radius", case(history={"machines": 288, "held": 28}, limits={"blast_radius_nodes": 100}), "28 nodes"),
    # breaker
    ("breaker", case(history={"failures": 2}), ""),
    ("breaker", case(history={"failures": 3}), "the last 3 repairs failed"),
    # mode
    ("mode", case(settings={"mode": "observe"}), "mode is observe"),
    ("mode", case(history={"restored": True}), "the ledger was restored from an old backup"),
]


@pytest.mark.parametrize(
    ("name", "made", "why"), ROWS, ids=["%d-%s" % row for row in enumerate(row[0] for row in ROWS)]
)
def test_gate(name: str, made: Case, why: str) -> None:
    said = gates.GATES[name](made)
    assert said.startswith(why) if why else said == ""
    assert said.isprintable()


def test_every_gate_has_a_row_that_passes_and_one_that_does_not() -> None:
    for name in gates.GATES:
        whys = [why for gate, _made, why in ROWS if gate == name]
        assert any(whys), name


def test_the_first_in_order_names_the_refusal_and_all_are_recorded() -> None:
    made = case(history={"stopped": "", "failures": 9, "held": 99}, settings={"mode": "observe"})
    verdict = gates.evaluate(made, gates.OPEN)
    assert verdict.gate == "blast_radius"
    assert [name for name, why in verdict.results.items() if why] == ["blast_radius", "breaker", "mode"]


REQUEST = Request("bob", "because", ("cooldown", "mode"))


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        ({"seen_at": NOW - 9999, "look": healthy(slurm=node("IDLE", reason=None))}, ""),  # not about the fault
        ({"history": {"last_closed_at": NOW}, "settings": {"mode": "observe"}}, ""),
        ({"history": {"failures": 3}}, "breaker"),  # not overridden
        ({"history": {"stopped": "stopped"}}, "stopped"),
        ({"look": healthy(machine=None)}, "identity"),
    ],
)
def test_what_a_person_may_override(changes: dict[str, Any], gate: str) -> None:
    look = changes.pop("look", healthy())
    request = replace(REQUEST, override=(*REQUEST.override, *gates.NEVER_OVERRIDDEN))
    verdict = gates.evaluate(case(look, kind="requested", request=request, **changes), gates.OPEN)
    assert verdict.gate == gate


def test_what_was_overridden_is_told() -> None:
    verdict = gates.evaluate(case(kind="requested", request=REQUEST, settings={"mode": "observe"}), gates.OPEN)
    assert verdict.passed
    assert verdict.overridden == ("mode",)
    assert verdict.results["mode"] == "mode is observe"


@pytest.mark.parametrize("phase", [gates.CONTINUE, gates.GIVE_BACK])
@pytest.mark.parametrize(
    ("changes", "acted", "gate"),
    [
        ({"history": {"last_closed_at": NOW, "alike": 99, "held": 99, "failures": 9}}, True, ""),
        ({"settings": {"mode": "observe"}}, True, ""),
        ({"settings": {"mode": "observe"}}, False, "mode"),
        ({"look": healthy(slurm=node("IDLE", reason=None))}, True, ""),
        ({"look": healthy(slurm=node("IDLE", reason=None))}, False, "gone"),
        ({"history": {"stopped": "stopped"}}, True, "stopped"),
        ({"look": healthy(slurm=node("IDLE", "DRAIN", reason="bob"))}, True, "owner"),
        ({"look": healthy(slurm=node("IDLE", "MAINTENANCE"))}, True, "maintenance"),
        ({"look": healthy(slurm=node(partitions=("other",)))}, True, "scope"),
    ],
)
def test_phases(phase: str, changes: dict[str, Any], acted: bool, gate: str) -> None:
    changes = dict(changes)
    look = changes.pop("look", healthy())
    assert gates.evaluate(case(look, acted=acted, **changes), phase).gate == gate
