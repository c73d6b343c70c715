# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way to the API server: requests with a deadline in, plain dictionaries or one of our errors out.

Objects stay the server's own JSON, so no version of a client library decides which fields exist. Every call has a
deadline for the whole of it; no call is repeated by itself except once after 401, with the credentials read anew (a
renewed token), because a request that was refused with 401 has done nothing.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence
from urllib.parse import quote, urlencode

try:
    import urllib3
except ImportError:  # said clearly at use
    urllib3 = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import credentials as creds
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

Object = dict[str, Any]

FIELD_MANAGER = "mission-control-job-recovery"
PAGE = 500
_MERGE = "application/merge-patch+json"
_WATCH_SILENCE = 90.0  # seconds
_JSON = "application/json"
_ANY = "application/json, */*"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LIST_ATTEMPTS = 3
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
# How the server words that not RBAC but a policy or a webhook refused.
ADMISSION = re.compile(r"ValidatingAdmissionPolicy|admission webhook|denied (?:the )?request")
_PATH = re.compile(r"/(?:api/[^/]+|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<rest>.+)\Z")


class Throttled(RecoveryError):
    """429: not now. For an eviction: a PodDisruptionBudget does not allow it at present; nothing was evicted.

    Attributes:
        retry_after: seconds that the server asks to wait, at least 1.
        budget: whether a disruption budget is the cause (else the server is too busy).
        detail: what the server said of the cause.
    """

    def __init__(self, message: str, retry_after: float = 1.0, budget: bool = False, detail: str = "") -> None:
        super().__init__(message)
        self.retry_after = max(1.0, retry_after)
        self.budget = budget
        self.detail = detail


class Expired(RecoveryError):
    """410: the resourceVersion or the continue token is too old; list again."""


class AlreadyExists(Conflict):
    """409 at a creation: an object of that name exists."""


@dataclass(frozen=True)
class Listing:
    """A whole collection as it was at one resource version."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True)
class Reply:
    """One answer: HTTP status, headers, and the JSON object (or None)."""

    status: int
    headers: Mapping[str, str]
    body: Optional[Object]


class KubernetesClient:
    """Requests to one API server; connects at the first of them. Safe to share between threads.

    Args:
        kubeconfig: path, `in-cluster`, or empty (see `credentials.load`).
        context: a context of the kubeconfig; empty = its current one.
        timeout: deadline of each request in seconds.
    """

    def __init__(self, kubeconfig: str = "", context: str = "", timeout: float = 10.0) -> None:
        self.timeout = timeout
        self._kubeconfig = kubeconfig
        self._context = context
        self._lock = threading.Lock()
        self._session: Optional[_Session] = None

    def get(self, path: str, params: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = None) -> Object:
        """One object. Raises `Absent` where there is none, and the other errors of this module."""
        return self._json("GET", path, params=params, timeout=timeout)

    def find(self, path: str) -> Optional[Object]:
        """One object, or None where the server says that there is none. Raises as `get` for all other troubles."""
        try:
            return self.get(path)
        except Absent:
            return None

    def pages(
        self,
        path: str,
        params: Optional[Mapping[str, Any]] = None,
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> Iterator[Listing]:
        """A collection page by page, all of the same resource version.

        Args:
            metadata_only: the items have nothing but their metadata.

        Raises:
            Expired: the pages took so long that the server forgot the version; begin again.
        """
        token = ""
        while True:
            query = dict(params or {}, limit=limit)
            if token:
                query["continue"] = token
            answer = self._json("GET", path, params=query, accept=_METADATA if metadata_only else _JSON)
            metadata = answer.get("metadata") or {}
            items = answer.get("items")
            if items is not None and not isinstance(items, list):
                raise Unreadable("Kubernetes API: %s answered no list" % path)
            yield Listing(items or [], str(metadata.get("resourceVersion") or ""))
            token = metadata.get("continue") or ""
            if not token:
                return

    def list(
        self,
        path: str,
        params: Optional[Mapping[str, Any]] = None,
        limit: int = PAGE,
        metadata_only: bool = False,
    ) -> Listing:
        """A whole collection; begun again where its pages expired on the way."""
        for attempt in range(_LIST_ATTEMPTS):
            try:
                pages = list(self.pages(path, params, limit, metadata_only))
            except Expired:
                if attempt + 1 == _LIST_ATTEMPTS:
                    raise
            else:
                return Listing([item for page in pages for item in page.items], pages[-1].resource_version)
        raise AssertionError("not reached")

    def create(self, path: str, body: Object, timeout: Optional[float] = None, dry: bool = False) -> Object:
        """POST to a collection (or a sub-resource). Raises `AlreadyExists`, `Conflict` (invalid), `Throttled` ...

        Args:
            dry: the server does everything, admission included, and keeps nothing.
        """
        return self._json("POST", path, _write_params(dry), body, timeout=timeout)

    def patch(self, path: str, body: Object, timeout: Optional[float] = None, dry: bool = False) -> Object:
        """JSON merge patch. With metadata.resourceVersion in `body`, `Conflict` when the object changed meanwhile."""
        return self._json("PATCH", path, _write_params(dry), body, _MERGE, timeout)

    def delete(self, path: str, options: Optional[Object] = None, timeout: Optional[float] = None) -> Object:
        """DELETE with DeleteOptions. Raises `Absent`, and `Conflict` where a precondition (uid) does not hold."""
        return self._json("DELETE", path, body=options or {}, timeout=timeout)

    def text(self, path: str, params: Mapping[str, Any], timeout: float, most: int) -> bytes:
        """What the server answers as text, such as a pod's log: its first `most` bytes. Raises as `get`."""
        limit = min(timeout, self.timeout)
        if limit <= 0:
            raise TimedOut("Kubernetes API: no time is left to %s; nothing was sent" % describe("GET", path))
        deadline = time.monotonic() + limit
        response = self._send("GET", path, params, None, _JSON, limit, limit, _ANY)
        try:
            content = _read(response, deadline, most)
        except urllib3.exceptions.HTTPError as exc:
            raise _connection_error(exc, "GET", path) from None
        finally:
            response.close()  # there may be more of it
        if response.status != 200:
            self._check("GET", path, Reply(response.status, response.headers, _parse(content)))
        return content[:most]

    def watch(self, path: str, resource_version: str, params: Mapping[str, Any], seconds: int) -> Iterator[bytes]:
        """The lines of one watch, as they come, until the server or the time ends it.

        Yields an empty line at once when the server has accepted the watch. Silence for longer than the watch may
        last (plus the client's deadline) ends it like a regular end does.

        Raises:
            Expired: 410 as the HTTP status. As an event it is in the lines.
            Unreachable, Forbidden ...: as every request.
        """
        query = dict(params, watch="true", allowWatchBookmarks="true", resourceVersion=resource_version)
        query["timeoutSeconds"] = seconds
        # the server sends a bookmark once a minute: one that is silent for longer is not there
        silence = min(seconds + self.timeout, _WATCH_SILENCE)
        response = self._send("GET", path, query, None, _JSON, self.timeout, silence)
        try:
            if response.status != 200:
                self._check("GET", path, Reply(response.status, response.headers, _parse(_read(response, None))))
            yield b""
            yield from _lines(response)
        finally:
            response.close()

    def close(self) -> None:
        """Close the idle connections. The client can be used again."""
        with self._lock:
            if self._session is not None:
                self._session.pool.clear()
                self._session = None

    def _json(
        self,
        method: str,
        path: str,
        params: Optional[Mapping[str, Any]] = None,
        body: Optional[Object] = None,
        content_type: str = _JSON,
        timeout: Optional[float] = None,
        accept: str = _JSON,
    ) -> Object:
        limit = self.timeout if timeout is None else min(timeout, self.timeout)
        if limit <= 0:
            raise TimedOut("Kubernetes API: no time is left to %s; nothing was sent" % describe(method, path))
        deadline = time.monotonic() + limit
        response = self._send(method, path, params, body, content_type, limit, limit, accept)
        try:
            reply = Reply(response.status, response.headers, _parse(_read(response, deadline)))
        except urllib3.exceptions.HTTPError as exc:
            raise _connection_error(exc, method, path) from None
        finally:
            response.release_conn()
        self._check(method, path, reply)
        if reply.body is None:
            raise Unreadable("Kubernetes API: the answer to %s is no JSON object" % describe(method, path))
        return reply.body

    def _send(
        self,
        method: str,
        path: str,
        params: Optional[Mapping[str, Any]],
        body: Optional[Object],
        content_type: str,
        connect: float,
        read: float,
        accept: str = _JSON,
    ) -> Any:
        """Send it; once more after 401 with the credentials read anew. Returns the response, its body not yet read."""
        for last in (False, True):
            session = self._connected(anew=last)
            try:
                response = session.pool.request(
                    method,
                    session.server + path + ("?" + urlencode(params) if params else ""),
                    body=None if body is None else json.dumps(body).encode(),
                    headers=session.headers(content_type if body is not None else "", accept),
                    timeout=urllib3.Timeout(connect=connect, read=read),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
            except urllib3.exceptions.HTTPError as exc:
                raise _connection_error(exc, method, path) from None
            if response.status != 401 or last:
                return response
            response.drain_conn()
            response.release_conn()
        raise AssertionError("not reached")

    def _connected(self, anew: bool) -> _Session:
        if urllib3 is None:
            raise Unreadable(
                "Kubernetes API: the Python library urllib3 is missing",
                "install the library kubernetes, which needs it",
            )
        with self._lock:
            if self._session is None or anew:
                self._session = _Session(creds.load(self._kubeconfig, self._context))
            return self._session

    @staticmethod
    def _check(method: str, path: str, reply: Reply) -> None:
        error = error_of(method, path, reply)
        if error is not None:
            raise error


class _Session:
    """One reading of the credentials, and the connections made with it."""

    def __init__(self, loaded: creds.Credentials) -> None:
        self.server = loaded.server
        self._authorization = loaded.authorization
        options: dict[str, Any] = {"maxsize": 8, "block": False}
        if loaded.server.startswith("https://"):
            options["ssl_context"] = creds.ssl_context(loaded)
            if loaded.server_name:
                options.update(server_hostname=loaded.server_name, assert_hostname=loaded.server_name)
            if not loaded.verify:
                options["assert_hostname"] = False
        self.pool = urllib3.ProxyManager(loaded.proxy, **options) if loaded.proxy else urllib3.PoolManager(**options)

    def headers(self, content_type: str, accept: str) -> dict[str, str]:
        made = {"Accept": accept, "User-Agent": FIELD_MANAGER}
        if content_type:
            made["Content-Type"] = content_type
        if self._authorization:
            made["Authorization"] = self._authorization
        return made


def _write_params(dry: bool) -> dict[str, str]:
    return {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry else {})}


def path_of(group: str, resource: str, namespace: str = "", name: str = "", sub: str = "") -> str:
    """The path of a collection, an object or a sub-resource; every part is quoted.

    Args:
        group: `v1`, or group and version, such as `batch/v1`.
    """
    parts = ["/api" if "/" not in group else "/apis", group]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [resource] + [quote(part, safe="") for part in (name, sub) if part]
    return "/".join(parts)


def describe(method: str, path: str) -> str:
    """A request in Kubernetes' own words: `patch nodes node1`, `list jobs.batch in team-a`."""
    match = _PATH.match(path)
    if match is None:
        return "%s %s" % (method.lower(), path)
    resource, _slash, rest = match.group("rest").partition("/")
    name, _slash, sub = rest.partition("/")
    verb = _VERBS.get(method) or ("get" if name else "list")
    words = [verb, resource + ("." + match.group("group") if match.group("group") else "") + ("/" + sub if sub else "")]
    words += [name] if name else []
    words += ["in", match.group("namespace")] if match.group("namespace") else []
    return " ".join(words)


_ERRORS: dict[int, tuple[type[RecoveryError], str, str]] = {
    401: (Forbidden, "our credentials are not accepted", "renew the kubeconfig"),
    403: (Forbidden, "we may not do that", "grant this verb on this resource by RBAC"),
    404: (Absent, "not found", ""),
    410: (Expired, "the resource version is too old", ""),
    504: (TimedOut, "no answer in time", ""),
}


def error_of(method: str, path: str, reply: Reply) -> Optional[RecoveryError]:
    """What an answer means: None for a success, else the error to raise."""
    if 200 <= reply.status < 300:
        return None
    what = describe(method, path)
    status = reply.body if reply.body and reply.body.get("kind") == "Status" else {}
    if reply.status == 429:
        return _throttled(what, status, reply.headers)
    if reply.status in (409, 422):
        kind = AlreadyExists if reply.status == 409 and status.get("reason") == "AlreadyExists" else Conflict
        return kind("Kubernetes API: %s: %s" % (what, _said(status, "refused as a conflict or as invalid")))
    if reply.status == 403 and ADMISSION.search(reading.text(status, "message")):
        return Forbidden(
            "Kubernetes API: %s: refused by an admission policy: %s" % (what, _said(status, "")),
            "let the policy except this account",
        )
    if reply.status in _ERRORS:
        kind, words, next_step = _ERRORS[reply.status]
        return kind("Kubernetes API: %s: %s (%d)" % (what, words, reply.status), next_step)
    kind = Unreachable if reply.status >= 500 else BadInput
    return kind("Kubernetes API: %s: HTTP %d, %s" % (what, reply.status, _said(status, "no reason given")))


def _throttled(what: str, status: Mapping[str, Any], headers: Mapping[str, str]) -> Throttled:
    details = reading.part(status, "details")
    causes = [cause for cause in reading.items(details, "causes") if cause.get("reason") == "DisruptionBudget"]
    return Throttled(
        "Kubernetes API: %s: %s" % (what, _said(status, "too many requests")),
        _seconds(headers.get("Retry-After"), details.get("retryAfterSeconds")),
        bool(causes),
        reading.printable(reading.text(causes[0], "message")) if causes else "",
    )


def _said(status: Mapping[str, Any], otherwise: str) -> str:
    """The server's message, made harmless: it may quote names and values that users wrote."""
    return reading.printable(status.get("message") or otherwise, 500)


def _seconds(*candidates: Any) -> float:
    for candidate in candidates:
        try:
            return float(candidate)
        except (TypeError, ValueError):
            continue
    return 1.0


def _connection_error(exc: Exception, method: str, path: str) -> Unreachable:
    what = describe(method, path)
    unconnected = isinstance(exc, urllib3.exceptions.NewConnectionError)  # a kind of time-out to urllib3
    if isinstance(exc, urllib3.exceptions.TimeoutError) and not unconnected:
        return TimedOut("Kubernetes API: %s: no answer in time" % what, "look whether the API server runs")
    if isinstance(exc, urllib3.exceptions.SSLError):
        return Unreachable("Kubernetes API: %s: TLS failed (%s)" % (what, exc), "compare the certificate authorities")
    return Unreachable(
        "Kubernetes API: %s: no connection (%s)" % (what, type(exc).__name__), "look whether the API server runs"
    )


def _read(response: Any, deadline: Optional[float], most: Optional[int] = None) -> bytes:
    """The body, or what comes up to `most` bytes of it; within the deadline (the library's is for each packet only)."""
    parts, size = [], 0
    for part in _parts(response):
        parts.append(part)
        size += len(part)
        if most is not None and size >= most:
            break
        if deadline is not None and time.monotonic() > deadline:
            response.close()
            raise TimedOut("Kubernetes API: the answer did not end in time")
    return b"".join(parts)


def _parts(response: Any) -> Iterator[bytes]:
    """The body as it arrives. Before 2.3 urllib3 waits for the wanted size, so the pieces are small there."""
    if hasattr(response, "read1"):
        return iter(lambda: response.read1(65536), b"")
    return response.stream(1024, decode_content=True)


def _parse(body: bytes) -> Optional[Object]:
    try:
        parsed = json_text.loads(body)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _lines(response: Any) -> Iterator[bytes]:
    """Whole lines of a stream. A quiet or broken end only ends it: the watcher goes on from where it was."""
    rest = b""
    try:
        for part in response.stream(None, decode_content=False):
            *whole, rest = (rest + part).split(b"\n")
            yield from (line for line in whole if line.strip())
    except urllib3.exceptions.HTTPError:
        return


def allowed(client: KubernetesClient, attributes: Sequence[Mapping[str, str]]) -> list[bool]:
    """Ask the server, for each of the resource attributes, whether we may (SelfSubjectAccessReview).

    Args:
        attributes: `{"verb", "group", "resource"}`, optionally `subresource`, `namespace`, `name`.
    """
    answers = []
    for wanted in attributes:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(wanted)},
        }
        answer = client.create(path_of("authorization.k8s.io/v1", "selfsubjectaccessreviews"), body)
        answers.append((answer.get("status") or {}).get("allowed") is True)
    return answers
