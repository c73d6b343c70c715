# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an HTTP answer from behind an Ingress means, before it is known which program was to answer. Pure."""

from __future__ import annotations

from enum import Enum
from urllib.parse import urljoin, urlsplit

from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Reply
from ansible_collections.mission_control.job_recovery.plugins.module_utils.web import Site, text_of

_REDIRECTS = (301, 302, 303, 307, 308)


class Kind(Enum):
    """Who answered, and what."""

    GIVEN = "given"  # 2xx, no web page
    PAGE = "page"  # 2xx, a web page for people
    CHALLENGE = "challenge"  # 401 that asks for Basic credentials
    UNAUTHORIZED = "unauthorized"  # 401 of another kind
    FORBIDDEN = "forbidden"  # 403
    TO_TLS = "to_tls"  # redirect to the same place by HTTPS
    TO_PAGE = "to_page"  # any other redirect
    NO_ROUTE = "no_route"  # 404
    BUSY = "busy"  # 429
    NO_BACKEND = "no_backend"  # 503: the gateway has nobody to ask, or lacks its password file
    BACKEND_FAILED = "backend_failed"  # 502, 504: the gateway asked, and got no answer
    TLS_PORT = "tls_port"  # plain HTTP on a port that wants TLS
    OTHER = "other"


_BY_STATUS = {
    403: Kind.FORBIDDEN,
    404: Kind.NO_ROUTE,
    429: Kind.BUSY,
    502: Kind.BACKEND_FAILED,
    503: Kind.NO_BACKEND,
    504: Kind.BACKEND_FAILED,
}


def kind_of(site: Site, path: str, reply: Reply) -> Kind:
    """Who answered a request for `path` below the site's address, and what."""
    if 200 <= reply.status < 300:
        return Kind.PAGE if _is_page(reply) else Kind.GIVEN
    if reply.status == 401:
        challenge = reply.headers.get("www-authenticate", "").strip().lower()
        return Kind.CHALLENGE if challenge.startswith("basic") else Kind.UNAUTHORIZED
    if reply.status in _REDIRECTS:
        return Kind.TO_TLS if _is_same_by_tls(site, path, reply) else Kind.TO_PAGE
    if reply.status == 400 and b"plain HTTP request was sent to HTTPS port" in reply.body:
        return Kind.TLS_PORT
    return _BY_STATUS.get(reply.status, Kind.OTHER)


def described(site: Site, path: str, reply: Reply) -> str:
    """An answer in words, without anything secret: status, and where a redirect leads or what the text begins with."""
    words = "HTTP %d" % reply.status
    if reply.status in _REDIRECTS:
        target = urlsplit(_target(site, path, reply))
        where = "%s://%s%s" % (target.scheme, target.hostname or "", target.path)  # a query may hold a token
        return "%s to %s" % (words, "".join(letter if letter.isprintable() else " " for letter in where)[:200])
    if _is_page(reply):
        return words + ", a web page"
    text = text_of(reply)
    return "%s (%s)" % (words, text) if text else words


def _is_page(reply: Reply) -> bool:
    start = reply.body.lstrip()[:14].lower()
    return "html" in reply.headers.get("content-type", "").lower() or start.startswith((b"<!doctype html", b"<html"))


def _target(site: Site, path: str, reply: Reply) -> str:
    return urljoin(site.url + path, reply.headers.get("location", ""))


def _is_same_by_tls(site: Site, path: str, reply: Reply) -> bool:
    asked, target = urlsplit(site.url + path), urlsplit(_target(site, path, reply))
    return (asked.scheme, target.scheme) == ("http", "https") and asked.hostname == target.hostname
