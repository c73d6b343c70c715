# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection of the API server, mirrored: listed, then watched, listed again whenever the watch lost its place.

A watch may end silently after idle minutes, be told 410 as an HTTP status or as an event, or break off in the middle.
In each case nothing is lost: it goes on from the last resource version it heard of, bookmarks included, and where the
server has forgotten that version, a new list tells what is there now.

Only what `keep` wants is remembered, as the small thing that `view` makes of it, so that a mirror of a large cluster
stays small.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Generic, Mapping, Optional, TypeVar

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    PAGE,
    Expired,
    KubernetesClient,
    Reply,
    error_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import part, text

View = TypeVar("View")

WATCH_SECONDS = 240
_MAX_PAUSE = 5.0  # a server that is back is heard soon; asking costs it next to nothing
_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED", "BOOKMARK"))


@dataclass(frozen=True)
class Event:
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object (of a bookmark only its version)."""

    kind: str
    thing: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """The object's uid."""
        return text(part(self.thing, "metadata"), "uid")

    @property
    def resource_version(self) -> str:
        """Where the watch stands after it."""
        return text(part(self.thing, "metadata"), "resourceVersion")


def parse_event(line: bytes, path: str) -> Event:
    """Read one line of a watch on `path`.

    Raises:
        Expired: the server has forgotten the version (410).
        Unreadable: no event.
        Unreachable, Forbidden ...: what another ERROR event says.
    """
    try:
        data = json_text.loads(line)
    except ValueError as exc:
        raise Unreadable("Kubernetes API: a watch on %s answered no JSON" % path) from exc
    thing = data.get("object") if isinstance(data, dict) else None
    if not isinstance(thing, dict):
        raise Unreadable("Kubernetes API: a watch on %s answered no event" % path)
    if data.get("type") == "ERROR":
        code = thing.get("code")
        error = error_of("GET", path, Reply(code if isinstance(code, int) else 500, {}, thing))
        raise error or Unreadable("Kubernetes API: a watch on %s ended with an error that is none" % path)
    if data.get("type") not in _TYPES:
        raise Unreadable("Kubernetes API: a watch on %s answered an unknown kind of event" % path)
    return Event(data["type"], thing)


class Mirror(Generic[View]):
    """What `keep` wants of one collection, by uid; filled by its own thread, read from any.

    Args:
        client: shared between mirrors.
        path: of the collection.
        view: makes the small thing of an object.
        keep: whether a view is worth remembering.
        params: selectors of the list and the watch.
        on_view: called (in the mirror's thread) with every view that is listed or watched, also the last one of an
            object that was deleted.
        seconds: how long one watch lasts at most.
        turn: seconds between the beginnings of two watches, where something on the way ends them at once.
        page: objects in one page of the list; few, where they are large.
    """

    def __init__(
        self,
        client: KubernetesClient,
        path: str,
        view: Callable[[Mapping[str, Any]], View],
        keep: Callable[[View], bool] = lambda _view: True,
        params: Optional[Mapping[str, Any]] = None,
        on_view: Callable[[View], None] = lambda _view: None,
        seconds: int = WATCH_SECONDS,
        turn: float = 1.0,
        page: int = PAGE,
    ) -> None:
        self._client = client
        self._path = path
        self._view = view
        self._keep = keep
        self._params = dict(params or {})
        self._on_view = on_view
        self._seconds = seconds
        self._turn = turn
        self._page = page
        self._lock = threading.Lock()
        self._views: dict[str, View] = {}
        self._version = ""
        self._trouble: Optional[RecoveryError] = Unreachable("Kubernetes API: %s is not yet listed" % path)
        self._listed_at = 0.0
        self._stop = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begin to mirror, in a thread that does not keep the process alive."""
        self._thread = threading.Thread(target=self._run, name="mirror %s" % self._path, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it does when its request ends."""
        self._stop.set()

    def views(self) -> list[View]:
        """What is there now.

        Raises:
            RecoveryError: nobody knows, because the server does not answer at present (what is remembered is old).
        """
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            return list(self._views.values())

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch()
                failures = 0
            except Expired:
                failures = 0
                self._version = ""
                began = self._listed_at  # list at once, unless that was just done
            except RecoveryError as exc:
                failures += 1
                self._troubled(exc)
            except Exception as exc:  # a defect must not end the mirror silently: told, and listed anew
                failures += 1
                logging.getLogger("job_recovery.kubernetes").exception("mirror of %s", self._path)
                self._troubled(Unreadable("Kubernetes API: %s: %s" % (self._path, type(exc).__name__)))
            self._stop.wait(_pause(failures) or max(0.0, began + self._turn - time.monotonic()))

    def _list(self) -> None:
        views: dict[str, View] = {}
        version = ""
        for page in self._client.pages(self._path, self._params, self._page):
            version = page.resource_version
            for thing in page.items:
                view = self._view(thing)
                self._on_view(view)
                if self._keep(view):
                    views[text(part(thing, "metadata"), "uid")] = view
        if not version:
            raise Unreadable("Kubernetes API: the list of %s has no resource version" % self._path)
        self._listed_at = time.monotonic()
        with self._lock:
            self._views, self._version, self._trouble = views, version, None

    def _watch(self) -> None:
        for line in self._client.watch(self._path, self._version, self._params, self._seconds):
            if self._stop.is_set():
                return
            if not line:  # the server took the watch: what is remembered is true again
                with self._lock:
                    self._trouble = None
                continue
            self._apply(parse_event(line, self._path))

    def _apply(self, event: Event) -> None:
        view = None if event.kind == "BOOKMARK" else self._view(event.thing)
        if view is not None:
            self._on_view(view)
        with self._lock:
            if view is not None and event.kind != "DELETED" and self._keep(view):
                self._views[event.uid] = view
            elif view is not None:
                self._views.pop(event.uid, None)
            self._version = event.resource_version or self._version

    def _troubled(self, exc: RecoveryError) -> None:
        with self._lock:
            self._trouble = exc
            if not isinstance(exc, (Unreachable, Forbidden)):
                self._version = ""  # whatever it was, a new list settles it


def _pause(failures: int) -> float:
    """Seconds until the next try after so many failures in a row: longer and longer, never all mirrors at once."""
    if not failures:
        return 0.0
    return min(_MAX_PAUSE, 0.25 * 2 ** min(failures, 8)) * random.uniform(0.5, 1.0)  # noqa: S311 - only to spread load
