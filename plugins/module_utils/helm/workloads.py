# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of a release: how many of their pods are ready, and why the others are not.

What belongs to a release stands in its manifest; its pods are found by the workloads' own selectors, so that a chart's
style of labels does not matter. All rules are pure; `look` reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, Optional, Sequence

try:
    import yaml
except ImportError:  # said clearly at use
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.release import Release
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)

Object = Mapping[str, Any]

_PATHS = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Job": ("batch/v1", "jobs"),
    "Pod": ("v1", "pods"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
}
# What a cause is called in results, and in a sentence.
IMAGE, QUOTA, VOLUME, CRASH = "image", "quota", "volume", "crash"
SETTINGS, SCHEDULING, ADMISSION, READINESS, OTHER = "settings", "scheduling", "admission", "readiness", "other"
WORDS = {
    IMAGE: "its image cannot be had",
    QUOTA: "a quota is used up",
    VOLUME: "a volume is missing",
    CRASH: "its container ends",
    SETTINGS: "something that it refers to is missing",
    SCHEDULING: "no node takes it",
    ADMISSION: "the cluster's policy refuses it",
    READINESS: "it runs and is not ready",
    OTHER: "it does not start",
}
_WAITING = {
    "ErrImagePull": IMAGE,
    "ImagePullBackOff": IMAGE,
    "InvalidImageName": IMAGE,
    "ErrImageNeverPull": IMAGE,
    "ImageInspectError": IMAGE,
    "RegistryUnavailable": IMAGE,
    "CrashLoopBackOff": CRASH,
    "RunContainerError": CRASH,
    "StartError": CRASH,
    "CreateContainerConfigError": SETTINGS,
    "CreateContainerError": SETTINGS,
}
_EVENTS = {
    "FailedMount": VOLUME,
    "FailedAttachVolume": VOLUME,
    "FailedBinding": VOLUME,
    "ProvisioningFailed": VOLUME,
    "FailedScheduling": SCHEDULING,
    "FailedCreatePodSandBox": OTHER,
    "Failed": IMAGE,
    "Unhealthy": READINESS,
    "BackOff": CRASH,
}
_VOLUME_WORDS = re.compile(r"persistentvolumeclaim|volume node affinity|\bvolumes?\b", re.IGNORECASE)
_QUOTA_WORDS = re.compile(r"exceeded quota|must specify (?:limits|requests)", re.IGNORECASE)
_POLICY_WORDS = re.compile(r"admission|violates|denied the request|is forbidden", re.IGNORECASE)
_LIMIT = 400
_EVENTS_READ = 1000


@dataclass(frozen=True)
class Workload:
    """One workload that the manifest names."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        group, resource = _PATHS[self.kind]
        return path_of(group, resource, self.namespace, self.name)


@dataclass(frozen=True)
class Trouble:
    """Why a workload is not ready.

    Attributes:
        object: the workload, `Deployment web`.
        pod: the pod's name; empty where there is none.
        cause: one of the words of `WORDS`.
        message: what the cluster says.
    """

    object: str
    pod: str
    cause: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """Plain data."""
        return {"object": self.object, "pod": self.pod, "cause": self.cause, "message": self.message}

    def __str__(self) -> str:
        whose = "%s, pod %s" % (self.object, self.pod) if self.pod else self.object
        return "%s: %s%s" % (whose, WORDS[self.cause], " (%s)" % self.message if self.message else "")


@dataclass(frozen=True)
class State:
    """How a workload is: pods ready and wanted, whether that is all, and the troubles."""

    workload: Workload
    ready: int
    wanted: int
    done: bool
    troubles: tuple[Trouble, ...] = ()

    @property
    def words(self) -> str:
        return "%s %s %d/%d" % (self.workload.kind, self.workload.name, self.ready, self.wanted)


def workloads_of(release: Release) -> list[Workload]:
    """The workloads and claims in a release's manifest, and the Jobs among its hooks. Raises `Unreadable`."""
    if yaml is None:
        raise Unreadable(
            "a manifest cannot be read: the Python library PyYAML is missing", "install it for this Python"
        )
    try:
        documents = [each for text in (release.manifest, *release.hooks) for each in yaml_text.documents(text)]
    except ValueError as exc:
        raise Unreadable("the manifest of the release %s is no YAML" % release.name) from exc
    found = []
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") in _PATHS:
            metadata = reading.part(document, "metadata")
            where = reading.text(metadata, "namespace") or release.namespace
            found.append(Workload(document["kind"], where, reading.text(metadata, "name")))
    return [each for each in dict.fromkeys(found) if each.name]


def look(client: KubernetesClient, release: Release) -> list[State]:
    """Every workload of the release as it is now. Raises as `client` does.

    A hook's Job that is gone, which is what hooks usually do when they are done, is left out.
    """
    hooks = set(workloads_of(replace(release, manifest="")))
    events: dict[str, list[Object]] = {}
    states = []
    for workload in workloads_of(release):
        try:
            there: Optional[Object] = client.get(workload.path)
        except Absent:
            there = None
        if there is None and workload in hooks:
            continue
        states.append(_state(client, workload, there, events))
    return states


def _state(
    client: KubernetesClient, workload: Workload, there: Optional[Object], events: dict[str, list[Object]]
) -> State:
    if there is None:
        return State(workload, 0, 1, False, (Trouble(_title(workload), "", OTHER, "it is not there"),))
    ready, wanted, done = progress(workload.kind, there)
    if done:
        return State(workload, ready, wanted, True)
    pods: Sequence[Object] = [there] if workload.kind == "Pod" else ()
    selector = selector_of(there)
    if selector:
        pods = client.list(path_of("v1", "pods", workload.namespace), {"labelSelector": selector}).items
    if workload.namespace not in events:
        events[workload.namespace] = _warnings(client, workload.namespace)
    return State(workload, ready, wanted, False, tuple(troubles(workload, there, pods, events[workload.namespace])))


def _warnings(client: KubernetesClient, namespace: str) -> list[Object]:
    path = path_of("v1", "events", namespace)
    return list(client.list(path, {"fieldSelector": "type=Warning"}, limit=_EVENTS_READ).items)


def progress(kind: str, there: Object) -> tuple[int, int, bool]:
    """Pods that are ready, pods that are wanted, and whether the workload is done with its present specification."""
    spec, status = reading.part(there, "spec"), reading.part(there, "status")
    seen = _number(status, "observedGeneration", 0) >= _number(reading.part(there, "metadata"), "generation", 0)
    if kind == "PersistentVolumeClaim":
        return int(status.get("phase") == "Bound"), 1, status.get("phase") == "Bound"
    if kind == "Pod":
        fine = reading.condition(status, "Ready").get("status") == "True" or status.get("phase") == "Succeeded"
        return int(fine), 1, fine
    if kind == "Job":
        wanted = _number(spec, "completions", 1)
        finished = reading.condition(status, "Complete").get("status") == "True"
        return min(_number(status, "succeeded", 0), wanted), wanted, finished
    if kind == "DaemonSet":
        wanted = _number(status, "desiredNumberScheduled", 0)
        new = wanted if _on_delete(spec) else _number(status, "updatedNumberScheduled", 0)
        ready = min(_number(status, "numberAvailable", 0), new)
        return ready, wanted, seen and ready >= wanted
    wanted = _number(spec, "replicas", 1)
    new = wanted if _on_delete(spec) else _number(status, "updatedReplicas", 0) + _partition(spec)
    ready = min(_number(status, "availableReplicas", _number(status, "readyReplicas", 0)), new, wanted)
    gone = kind != "Deployment" or _number(status, "replicas", 0) <= wanted  # the old pods are gone too
    return ready, wanted, seen and gone and ready >= wanted


def _on_delete(spec: Object) -> bool:
    return reading.part(spec, "updateStrategy").get("type") == "OnDelete"


def _partition(spec: Object) -> int:
    return _number(reading.part(spec, "updateStrategy", "rollingUpdate"), "partition", 0)


def _number(thing: Object, key: str, otherwise: int) -> int:
    value = thing.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def selector_of(there: Object) -> str:
    """The workload's selector as the API takes it; empty where it has none."""
    selector = reading.part(there, "spec", "selector")
    terms = ["%s=%s" % pair for pair in sorted(reading.part(selector, "matchLabels").items())]
    for each in reading.items(selector, "matchExpressions"):
        values = ",".join(str(value) for value in each.get("values") or [])
        key, operator = reading.text(each, "key"), each.get("operator")
        terms += {
            "In": ["%s in (%s)" % (key, values)],
            "NotIn": ["%s notin (%s)" % (key, values)],
            "Exists": [key],
            "DoesNotExist": ["!" + key],
        }.get(str(operator), [])
    return ",".join(terms)


def troubles(workload: Workload, there: Object, pods: Sequence[Object], events: Sequence[Object]) -> Iterator[Trouble]:
    """Why the workload is not ready, at most one trouble for each pod and cause."""
    title = _title(workload)
    told = set()
    for pod in pods:
        name = reading.text(reading.part(pod, "metadata"), "name")
        found = _pod_trouble(pod, [event for event in events if _about(event, "Pod", name)])
        if found is not None and (found[0], _alike(found[1], name)) not in told:
            told.add((found[0], _alike(found[1], name)))
            yield Trouble(title, "" if workload.kind == "Pod" else name, *found)
    if told:
        return
    for found in _own_troubles(workload, there, events):
        if found not in told:
            told.add(found)
            yield Trouble(title, "", *found)


def _alike(message: str, name: str) -> str:
    """The same message of another pod of the workload."""
    return message.replace(name, "")


def _pod_trouble(pod: Object, events: Sequence[Object]) -> Optional[tuple[str, str]]:
    """Cause and message; None for a pod that is ready, has done its work, or has only just begun."""
    status = reading.part(pod, "status")
    if reading.condition(status, "Ready").get("status") == "True" or status.get("phase") == "Succeeded":
        return None
    for container in reading.items(status, "initContainerStatuses") + reading.items(status, "containerStatuses"):
        found = _container_trouble(container)
        if found is not None:
            return found
    scheduled = reading.condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        message = _said(scheduled)
        return (VOLUME if _VOLUME_WORDS.search(message) else SCHEDULING), message
    newest = _newest(event for event in events if event.get("reason") in _EVENTS)
    if newest is not None:
        return _EVENTS[newest["reason"]], _said(newest)
    if status.get("phase") == "Failed":
        return CRASH, reading.printable(status.get("reason") or status.get("message") or "", _LIMIT)
    return None


def _container_trouble(container: Object) -> Optional[tuple[str, str]]:
    name = reading.text(container, "name")
    waiting = reading.part(container, "state", "waiting")
    cause = _WAITING.get(reading.text(waiting, "reason"))
    if cause == CRASH:
        return CRASH, _end_of(name, reading.part(container, "lastState", "terminated")) or _said(waiting)
    if cause is not None:
        return cause, _said(waiting) or reading.text(waiting, "reason")
    ended = reading.part(container, "state", "terminated")
    return (CRASH, _end_of(name, ended)) if _number(ended, "exitCode", 0) != 0 else None


def _end_of(name: str, ended: Object) -> str:
    if not ended:
        return ""
    words = "container %s: exit code %d" % (name, _number(ended, "exitCode", 0))
    more = [reading.text(ended, "reason"), reading.text(ended, "message")]
    return reading.printable(" ".join([words] + [word for word in more if word and word != "Error"]), _LIMIT)


def _own_troubles(workload: Workload, there: Object, events: Sequence[Object]) -> Iterator[tuple[str, str]]:
    """What keeps the workload from having pods, or a claim from its volume."""
    for kind in ("ReplicaFailure", "Failed", "FailureTarget"):
        condition = reading.condition(reading.part(there, "status"), kind)
        if condition.get("status") == "True":
            message = _said(condition)
            yield _creation_cause(message, CRASH if workload.kind == "Job" else OTHER), message
            return
    about = [event for event in events if _concerns(event, workload)]
    newest = _newest(about)
    if newest is not None:
        message = _said(newest)
        otherwise = _EVENTS.get(str(newest.get("reason")), OTHER)
        yield _creation_cause(message, VOLUME if workload.kind == "PersistentVolumeClaim" else otherwise), message


def _creation_cause(message: str, otherwise: str) -> str:
    if _QUOTA_WORDS.search(message):
        return QUOTA
    return ADMISSION if _POLICY_WORDS.search(message) else otherwise


def _concerns(event: Object, workload: Workload) -> bool:
    """Whether an event is about the workload itself, or about a ReplicaSet of the Deployment."""
    if _about(event, workload.kind, workload.name):
        return True
    involved = reading.part(event, "involvedObject")
    return (
        workload.kind == "Deployment"
        and involved.get("kind") == "ReplicaSet"
        and reading.text(involved, "name").rpartition("-")[0] == workload.name
    )


def _about(event: Object, kind: str, name: str) -> bool:
    involved = reading.part(event, "involvedObject")
    return involved.get("kind") == kind and involved.get("name") == name


def _newest(events: Any) -> Optional[Object]:
    def moment(event: Object) -> float:
        times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
        return next((found for found in map(reading.epoch, times) if found is not None), 0.0)

    return max(events, key=moment, default=None)


def _said(thing: Object) -> str:
    return reading.printable(reading.text(thing, "message"), _LIMIT)


def _title(workload: Workload) -> str:
    return "%s %s" % (workload.kind, workload.name)


def summary(states: Sequence[State]) -> str:
    """One line of progress: how many are ready, and the first that are not, with why."""
    counted = [state for state in states if state.workload.kind != "PersistentVolumeClaim"]
    if not counted:
        return "nothing to wait for"
    waiting = [state for state in counted if not state.done]
    line = "%d of %d workloads ready" % (len(counted) - len(waiting), len(counted))
    for state in waiting[:3]:
        line += "; " + state.words
        if state.troubles:
            first = state.troubles[0]
            line += ": %s%s" % (WORDS[first.cause], " (pod %s)" % first.pod if first.pod else "")
    return line + ("; ..." if len(waiting) > 3 else "")


def unready(states: Sequence[State]) -> list[State]:
    """Those that a release has to wait for. Claims wait for their pods, and Jobs may run as long as they need."""
    return [
        state
        for state in states
        if not state.done
        and state.workload.kind != "PersistentVolumeClaim"
        and not (state.workload.kind == "Job" and not state.troubles)
    ]
