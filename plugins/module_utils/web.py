# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Web services behind an Ingress (Grafana, Loki): their address, their certificate, and one request to them."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import (
    MAX_BODY,
    Reply,
    Server,
    ask,
)

# What modules that ask a web service have in common (the documentation fragment `web`).
OPTIONS: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "address": {"type": "str", "default": ""},
    "ca_file": {"type": "path"},
    "validate_certs": {"type": "bool", "default": True},
    "timeout": {"type": "float", "default": 10.0},
}


@dataclass(frozen=True)
class Account:
    """User name and password for HTTP's Basic authentication. Never shown: `repr` would hold the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Account(user=%r)" % self.user

    @property
    def header(self) -> str:
        """The value of the Authorization header."""
        return "Basic " + base64.b64encode(("%s:%s" % (self.user, self.password)).encode("utf-8")).decode("ascii")


@dataclass(frozen=True)
class Site:
    """A web service.

    Attributes:
        server: where it is.
        path: the path of its address, without a slash at its end.
        context: how TLS is done; None for plain HTTP.
        timeout: deadline of each request in seconds, connecting included.
    """

    server: Server
    path: str
    context: Optional[ssl.SSLContext]
    timeout: float

    @property
    def url(self) -> str:
        """The address, for messages."""
        usual = 443 if self.server.tls else 80
        host = "[%s]" % self.server.host if ":" in self.server.host else self.server.host
        port = "" if self.server.port == usual else ":%d" % self.server.port
        return "%s://%s%s%s" % ("https" if self.server.tls else "http", host, port, self.path)

    def ask(
        self,
        method: str,
        path: str,
        account: Optional[Account] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[Mapping[str, Any]] = None,
        max_body: int = MAX_BODY,
    ) -> Reply:
        """One request to `path` below the address; redirects are not followed.

        Raises:
            Untrusted: the certificate is not trusted. TimedOut, Unreachable, Unreadable: see `power.http.ask`.
        """
        sent = {"Accept": "application/json", **(headers or {})}
        if account is not None:
            sent["Authorization"] = account.header
        return ask(self.server, method, self.path + path, sent, body, self.timeout, self.context, max_body)


def site(kind: str, params: Mapping[str, Any], ending: str = "") -> Site:
    """The service of a module's `OPTIONS`.

    Args:
        kind: what it is, for messages.
        ending: the end of the path that is not part of the address and may be given with it.

    Raises:
        BadInput: the URL is none, or holds credentials. Unreadable: the CA's file cannot be loaded.
    """
    url = params["url"]
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise BadInput("%s: the address is no URL" % kind, "give https://HOST/PATH") from None
    if not url.isprintable() or " " in url or parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput("%s: the address is no URL" % kind, "give https://HOST/PATH")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput("%s: the address holds more than host and path" % kind, "give credentials in their own options")
    if params["timeout"] <= 0:
        raise BadInput("%s: timeout must be more than 0 seconds" % kind)
    path = parts.path.rstrip("/")
    if ending and path.endswith(ending):
        path = path[: -len(ending)]
    tls = parts.scheme == "https"
    server = Server(parts.hostname, port, tls, kind, "ca_file", params["address"])
    return Site(server, path, _context(kind, params) if tls else None, params["timeout"])


def account(kind: str, user: str, password: str) -> Account:
    """An account that HTTP can carry.

    Raises:
        BadInput: a user name with a colon, or a control character anywhere; the value is not shown.
    """
    if not user or ":" in user or not user.isprintable():
        raise BadInput("%s: the user name is empty, or holds a colon or a control character" % kind)
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in password):
        raise BadInput(
            "%s: the password holds a control character" % kind, "look for a line end at the end of the file or secret"
        )
    return Account(user, password)


def json_of(reply: Reply) -> Optional[dict[str, Any]]:
    """The JSON object of an answer, None where it is none."""
    try:
        parsed = json_text.loads(reply.body)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def text_of(reply: Reply, limit: int = 120) -> str:
    """The beginning of an answer's text, harmless for a message."""
    text = reply.body[: 4 * limit].decode("utf-8", "replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:limit]


def _context(kind: str, params: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=params["ca_file"] or None)
    except (OSError, ValueError) as exc:
        raise Unreadable(
            "%s: the certificate authority's file %s cannot be loaded (%s)"
            % (kind, params["ca_file"], getattr(exc, "strerror", "") or type(exc).__name__),
            "give a file with certificates in PEM form in ca_file",
        ) from None
    if not params["validate_certs"]:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
