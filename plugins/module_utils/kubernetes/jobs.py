# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failed Jobs run again: a new Job under a new name, the old one kept with its pods and their logs.

The new name follows from the first Job of the chain and the attempt, so that doing it twice makes one Job. The old Job
is marked with the new name, so that nobody runs it again after a person has deleted the new one.
"""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Collection, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import losses
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    AlreadyExists,
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.losses import Loss, alike
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    JobState,
    JobView,
    Origin,
    PodView,
    job_view,
    origin_of,
    pod_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.outcome import (
    DONE,
    FAILED,
    REFUSED,
    WAITING,
    Result,
    module_result,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    part,
    printable,
    text,
)

MAX_NAME = 63  # a Job's name becomes a label's value and the start of its pods' host names
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_NAMED_PODS = 5
_SHOWN_INDEXES = 60  # characters
_WRITE_ATTEMPTS = 5

# The server's own; a new Job with them is refused, or would count the old Job's pods as its own.
_SERVER_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")
_SERVER_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",  # would tie the new Job to the old one's manifest
    "batch.kubernetes.io/job-tracking",
    "batch.kubernetes.io/cronjob-scheduled-timestamp",
)

Guard = Callable[[], Any]

SPEC: dict[str, Any] = {
    "argument_spec": {
        "jobs": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {"job": {"type": "str", "required": True}, "uid": {"type": "str", "default": ""}},
        },
        "state": {"type": "str", "required": True, "choices": ["rerun"]},
        "max_attempts": {"type": "int", "default": 0},
        "nodes_proved_off": {"type": "list", "elements": "str", "default": []},
        "tolerate": {"type": "bool", "default": False},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}


@dataclass(frozen=True)
class RerunPlan:
    """What to do with one Job: run it again as `name` (None = not), or why not."""

    status: str
    why: str = ""
    name: Optional[str] = None
    origin: Optional[Origin] = None


# ---- pure ----------------------------------------------------------------------------------------------------------


def rerun_name(origin: Origin, attempt: int, completions: Optional[int] = None) -> str:
    """The name of the `attempt`-th rerun: the first Job's name, cut where needed, a mark of its uid, the attempt.

    Args:
        completions: of an Indexed Job, whose pods' host names are the Job's name and their index.
    """
    mark = hashlib.sha256(origin.uid.encode()).hexdigest()[:6]
    suffix = "-%s-r%d" % (mark, attempt)
    room = MAX_NAME - len(suffix) - (len("-%d" % max(0, completions - 1)) if completions else 0)
    return origin.name[:room].rstrip("-.") + suffix


def plan_rerun(
    job: JobView,
    uid: str,
    pods: Sequence[PodView],
    nodes_proved_off: Collection[str] = (),
    max_attempts: int = 0,
    completions: Optional[int] = None,
    loss: Optional[Loss] = None,
    insist: bool = False,
) -> RerunPlan:
    """Whether and as what to run a Job again, from what is there now.

    Args:
        uid: the Job that was meant; empty = whichever bears the name.
        pods: all its pods.
        nodes_proved_off: nodes on which nothing runs, whatever the API server still shows.
        max_attempts: reruns allowed; 0 = as many as asked for.
        completions: of an Indexed Job, else None.
        loss: what this run lost, where anybody can tell.
        insist: also a Job that seems to bring its nodes down.

    Raises:
        Unreadable: our annotation on it is there and is not what we write.
    """
    refusal = _refusal(job, uid)
    if refusal:
        return RerunPlan(REFUSED, refusal)
    origin = origin_of(job)
    if origin.rerun_as:
        return RerunPlan(DONE, "it runs again as %s" % origin.rerun_as)
    attempt = origin.attempt + 1
    if max_attempts and attempt > max_attempts:
        return RerunPlan(REFUSED, "it has been run again %d times, %d are allowed" % (origin.attempt, max_attempts))
    suspicion = alike(origin.lost, loss)
    if suspicion and not insist:
        return RerunPlan(REFUSED, suspicion)
    alive = [pod for pod in pods if not pod.finished and pod.node not in nodes_proved_off and pod.node]
    if alive:
        named = ", ".join("%s on %s" % (pod.key, pod.node) for pod in alive[:_NAMED_PODS])
        return RerunPlan(WAITING, "%d of its pods may still be running: %s" % (len(alive), named))
    name = rerun_name(origin, attempt, completions)
    return RerunPlan(DONE, name=name, origin=Origin(origin.uid, origin.name, job.uid, attempt, lost=loss))


def new_job(job: Mapping[str, Any], name: str, origin: Origin) -> dict[str, Any]:
    """The Job to create: all of the user's, nothing of the server's. `job` is the object as the server gave it."""
    old = job["metadata"]
    spec = copy.deepcopy(dict(job["spec"]))
    spec.pop("selector", None)
    spec.pop("manualSelector", None)  # the old selector would match the old pods
    template = spec.setdefault("template", {}).setdefault("metadata", {})
    for server_side in ("creationTimestamp", "uid", "resourceVersion", "managedFields"):
        template.pop(server_side, None)
    _without(template, "labels", _SERVER_LABELS)
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": old["namespace"],
        "labels": dict(old.get("labels") or {}),
        "annotations": dict(old.get("annotations") or {}),
    }
    _without(metadata, "labels", _SERVER_LABELS)
    _without(metadata, "annotations", _SERVER_ANNOTATIONS)
    metadata.setdefault("annotations", {})[JOB_ANNOTATION] = origin.as_text()
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def completions_of(job: Mapping[str, Any]) -> Optional[int]:
    """How many completions an Indexed Job wants; None of any other. `job` is the object as the server gave it."""
    spec = part(job, "spec")
    wanted = spec.get("completions") if spec.get("completionMode") == "Indexed" else None
    return wanted if isinstance(wanted, int) else None


def runs_whole(job: Mapping[str, Any]) -> str:
    """Why also those indexes of an Indexed Job run again that had succeeded; the empty text where none had.

    No version of the Jobs API makes a Job of chosen indexes: backoffLimitPerIndex (1.28) lets the others go on within
    the same Job, and completions, which may be changed (1.27), count from 0. `job` is the object as the server gave it.
    """
    succeeded = text(part(job, "status"), "completedIndexes")
    if completions_of(job) is None or not succeeded:
        return ""
    return "the indexes %s had succeeded and run again, too: Kubernetes makes no Job of chosen indexes" % printable(
        succeeded, _SHOWN_INDEXES
    )


def shown(job: JobView) -> dict[str, Any]:
    """What of a Job is ours to change, as plain data."""
    try:
        return {"rerun_as": origin_of(job).rerun_as}
    except Unreadable:
        return {"rerun_as": ""}


def _refusal(job: JobView, uid: str) -> str:
    if uid and job.uid != uid:
        return "another Job bears its name by now; the one meant was deleted"
    if job.deleted:
        return "somebody deleted it"
    if job.owner:
        return "it belongs to %s, which is left to run it again" % printable(job.owner)
    if job.state not in (JobState.FAILED, JobState.FAILING):
        return "it has not failed, it is %s" % job.state.value
    return ""


def _without(metadata: dict[str, Any], key: str, names: Collection[str]) -> None:
    kept = {name: value for name, value in (metadata.get(key) or {}).items() if name not in names}
    if kept:
        metadata[key] = kept
    else:
        metadata.pop(key, None)


# ---- with the API server -------------------------------------------------------------------------------------------


def read_job(client: KubernetesClient, key: str) -> dict[str, Any]:
    """The Job `namespace/name` as the server has it.

    Raises:
        Absent: there is none.
        BadInput: `key` is no such name.
    """
    if not _NAME.match(key):
        raise BadInput("kubernetes_job: %r is not namespace/name" % key)
    namespace, _slash, name = key.partition("/")
    return client.get(path_of("batch/v1", "jobs", namespace, name))


def pods_of(client: KubernetesClient, job: JobView) -> list[PodView]:
    """All pods of a Job that are still there."""
    return [pod_view(pod) for pod in raw_pods_of(client, job)]


def raw_pods_of(client: KubernetesClient, job: JobView) -> list[dict[str, Any]]:
    """The same as the server has them (by their label, then by uid)."""
    query = {"labelSelector": "controller-uid=%s" % job.uid}  # both spellings are set since 1.27; this one always was
    pods = client.list(path_of("v1", "pods", job.namespace), query).items
    return [pod for pod in pods if pod_view(pod).job_uid == job.uid]


def rerun(
    client: KubernetesClient,
    key: str,
    uid: str = "",
    max_attempts: int = 0,
    nodes_proved_off: Collection[str] = (),
    guard: Optional[Guard] = None,
    dry: bool = False,
    remembered: Any = None,
    insist: bool = False,
) -> Result:
    """Run the Job `namespace/name` again. Proof: the new Job, with our annotation that names the first one's uid.

    Args:
        uid: of the Job meant; empty = whichever bears the name.
        guard: called right before each write; raises when this run may not write any more.
        dry: look and plan only.
        remembered: what an earlier look gave as `loss`; the pods that told it may be gone.
        insist: also a Job that seems to bring its nodes down.

    Returns:
        `more`: `new`, the new Job's name or empty; `loss`, what this run lost, as data or None.
    """
    try:
        raw = read_job(client, key)
    except Absent:
        return Result(key, REFUSED, "it is gone: somebody deleted it, or its time to live was over")
    job = job_view(raw)
    try:
        pods = pods_of(client, job)
        loss = losses.of_pods(job.started_at, pods) or (losses.parse(remembered) if remembered else None)
        plan = plan_rerun(job, uid, pods, nodes_proved_off, max_attempts, completions_of(raw), loss, insist)
    except Unreadable as exc:
        return Result(key, REFUSED, str(exc), shown(job), shown(job))
    before = shown(job)
    if plan.name is None or plan.origin is None or dry:
        after = {"rerun_as": plan.name} if plan.name else before
        more = {"new": after["rerun_as"], "loss": loss.as_data() if loss else None}
        return Result(key, plan.status, plan.why or (runs_whole(raw) if plan.name else ""), before, after, more)
    trouble = _create(client, raw, plan.name, plan.origin, guard)
    if trouble:
        return Result(key, FAILED, trouble, before, before)
    _mark(client, job, plan.name, guard)
    return Result(key, DONE, runs_whole(raw), before, {"rerun_as": plan.name}, {"new": plan.name})


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module `kubernetes_job`: run each of `jobs` again.

    Returns:
        `{changed, diff, results: [{name, status, why, before, after, new}]}`; `new` is the new Job's name or empty.

    Raises:
        RecoveryError: not all are done and `tolerate` is false (the results are in its fields); wrong use.
    """
    if not params["jobs"]:
        raise BadInput("kubernetes_job: `jobs` is empty", "name at least one Job")
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    results = []
    try:
        for wanted in params["jobs"]:
            try:
                result = rerun(
                    client,
                    wanted["job"],
                    wanted.get("uid") or "",
                    params["max_attempts"],
                    params["nodes_proved_off"],
                    dry=check_mode,
                )
            except BadInput:
                raise
            except RecoveryError as exc:
                result = Result(wanted["job"], FAILED, str(exc))
            results.append(replace(result, more={"new": result.more.get("new", "")}))
    finally:
        client.close()
    return module_result(results, params["tolerate"])


def _create(client: KubernetesClient, raw: Mapping[str, Any], name: str, origin: Origin, guard: Optional[Guard]) -> str:
    """Create the new Job; what is wrong, or the empty text. One that is there already and is ours is as good."""
    namespace = raw["metadata"]["namespace"]
    if guard is not None:
        guard()
    try:
        client.create(path_of("batch/v1", "jobs", namespace), new_job(raw, name, origin))
        return ""
    except AlreadyExists:
        there = client.find(path_of("batch/v1", "jobs", namespace, name))
    if there is None:
        return "the Job %s was there and is gone: somebody deleted it" % name
    found = job_view(there)
    try:
        same = found.record is not None and origin_of(found).uid == origin.uid
    except Unreadable:
        same = False
    return "" if same else "a Job %s that is not ours is in the way" % name


def _mark(client: KubernetesClient, job: JobView, name: str, guard: Optional[Guard]) -> None:
    """Write on the old Job as which it runs again. Gone or replaced meanwhile = nothing is left to be marked."""
    path = path_of("batch/v1", "jobs", job.namespace, job.name)
    marked = replace(origin_of(job), rerun_as=name).as_text()
    for attempt in range(_WRITE_ATTEMPTS):
        there = client.find(path)
        if there is None or job_view(there).uid != job.uid:
            return
        version = job_view(there).resource_version
        if guard is not None:
            guard()
        body = {"metadata": {"resourceVersion": version, "annotations": {JOB_ANNOTATION: marked}}}
        try:
            client.patch(path, body)
            return
        except Absent:
            return
        except Conflict:
            if attempt + 1 == _WRITE_ATTEMPTS:
                raise
