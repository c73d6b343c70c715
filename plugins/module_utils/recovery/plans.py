# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps in their one order, and the plans made of them.

A step is one short thing with a proof. Every plan is a sub-sequence of `ORDER`, so that one pass of a run over the
steps in this order advances every claimed incident as far as it can go, whatever its plan.
"""

from __future__ import annotations

RESTART_DAEMON = "restart_daemon"
DRAIN = "drain"
CORDON = "cordon"
AWAIT_DRAINED = "await_drained"
SAVE_EVIDENCE = "save_evidence"
STOP_GPU_CLIENTS = "stop_gpu_clients"
RESET_GPU = "reset_gpu"
START_GPU_CLIENTS = "start_gpu_clients"
REBOOT = "reboot"
FENCE = "fence"
DOWN = "down"
RELEASE_PODS = "release_pods"
FREE_JOBS = "free_jobs"
POWER_ON = "power_on"
AWAIT_BOOT = "await_boot"
AWAIT_JOB_END = "await_job_end"
DIAGNOSE = "diagnose"
END_ORPHANS = "end_orphans"
CLEAN_SPOOL = "clean_spool"
VERIFY = "verify"
UNCORDON = "uncordon"
RESUME = "resume"
REQUEUE = "requeue"
RERUN = "rerun"
RELEASE_SUCCESSOR = "release_successor"
TELL = "tell"
CONFIRM = "confirm"

ORDER: tuple[str, ...] = (
    RESTART_DAEMON,  # slurmd or kubelet on a node that is alive, same boot
    DRAIN,  # in Slurm, with our reason
    CORDON,  # in Kubernetes, with our annotation
    AWAIT_DRAINED,  # a live node's jobs and pods end, are evicted, or the policy's time is over
    SAVE_EVIDENCE,  # what a reboot wipes out, as files on the controller
    STOP_GPU_CLIENTS,  # services that have GPUs open; what was running is recorded on the node
    RESET_GPU,  # nvidia-smi --gpu-reset, once, with nobody who has the GPU open
    START_GPU_CLIENTS,  # exactly those that were running
    REBOOT,  # over SSH, only if the boot ID is still the one on record (compared on the node itself)
    FENCE,  # BMC of proved identity: ForceOff, and the BMC itself says Off
    DOWN,  # in Slurm; only for a node that is proved off or dead
    RELEASE_PODS,  # out-of-service taint; only for a node that is proved off
    FREE_JOBS,  # opted-in jobs that the node's death requeued: begin time cleared
    POWER_ON,  # BMC: On
    AWAIT_BOOT,  # a new boot ID, registered with its scheduler after the boot
    AWAIT_JOB_END,  # the job is not RUNNING and not COMPLETING
    DIAGNOSE,  # what the job's log says, for its user and for people
    END_ORPHANS,  # no process of the job is left on any of its nodes
    CLEAN_SPOOL,  # nothing of ended steps is left in the slurmd spool
    VERIFY,  # configured resources, the site's health command, a test step of Slurm
    UNCORDON,  # only ours; the out-of-service taint goes too
    RESUME,  # only ours, only after registration
    REQUEUE,  # restart count above the recorded one and PENDING or RUNNING and no COMPLETING
    RERUN,  # a failed Kubernetes Job again under a new name
    RELEASE_SUCCESSOR,  # the job that its user holds to follow a failed one
    TELL,  # the job's user, in its AdminComment
    CONFIRM,  # the proof that the fault is gone; closes the incident
)

# In the memory of an incident whose node was found silent by our probes alone, and not by Slurm: any answer before its
# power goes, a refusal too, is a reason to leave it alone.
BY_PROBES = "by_probes"
# In the proof of a fence that failed: the node is not silent any more. True: Slurm hears it, too.
ANSWERS_AGAIN = "answers_again"
# In the proof of a wait for pods that failed: looked again, and the fault is not there any more.
FAULT_GONE = "fault_gone"

# In the memory of an incident that was given up: somebody else has its node.
TAKEN_OVER = "taken_over"

PLANS: dict[str, tuple[str, ...]] = {
    # how a node's repair goes on is chosen by what is found when it is claimed
    "restart_daemon": (RESTART_DAEMON, CONFIRM),
    "reboot_over_ssh": (
        DRAIN,
        CORDON,
        AWAIT_DRAINED,
        SAVE_EVIDENCE,
        REBOOT,
        FREE_JOBS,
        AWAIT_BOOT,
        CLEAN_SPOOL,
        VERIFY,
        UNCORDON,
        RESUME,
        CONFIRM,
    ),
    "reboot_by_power": (
        DRAIN,
        CORDON,
        FENCE,
        DOWN,
        RELEASE_PODS,
        FREE_JOBS,
        POWER_ON,
        AWAIT_BOOT,
        CLEAN_SPOOL,
        VERIFY,
        UNCORDON,
        RESUME,
        CONFIRM,
    ),
    "reset_gpu": (
        DRAIN,
        CORDON,
        AWAIT_DRAINED,
        SAVE_EVIDENCE,
        STOP_GPU_CLIENTS,
        RESET_GPU,
        START_GPU_CLIENTS,
        VERIFY,
        UNCORDON,
        RESUME,
        CONFIRM,
    ),
    # after a reset that failed, where no reboot is left
    "quarantine_after_reset": (DRAIN, CORDON, START_GPU_CLIENTS),
    "return_node": (DRAIN, CORDON, FREE_JOBS, AWAIT_BOOT, CLEAN_SPOOL, VERIFY, UNCORDON, RESUME, CONFIRM),
    "clean_spool": (DRAIN, AWAIT_DRAINED, CLEAN_SPOOL, VERIFY, RESUME, CONFIRM),
    "quarantine_node": (DRAIN, CORDON, SAVE_EVIDENCE),
    "requeue_job": (AWAIT_JOB_END, DIAGNOSE, END_ORPHANS, CLEAN_SPOOL, REQUEUE, TELL, CONFIRM),
    "release_successor": (AWAIT_JOB_END, DIAGNOSE, END_ORPHANS, CLEAN_SPOOL, RELEASE_SUCCESSOR, TELL, CONFIRM),
    "tell_user": (DIAGNOSE, TELL),
    "rerun_kubernetes_job": (DIAGNOSE, RERUN, CONFIRM),
}


def is_held(plan: str, step: str) -> bool:
    """Whether an incident that stands before `step` has drained its node and not begun to give it back."""
    steps = PLANS.get(plan, ())
    if DRAIN not in steps or RESUME not in steps or step not in steps:
        return False
    return steps.index(DRAIN) < steps.index(step) < steps.index(RESUME)


def is_cordoned(plan: str, step: str) -> bool:
    """Whether an incident that stands before `step` has cordoned its node and not begun to give it back."""
    steps = PLANS.get(plan, ())
    if CORDON not in steps or UNCORDON not in steps or step not in steps:
        return False
    return steps.index(CORDON) < steps.index(step) < steps.index(UNCORDON)


def next_step(plan: tuple[str, ...], done: str) -> str:
    """The step of `plan` after `done`; the empty text after the last one; the first one for the empty text."""
    position = plan.index(done) + 1 if done else 0
    return plan[position] if position < len(plan) else ""


def in_order(steps: set[str]) -> list[str]:
    """These steps in the one order."""
    return [step for step in ORDER if step in steps]
