# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recovery's client of the API server, and the event source's mirrors, over the simulated Kubernetes."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Conflict,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    FIELD_MANAGER,
    AlreadyExists,
    Listing,
    Throttled,
    describe,
)

from .adapters import DOWN, HUNG, UP
from .gangs import Object
from .kubernetes import Kubernetes
from .strikes import ACT, ACTED, LOOK, Points

_PATH = re.compile(
    r"/(?:api/v1|apis/batch/v1)(?:/namespaces/[a-z]+)?/(nodes|pods|jobs|events)(?:/([^/]+))?(?:/eviction|/log)?\Z"
)
_LOOK_SECONDS = 0.02
_ACT_SECONDS = 0.05
_HUNG_SECONDS = 10.0


@dataclass
class ApiClient:
    """Stands in for `KubernetesClient`. `state`: whether the server answers, refuses, or lets everybody wait."""

    cluster: Kubernetes
    points: Points
    state: str = UP

    def get(self, path: str, _params: Any = None, _timeout: Any = None) -> Object:
        if path == "/apis":  # it has no operators
            return {}
        self._look("GET", path)
        return copy.deepcopy(self._there(path))

    def find(self, path: str) -> Optional[Object]:
        if "/leases/" in path:
            self._look("GET", path)
            return self.cluster.lease(path.rpartition("/")[2])
        try:
            return self.get(path)
        except Absent:
            return None

    def list(self, path: str, params: Optional[Mapping[str, Any]] = None, **_more: Any) -> Listing:
        self._look("GET", path)
        query = params or {}
        found = self._collection(path).values()
        node = str(query.get("fieldSelector", "")).partition("spec.nodeName=")[2]
        owner = str(query.get("labelSelector", "")).partition("controller-uid=")[2]
        return Listing(
            [
                copy.deepcopy(thing)
                for thing in found
                if (not node or thing["spec"].get("nodeName") == node)
                and (not owner or thing["metadata"].get("labels", {}).get("controller-uid") == owner)
            ],
            "1",
        )

    def text(self, path: str, _params: Any, timeout: float, most: int) -> bytes:
        self._look("GET", path)
        self._there(path)
        return b""

    def patch(self, path: str, body: Object, _timeout: Any = None, dry: bool = False) -> Object:
        def do() -> Object:
            thing = self._there(path)
            version = body.get("metadata", {}).get("resourceVersion")
            if version not in (None, thing["metadata"]["resourceVersion"]):
                raise Conflict("%s was changed meanwhile" % path)
            before = copy.deepcopy(thing)
            _merge(thing, body)
            self.cluster.stamped(thing)
            if thing["kind"] == "Node":
                self.cluster.written(before, thing, FIELD_MANAGER)
            return copy.deepcopy(thing)

        return self._act("PATCH", path, do)

    def create(self, path: str, body: Object, _timeout: Any = None, dry: bool = False) -> Object:
        def do() -> Object:
            if path.endswith("/eviction"):
                return self._evict(path, body)
            if body["metadata"]["name"] in self.cluster.jobs:
                raise AlreadyExists("there is a Job %s" % body["metadata"]["name"])
            return copy.deepcopy(self.cluster.add_job(copy.deepcopy(body)))

        return self._act("POST", path, do)

    def delete(self, path: str, options: Optional[Object] = None, _timeout: Any = None) -> Object:
        def do() -> Object:
            pod = self._there(path)
            _same(pod, options or {})
            self.cluster.force(pod)
            return {}

        return self._act("DELETE", path, do)

    def close(self) -> None:
        """Nothing is open."""

    def _evict(self, path: str, body: Object) -> Object:
        pod = self._there(path)
        _same(pod, body["deleteOptions"])
        if self.cluster.budget:
            raise Throttled("not now", 1.0, True, "The disruption budget keep needs 2 healthy pods")
        self.cluster.disrupt(pod, "EvictionByEvictionAPI")
        return {}

    def _there(self, path: str) -> Object:
        found = self._collection(path).get(self._parts(path)[1])
        if found is None:
            raise Absent("%s: not found" % path)
        return found

    def _collection(self, path: str) -> dict[str, Object]:
        kind = self._parts(path)[0]
        return {} if kind == "events" else getattr(self.cluster, kind)

    @staticmethod
    def _parts(path: str) -> tuple[str, str]:
        match = _PATH.match(path)
        if match is None:
            raise AssertionError("the simulated API server does not know %s" % path)
        return match.group(1), match.group(2) or ""

    def _look(self, method: str, path: str) -> None:
        self.points.reach(LOOK, "api " + describe(method, path))
        self._answers()
        self.cluster.clock.sleep(_LOOK_SECONDS)

    def _act(self, method: str, path: str, do: Callable[[], Object]) -> Object:
        label = "api " + describe(method, path)
        self.points.reach(ACT, label)
        self._answers()
        made = do()
        self.cluster.clock.sleep(_ACT_SECONDS)
        self.points.reach(ACTED, label)
        return made

    def _answers(self) -> None:
        if self.state == HUNG:
            self.cluster.clock.sleep(_HUNG_SECONDS)
            raise TimedOut("the API server does not answer")
        if self.state == DOWN:
            raise Unreachable("the API server is down")


class Mirror:
    """Stands in for `watch.Mirror`: what is there now, and every state of every pod on its way."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        view: Callable[[Object], Any],
        keep: Callable[[Any], bool] = lambda _view: True,
        _params: Any = None,
        on_view: Callable[[Any], None] = lambda _view: None,
    ) -> None:
        self._client, self._kind = client, path.rpartition("/")[2]
        self._view, self._keep, self._on_view = view, keep, on_view

    def start(self) -> None:
        """Begin to hear of pods."""
        if self._kind == "pods":
            self._client.cluster.on_pod.append(self._hear)

    def stop(self) -> None:
        """Hear of them no more."""
        if self._hear in self._client.cluster.on_pod:
            self._client.cluster.on_pod.remove(self._hear)

    def views(self) -> list[Any]:
        """As the real one's. Raises `RecoveryError` while the server does not answer."""
        if self._client.state != UP:
            raise RecoveryError("the API server does not answer")
        views = [self._view(thing) for thing in getattr(self._client.cluster, self._kind).values()]
        for view in views:
            self._on_view(view)
        return [view for view in views if self._keep(view)]

    def _hear(self, pod: Object) -> None:
        if self._client.state == UP:
            self._on_view(self._view(pod))


def _merge(thing: Object, patch: Mapping[str, Any]) -> None:
    """RFC 7386, in place."""
    for key, value in patch.items():
        if value is None:
            thing.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(thing.setdefault(key, {}), value)
        elif key != "resourceVersion":
            thing[key] = copy.deepcopy(value)


def _same(pod: Object, options: Mapping[str, Any]) -> None:
    wanted = options.get("preconditions", {}).get("uid")
    if wanted not in (None, pod["metadata"]["uid"]):
        raise Conflict("another pod bears the name")
