# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of faults: what can be wrong, of what, and which remediation is suggested for it.

One table in one place. A detector names a kind from here, the rulebook has one rule for each suggested remediation's
playbook, and the decision may choose a milder or a firmer remediation than the suggested one.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE = "node"
JOB = "job"


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        name: the word that events, ledger and reports use.
        target: what a fault of this kind is about, `node` or `job`.
        remediation: the suggested remediation (a playbook of the collection).
        meaning: one sentence for people.
    """

    name: str
    target: str
    remediation: str
    meaning: str


_KINDS = (
    FaultKind("node_not_responding", NODE, "reboot_node", "Slurm gets no answer from the node"),
    FaultKind("daemon_down", NODE, "restart_daemon", "slurmd or the kubelet is dead on a node that is alive"),
    FaultKind("node_rebooted", NODE, "return_node", "the node rebooted unexpectedly and Slurm keeps it DOWN"),
    FaultKind("node_back", NODE, "return_node", "the node answers again and Slurm keeps it DOWN (ReturnToService=0)"),
    FaultKind("node_suspect", NODE, "quarantine_node", "jobs of several users failed on the node in a row"),
    FaultKind("reboot_failed", NODE, "quarantine_node", "a reboot that Slurm was asked for did not end in time"),
    FaultKind("node_drained", NODE, "reboot_node", "Slurm itself drained the node after an error"),
    FaultKind("node_misconfigured", NODE, "report", "the node registers with less than its configuration says"),
    FaultKind("job_stuck_completing", NODE, "reboot_node", "processes of an ended job do not end on the node"),
    FaultKind("stale_spool", JOB, "requeue_job", "steps of the job cannot start for left-over PMIx files"),
    FaultKind("job_launch_held", JOB, "requeue_job", "the job is held after launch failures"),
    FaultKind("job_failed", JOB, "requeue_job", "an opted-in job ended without success"),
    FaultKind("job_hung", JOB, "report", "the log of an opted-in job does not grow any more"),
    FaultKind("gpu_fault", NODE, "reset_gpu", "the kernel log reports a GPU error"),
    FaultKind("kernel_fault", NODE, "reboot_node", "the kernel log reports a hardware or kernel error"),
    FaultKind("kubernetes_node_not_ready", NODE, "reboot_node", "the node's Ready condition is False or Unknown"),
    FaultKind("kubernetes_node_condition", NODE, "report", "a condition or taint of the node says that it is sick"),
    FaultKind("kubernetes_job_failed", JOB, "rerun_kubernetes_job", "an opted-in Job failed by its infrastructure"),
    FaultKind("kubernetes_job_unrecovered", JOB, "report", "the owner of a failed Job did not replace it in time"),
    FaultKind("kubernetes_job_stalled", JOB, "report", "nothing of the Job changes for as long as its user says"),
    FaultKind(
        "kubernetes_workload_unrecovered", JOB, "report", "work that lost pods was not made whole in time by its owner"
    ),
    FaultKind("pod_stuck_terminating", NODE, "reboot_node", "pods of a lost node never end"),
    FaultKind("pod_stuck_creating", NODE, "report", "the node makes no sandboxes for pods of several owners"),
    FaultKind("requested", NODE, "report", "a person asked for a remediation"),
)

KINDS: dict[str, FaultKind] = {kind.name: kind for kind in _KINDS}

REMEDIATIONS = (
    "restart_daemon",
    "reboot_node",
    "return_node",
    "clean_spool",
    "requeue_job",
    "rerun_kubernetes_job",
    "reset_gpu",
    "quarantine_node",
    "report",
)
