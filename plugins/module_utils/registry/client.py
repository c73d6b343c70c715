# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry as those who pull from it see it (OCI distribution 1.1, Docker's token authentication). Reads only.

Credentials are sent when the registry asks for them, in the way that it asks for, and to its token server over TLS
only. Registries differ in how they refuse: a wrong password, a right one without permission, and a repository that is
hidden may all be 401. So after a refusal the same credentials are tried without a repository (what `docker login`
does): where that is accepted, it is the permission that is missing.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import quote, urlencode, urljoin, urlsplit

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import challenge
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.challenge import Challenge
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import Login
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import endpoint
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.transport import (
    Answer,
    Transport,
    shown,
)

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (OCI_INDEX, DOCKER_LIST)
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST)
_ACCEPT = ", ".join((*MANIFESTS, *INDEXES))
#: What distribution's specification allows a client to refuse: manifests over 4 MiB.
_MAX_MANIFEST = 4194304
_MAX_LIST = 4194304
_MAX_PAGES = 20
_REFUSALS = (401, 402, 403)


class BadCredentials(Forbidden):
    """The registry does not accept the user and the password, or wants some and got none."""


class NoPermission(Forbidden):
    """The credentials are good, and this repository is not open to them (or hidden from them)."""


class TooMany(Unreachable):
    """The registry answers nothing at present, because it was asked too often (429)."""


@dataclass(frozen=True)
class Manifest:
    """What a registry has under a tag or a digest.

    Attributes:
        media_type: its type, without parameters.
        digest: `sha256:...` of exactly its bytes; empty where the registry does not tell and only HEAD was asked.
        content: the manifest itself; empty where only HEAD was asked.
    """

    media_type: str
    digest: str
    content: Mapping[str, Any]


class RegistryClient:
    """One registry, seen with one login. Safe to share between threads.

    Args:
        registry: host, or host and port; `docker.io` for Docker Hub.
        login: the credentials, or None.
        transport: the connections.
        timeout: seconds for each call of a method here, with all the requests that it needs.
        plain_http: it does not speak TLS. Credentials are then sent in clear, as the site has said.
    """

    def __init__(
        self,
        registry: str,
        login: Optional[Login],
        transport: Transport,
        timeout: float = 10.0,
        plain_http: bool = False,
    ) -> None:
        self.registry = registry
        self.timeout = timeout
        self._login = login
        self._transport = transport
        self._plain = plain_http
        self._base = "%s://%s" % ("http" if plain_http else "https", endpoint(registry))
        self._authorizations: dict[str, str] = {}

    def log_in(self) -> None:
        """See whether the registry accepts the credentials (without any: whether it lets strangers in).

        Raises:
            BadCredentials; Unreachable and its kinds; Unreadable: there is no registry.
        """
        self._check_login(time.monotonic() + self.timeout)

    def head(self, repository: str, reference: str) -> Manifest:
        """What is under a tag or a digest, without reading it.

        Raises:
            Absent: no such repository, or nothing under that name in it (which, stands in the message).
            BadCredentials, NoPermission; Unreachable and its kinds; Unreadable.
        """
        until = time.monotonic() + self.timeout
        answer = self._ask("HEAD", _manifest_path(repository, reference), repository, until)
        media_type = _media_type(answer)
        if answer.status != 200 or media_type not in (*MANIFESTS, *INDEXES):
            return self._get(repository, reference, until)  # the answer to HEAD has no body that tells why
        return Manifest(media_type, answer.headers.get("docker-content-digest", ""), {})

    def get(self, repository: str, reference: str) -> Manifest:
        """The manifest or index under a tag or a digest; its bytes are checked against a digest. Raises as `head`."""
        return self._get(repository, reference, time.monotonic() + self.timeout)

    def config(self, repository: str, digest: str) -> Mapping[str, Any]:
        """The JSON object under the digest of an image's configuration. Raises as `head`."""
        until = time.monotonic() + self.timeout
        path = "/v2/%s/blobs/%s" % (quote(repository), quote(digest, safe=":"))
        answer = self._ask("GET", path, repository, until)
        if answer.status == 404:
            raise Absent("%s/%s: its configuration %s is missing in the registry" % (self.registry, repository, digest))
        self._expect_ok(answer, "%s/%s" % (self.registry, repository))
        _check_digest(answer.body, digest, "%s/%s" % (self.registry, repository))
        return _json_object(answer.body, "%s/%s: its configuration" % (self.registry, repository))

    def tags(self, repository: str) -> list[str]:
        """All tags of a repository. Raises as `head`."""
        return self._tags(repository, time.monotonic() + self.timeout)

    # ---- one repository ----

    def _get(self, repository: str, reference: str, until: float) -> Manifest:
        name = "%s/%s%s%s" % (self.registry, repository, "@" if ":" in reference else ":", reference)
        answer = self._ask("GET", _manifest_path(repository, reference), repository, until)
        if answer.status == 404:
            raise self._absence(name, repository, answer, until)
        self._expect_ok(answer, name)
        if ":" in reference:
            _check_digest(answer.body, reference, name)
        content = _json_object(answer.body, "%s: its manifest" % name)
        media_type = _media_type(answer)
        if media_type not in (*MANIFESTS, *INDEXES) and isinstance(content.get("mediaType"), str):
            media_type = content["mediaType"]
        return Manifest(media_type, "sha256:" + hashlib.sha256(answer.body).hexdigest(), content)

    def _absence(self, name: str, repository: str, answer: Answer, until: float) -> RecoveryError:
        """Of 404: is it the repository or only the tag? Registries say both with the same code, so it is asked for."""
        if "NAME_UNKNOWN" not in _codes(answer):
            try:
                self._tags(repository, until)
            except Absent as exc:
                return exc
            except RecoveryError:  # only a better message is lost
                return Absent("%s: the registry has none" % name)
            return Absent("%s: the repository is there, but it has none under that name" % name)
        return _no_repository(self.registry, repository)

    def _tags(self, repository: str, until: float) -> list[str]:
        tags: list[str] = []
        path = "/v2/%s/tags/list?n=1000" % quote(repository)
        for _page in range(_MAX_PAGES):
            answer = self._ask("GET", path, repository, until)
            if answer.status == 404:
                raise _no_repository(self.registry, repository)
            self._expect_ok(answer, "%s/%s: its tags" % (self.registry, repository))
            told = _json_object(answer.body, "%s/%s: its list of tags" % (self.registry, repository)).get("tags")
            tags += [tag for tag in told or [] if isinstance(tag, str)]
            path = _next_page(self._base, path, answer.headers.get("link", ""))
            if not path:
                break
        return tags

    # ---- requests ----

    def _ask(self, method: str, path: str, repository: str, until: float) -> Answer:
        """One request about a repository, authorized as the registry wants it. Refusals are raised."""
        answer = self._send(method, path, self._authorizations.get(repository, ""), until)
        if answer.status == 401:
            authorization = self._authorize(answer, repository, until)
            self._authorizations[repository] = authorization
            answer = self._send(method, path, authorization, until)
        if answer.status in _REFUSALS:
            self._authorizations.pop(repository, None)
            raise self._refusal(answer, repository, until)
        return answer

    def _send(self, method: str, path: str, authorization: str, until: float) -> Answer:
        headers = {"Accept": _ACCEPT if "/manifests/" in path else "application/json, */*"}
        if authorization:
            headers["Authorization"] = authorization
        answer = self._transport.ask(method, self._base + path, headers, until, max(_MAX_MANIFEST, _MAX_LIST), True)
        if answer.status == 429:
            raise TooMany("%s: it was asked too often (429)" % self.registry, "try again later, or log in")
        if answer.status >= 500:
            raise Unreachable("%s: the registry is in trouble (HTTP %d)" % (self.registry, answer.status))
        return answer

    def _authorize(self, refused: Answer, repository: str, until: float) -> str:
        """The value of the header Authorization that a 401 asks for.

        Raises:
            BadCredentials, NoPermission: its token server does not give one.
            Unreadable: it does not say what it wants.
        """
        wanted = challenge.choose(refused.headers.get("www-authenticate", ""))
        if wanted is None:
            raise Unreadable("%s: it refuses (401) and does not say what it wants to see" % self.registry)
        if wanted.scheme == "basic":
            if self._login is None:
                raise self._no_login()
            return "Basic " + self._login.basic
        scope = "repository:%s:pull" % repository if repository else ""
        answer = self._token_answer(wanted, scope, until)
        if answer.status in _REFUSALS:
            raise self._token_refusal(wanted, answer, repository, until)
        return "Bearer " + self._token(answer, wanted)

    def _token_answer(self, wanted: Challenge, scope: str, until: float) -> Answer:
        realm = wanted.get("realm")
        scheme = urlsplit(realm).scheme
        if scheme not in ("https", "http"):
            raise Unreadable("%s: the address of its token server is no URL" % self.registry)
        if scheme == "http" and not self._plain and self._login is not None:
            raise Unreadable(
                "%s: its token server %s does not speak TLS; the credentials were not sent there"
                % (self.registry, shown(realm))
            )
        query = [("service", wanted.get("service"))] if wanted.get("service") else []
        query += [("scope", scope)] if scope else []
        query += [("account", self._login.username)] if self._login is not None else []
        headers = {"Accept": "application/json"}
        if self._login is not None:
            headers["Authorization"] = "Basic " + self._login.basic
        url = realm + ("&" if "?" in realm else "?") + urlencode(query)
        answer = self._transport.ask("GET", url, headers, until, _MAX_MANIFEST)
        if answer.status == 429:
            raise TooMany("%s: its token server was asked too often (429)" % self.registry, "try again later")
        if answer.status >= 500:
            raise Unreachable("%s: its token server is in trouble (HTTP %d)" % (self.registry, answer.status))
        return answer

    def _token(self, answer: Answer, wanted: Challenge) -> str:
        where = "%s: its token server %s" % (self.registry, shown(wanted.get("realm")))
        if answer.status != 200:
            raise Unreadable("%s answers HTTP %d" % (where, answer.status))
        told = _json_object(answer.body, where)
        token = told.get("token") or told.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Unreadable("%s gives no token" % where)
        return token

    def _token_refusal(self, wanted: Challenge, answer: Answer, repository: str, until: float) -> RecoveryError:
        if self._login is None:
            return self._no_login()
        if not repository:
            return self._bad_login(answer)
        without = self._token_answer(wanted, "", until)
        if without.status == 200 or (without.status not in _REFUSALS and answer.status in (402, 403)):
            return self._no_permission(repository, answer)
        return self._bad_login(answer)

    def _refusal(self, answer: Answer, repository: str, until: float) -> RecoveryError:
        """What a refusal means that came although the registry got what it asked for."""
        wanted = challenge.choose(answer.headers.get("www-authenticate", ""))
        if self._login is None:
            return self._no_login()
        if wanted is not None and wanted.scheme == "bearer" and wanted.get("error") == "invalid_token":
            return Unreadable(
                "%s: it does not accept the token of its own token server" % self.registry,
                "tell its administrator (clock, issuer or certificate of the token server)",
            )
        if not repository:
            return self._bad_login(answer)
        try:
            proved = self._check_login(until)
        except Forbidden as exc:
            return exc
        except RecoveryError:
            proved = False
        if not proved and answer.status == 401 and "DENIED" not in _codes(answer):
            return self._bad_login(answer)
        return self._no_permission(repository, answer)

    def _check_login(self, until: float) -> bool:
        """Whether the credentials were accepted; false where strangers are let in as well, so that nothing is known."""
        answer = self._send("GET", "/v2/", "", until)
        asked = answer.status == 401
        if asked:
            answer = self._send("GET", "/v2/", self._authorize(answer, "", until), until)
        if answer.status in _REFUSALS:
            raise self._refusal(answer, "", until)
        if answer.status == 404:
            raise Unreadable("%s: there is no registry at this address (no /v2/)" % self.registry)
        self._expect_ok(answer, self.registry)
        return asked

    def _expect_ok(self, answer: Answer, name: str) -> None:
        if answer.status != 200:
            raise Unreadable("%s: the registry answers HTTP %d%s" % (name, answer.status, _said(answer)))

    # ---- refusals ----

    def _no_login(self) -> BadCredentials:
        return BadCredentials("%s: it wants credentials, and none are given" % self.registry)

    def _bad_login(self, answer: Answer) -> BadCredentials:
        return BadCredentials("%s: it does not accept the credentials (HTTP %d)" % (self.registry, answer.status))

    def _no_permission(self, repository: str, answer: Answer) -> NoPermission:
        more = ", payment required" if answer.status == 402 else ""
        return NoPermission(
            "%s/%s: the credentials are good, but not allowed to pull it (HTTP %d%s)"
            % (self.registry, repository, answer.status, more)
        )


def _no_repository(registry: str, repository: str) -> Absent:
    return Absent("%s/%s: the registry has no such repository" % (registry, repository))


def _manifest_path(repository: str, reference: str) -> str:
    return "/v2/%s/manifests/%s" % (quote(repository), quote(reference, safe=":"))


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def _next_page(base: str, path: str, link: str) -> str:
    """The path of the next page (RFC 8288 `<...>; rel="next"`), or the empty text."""
    target, separator, parameters = link.partition(">")
    if not separator or 'rel="next"' not in parameters.replace("rel=next", 'rel="next"'):
        return ""
    following = urljoin(base + path, target.lstrip(" <"))
    return following[len(base) :] if following.startswith(base + "/") else ""


def _check_digest(body: bytes, digest: str, name: str) -> None:
    algorithm, _dummy, wanted = digest.partition(":")
    if algorithm not in ("sha256", "sha512") or hashlib.new(algorithm, body).hexdigest() != wanted:
        raise Unreadable("%s: what the registry sends is not what the digest says" % name, "do not use it")


def _json_object(body: bytes, what: str) -> Mapping[str, Any]:
    try:
        read = json_text.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise Unreadable("%s is no JSON object: is a registry at this address?" % what)
    return read


def _errors(answer: Answer) -> list[Mapping[str, Any]]:
    try:
        read = json_text.loads(answer.body)
    except ValueError:
        return []
    errors = read.get("errors") if isinstance(read, dict) else None
    return [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []


def _codes(answer: Answer) -> list[str]:
    return [str(error.get("code")) for error in _errors(answer)]


def _said(answer: Answer) -> str:
    """The registry's own words, made harmless."""
    words = ["%s %s" % (error.get("code") or "", error.get("message") or "") for error in _errors(answer)]
    return " (%s)" % printable("; ".join(words)) if words else ""
