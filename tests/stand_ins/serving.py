# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the stand-ins for Grafana and Loki have in common: an HTTP or HTTPS server of this process, and an Ingress.

None of this is the real program. The real ones are not to be had as packages, so these answer as their documentation
says and as they were seen to answer, for the tests and for the lab. They answer only what they know: all else is 404 or
405.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Answer:
    """One answer of an HTTP server."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(status: int, thing: object) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(thing).encode(), {"Content-Type": "application/json; charset=UTF-8"})


def as_text(status: int, text: str, **headers: str) -> Answer:
    """An answer in plain text."""
    return Answer(status, text.encode(), {"Content-Type": "text/plain; charset=utf-8", **headers})


def as_page(status: int, text: str, **headers: str) -> Answer:
    """A web page."""
    return Answer(status, text.encode(), {"Content-Type": "text/html; charset=UTF-8", **headers})


@dataclass(frozen=True)
class Request:
    """What was asked: the path without the query, the query's values, the headers, the body."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def account(self) -> tuple[str, str] | None:
        """User and password of HTTP's Basic authentication, None where there are none."""
        kind, _blank, value = self.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        try:
            user, _colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            return None
        return user, password


@dataclass(frozen=True)
class Certificate:
    """Files of a server's certificate for this machine, and of the authority that signed it."""

    ca: Path
    cert: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """Sign a certificate for 127.0.0.1, localhost and the names that the tests use, by an authority of its own."""
    made = Certificate(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    names = folder / "names"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:grafana.test,DNS:loki.test\n")
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority = [*new, "-x509", "-days", "2", "-subj", "/CN=stand-in", "-keyout", folder / "ca.key", "-out", made.ca]
    wish = [*new, "-subj", "/CN=stand-in", "-keyout", made.key, "-out", folder / "server.csr"]
    signing = ["openssl", "x509", "-req", "-in", folder / "server.csr", "-CA", made.ca, "-CAkey", folder / "ca.key"]
    signing += ["-CAcreateserial", "-days", "2", "-extfile", names, "-out", made.cert]
    for argv in (authority, wish, signing):
        subprocess.run(argv, check=True, capture_output=True, timeout=30)
    return made


class StandIn:
    """Serves on a free port of this machine until `close`.

    Attributes:
        url: its base address.
        requests: what it was asked, in order, without headers.
        ingress: user and password that an Ingress before it wants; None = it is open.
        instead: an answer that is given to every question in place of its own, as a gateway or a login page would.
    """

    def __init__(self, certificate: Certificate | None = None, host: str = "127.0.0.1") -> None:
        self.requests: list[str] = []
        self.ingress: tuple[str, str] | None = None
        self.instead: Answer | None = None
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"stand_in": self})
        self._server = ThreadingHTTPServer((host, 0), handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.cert, certificate.key)
            # the handshake belongs to the request's thread: a client that breaks it off must not stop the server
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if certificate else ''}://{host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def asked(self, request: Request) -> Answer:
        """Answer as the whole does: what stands before it first."""
        with self.lock:
            self.requests.append(f"{request.method} {request.path}")
            if self.instead is not None:
                return self.instead
            if self.ingress is not None and request.account != self.ingress:
                return as_page(
                    401,
                    "<html><head><title>401 Authorization Required</title></head><body>nginx</body></html>",
                    **{"WWW-Authenticate": 'Basic realm="Authentication Required"'},
                )
            return self.answer(request)

    def answer(self, request: Request) -> Answer:
        """Answer as the program does."""
        raise NotImplementedError


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn
    timeout = 10

    def log_message(self, *_args: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ssl.SSLError):  # the client does not trust the certificate, or went away
            self.close_connection = True

    def _handle(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        told = self.stand_in.asked(Request(self.command, split.path, parse_qs(split.query), headers, body))
        self.send_response(told.status)
        for name, value in told.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(told.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(told.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - http.server's names
