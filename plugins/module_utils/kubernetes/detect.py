# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which faults the nodes, Jobs and pods of Kubernetes show. Pure: what is wrong now, not what to do.

Whose a cordon is, scope and attempts are not judged here but by the gates, so that the ledger can say why nothing was
done. Left out is only what is no fault, what is in our own repair, and Jobs that nobody asked us to look after.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Callable, Collection, Iterable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners, signs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause, job_cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JobState,
    JobView,
    NodeView,
    PodView,
    origin_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import (
    Standing,
    standing,
    stuck_terminating,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import Workload
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner, NodeSign

NODE_NOT_READY = "kubernetes_node_not_ready"
NODE_CONDITION = "kubernetes_node_condition"
JOB_FAILED = "kubernetes_job_failed"
JOB_UNRECOVERED = "kubernetes_job_unrecovered"
JOB_STALLED = "kubernetes_job_stalled"
WORK_UNRECOVERED = "kubernetes_workload_unrecovered"
POD_STUCK = "pod_stuck_terminating"
POD_CREATING = "pod_stuck_creating"


@dataclass(frozen=True)
class Seen:
    """One fault as a look shows it; equal ones of two looks are one lasting fault.

    Attributes:
        kind: of the catalogue.
        name: the node, or the Job as `namespace/name`.
        uid: the Job's; empty for a node.
        episode: what tells two faults of one node apart (since when it is not ready, as the server says it).
        suggested: a remediation other than the catalogue's; empty for that one.
    """

    kind: str
    name: str
    uid: str = ""
    episode: str = ""
    suggested: str = ""


def node_faults(nodes: Iterable[NodeView], now: float, grace: float) -> list[Seen]:
    """Nodes whose Ready condition is False or Unknown since at least `grace` seconds."""
    return [
        Seen(NODE_NOT_READY, node.name, episode=str(node.ready_since or ""))
        for node in nodes
        if not_ready(node, now, grace) and standing(node) is not Standing.OURS
    ]


def sick_nodes(nodes: Iterable[NodeView], node_signs: Sequence[NodeSign], now: float) -> list[Seen]:
    """Nodes with a condition or taint by which others say that they are sick, each with what the site does about it."""
    if not node_signs:  # asked once a second, of very many nodes
        return []
    return [
        Seen(NODE_CONDITION, node.name, episode=_sign_text(found), suggested=found.sign.remediation)
        for node in nodes
        for found in [signs.shown(node, node_signs)]
        if found is not None and found.lasts(now) and standing(node) is not Standing.OURS
    ]


def _sign_text(found: signs.Shown) -> str:
    return "%s %s %s" % (found.sign.condition or found.sign.taint, found.sign.status, found.since or "")


def not_ready(node: NodeView, now: float, grace: float = 0.0) -> bool:
    """Whether the node is not ready since at least `grace` seconds. No Ready condition at all is no statement.

    A time in the future (the server's clock is ahead) counts as now.
    """
    if node.ready not in ("False", "Unknown"):
        return False
    since = now if node.ready_since is None else min(node.ready_since, now)
    return now - since >= grace


def pod_faults(nodes: Iterable[NodeView], pods: Sequence[PodView], now: float, grace: float) -> list[Seen]:
    """Nodes with pods that never end: their grace period is over since `grace` seconds and the kubelet is silent.

    On a node that is ready a pod that does not end is held by its finalizer or by its process, not by the node's loss.
    """
    lost = {node.name: node for node in nodes if not_ready(node, now) and standing(node) is not Standing.OURS}
    names = dict.fromkeys(pod.node for pod in stuck_terminating(pods, now, grace) if pod.node in lost)
    return [Seen(POD_STUCK, name, episode=str(lost[name].ready_since or "")) for name in names]


def nodes_without_sandboxes(nodes: Iterable[NodeView], proved: Collection[str], remediation: str) -> list[Seen]:
    """Nodes that make no sandboxes for pods of several owners.

    Args:
        proved: names of nodes for which the kubelet's events say so.
        remediation: what the site does about it.
    """
    return [
        Seen(POD_CREATING, node.name, suggested=remediation)
        for node in nodes
        if node.name in proved and node.ready == "True" and standing(node) is not Standing.OURS
    ]


def job_faults(jobs: Sequence[JobView], causes: Mapping[str, Cause], everybody: bool) -> list[Seen]:
    """Jobs that failed by their infrastructure, that we are asked to look after and that do not run again yet.

    Args:
        causes: by the Job's uid, whose fault its failure was (`CauseMemory.look`).
        everybody: the site recovers all Jobs, not only those that opted in.
    """
    return [
        Seen(JOB_FAILED, job.key, uid=job.uid)
        for job in jobs
        if is_candidate(job, everybody) and not job.owner and causes.get(job.uid) is Cause.INFRASTRUCTURE
    ]


def unrecovered_jobs(
    jobs: Sequence[JobView],
    causes: Mapping[str, Cause],
    everybody: bool,
    own: Sequence[JobOwner],
    now: float,
    alone: Callable[[JobView], bool] = lambda _job: True,
) -> list[Seen]:
    """Jobs that failed by their infrastructure and whose owner, to whom they are left, did not replace them in time.

    Args:
        own: the site's rows of owners.
        alone: whether a Job is judged by itself; one of an owner that is read, and looked after, is judged with that.
    """
    wanted = [
        job
        for job in jobs
        if job.owner and is_candidate(job, everybody) and causes.get(job.uid) is Cause.INFRASTRUCTURE and alone(job)
    ]
    return [Seen(JOB_UNRECOVERED, job.key, uid=job.uid) for job in owners.unrecovered(jobs, wanted, own, now)]


def unrecovered_work(work: Iterable[Workload]) -> list[Seen]:
    """Work other than Jobs of which a person should know (`workloads.unrecovered`, `workloads.lost_pods`)."""
    return [Seen(WORK_UNRECOVERED, one.key, uid=one.uid) for one in work]


def stalled_jobs(jobs: Iterable[JobView], everybody: bool, now: float) -> list[Seen]:
    """Jobs that we look after, and that have not changed for as long as their users say."""
    return [
        Seen(JOB_STALLED, job.key, uid=job.uid)
        for job in jobs
        if (everybody or job.opt_in is not None) and job.is_stalled(now)
    ]


def is_candidate(job: JobView, everybody: bool) -> bool:
    """Whether a Job failed (or is about to), is looked after, and was not already run again.

    An opt-in that is not readable counts here as one: the gate refuses it and says why.
    """
    if job.state not in (JobState.FAILED, JobState.FAILING) or job.deleted:
        return False
    if job.opt_in is None and not everybody:
        return False
    try:
        return not origin_of(job).rerun_as
    except Unreadable:
        return True


class CauseMemory:
    """The pods that showed the disruption of a Job, or of another owner, remembered while that is there.

    They go: a pod that was evicted from a lost node is deleted when the node is back, often before the Job's own
    condition says Failed. So what was seen once is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._disrupted: dict[str, dict[str, PodView]] = {}
        self._without_job: set[str] = set()

    def note(self, pod: PodView) -> None:
        """See one pod, in any thread: every state of every pod comes by here, also the last one of a deleted pod."""
        maker = pod.job_uid or pod.owner_uid
        if maker and pod.cause is Cause.INFRASTRUCTURE:
            with self._lock:
                self._disrupted.setdefault(maker, {})[pod.uid] = pod

    def disrupted(self) -> dict[str, dict[str, PodView]]:
        """By the uid of what made them (a Job, or another owner), and by their own, the pods that were disrupted."""
        with self._lock:
            return {maker: dict(pods) for maker, pods in self._disrupted.items()}

    def look(
        self, jobs: Sequence[JobView], pods: Sequence[PodView], everybody: bool, others: Collection[str] = ()
    ) -> dict[str, Cause]:
        """Whose fault the failure of each candidate was, by its pods of now and its disrupted pods of before.

        Args:
            others: uids of owners, besides these Jobs, whose pods are remembered.

        Returns:
            the cause by the Job's uid.
        """
        by_job: dict[str, dict[str, PodView]] = {}
        for pod in pods:
            by_job.setdefault(pod.job_uid, {})[pod.uid] = pod
        with self._lock:
            self._forget({job.uid for job in jobs if job.state is not JobState.COMPLETE}.union(others))
        remembered = self.disrupted()
        return {
            job.uid: job_cause(
                job.reason, job.backoff_limit, list({**remembered.get(job.uid, {}), **by_job.get(job.uid, {})}.values())
            )
            for job in jobs
            if is_candidate(job, everybody)
        }

    def _forget(self, wanted: set[str]) -> None:
        """Forget the pods of Jobs that were missing in two looks in a row (a Job may be seen later than its pods)."""
        missing = set(self._disrupted) - wanted
        for uid in missing & self._without_job:
            del self._disrupted[uid]
        self._without_job = missing
