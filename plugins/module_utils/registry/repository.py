# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chart repositories over HTTP: their address, their index, and whether a chart of it can be had.

A repository is a folder of archives with an `index.yaml`; a server that wants an account asks for it by HTTP's Basic
authentication. https://helm.sh/docs/topics/chart_repository/
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import urljoin, urlsplit

try:
    import yaml
except ImportError:  # said clearly at use
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.client import (
    BadCredentials,
    NoPermission,
    TooMany,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import Login
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.look import Seen
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.transport import (
    Answer,
    Transport,
    shown,
)

_INDEX = 50 * 1048576  # bytes; the largest public indexes have some 20 MB
_NOTHING = 65536
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class ChartOf:
    """A chart in a repository.

    Attributes:
        repository: its address, as `parse_repository` returns it.
        name: the chart's.
        version: exactly one; empty = there must be any.
        digest: `sha256:...` that the archive must have by the index; empty = any.
    """

    repository: str
    name: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return "%s/%s%s" % (self.repository, self.name, ":" + self.version if self.version else "")


def parse_repository(text: str) -> str:
    """The address of a repository, without a slash at its end.

    Raises:
        BadInput: it is none, or holds an account.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise BadInput("chart repository: the address is no URL", "give https://HOST/PATH") from None
    del port
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isprintable() or " " in text:
        raise BadInput("chart repository: the address is no URL", "give https://HOST/PATH")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput("chart repository %s: the address holds more than host and path" % shown(text))
    return text.rstrip("/")


def parse_chart_of(repository: str, name: str, version: str = "", digest: str = "") -> ChartOf:
    """A chart of a repository. Raises `BadInput`."""
    if not _NAME.match(name):
        raise BadInput("chart %r: that is no name of a chart in a repository" % name[:80], "give its name alone")
    if version and not _VERSION.match(version):
        raise BadInput("chart %s: version %r is no version" % (name, version[:80]), "give exactly one, such as 1.2.3")
    if digest and not _DIGEST.match(digest):
        raise BadInput("chart %s: the digest is none" % name, "give sha256: and 64 hexadecimal digits")
    return ChartOf(parse_repository(repository), name, version, digest)


class RepositoryClient:
    """One repository.

    Args:
        address: as `parse_repository` returns it.
        login: None = without an account.
        transport: shared by all that trust the same authorities.
        timeout: seconds for each question.
    """

    def __init__(self, address: str, login: Optional[Login], transport: Transport, timeout: float) -> None:
        self._address = address
        self._login = login
        self._transport = transport
        self._timeout = timeout

    def index(self) -> Mapping[str, Any]:
        """The entries of its index: by the charts' names, their versions.

        Raises:
            BadCredentials, NoPermission: refused. Absent: there is no index. Unreadable: it is none.
            The errors of `Transport.ask`.
        """
        self._require_private()
        answer = self._ask("GET", self._address + "/index.yaml", _INDEX)
        if yaml is None:
            raise Unreadable("chart repositories: the Python library PyYAML is missing", "install it for this Python")
        try:
            read = yaml_text.loads(answer.body)
        except ValueError:
            raise self._no_index() from None
        if not isinstance(read, dict) or not isinstance(read.get("entries") or {}, dict) or "apiVersion" not in read:
            raise self._no_index()
        return read.get("entries") or {}

    def chart(self, wanted: ChartOf, entries: Mapping[str, Any]) -> Seen:
        """Look a chart up in the index, and ask for its archive.

        Raises:
            Absent: no such chart or version, or its archive is gone. Unreadable: its digest is another one.
            As `index`.
        """
        versions = reading.items(entries, wanted.name)
        if not versions:
            raise Absent("%s: the repository is there, and has no such chart" % wanted)
        fitting = [one for one in versions if _is_version(one, wanted.version)]
        if not fitting:
            raise Absent("%s: the chart is there, and this version is not" % wanted)
        digest = _digest(fitting[0])
        if wanted.digest and digest != wanted.digest:
            raise Unreadable("%s: the version is there, but its digest is %s" % (wanted, digest or "not told"))
        urls = fitting[0].get("urls")
        if not isinstance(urls, list) or not urls or not isinstance(urls[0], str):
            raise Unreadable("%s: its entry in the index has no address" % wanted)
        self._ask("HEAD", urljoin(self._address + "/", urls[0]), _NOTHING)
        return Seen(digest)

    def _require_private(self) -> None:
        """A password is not sent where others can read it on its way; helm_chart does not, either."""
        parts = urlsplit(self._address)
        if self._login is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise BadCredentials("%s: the account would travel unencrypted; it was not sent" % self._address)

    def _ask(self, method: str, url: str, limit: int) -> Answer:
        """An archive may lie elsewhere: the account goes to the repository's own host alone, as helm does it."""
        headers = {}
        if self._login is not None and _place(url) == _place(self._address):
            headers["Authorization"] = "Basic " + self._login.basic
        until = time.monotonic() + self._timeout
        answer = self._transport.ask(method, url, headers, until, limit, follow=method == "GET")
        self._judge(method, url, answer)
        return answer

    def _judge(self, method: str, url: str, answer: Answer) -> None:
        status, where = answer.status, shown(url)
        # where an archive is handed on to a store, the address there may be signed for GET alone; some refuse HEAD
        if 200 <= status < 300 or (method == "HEAD" and (300 <= status < 400 or status in (405, 501))):
            return
        if status == 401:
            what = "the credentials are not accepted" if self._login else "it wants credentials, and none are given"
            raise BadCredentials("%s: %s (HTTP 401)" % (where, what))
        if status == 403:
            raise NoPermission("%s: not allowed (HTTP 403)" % where)
        if status in (404, 410):
            what = "no index, so this is no chart repository" if method == "GET" else "the archive is not there"
            raise Absent("%s: %s (HTTP %d)" % (where, what, status))
        if status == 429:
            raise TooMany("%s: too many requests" % where)
        if status >= 500:
            raise Unreachable("%s: HTTP %d" % (where, status))
        raise Unreadable("%s: HTTP %d" % (where, status))

    def _no_index(self) -> Unreadable:
        return Unreadable("%s/index.yaml: it is no index of charts" % self._address, "look at what answers there")


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _is_version(entry: Mapping[str, Any], wanted: str) -> bool:
    """Helm takes 1.2.3 and v1.2.3 for the same; without a version any will do."""
    told = reading.text(entry, "version")
    return bool(told) if not wanted else told.removeprefix("v") == wanted.removeprefix("v")


def _digest(entry: Mapping[str, Any]) -> str:
    told = reading.text(entry, "digest").removeprefix("sha256:")
    return "sha256:" + told if told else ""
