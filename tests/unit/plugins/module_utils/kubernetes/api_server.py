# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small API server for what a real one does not do on demand: a store, watches, and answers told in advance.

It answers only what it knows: an unknown verb or media type is 405 or 415.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_OBJECT = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?\Z")


_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


def status(code: int, reason: str = "", message: str = "", **details: object) -> dict:
    """A Status object as a server answers it."""
    made = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return dict(made, reason=reason, message=message, details=details)


class ApiServer:
    """Serves on a free port of this machine until `close`.

    Attributes:
        url: its base URL.
        requests: what it was asked, `METHOD path?query`, in order.
        bodies: the parsed bodies of the writes, in order.
        token: when set, requests need it as bearer token.
        grants: of `rbac`; when set, requests that none of them allows are refused, as the server does.
        may: from the resource attributes of a SelfSubjectAccessReview to whether we may.
        watch_seconds: watches end after this time, however long they were meant to last.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.bodies: list[dict] = []
        self.token = ""
        self.grants: tuple = ()
        self.watch_seconds = 30.0
        self.closed = False
        self.may = lambda attributes: True
        self.watch_lines: list[list[bytes]] = []
        self.connections: list[socket.socket] = []
        self._objects: dict[str, dict] = {}
        self._log: list[tuple[int, str, dict]] = []
        self._told: list[list] = []
        self._version = 100
        self._lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.closed = True
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def kubeconfig(self, folder, **user: str) -> str:
        """Write a kubeconfig for this server into `folder`, return its path."""
        path = folder / "kubeconfig"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def put(self, path: str, thing: dict) -> dict:
        """Store an object under its path (as somebody else would), and tell the watchers."""
        with self._lock:
            self._version += 1
            thing = copy.deepcopy(thing)
            metadata = thing.setdefault("metadata", {})
            metadata.setdefault("name", path.rsplit("/", 1)[1])
            metadata.setdefault("uid", "uid-%s" % metadata["name"])
            namespace = _OBJECT.match(path).group(2)
            if namespace:
                metadata.setdefault("namespace", namespace)
            metadata["resourceVersion"] = str(self._version)
            self._log.append((self._version, "MODIFIED" if path in self._objects else "ADDED", thing))
            self._objects[path] = thing
            return copy.deepcopy(thing)

    def clear(self) -> None:
        """Forget all objects and all that was told."""
        with self._lock:
            self._objects.clear()
            self._told.clear()
            self.requests.clear()

    def take(self, path: str) -> None:
        """Remove an object, and tell the watchers."""
        with self._lock:
            self._version += 1
            thing = copy.deepcopy(self._objects.pop(path))
            thing["metadata"]["resourceVersion"] = str(self._version)
            self._log.append((self._version, "DELETED", thing))

    def see(self, path: str) -> dict | None:
        """The object under `path`, or None."""
        with self._lock:
            return copy.deepcopy(self._objects.get(path))

    def tell(self, method: str, path: str, code: int, body: object, headers=None, times: int = 1, before=None) -> None:
        """Answer the next `times` requests for `path` so. `before` is called first."""
        self._told.append([method, path, code, body, headers or {}, times, before])

    # ---- what the handler asks ----

    def told(self, method: str, path: str):
        with self._lock:
            for entry in self._told:
                if entry[0] == method and entry[1] == path and entry[5] > 0:
                    entry[5] -= 1
                    if entry[6] is not None:
                        entry[6]()
                    return entry[2:5] if entry[2] else None
        return None

    def collection(self, path: str, query: dict) -> dict:
        group, namespace, resource, _name, _sub = _OBJECT.match(path).groups()
        with self._lock:
            found = [
                thing
                for where, thing in sorted(self._objects.items())
                if _matches(_OBJECT.match(where).groups(), group, namespace, resource) and _selected(thing, query)
            ]
            version = str(self._version)
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "1000"))
        metadata = {"resourceVersion": version}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return {"kind": "List", "metadata": metadata, "items": found[start : start + limit]}

    def events_after(self, version: int, path: str, query: dict) -> list[tuple[int, str, dict]]:
        _group, namespace, resource, _name, _sub = _OBJECT.match(path).groups()
        with self._lock:
            return [
                entry
                for entry in self._log
                if entry[0] > version
                and entry[2].get("kind", "").lower() + "s" == resource
                and namespace in (None, entry[2]["metadata"].get("namespace"))
                and _selected(entry[2], query)
            ]

    def write(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        with self._lock:
            self.bodies.append(body)
            *_rest, resource, name, sub = _OBJECT.match(path).groups()
            if resource == "selfsubjectaccessreviews":
                return 201, {**body, "status": {"allowed": self.may(body["spec"]["resourceAttributes"])}}
            if method == "POST" and sub is None and name is None:
                target = "%s/%s" % (path, body["metadata"]["name"])
                if target in self._objects:
                    return 409, status(409, "AlreadyExists")
                return 201, self.put(target, body)
            if method == "POST" and sub == "eviction":
                return self._evict(path.rsplit("/", 1)[0], body)
            if path not in self._objects:
                return 404, status(404, "NotFound")
            there = self._objects[path]
            if method == "DELETE":
                wanted = (body.get("preconditions") or {}).get("uid")
                if wanted and wanted != there["metadata"]["uid"]:
                    return 409, status(409, "Conflict")
                self.take(path)
                return 200, status(200)
            if method == "PATCH":
                wanted = body.get("metadata", {}).get("resourceVersion")
                if wanted and wanted != there["metadata"]["resourceVersion"]:
                    return 409, status(409, "Conflict", "the object has been modified")
                return 200, self.put(path, _merged(there, body))
            return 405, status(405)

    def _evict(self, path: str, body: dict) -> tuple[int, dict]:
        there = self._objects.get(path)
        if there is None:
            return 404, status(404, "NotFound")
        if body["deleteOptions"]["preconditions"]["uid"] != there["metadata"]["uid"]:
            return 409, status(409, "Conflict")
        there["metadata"]["deletionTimestamp"] = "2026-11-30T11:00:30Z"
        return 201, status(201)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def setup(self) -> None:
        super().setup()
        self.api.connections.append(self.connection)

    def log_message(self, *_args) -> None:
        pass

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        split = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        self.api.requests.append("%s %s" % (self.command, self.path))
        if self.api.token and self.headers.get("Authorization") != "Bearer %s" % self.api.token:
            return self._answer(401, status(401, "Unauthorized"))
        if self.api.grants and not _granted(self.api.grants, *_asked(self.command, split.path, query)):
            return self._answer(403, status(403, "Forbidden"))
        told = self.api.told(self.command, split.path)
        if told:
            return self._answer(told[0], told[1], told[2])
        if self.command == "GET":
            return self._read(split.path, query)
        wanted = "application/merge-patch+json" if self.command == "PATCH" else "application/json"
        if self.headers.get("Content-Type") != wanted:
            return self._answer(415, status(415))
        return self._answer(*self.api.write(self.command, split.path, json.loads(raw)))

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle  # noqa: N815 - http.server's names

    def _read(self, path: str, query: dict) -> None:
        match = _OBJECT.match(path)
        if match is None:
            return self._answer(404, status(404, "NotFound"))
        if match.group(4) is not None:
            thing = self.api.see(path)
            return self._answer(200 if thing else 404, thing or status(404, "NotFound"))
        if query.get("watch") == "true":
            return self._watch(path, query)
        return self._answer(200, self.api.collection(path, query))

    def _watch(self, path: str, query: dict) -> None:
        version = int(query["resourceVersion"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        if self.api.watch_lines:
            for line in self.api.watch_lines.pop(0):
                self._chunk(line)
            return self._chunk(b"")
        until = time.monotonic() + self.api.watch_seconds
        while time.monotonic() < until and not self.api.closed:
            for event_version, kind, thing in self.api.events_after(version, path, query):
                version = event_version
                self._chunk(json.dumps({"type": kind, "object": thing}).encode() + b"\n")
            time.sleep(0.02)
        return self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _answer(self, code: int, body: object, headers=None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _asked(method: str, path: str, query: dict) -> tuple[str, str, str]:
    """API group, resource (with its sub-resource after a slash) and verb of a request, as RBAC names them."""
    prefix, _namespace, resource, name, sub = _OBJECT.match(path).groups()
    reading = "get" if name else "watch" if query.get("watch") == "true" else "list"
    group = prefix.split("/")[2] if prefix.startswith("/apis/") else ""
    return group, resource + ("/" + sub if sub else ""), _VERBS.get(method, reading)


def _granted(grants: tuple, group: str, resource: str, verb: str) -> bool:
    return any((grant.group, grant.resource) == (group, resource) and verb in grant.verbs for grant in grants)


def _matches(groups: tuple, group: str, namespace: str | None, resource: str) -> bool:
    return groups[0] == group and groups[2] == resource and namespace in (None, groups[1])


def _selected(thing: dict, query: dict) -> bool:
    for key, value in _pairs(query.get("fieldSelector")):
        found: object = thing
        for name in key.rstrip("!").split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if (found == value) is key.endswith("!"):
            return False
    labels = thing["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in _pairs(query.get("labelSelector")))


def _pairs(selector: str | None) -> list[list[str]]:
    return [pair.split("=") for pair in selector.split(",")] if selector else []


def _merged(there: object, patch: object) -> object:
    if not isinstance(patch, dict) or not isinstance(there, dict):
        return copy.deepcopy(patch)
    made = copy.deepcopy(there)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key, {}) if isinstance(value, dict) else None, value)
    return made
