# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the event source `kubernetes` sees: nodes, Jobs and pods mirrored by watches, looked at once a second.

A look judges what the mirrors hold, and asks for nothing but the pods of nodes that are not ready and of work that is
in trouble, and the events of Jobs that failed without a trace and of pods that do not start. While one of the mirrors
of nodes, Jobs and pods does not know, nothing is known.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import (
    creating,
    detect,
    evidence,
    owners,
    workloads,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JobView,
    NodeView,
    PodView,
    job_view,
    node_view,
    pod_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import pods_on
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_watch import OwnerMirrors
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.watch import Mirror
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    KUBERNETES,
    Target,
    build_event,
    valid_job_name,
    valid_node_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner, Settings

SOURCE = "kubernetes"
INTERVAL = 1.0
STUCK_GRACE = 30.0  # seconds beyond a pod's own grace period
_OF_JOBS = {"fieldSelector": "spec.restartPolicy!=Always"}  # what a Job's pods may not have
_LIST_EVERY = 15.0  # seconds between two lists of the pods of one lost node
_LISTS_PER_LOOK = 5
_TRACE_EVERY = 30.0  # seconds between two questions for the events of one Job, which may come late
_TRACE_TIMES = 3
_TRACES_PER_LOOK = 5

Clock = Callable[[], float]


class KubernetesSight:
    """The faults that a cluster shows now. Used by one task at a time.

    Args:
        wall: epoch seconds, for what the server dates.
        steady: a clock that only goes forward, for sending again.
    """

    def __init__(self, wall: Clock = time.time, steady: Clock = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._resend = Resend()
        self._eyes: Any = None
        self._reach: tuple[str, float] = ("", 0.0)

    def look(self, settings: Settings) -> list[dict[str, Any]]:
        """The events to send now: every fault when it is new, and once a minute while it lasts.

        Meant for a thread of its own, as it may ask the server (see above). Without a kubeconfig in the settings there
        is no Kubernetes, and so no fault.

        Raises:
            RecoveryError: the API server does not answer at present, or was not yet listed; nothing is known.
        """
        self._open(settings)
        if self._eyes is None:
            return []
        now = self._wall()
        seen = self._eyes.faults(now, settings)
        return events(self._resend.due(seen, self._steady()), settings.cluster, now)

    def close(self) -> None:
        """Stop the mirrors."""
        if self._eyes is not None:
            self._eyes.close()
            self._eyes = None

    def _open(self, settings: Settings) -> None:
        reach = (settings.kubernetes.kubeconfig, settings.kubernetes.timeout)
        if reach == self._reach:
            return
        self.close()
        self._reach = reach
        if settings.kubernetes.kubeconfig:
            self._eyes = _Eyes(KubernetesClient(settings.kubernetes.kubeconfig, timeout=settings.kubernetes.timeout))


class _Eyes:
    """The mirrors of one API server."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._disrupted = detect.CauseMemory()
        self._asked: dict[str, tuple[int, float]] = {}  # by a Job's uid: how often, and when again
        self._nodes: Mirror[NodeView] = Mirror(client, path_of("v1", "nodes"), node_view)
        self._jobs: Mirror[JobView] = Mirror(client, path_of("batch/v1", "jobs"), job_view)
        # Of all pods only those are watched that a Job can have made, and only those remembered that something is wrong
        # with: most pods of a large cluster are of DaemonSets and services, and none of them decides of a Job.
        self._pods: Mirror[PodView] = Mirror(
            client, path_of("v1", "pods"), pod_view, _worth_remembering, _OF_JOBS, self._disrupted.note
        )
        self._lost = _LostPods(client)
        self._creating = _Creating(client)
        self._work = _Work(client, self._disrupted)
        for mirror in (self._nodes, self._jobs, self._pods):
            mirror.start()

    def faults(self, now: float, settings: Settings) -> list[detect.Seen]:
        """All that is wrong now."""
        nodes, jobs, pods = self._nodes.views(), self._jobs.views(), self._pods.views()
        everybody, own = settings.jobs == "all", settings.kubernetes.owners
        causes = self._disrupted.look(jobs, pods, everybody, self._work.uids(pods))
        work, alone = self._work.look(jobs, pods, own, everybody, now)
        self._trace([job for job in jobs if causes.get(job.uid) is Cause.UNKNOWN and not owners.is_left(job, own)])
        return [
            *detect.node_faults(nodes, now, settings.kubernetes.node_grace),
            *detect.sick_nodes(nodes, settings.kubernetes.node_signs, now),
            *detect.pod_faults(nodes, self._lost.look(nodes, now), now, STUCK_GRACE),
            *detect.nodes_without_sandboxes(
                nodes, self._creating.look(pods, now, settings.kubernetes.creating_grace), settings.kubernetes.creating
            ),
            *detect.job_faults(jobs, causes, everybody),
            *detect.unrecovered_jobs(jobs, causes, everybody, own, now, alone),
            *detect.unrecovered_work(work),
            *detect.stalled_jobs(jobs, everybody, now),
        ]

    def _trace(self, jobs: Sequence[JobView]) -> None:
        """Ask for the events of Jobs whose failure nothing explains any more; the next look has the answer."""
        asked = {job.uid: self._asked.get(job.uid, (0, 0.0)) for job in jobs}
        now = time.monotonic()
        due = [job for job in jobs if asked[job.uid][0] < _TRACE_TIMES and asked[job.uid][1] <= now]
        for job in due[:_TRACES_PER_LOOK]:
            asked[job.uid] = (asked[job.uid][0] + 1, now + _TRACE_EVERY)
            try:
                for pod in evidence.disrupted_pods(self._client, job):
                    self._disrupted.note(pod)
            except RecoveryError as exc:  # what the mirrors show counts without it
                logging.getLogger("job_recovery.kubernetes").warning("events of Job %s: %s", job.key, exc)
        self._asked = asked

    def close(self) -> None:
        """Ask the mirrors to end; what they still wait for ends with their deadlines."""
        for mirror in (self._nodes, self._jobs, self._pods):
            mirror.stop()
        self._work.close()
        self._client.close()


class _Work:
    """Work of other owners than the Job controller, and pods of nobody, that was lost and is not made up for."""

    def __init__(self, client: KubernetesClient, disrupted: detect.CauseMemory) -> None:
        self._owners = OwnerMirrors(client)
        self._disrupted = disrupted
        self._losses = workloads.Losses()
        self._uids: set[str] = set()

    def uids(self, pods: Sequence[PodView]) -> set[str]:
        """Of those whose lost pods are to be remembered."""
        return self._uids.union(pod.owner_uid for pod in pods if pod.owner_uid)

    def look(
        self, jobs: Sequence[JobView], pods: Sequence[PodView], own: Sequence[JobOwner], everybody: bool, now: float
    ) -> tuple[list[workloads.Workload], Callable[[JobView], bool]]:
        """What a person should know of; and whether a Job is to be judged alone, and not by what made it."""
        work, unread = self._owners.look(own)
        self._uids = {one.uid for one in work}
        judged = {one.uid for one in work if workloads.is_judged(one, own, everybody)}
        roots = workloads.Roots([*jobs, *work] if work else [])
        lost = self._losses.look(work, roots, self._disrupted.disrupted() if work else {}, pods, now)
        for pod in self._owners.lost_pods(work, lambda one: one.uid in judged and one.uid not in lost):
            self._disrupted.note(pod)  # the next look counts it

        def alone(job: JobView) -> bool:
            return roots.of(job.uid) not in judged and job.owner.partition("/")[0] not in unread

        found = workloads.unrecovered(work, lost, own, everybody, now)
        return [*found, *workloads.lost_pods(pods, own, everybody)], alone

    def close(self) -> None:
        """Stop the mirrors."""
        self._owners.close()


class _LostPods:
    """The pods that are on their way out on nodes that are not ready: listed now and then, a few nodes at a time."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._known: dict[str, tuple[float, list[PodView]]] = {}  # by node: when it was listed, and what was there

    def look(self, nodes: Sequence[NodeView], now: float) -> list[PodView]:
        """What is known of them now; ask anew for those nodes that were asked for longest ago."""
        lost = [node.name for node in nodes if detect.not_ready(node, now)]
        self._known = {name: self._known.get(name, (-_LIST_EVERY, [])) for name in lost}
        steady = time.monotonic()
        due = [name for name in lost if steady - self._known[name][0] >= _LIST_EVERY]
        for name in sorted(due, key=lambda one: self._known[one][0])[:_LISTS_PER_LOOK]:
            pods = self._known[name][1]
            try:
                pods = [pod for pod in pods_on(self._client, name) if pod.deleted_at is not None]
            except RecoveryError as exc:  # what the mirrors show counts without it
                logging.getLogger("job_recovery.kubernetes").warning("pods of node %s: %s", name, exc)
            self._known[name] = (steady, pods)
        return [pod for _when, pods in self._known.values() for pod in pods]


class _Creating:
    """Nodes that make no sandboxes: judged by the events of their pods, now and then, a few nodes at a time."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._known: dict[str, tuple[float, bool]] = {}  # by node: when it was asked for, and what was found

    def look(self, pods: Sequence[PodView], now: float, grace: float) -> set[str]:
        """The names of those for which it is proved."""
        candidates = creating.candidates(pods, now, grace)
        self._known = {name: self._known.get(name, (-_LIST_EVERY, False)) for name in candidates}
        steady = time.monotonic()
        due = [name for name in candidates if steady - self._known[name][0] >= _LIST_EVERY]
        for name in sorted(due, key=lambda one: self._known[one][0])[:_LISTS_PER_LOOK]:
            proved = False
            try:
                proved = creating.no_sandbox(self._client, candidates[name]) >= creating.ENOUGH
            except RecoveryError as exc:  # what the mirrors show counts without it
                logging.getLogger("job_recovery.kubernetes").warning("events of pods of node %s: %s", name, exc)
            self._known[name] = (steady, proved)
        return {name for name, (_when, proved) in self._known.items() if proved}


def events(seen: Sequence[detect.Seen], cluster: str, now: float) -> list[dict[str, Any]]:
    """One event for each kind and remediation, with all its targets. No name that is no identifier gets into one."""
    alike: dict[tuple[str, str], list[Target]] = {}
    for fault in seen:
        if fault.uid and valid_job_name(fault.name, KUBERNETES):
            alike.setdefault((fault.kind, fault.suggested), []).append(Target(JOB, fault.name, fault.uid))
        elif not fault.uid and valid_node_name(fault.name):
            alike.setdefault((fault.kind, fault.suggested), []).append(Target(NODE, fault.name))
    return [
        build_event(kind, KUBERNETES, cluster, SOURCE, list(dict.fromkeys(targets)), now, suggested)
        for (kind, suggested), targets in alike.items()
    ]


def _worth_remembering(pod: PodView) -> bool:
    return pod.cause is not None or pod.deleted_at is not None or pod.creating_since is not None
