# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the owners that the cluster has: which of them it serves, mirrored, and one of them read again.

Only kinds that the server serves are asked for. A kind that cannot be read is not judged, and hinders nothing else:
what is said here is only ever told.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners, reading, workloads
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import PodView, pod_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.watch import Mirror
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import Workload
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner

_FIRST_LIST = 60.0  # seconds that the first list of a kind may take
SERVED_EVERY = 300.0  # seconds between two questions which kinds are served: operators are installed and removed
_SERVED_AGAIN = 30.0  # after one that failed
_ASKED_EVERY = 30.0  # seconds between two questions for the pods of one workload
_ASKED_TIMES = 3
_ASKED_PER_LOOK = 5

Steady = Callable[[], float]


def served(client: KubernetesClient, rows: Sequence[owners.Owner]) -> dict[str, tuple[owners.Owner, str]]:
    """By path of their collections the rows that this server serves, each with the group and version.

    Raises:
        RecoveryError: it does not say.
    """
    found = {}
    groups = {reading.text(group, "name"): group for group in reading.items(client.get("/apis"), "groups")}
    for name in dict.fromkeys(row.group for row in rows if row.group in groups):
        open_rows = [row for row in rows if row.group == name]
        for version in _versions(groups[name]):
            there = {reading.text(one, "name") for one in reading.items(client.get("/apis/" + version), "resources")}
            for row in [row for row in open_rows if row.resource in there]:
                found[path_of(version, row.resource)] = (row, version)
                open_rows.remove(row)
            if not open_rows:
                break
    return found


def _versions(group: Mapping[str, Any]) -> list[str]:
    """Of an API group its versions, as `group/version`, the server's preferred one first."""
    preferred = reading.text(reading.part(group, "preferredVersion"), "groupVersion")
    others = [reading.text(one, "groupVersion") for one in reading.items(group, "versions")]
    return [one for one in dict.fromkeys([preferred, *others]) if one]


def find(client: KubernetesClient, key: str, uid: str, own: Sequence[JobOwner]) -> Workload:
    """The workload or the pod `namespace/name` with this uid, as it is now; not running while a lost pod stands there.

    Raises:
        Absent: there is none, among all kinds that are served.
        RecoveryError: one kind could not be read, so nobody knows.
    """
    namespace, _slash, name = key.partition("/")
    query = {"fieldSelector": "metadata.name=" + name}
    places = [(path_of(version, row.resource, namespace), row) for row, version in _served(client, own)]
    trouble: Optional[RecoveryError] = None
    for path, row in [(path_of("v1", "pods", namespace), None), *places]:
        try:
            things = client.list(path, query).items
        except Absent:  # removed since
            continue
        except RecoveryError as exc:
            trouble = exc
            continue
        for thing in things:
            one = workloads.of_pod(thing) if row is None else workloads.view(row, thing)
            if one.uid == uid:
                return one if row is None else _with_pods(client, one, row)
    raise trouble or Absent("there is no %s any more" % key)


def _with_pods(client: KubernetesClient, work: Workload, row: owners.Owner) -> Workload:
    if work.state is not State.RUNNING or not row.label:
        return work
    hangs = workloads.hanging(_pods_of(client, work, row.label))
    return replace(work, state=State.WAITING) if work.uid in hangs else work


def _pods_of(client: KubernetesClient, work: Workload, label: str) -> list[PodView]:
    query = {"labelSelector": "%s=%s" % (label, work.name)}
    return [pod_view(pod) for pod in client.list(path_of("v1", "pods", work.namespace), query).items]


def _served(client: KubernetesClient, own: Sequence[JobOwner]) -> list[tuple[owners.Owner, str]]:
    try:
        return list(served(client, owners.watched(own)).values())
    except Absent:  # the server has no groups at all
        return []


class OwnerMirrors:
    """The work of all owners that are read. Used by one task at a time.

    Args:
        steady: a clock that only goes forward.
    """

    def __init__(self, client: KubernetesClient, steady: Steady = time.monotonic) -> None:
        self._client = client
        self._steady = steady
        self._mirrors: dict[str, tuple[owners.Owner, Mirror[Workload]]] = {}  # by path of the collection
        self._began: dict[str, float] = {}  # by path since when
        self._rows: tuple[owners.Owner, ...] = ()
        self._ask_at = 0.0
        self._told: dict[str, str] = {}  # by kind the trouble that was logged
        self._asked: dict[str, tuple[int, float]] = {}  # by a workload's uid: how often, and when again

    def look(self, own: Sequence[JobOwner]) -> tuple[list[Workload], set[str]]:
        """The work that is not complete, and the kinds of which nobody knows yet.

        A kind that may not or cannot be read is in neither.
        """
        self._follow(owners.watched(own))
        work: list[Workload] = []
        unread = set()
        for path, (row, mirror) in self._mirrors.items():
            try:
                work += mirror.views()
                self._told.pop(row.kind, None)
            except RecoveryError as exc:
                if isinstance(exc, Unreachable) and self._steady() - self._began[path] < _FIRST_LIST:
                    unread.add(row.kind)
                else:
                    self._tell(row.kind, exc)
        return work, unread

    def lost_pods(self, work: Sequence[Workload], wanted: Callable[[Workload], bool]) -> list[PodView]:
        """Pods of workloads that are in trouble and for which nothing explains it: asked for now and then.

        Of pods that restart for ever none are watched, and what was lost before the start nobody saw.

        Args:
            wanted: which of them matter.
        """
        rows = {row.kind: row for row, _mirror in self._mirrors.values()}
        sick = [one for one in work if one.state in (State.FAILED, State.WAITING, State.UNKNOWN) and wanted(one)]
        self._asked = {one.uid: self._asked.get(one.uid, (0, 0.0)) for one in sick}
        now = self._steady()
        due = [one for one in sick if self._asked[one.uid][0] < _ASKED_TIMES and self._asked[one.uid][1] <= now]
        found: list[PodView] = []
        for one in due[:_ASKED_PER_LOOK]:
            self._asked[one.uid] = (self._asked[one.uid][0] + 1, now + _ASKED_EVERY)
            label = rows[one.kind].label if one.kind in rows else ""
            if label:
                found += self._lost_pods(one, label)
        return found

    def _lost_pods(self, work: Workload, label: str) -> list[PodView]:
        try:
            pods = _pods_of(self._client, work, label)
        except RecoveryError as exc:  # what the mirrors show counts without it
            self._tell("pods of %s" % work.kind, exc)
            return []
        return [pod for pod in pods if pod.cause is Cause.INFRASTRUCTURE]

    def close(self) -> None:
        """Ask the mirrors to end."""
        for _row, mirror in self._mirrors.values():
            mirror.stop()
        self._mirrors = {}

    def _follow(self, rows: tuple[owners.Owner, ...]) -> None:
        """Mirror what is served by now, and no longer what is not."""
        if rows == self._rows and self._steady() < self._ask_at:
            return
        self._rows = rows
        self._ask_at = self._steady() + SERVED_EVERY
        try:
            found = served(self._client, rows)
        except Absent:
            found = {}
        except RecoveryError as exc:
            self._ask_at = self._steady() + _SERVED_AGAIN
            self._tell("which kinds are served", exc)
            return
        for path in set(self._mirrors).difference(found):
            self._mirrors.pop(path)[1].stop()
        for path, (row, _version) in found.items():
            if path in self._mirrors and self._mirrors[path][0] != row:
                self._mirrors.pop(path)[1].stop()
            if path not in self._mirrors:
                self._mirrors[path] = (row, self._mirror(path, row))
                self._began[path] = self._steady()

    def _mirror(self, path: str, row: owners.Owner) -> Mirror[Workload]:
        mirror: Mirror[Workload] = Mirror(
            self._client, path, lambda thing: workloads.view(row, thing), _is_open, page=50
        )
        mirror.start()
        return mirror

    def _tell(self, kind: str, exc: RecoveryError) -> None:
        if self._told.get(kind) != str(exc):
            self._told[kind] = str(exc)
            logging.getLogger("job_recovery.kubernetes").warning("owners, %s: %s", kind, exc)


def _is_open(work: Workload) -> bool:
    return work.state is not State.COMPLETE
