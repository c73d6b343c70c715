# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which faults a look at Slurm shows. Pure: what is wrong now, not what to do and not whether to send it.

Whose a drain is, maintenance and scope are not judged here but by the gates, so that the ledger can say why nothing
was done. Left out is only what is no fault: what a person asked for and nothing broke, and what is in our own repair.
"""

from __future__ import annotations

import dataclasses
from typing import Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    JOB_ENDS,
    REPORT,
    JobEnds,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import queue, reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    Job,
    JobState,
    NodeGroup,
    NodeState,
)

# Every reason that the recovery gives to Slurm begins so; the incident's number follows.
OUR_MARK = "job-recovery #"

_COMPLETING_SLACK = 60.0  # seconds beyond slurm.conf's own time-outs until a job is stuck COMPLETING
_NO_TIMEOUT = 65534  # slurm.conf's value for a time-out that is not set
_UNLIMITED_EPILOG = 600.0  # seconds for an epilog that slurm.conf gives no time-out
_QUICKER_THAN_PURGE = 3.0  # looks at the queue within MinJobAge

_BY_REASON = (
    # the first kind that a part of the reason names is the fault
    (reasons.REBOOT_FAILED, "reboot_failed"),
    (reasons.CONFIGURATION, "node_misconfigured"),
    (reasons.REBOOTED, "node_rebooted"),
    (reasons.REPAIRABLE, "node_drained"),
    (reasons.SILENT, "node_back"),
)


@dataclasses.dataclass(frozen=True)
class Seen:
    """One fault as a look shows it; equal ones of two looks are one lasting fault.

    Attributes:
        kind: of the catalogue.
        name: the node or the job id.
        episode: what tells two faults of one job apart (its submission, which changes with each requeue); 0 for a node.
    """

    kind: str
    name: str
    episode: int = 0


def node_fault(state: NodeState) -> Optional[Seen]:
    """The fault of one node, None for a node that is well, in our repair, or not understood."""
    node = state.node
    if not node.understood or node.powering or _in_our_repair(state.reason):
        return None
    if not node.responding:
        # while `scontrol reboot` is at work a node is silent by wish
        return None if node.rebooting else Seen("node_not_responding", state.name)
    if node.misconfigured:
        return Seen("node_misconfigured", state.name)
    if not node.out_of_service:
        return None
    parts = reasons.classify_reason(state.reason)
    for part, kind in _BY_REASON:
        if part in parts and (kind != "node_back" or node.down):
            return Seen(kind, state.name)
    return None


def node_faults(groups: Iterable[NodeGroup]) -> list[Seen]:
    """The faults of these nodes; of a node that a look shows several times, once for each partition, one.

    What is judged is the group, so that ten thousand nodes cost no more than ten.
    """
    faulty = [group for group in groups if node_fault(NodeState("", group.base_state, group.flags, group.reason))]
    faults = (node_fault(state) for group in faulty for state in group.states)
    return list(dict.fromkeys(fault for fault in faults if fault))


def may_have_run(state: JobState) -> bool:
    """Whether a PENDING job that no look saw before may have run in between: Slurm lets a requeued one wait a while."""
    return state.state_reason == "BeginTime"


def job_candidate(
    state: JobState, previous: Optional[JobState], restarted: bool = False, ran: bool = True
) -> Optional[Seen]:
    """The fault that a job may have, by its state alone; `confirmed` tells by its details whether it has.

    Args:
        state: the job now.
        previous: the job in the look before, None when it was not seen.
        restarted: it was requeued and may have found left-over files; where its script hides that its steps could not
            start, it ends COMPLETED.
        ran: where no look before saw it, whether it may have run before this one.
    """
    name, episode = queue.job_name(state), state.submit_time or 0
    if "COMPLETING" in state.flags:
        return None
    if state.state in JOB_ENDS:
        return Seen("job_failed", name, episode)
    if state.state == "COMPLETED" and restarted:
        return Seen("stale_spool", name, episode)
    if state.state != "PENDING":
        return None
    if state.held_by_slurm:
        return Seen("job_launch_held", name, episode)
    if ran if previous is None else _was_pending(previous) != _was_pending(state):
        return Seen("stale_spool", name, episode)
    return None


def _was_pending(state: JobState) -> tuple[bool, Optional[int]]:
    return state.state == "PENDING" and "COMPLETING" not in state.flags, state.submit_time


def stuck_nodes(state: JobState, now: float, grace: float) -> list[Seen]:
    """The nodes that keep a job COMPLETING for longer than `grace`: their fault, and theirs is the repair.

    Of a job that is COMPLETING, squeue lists only the nodes that have not been returned to service yet (squeue(1), %N),
    and its end is when that began.
    """
    if "COMPLETING" not in state.flags or not state.end_time or now - state.end_time <= grace:
        return []
    return [Seen("job_stuck_completing", node) for node in state.nodes]


def completing_grace(config: Mapping[str, str], setting: float) -> Optional[float]:
    """Seconds a job may stay COMPLETING: the setting, else what slurm.conf lets the processes and the epilog take.

    None where slurm.conf does not say: then no job is stuck.
    """
    if setting:
        return setting
    unkillable = seconds_of(config, "UnkillableStepTimeout")
    if unkillable is None:
        return None
    kill_wait = seconds_of(config, "KillWait") or 0.0
    return kill_wait + unkillable + _epilog_seconds(config) + _COMPLETING_SLACK


def _epilog_seconds(config: Mapping[str, str]) -> float:
    if not any(name.startswith("Epilog") and value.startswith("/") for name, value in config.items()):
        return 0.0
    limit = seconds_of(config, "EpilogTimeout") or seconds_of(config, "PrologEpilogTimeout") or _NO_TIMEOUT
    return _UNLIMITED_EPILOG if limit >= _NO_TIMEOUT else limit


def job_interval(config: Mapping[str, str], setting: float) -> float:
    """Seconds between two looks at the jobs: often enough to see a finished one before MinJobAge purges it."""
    age = seconds_of(config, "MinJobAge")
    return min(setting, age / _QUICKER_THAN_PURGE) if age else setting  # 0: none is ever purged


def seconds_of(config: Mapping[str, str], name: str) -> Optional[float]:
    """A duration of `scontrol show config`, such as `300 sec`."""
    word = config.get(name, "").partition(" ")[0]
    return float(word) if word.isdigit() else None


def confirmed(candidate: Seen, job: Job, everybody: bool) -> bool:
    """Whether a job with these details is one that recovery is asked to look after, and has what the state suggested.

    Args:
        candidate: by the job's state.
        job: its details.
        everybody: the site recovers all jobs, not only those whose comment opts in.
    """
    if not job.het_leader or not (everybody or asks_for_recovery(job.comment)):
        return False
    # a job that never ran cannot have left anything behind
    return candidate.kind != "stale_spool" or bool(job.restart_count)


def asks_for_recovery(comment: Optional[str]) -> bool:
    """Whether a comment looks like an opt-in. Whether it is a good one, the gate `opt_in` says, and records why not."""
    if not comment or "auto_resume_mode" not in comment:
        return False
    try:
        data = json_text.loads(comment)
    except ValueError:
        return True
    return isinstance(data, dict) and isinstance(data.get("APS"), dict)


def suggestion(candidate: Seen, state: JobState, ends: JobEnds) -> Optional[str]:
    """A remediation other than the catalogue's, where the site only wants to be told of such an end."""
    return REPORT if candidate.kind == "job_failed" and ends.of(state.state) == REPORT else None


def _in_our_repair(reason: Optional[str]) -> bool:
    # what Slurm or a person adds to our text is news, unless it only tells how the repair goes on
    return (reason or "").strip().startswith(OUR_MARK) and not reasons.has_news(reason)
