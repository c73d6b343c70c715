# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small registry that behaves as OCI distribution 1.1 and Docker's token authentication say, until a test differs.

It answers only what it knows: another path is 404, another method 405, a token it did not give 401.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional
from urllib.parse import parse_qs, quote, unquote, urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Account:
    password: str
    #: Repositories that it may pull; None = all.
    repositories: Optional[list[str]] = None


@dataclass
class Repository:
    blobs: dict[str, bytes] = field(default_factory=dict)
    #: By digest: media type and bytes.
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class RegistryServer(ThreadingHTTPServer):
    """Serves on a free port of this machine.

    Attributes:
        mode: `token`, `basic` or `open`.
        requests: `METHOD path?query` in order; what was sent as Authorization beside it in `authorizations`.
        differs: called with each handler first; true = it has answered.
    """

    daemon_threads = True

    def __init__(self, certificate: str = "", key: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mode = "token"
        self.accounts: dict[str, Account] = {}
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self.differs: Optional[Callable[[Any], bool]] = None
        self.realm = ""
        self.page = 1000
        self.tokens: dict[str, list[str]] = {}
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def name(self) -> str:
        return "127.0.0.1:%d" % self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error here."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def put(self, repository: str, tag: str, manifest: dict, media_type: str = MANIFEST, *blobs: bytes) -> str:
        """Store a manifest under a tag (empty = none) and return its digest."""
        there = self.repositories.setdefault(repository, Repository())
        data = json.dumps(manifest).encode()
        digest = digest_of(data)
        there.manifests[digest] = (media_type, data)
        if tag:
            there.tags[tag] = digest
        for blob in blobs:
            there.blobs[digest_of(blob)] = blob
        return digest

    def put_image(self, repository: str, tag: str, architecture: str = "amd64") -> str:
        config = json.dumps({"os": "linux", "architecture": architecture}).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of(config),
                "size": len(config),
            },
            "layers": [],
        }
        return self.put(repository, tag, manifest, MANIFEST, config)

    def put_index(self, repository: str, tag: str, *architectures: str) -> str:
        entries = [
            {
                "mediaType": MANIFEST,
                "digest": self.put_image(repository, "", one),
                "size": 1,
                "platform": {"os": "linux", "architecture": one},
            }
            for one in architectures
        ]
        entries.append({"mediaType": MANIFEST, "digest": digest_of(b""), "platform": {"os": "unknown"}})
        return self.put(repository, tag, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}, INDEX)

    def put_chart(self, repository: str, tag: str) -> str:
        manifest = {
            "schemaVersion": 2,
            "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest_of(b"{}"), "size": 2},
            "layers": [
                {
                    "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                    "digest": digest_of(b"x"),
                    "size": 1,
                }
            ],
        }
        return self.put(repository, tag, manifest)

    def account_of(self, header: str) -> Optional[Account]:
        scheme, _space, value = header.partition(" ")
        if scheme != "Basic":
            return None
        user, _colon, password = base64.b64decode(value).decode().partition(":")
        account = self.accounts.get(user)
        return account if account is not None and account.password == password else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RegistryServer

    def log_message(self, *_args: object) -> None:
        pass

    def _handle(self) -> None:
        server = self.server
        server.requests.append("%s %s" % (self.command, self.path))
        server.authorizations.append(self.headers.get("Authorization", ""))
        if server.differs is not None and server.differs(self):
            return None
        split = urlsplit(self.path)
        path = unquote(split.path)
        if self.command not in ("GET", "HEAD"):
            return self.error(405, "UNSUPPORTED")
        if path == "/token":
            return self._token({key: values[0] for key, values in parse_qs(split.query).items()})
        if not path.startswith("/v2/"):
            return self.error(404, "NOT_FOUND")
        repository, kind, name = _parts(path[4:])
        if not self._allowed(repository):
            return None
        if not repository:
            return self.answer(200, b"{}")
        return self._read(repository, kind, name, split.query)

    do_GET = do_HEAD = do_POST = _handle  # noqa: N815 - http.server's names

    def _token(self, query: dict[str, str]) -> None:
        header = self.headers.get("Authorization", "")
        account = self.server.account_of(header)
        if header and account is None:
            return self.answer(401, json.dumps({"details": "incorrect username or password"}).encode())
        if query.get("service") != "test registry":
            return self.answer(400, b"{}")
        granted = []
        for scope in filter(None, query.get("scope", "").split(" ")):
            repository = scope.split(":")[1]
            if account is not None and (account.repositories is None or repository in account.repositories):
                granted.append(repository)
        token = "t%d" % len(self.server.tokens)
        self.server.tokens[token] = granted
        return self.answer(200, json.dumps({"token": token, "expires_in": 60}).encode())

    def _allowed(self, repository: str) -> bool:
        if self.server.mode == "open":
            return True
        header = self.headers.get("Authorization", "")
        if self.server.mode == "basic":
            account = self.server.account_of(header)
            if account is None:
                self.error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="test"'})
            elif repository and account.repositories is not None and repository not in account.repositories:
                self.error(403, "DENIED")
            else:
                return True
            return False
        token = header[7:] if header.startswith("Bearer ") else ""
        if token in self.server.tokens and (not repository or repository in self.server.tokens[token]):
            return True
        realm = self.server.realm or "%s://%s/token" % (self.server.scheme, self.server.name)
        wanted = 'Bearer realm="%s",service="test registry"' % realm
        if repository:
            wanted += ',scope="repository:%s:pull"' % repository
        if token:
            wanted += ',error="%s"' % ("insufficient_scope" if token in self.server.tokens else "invalid_token")
        self.error(401, "UNAUTHORIZED", {"WWW-Authenticate": wanted})
        return False

    def _read(self, repository: str, kind: str, name: str, query: str) -> None:
        there = self.server.repositories.get(repository)
        if kind == "tags":
            return self._tags(repository, there, parse_qs(query))
        if kind == "blobs":
            blob = there.blobs.get(name) if there else None
            return self.error(404, "BLOB_UNKNOWN") if blob is None else self.answer(200, blob)
        found = there.manifests.get(there.tags.get(name, name)) if there else None
        if found is None:
            return self.error(404, "MANIFEST_UNKNOWN")
        headers = {"Content-Type": found[0], "Docker-Content-Digest": digest_of(found[1])}
        if found[0] not in self.headers.get("Accept", ""):
            return self.error(404, "MANIFEST_UNKNOWN")
        return self.answer(200, found[1], headers)

    def _tags(self, repository: str, there: Optional[Repository], query: dict[str, list[str]]) -> None:
        if there is None:
            return self.error(404, "NAME_UNKNOWN")
        tags = [tag for tag in sorted(there.tags) if tag > query.get("last", [""])[0]]
        shown, headers = tags[: self.server.page], {}
        if len(tags) > len(shown):
            following = "/v2/%s/tags/list?n=1000&last=%s" % (repository, quote(shown[-1]))
            headers["Link"] = '<%s>; rel="next"' % following
        return self.answer(200, json.dumps({"name": repository, "tags": shown or None}).encode(), headers)

    def error(self, status: int, code: str, headers: Optional[dict] = None) -> None:
        body = json.dumps({"errors": [{"code": code, "message": "words of the registry"}]}).encode()
        self.answer(status, body, headers)

    def answer(self, status: int, body: bytes, headers: Optional[dict] = None) -> None:
        made = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        self.send_response(status)
        for key, value in made.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _parts(path: str) -> tuple[str, str, str]:
    for kind in ("manifests", "blobs", "tags"):
        repository, separator, name = path.rpartition("/%s/" % kind)
        if separator:
            return repository, kind, name
    return "", "", ""
