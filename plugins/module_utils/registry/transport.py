# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP to registries and their token servers: one request with a deadline in, an answer or one of our errors out.

Redirects are followed by the caller's leave only, and never with credentials to another host or out of TLS. The proxies
of the environment are used, as helm and Docker do. Messages name host and path, never a header or a query.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

try:
    import urllib3
except ImportError:  # said clearly at use
    urllib3 = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    TimedOut,
    Unreachable,
    Unreadable,
)

USER_AGENT = "mission-control-job-recovery"
_MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)


class UntrustedTls(Unreachable):
    """TLS did not come about: an unknown authority, another name, an expired certificate, or no TLS at all."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to a registry and to whom it sends us. Safe to share between threads.

    Args:
        ca_file: certificate authorities to trust besides the system's, or empty.

    Raises:
        BadInput: the file cannot be used.
        Unreadable: urllib3 is missing.
    """

    def __init__(self, ca_file: str = "") -> None:
        if urllib3 is None:
            raise Unreadable("registries: the Python library urllib3 is missing", "install it for this Python")
        # the system's authorities take time to load, and are loaded where they are needed
        self._context = _ssl_context(ca_file) if ca_file else None
        self._pools: dict[tuple[str, str], Any] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the idle connections."""
        for pool in self._pools.values():
            pool.clear()

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], until: float, limit: int, follow: bool = False
    ) -> Answer:
        """Send one request, and the redirected ones where `follow` says so.

        Args:
            until: end of all of it, on the monotonic clock.
            limit: bytes that the body may have.

        Raises:
            TimedOut, UntrustedTls, Unreachable: no answer, and why.
            Unreadable: too long, no HTTP, or redirected without end or out of TLS.
        """
        sent = {"User-Agent": USER_AGENT, **headers}
        for _attempt in range(_MAX_REDIRECTS + 1):
            answer = self._once(method, url, sent, until, limit)
            target = answer.headers.get("location")
            if not follow or answer.status not in _REDIRECTS or not target:
                return answer
            following = urljoin(url, target)
            if _host(following) != _host(url):
                sent.pop("Authorization", None)
            if urlsplit(url).scheme == "https" and urlsplit(following).scheme != "https":
                raise Unreadable("%s: it redirects out of TLS, which is not followed" % shown(url))
            url = following
        raise Unreadable("%s: it redirects without end" % shown(url))

    def _once(self, method: str, url: str, headers: Mapping[str, str], until: float, limit: int) -> Answer:
        left = until - time.monotonic()
        if left <= 0:
            raise TimedOut("%s: no time is left to ask; nothing was sent" % shown(url))
        try:
            response = self._pool(url).request(
                method,
                url,
                headers=dict(headers),
                timeout=urllib3.Timeout(total=left),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                body = _read(response, url, until, limit)
                return Answer(response.status, {key.lower(): text for key, text in response.headers.items()}, body)
            finally:
                response.release_conn()
        except urllib3.exceptions.HTTPError as exc:
            raise _connection_error(exc, url) from None
        except (ValueError, UnicodeError):  # a host name or a port that cannot be
            raise Unreadable("%s: it is no address" % shown(url)) from None

    def _pool(self, url: str) -> Any:
        parts = urlsplit(url)
        proxy = "" if proxy_bypass_environment(parts.hostname or "") else getproxies_environment().get(parts.scheme, "")
        with self._lock:
            if (parts.scheme, proxy) not in self._pools:
                self._pools[parts.scheme, proxy] = self._made(proxy, parts.scheme == "https")
            return self._pools[parts.scheme, proxy]

    def _made(self, proxy: str, tls: bool) -> Any:
        options: dict[str, Any] = {"maxsize": 8, "block": False}
        if tls:
            self._context = self._context or _ssl_context("")
            options["ssl_context"] = self._context
        if not proxy:
            return urllib3.PoolManager(**options)
        parts = urlsplit(proxy if "://" in proxy else "http://" + proxy)
        account = "%s:%s" % (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        address = "%s://%s" % (parts.scheme, parts.netloc.rpartition("@")[2])
        headers = urllib3.make_headers(proxy_basic_auth=account) if account else {}
        return urllib3.ProxyManager(address, proxy_headers=headers, **options)


def shown(url: str) -> str:
    """A URL for messages: without credentials and query, which may hold a signature."""
    parts = urlsplit(url)
    return "%s://%s%s" % (parts.scheme, parts.netloc.rpartition("@")[2], parts.path)


def _host(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _ssl_context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(cafile=os.path.expanduser(ca_file))
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", None) or type(exc).__name__
            raise BadInput(
                "registries: the certificate authority's file %s cannot be loaded (%s)" % (ca_file, reason),
                "give a file of certificates in PEM form, on the machine that asks",
            ) from None
    return context


def _read(response: Any, url: str, until: float, limit: int) -> bytes:
    """The whole body, within time and size (the library's own time-out is for each packet only)."""
    parts, size = [], 0
    for part in _parts(response):
        parts.append(part)
        size += len(part)
        if size > limit:
            response.close()
            raise Unreadable("%s: the answer is longer than %d bytes" % (shown(url), limit))
        if time.monotonic() > until:
            response.close()
            raise TimedOut("%s: the answer did not end in time" % shown(url))
    return b"".join(parts)


def _parts(response: Any) -> Any:
    """The body as it arrives. Before 2.3 urllib3 waits for the wanted size, so the pieces are small there."""
    if hasattr(response, "read1"):
        return iter(lambda: response.read1(65536), b"")
    return response.stream(1024, decode_content=True)


def _connection_error(exc: Exception, url: str) -> Exception:
    where = shown(url)
    if isinstance(exc, urllib3.exceptions.SSLError):
        return _tls_error(exc, where)
    if isinstance(exc, urllib3.exceptions.ProxyError):
        return Unreachable("%s: the proxy gives no connection" % where, "look at the proxy of the environment")
    unconnected = isinstance(exc, urllib3.exceptions.NewConnectionError)  # a kind of time-out to urllib3
    if isinstance(exc, urllib3.exceptions.TimeoutError) and not unconnected:
        return TimedOut("%s: no answer in time" % where)
    if isinstance(exc, urllib3.exceptions.LocationParseError):
        return Unreadable("%s: it is no address" % where)
    return Unreachable("%s: no connection (%s)" % (where, _why(exc)))


def _tls_error(exc: Exception, where: str) -> UntrustedTls:
    inner = exc.args[0] if exc.args else exc
    if isinstance(inner, ssl.SSLCertVerificationError):
        return UntrustedTls("%s: its certificate is not trusted (%s)" % (where, inner.verify_message))
    text = str(inner)
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text or "HTTP_REQUEST" in text:
        return UntrustedTls("%s: it does not speak TLS" % where)
    return UntrustedTls("%s: TLS failed (%s)" % (where, getattr(inner, "reason", None) or type(inner).__name__))


def _why(exc: Exception) -> str:
    """The system's own words where there are any: refused, no such name, no route."""
    inner: Optional[BaseException] = exc
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__
    found = re.search(r"\[Errno -?\d+\] ([^)\]]+)", str(exc))
    return found.group(1) if found else type(exc).__name__
