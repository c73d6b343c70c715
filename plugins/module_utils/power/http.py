# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request with one deadline for all of it, connecting and a dripping answer included.

The standard library's own client, used directly: no proxies from the environment, no redirects (either would carry the
credentials elsewhere), no retries. Messages name the address and never a header.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    TimedOut,
    Unreachable,
    Unreadable,
)

MAX_BODY = 1048576


@dataclass(frozen=True)
class Server:
    """Where a request goes.

    Attributes:
        host: the name (or address) that the request, and the certificate, are about.
        kind: what it is, for messages.
        ca_option: where a certificate authority is given, for messages.
        address: where to connect instead of looking `host` up; empty = look it up.
    """

    host: str
    port: int
    tls: bool
    kind: str = "BMC"
    ca_option: str = "power.ca_file"
    address: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        return "%s %s:%d" % (self.kind, self.host, self.port)


@dataclass(frozen=True)
class Reply:
    """An answer: its status, its body, its ETag (empty where there is none) and its headers (names in lower case)."""

    status: int
    body: bytes
    etag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class TooLong(Unreadable):
    """The answer has more bytes than the caller reads."""


class Untrusted(Unreachable):
    """The server's certificate is not trusted, so nothing was sent."""


def split_url(url: str) -> tuple[Server, str]:
    """Server and path of a URL.

    Raises:
        BadInput: it is no http or https URL with a path, or it holds credentials.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts = urlsplit("")
        port = 0
    usable = url.isprintable() and " " not in url
    if (
        not usable
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or not parts.path
        or "@" in parts.netloc
    ):
        raise BadInput("the BMC address is no URL of a Redfish system", "give https://ADDRESS/redfish/v1/Systems/ID")
    return Server(parts.hostname, port, parts.scheme == "https"), parts.path


def ask(
    server: Server,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Optional[Mapping[str, Any]],
    seconds: float,
    context: Optional[ssl.SSLContext],
    max_body: int = MAX_BODY,
) -> Reply:
    """Send one request, `body` as JSON, and read its answer, of at most `max_body` bytes, within `seconds`.

    Raises:
        TimedOut: not within the time; the request may have had its effect.
        Unreachable: refused, no route, or a certificate that is not trusted (said so).
        Unreadable: no HTTP. TooLong: more than `max_body`.
    """
    until = time.monotonic() + seconds
    try:
        return _ask(server, method, path, headers, body, until, context, max_body)
    except ssl.SSLCertVerificationError as exc:
        raise Untrusted(
            "%s: its certificate is not trusted (%s)" % (server.name, exc.verify_message),
            "give the certificate authority's file in %s" % server.ca_option,
        ) from None
    except (OSError, http.client.HTTPException) as exc:
        if isinstance(exc, socket.timeout) or time.monotonic() >= until:
            raise TimedOut("%s: no answer in %.1f s" % (server.name, seconds)) from None
        if isinstance(exc, http.client.HTTPException) and not isinstance(exc, http.client.RemoteDisconnected):
            raise Unreadable("%s: the answer is no HTTP (%s)" % (server.name, type(exc).__name__)) from None
        raise Unreachable("%s: %s" % (server.name, getattr(exc, "strerror", "") or type(exc).__name__)) from None


def _ask(
    server: Server,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Optional[Mapping[str, Any]],
    until: float,
    context: Optional[ssl.SSLContext],
    max_body: int,
) -> Reply:
    target = (server.address or server.host, server.port)
    plain = socket.create_connection(target, timeout=max(0.01, until - time.monotonic()))
    # a time-out of a socket is for each read; this ends the whole, however slowly the other side drips
    duplicate = plain.dup()
    watchdog = threading.Timer(max(0.01, until - time.monotonic()), _hang_up, (duplicate,))
    watchdog.daemon = True
    watchdog.start()
    connection = http.client.HTTPConnection(server.host, server.port)
    try:
        connection.sock = context.wrap_socket(plain, server_hostname=server.host) if context else plain
        sent = None if body is None else json.dumps(body).encode("utf-8")
        typed = {"Content-Type": "application/json"} if sent is not None else {}
        if time.monotonic() >= until:  # this process may have slept since it was allowed to ask
            raise socket.timeout
        connection.request(method, path, sent, {**headers, **typed, "Connection": "close"})
        with connection.getresponse() as answer:
            content = answer.read(max_body + 1)
            if len(content) > max_body:
                raise TooLong("%s: the answer is too long" % server.name)
            if time.monotonic() >= until or answer.length:  # hung up by the watchdog, or by the other side
                raise http.client.IncompleteRead(content, answer.length)
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, content, headers.get("etag", ""), headers)
    finally:
        watchdog.cancel()
        duplicate.close()
        connection.close()
        plain.close()


def _hang_up(duplicate: socket.socket) -> None:
    try:
        duplicate.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
