# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recovery needs to know of nodes, pods and Jobs, read once from the API server's objects. Pure.

Times are seconds since the epoch, None where the server has none. Field values of an unknown kind stay unknown: a
missing Ready condition is None and never False.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Mapping, Optional, Pattern

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import causes, losses, progress
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    condition,
    controller,
    epoch,
    first_text,
    given_text,
    items,
    made_by,
    owner_text,
    part,
    text,
    texts,
)

NODE_ANNOTATION = "mission-control/job-recovery"  # on nodes that we cordoned
JOB_ANNOTATION = "mission-control/job-recovery"  # on Jobs that we ran again, and on those that ran again as another
OPT_IN_ANNOTATION = "mission-control/auto-resume"  # written by users
HOLD_ANNOTATION = "mission-control/hold"  # written by people: leave this node alone
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNREACHABLE = "node.kubernetes.io/unreachable"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
JOB_CONTROLLER = "kubernetes.io/job-controller"
JOB_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")

_UID = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_JOB_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
# Pods in which a slurmd runs, by the operator of Slurm's makers; the label's value is the Slurm node's name.
_SLURM_NODE_LABEL = "nodeset.slinky.slurm.net/pod-hostname"
_SLURM_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NUMBER = re.compile(r"[0-9]{1,6}\Z")


class JobState(Enum):
    """What became of a Job. `FAILING`: it will fail (FailureTarget), but some of its pods have not ended yet."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETE = "complete"
    FAILING = "failing"
    FAILED = "failed"


@dataclass(frozen=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    def as_object(self) -> dict[str, str]:
        """As it stands in a node's spec."""
        made = {"key": self.key, "effect": self.effect}
        return dict(made, value=self.value) if self.value else made


@dataclass(frozen=True)
class Condition:
    """One condition of a node: its type, its status as the server spells it, and since when it has that."""

    kind: str
    status: str
    since: Optional[float] = None


@dataclass(frozen=True)
class NodeView:
    """One node.

    Attributes:
        ready: the Ready condition's status, `True`, `False` or `Unknown` as text; None where there is none.
        ready_since: when it got this status.
        conditions: all the others.
        boot_id, machine_id, system_uuid: as the kubelet told them last.
        unschedulable: whether it is cordoned.
        cordon_managers: field managers whose write cordoned it (empty where the server does not say).
        cordoned_at: when the server says that this write was.
        taints: as the server lists them, with all their fields kept apart in `raw_taints`.
        ownership: the text of our annotation, or None.
        held: whether a person asked by annotation to leave it alone.
        deleted: whether somebody deleted it, and it is on its way out.
        capacity: the kubelet's numbers as text, by resource.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    ready: Optional[str] = None
    ready_since: Optional[float] = None
    conditions: tuple[Condition, ...] = ()
    boot_id: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    unschedulable: bool = False
    cordon_managers: tuple[str, ...] = ()
    cordoned_at: Optional[float] = None
    taints: tuple[Taint, ...] = ()
    ownership: Optional[str] = None
    held: bool = False
    deleted: bool = False
    addresses: tuple[str, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PodView:
    """One pod.

    Attributes:
        owner: `Kind/name` of its controller, or the empty text.
        owner_uid: that controller's uid.
        job_uid: the uid of the Job it belongs to, or the empty text.
        phase: Pending, Running, Succeeded, Failed or Unknown.
        reason: the status' reason (Evicted, NodeLost ...); a word of the kubelet, not a user's text.
        deleted_at: when its grace period is over; None where nobody deleted it.
        disruption: the reason of a true DisruptionTarget condition, or the empty text.
        disrupted_at: since when.
        cause: whose fault its end or its hindrance is, None where nothing went wrong; see `causes`.
        ended_at: when its last container ended, as far as known.
        slurm_node: the Slurm node whose slurmd runs in it; empty for all other pods.
        creating_since: since when it is bound to its node and has no sandbox there; None where it has one, or nobody
            can tell (kubelets before 1.29 do not say).
        opt_in: the text of the users' annotation, or None.
    """

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    owner: str = ""
    owner_uid: str = ""
    job_uid: str = ""
    phase: str = ""
    reason: str = ""
    created_at: Optional[float] = None
    deleted_at: Optional[float] = None
    disruption: str = ""
    disrupted_at: Optional[float] = None
    cause: Optional[causes.Cause] = None
    ended_at: Optional[float] = None
    mirror: bool = False
    local_data: bool = False
    finalizers: tuple[str, ...] = ()
    slurm_node: str = ""
    creating_since: Optional[float] = None
    opt_in: Optional[str] = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return "%s/%s" % (self.namespace, self.name)

    @property
    def finished(self) -> bool:
        """Whether its containers have ended for good, as the kubelet or the garbage collector said."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class JobView:
    """One Job, with what its pods tell.

    Attributes:
        state: see `JobState`.
        reason: the reason of its Failed or FailureTarget condition (BackoffLimitExceeded ...), or the empty text.
        failed_at: since when.
        opt_in: the text of the users' annotation, or None.
        record: the text of our own annotation, or None.
        owner: `Kind/name` of who made it or runs it in place of the Job controller, or the empty text.
        owner_uid: uid of who made it, or the empty text.
        backoff_limit: failures that the Job bears.
        created_at: when it was made.
        started_at: when its controller began with it (after a suspension anew).
        deleted: whether somebody deleted it and it is on its way out.
        progress_deadline: seconds in which something of it must change, as its user says; see `progress`.
        changed_at: when something of it changed last.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    state: JobState = JobState.RUNNING
    reason: str = ""
    failed_at: Optional[float] = None
    conditions: tuple[str, ...] = ()
    opt_in: Optional[str] = None
    record: Optional[str] = None
    owner: str = ""
    owner_uid: str = ""
    backoff_limit: int = 6
    created_at: Optional[float] = None
    started_at: Optional[float] = None
    deleted: bool = False
    progress_deadline: Optional[float] = None
    changed_at: Optional[float] = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return "%s/%s" % (self.namespace, self.name)

    def is_stalled(self, now: float) -> bool:
        """Whether it runs, and nothing of it has changed for as long as its user says."""
        running = self.state is JobState.RUNNING and not self.deleted
        return running and progress.is_stalled(self.progress_deadline, self.changed_at, now)


@dataclass(frozen=True)
class Origin:
    """Our annotation on a Job: which Job it runs again (`uid`, `name`, `attempt` > 0), and as which it ran again.

    Attributes:
        uid: the first Job of the chain.
        name: its name.
        previous: uid of the Job that this one runs again; empty for the first.
        attempt: 0 for the first Job, 1 for its first rerun ...
        rerun_as: the name under which this Job was run again; empty where it was not.
        lost: what the run before this one lost; None where nobody can tell.
    """

    uid: str
    name: str
    previous: str = ""
    attempt: int = 0
    rerun_as: str = ""
    lost: Optional[losses.Loss] = None

    def as_text(self) -> str:
        """As it stands in the annotation."""
        made: dict[str, Any] = {"origin": self.uid, "name": self.name, "attempt": self.attempt}
        if self.previous:
            made["previous"] = self.previous
        if self.rerun_as:
            made["rerun_as"] = self.rerun_as
        if self.lost is not None:
            made["lost"] = self.lost.as_data()
        return json.dumps(made, sort_keys=True)


def node_view(node: Mapping[str, Any]) -> NodeView:
    """Read a Node object.

    Raises:
        Unreadable: it has no name.
    """
    metadata, spec, status = part(node, "metadata"), part(node, "spec"), part(node, "status")
    ready = condition(status, "Ready")
    info = part(status, "nodeInfo")
    annotations = part(metadata, "annotations")
    managers, cordoned_at = _cordon(metadata)
    return NodeView(
        name=_name(node, "node"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        ready=text(ready, "status") or None,
        ready_since=epoch(ready.get("lastTransitionTime")),
        conditions=tuple(
            Condition(text(entry, "type"), text(entry, "status"), epoch(entry.get("lastTransitionTime")))
            for entry in items(status, "conditions")
            if entry.get("type") != "Ready"
        ),
        boot_id=text(info, "bootID"),
        machine_id=text(info, "machineID"),
        system_uuid=text(info, "systemUUID"),
        unschedulable=spec.get("unschedulable") is True,
        cordon_managers=managers,
        cordoned_at=cordoned_at,
        taints=tuple(
            Taint(text(taint, "key"), text(taint, "value"), text(taint, "effect")) for taint in items(spec, "taints")
        ),
        ownership=given_text(annotations, NODE_ANNOTATION),
        held=HOLD_ANNOTATION in annotations,
        deleted=bool(metadata.get("deletionTimestamp")),
        addresses=tuple(text(address, "address") for address in items(status, "addresses")),
        capacity={str(key): str(value) for key, value in part(status, "capacity").items()},
    )


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """Read a Pod object. Raises `Unreadable` where it has no name."""
    metadata, spec, status = part(pod, "metadata"), part(pod, "spec"), part(pod, "status")
    owner = controller(metadata)
    owned = owner_text(owner)
    labels = part(metadata, "labels")
    disruption = condition(status, "DisruptionTarget")
    disrupted = disruption.get("status") == "True"
    return PodView(
        namespace=text(metadata, "namespace"),
        name=_name(pod, "pod"),
        uid=text(metadata, "uid"),
        node=text(spec, "nodeName"),
        owner=owned,
        owner_uid=text(owner, "uid"),
        job_uid=text(owner, "uid") if owned.startswith("Job/") else first_text(labels, JOB_UID_LABELS),
        phase=text(status, "phase"),
        reason=text(status, "reason"),
        created_at=epoch(metadata.get("creationTimestamp")),
        deleted_at=epoch(metadata.get("deletionTimestamp")),
        disruption=text(disruption, "reason") if disrupted else "",
        disrupted_at=epoch(disruption.get("lastTransitionTime")) if disrupted else None,
        cause=causes.pod_cause(status),
        ended_at=causes.ended_at(status),
        mirror=MIRROR_ANNOTATION in part(metadata, "annotations"),
        local_data=any("emptyDir" in volume for volume in items(spec, "volumes")),
        finalizers=texts(metadata, "finalizers"),
        slurm_node=_slurm_node(metadata, labels),
        creating_since=_creating_since(metadata, status),
        opt_in=given_text(part(metadata, "annotations"), OPT_IN_ANNOTATION),
    )


def _creating_since(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Optional[float]:
    sandbox = condition(status, "PodReadyToStartContainers")
    if metadata.get("deletionTimestamp") or text(status, "phase") != "Pending" or sandbox.get("status") != "False":
        return None
    bound = condition(status, "PodScheduled")
    return epoch(bound.get("lastTransitionTime")) if bound.get("status") == "True" else None


def _slurm_node(metadata: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    named = text(labels, _SLURM_NODE_LABEL)
    if not named and text(labels, "app.kubernetes.io/name") == "slurmd":
        named = text(metadata, "name")
    return named if _SLURM_NODE.match(named) else ""


def job_view(job: Mapping[str, Any]) -> JobView:
    """Read a Job object. Raises `Unreadable` where it has no name."""
    metadata, spec, status = part(job, "metadata"), part(job, "spec"), part(job, "status")
    true = {text(entry, "type"): entry for entry in items(status, "conditions") if entry.get("status") == "True"}
    failure = true.get("Failed") or true.get("FailureTarget") or {}
    annotations = part(metadata, "annotations")
    limit = spec.get("backoffLimit")
    return JobView(
        namespace=text(metadata, "namespace"),
        name=_name(job, "Job"),
        uid=text(metadata, "uid"),
        resource_version=text(metadata, "resourceVersion"),
        state=_job_state(true),
        reason=text(failure, "reason"),
        failed_at=epoch(failure.get("lastTransitionTime")),
        conditions=tuple(sorted(true)),
        opt_in=given_text(annotations, OPT_IN_ANNOTATION),
        record=given_text(annotations, JOB_ANNOTATION),
        owner=_job_owner(metadata, spec),
        owner_uid=text(made_by(metadata), "uid"),
        backoff_limit=limit if isinstance(limit, int) else 6,
        created_at=epoch(metadata.get("creationTimestamp")),
        started_at=epoch(status.get("startTime")),
        deleted=bool(metadata.get("deletionTimestamp")),
        progress_deadline=progress.deadline(annotations),
        changed_at=progress.changed_at(job),
    )


def origin_of(job: JobView) -> Origin:
    """Where a Job stands in its chain of reruns. A Job without our annotation is the first of its chain.

    Raises:
        Unreadable: the annotation is there and is not what we write.
    """
    if job.record is None:
        return Origin(job.uid, job.name)
    try:
        data = json_text.loads(job.record)
        origin = Origin(
            uid=_checked(_UID, data["origin"]),
            name=_checked(_JOB_NAME, data["name"]),
            previous=_checked(_UID, data["previous"]) if "previous" in data else "",
            attempt=int(_checked(_NUMBER, str(data["attempt"]))),
            rerun_as=_checked(_JOB_NAME, data["rerun_as"]) if "rerun_as" in data else "",
            lost=losses.parse(data["lost"]) if "lost" in data else None,
        )
    except (ValueError, TypeError, KeyError):
        raise Unreadable(
            "Job %s: its annotation %s is not readable" % (job.key, JOB_ANNOTATION), "remove or repair it"
        ) from None
    return origin


def _checked(pattern: Pattern[str], value: Any) -> str:
    """The annotation lies in the user's object: whoever may write the Job may have written it."""
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError
    return value


def _job_state(true: Mapping[str, Any]) -> JobState:
    for kind, state in (
        ("Complete", JobState.COMPLETE),
        ("SuccessCriteriaMet", JobState.COMPLETE),
        ("Failed", JobState.FAILED),
        ("FailureTarget", JobState.FAILING),
        ("Suspended", JobState.SUSPENDED),
    ):
        if kind in true:
            return state
    return JobState.RUNNING


def _job_owner(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """CronJob, JobSet, Argo, training operators own by reference; Kueue takes over by label; MultiKueue by field."""
    owner = made_by(metadata)
    if owner:
        return owner_text(owner)
    queue = text(part(metadata, "labels"), KUEUE_LABEL)
    if queue:
        return "Kueue/%s" % queue
    manager = text(spec, "managedBy")
    return "managedBy/%s" % manager if manager not in ("", JOB_CONTROLLER) else ""


def _cordon(metadata: Mapping[str, Any]) -> tuple[tuple[str, ...], Optional[float]]:
    """Who wrote spec.unschedulable last, by the server's own account of field managers, and when."""
    owning = [
        entry
        for entry in items(metadata, "managedFields")
        if "f:unschedulable" in part(part(entry, "fieldsV1"), "f:spec")
    ]
    times = [moment for moment in (epoch(entry.get("time")) for entry in owning) if moment is not None]
    return tuple(sorted({text(entry, "manager") for entry in owning})), max(times) if times else None


def _name(thing: Mapping[str, Any], kind: str) -> str:
    name = text(part(thing, "metadata"), "name")
    if not name:
        raise Unreadable("Kubernetes API: a %s without a name" % kind)
    return name
