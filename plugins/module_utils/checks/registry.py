# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `registry_check`: can the images and charts that will be pulled be had, with the credentials at hand.

Every registry, chart repository, image and chart is one question, asked side by side; the answers of a kind make one
check, which names what is not as it should be. A registry that does not accept its credentials is not asked for its
images: that would be the same answer again, and for some registries one failed login too many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import look
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.client import (
    BadCredentials,
    RegistryClient,
    TooMany,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import (
    NVIDIA_USER,
    Login,
    faults_of,
    is_nvidia,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import (
    Reference,
    covers,
    parse_chart,
    parse_image,
    parse_place,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.repository import (
    ChartOf,
    RepositoryClient,
    parse_chart_of,
    parse_repository,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.together import ask_all
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.transport import (
    Transport,
    UntrustedTls,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "registries": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "registry": {"type": "str", "required": True},
                "username": {"type": "str", "default": ""},
                "password": {"type": "str", "default": "", "no_log": True},
                "ca_file": {"type": "path", "default": ""},
                "plain_http": {"type": "bool", "default": False},
            },
        },
        "repositories": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "url": {"type": "str", "required": True},
                "username": {"type": "str", "default": ""},
                "password": {"type": "str", "default": "", "no_log": True},
                "ca_file": {"type": "path", "default": ""},
            },
        },
        "images": {"type": "list", "elements": "str", "default": []},
        "platforms": {"type": "list", "elements": "str", "default": []},
        "charts": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "chart": {"type": "str", "required": True},
                "repository": {"type": "str", "default": ""},
                "version": {"type": "str", "default": ""},
                "digest": {"type": "str", "default": ""},
            },
        },
        "request_timeout": {"type": "int", "default": 10},
        "deadline": {"type": "int", "default": 60},
    },
    "supports_check_mode": True,
}

REGISTRY, REPOSITORY, IMAGE, CHART = "registry", "repository", "image", "chart"

# What became of one question; the word that a result bears.
PRESENT = "present"
ACCEPTED = "accepted"
_ASK_FOR_RIGHTS = (
    "let the registry's administrator give this account the right to pull (some registries answer so, too, for a name "
    "that they do not have)"
)
#: For each error the word, the status, and what helps; the first that fits.
_OUTCOMES: tuple[tuple[type[RecoveryError], str, str, str], ...] = (
    (
        BadCredentials,
        "bad_credentials",
        FAILED,
        "give credentials that are valid there (mistyped, cut off, expired or revoked ones are all refused alike)",
    ),
    (Forbidden, "no_permission", FAILED, _ASK_FOR_RIGHTS),
    (Absent, "absent", FAILED, "correct the name or the version, or push it there"),
    (UntrustedTls, "untrusted", FAILED, "give the registry's certificate authority as ca_file; nodes need it too"),
    (TooMany, "too_many_requests", UNKNOWN, "wait some minutes, or give credentials"),
    (TimedOut, "timed_out", UNKNOWN, "look whether the registry is reached from the machine that asks"),
    (Unreachable, "unreachable", UNKNOWN, "look whether the registry is reached from the machine that asks"),
    (RecoveryError, "unreadable", FAILED, "look at what answers there"),
)
_ORDER = (FAILED, UNKNOWN, WARNING, PASSED)
_SHOWN = 5


@dataclass(frozen=True)
class Site:
    """One registry or chart repository as the site gives it; `place` of a repository is its address."""

    place: str
    login: Optional[Login]
    ca_file: str = ""
    plain_http: bool = False

    @property
    def is_repository(self) -> bool:
        """Whether it is a chart repository over HTTP."""
        return "://" in self.place

    @property
    def name(self) -> str:
        """Host and path."""
        return self.place.partition("://")[2] or self.place

    @property
    def host(self) -> str:
        """Its host, without the part that the credentials are for."""
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Outcome:
    """The answer to one question.

    Attributes:
        kind: `registry`, `repository`, `image` or `chart`.
        name: what was asked for.
        answer: one word for programs: `accepted`, `present`, or what is wrong.
        status: of the check that it belongs to.
        why: one sentence where it is not simply so.
        hint: what helps.
        digest: what its tag stands for now, where that is known.
    """

    kind: str
    name: str
    answer: str
    status: str
    why: str = ""
    hint: str = ""
    digest: str = ""

    def as_dict(self) -> dict[str, str]:
        """The entry in `results`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "answer": self.answer,
            "status": self.status,
            "why": self.why,
            "digest": self.digest,
        }


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Ask, and judge: `{changed: false, checks: [...], results: [...]}`. Reads only.

    Raises:
        BadInput: a registry, an image or a chart that cannot be one, or one registry twice.
    """
    registries = _sites(params["registries"], _registry_place)
    repositories = _sites(params["repositories"], lambda one: parse_repository(one["url"]))
    sites = registries + repositories
    images = [parse_image(text) for text in dict.fromkeys(params["images"])]
    charts = [_chart(one) for one in params["charts"]]
    until = time.monotonic() + params["deadline"]
    inquiry = Inquiry(sites, params["platforms"], params["request_timeout"])
    try:
        forms = [_form(site, time.time()) for site in sites]
        logins = _asked(registries, inquiry.registry, REGISTRY, until)
        logins += _asked(repositories, inquiry.repository, REPOSITORY, until)
        closed = {
            place: outcome
            for place, outcome in zip((site.place for site in sites), logins)
            if outcome.answer not in (ACCEPTED, "no_permission")
        }
        inquiry.closed = closed
        pulled = _asked(images, inquiry.image, IMAGE, until) + _asked(charts, inquiry.chart, CHART, until)
    finally:
        inquiry.close()
    results = logins + pulled
    checks = [_credentials_check(sites, forms)] if any(site.login for site in sites) else []
    checks += [_check(kind, [one for one in results if one.kind == kind]) for kind in _TITLES]
    return {
        "changed": False,
        "checks": [check.as_dict() for check in checks if check is not None],
        "results": [outcome.as_dict() for outcome in results],
    }


def _registry_place(given: Mapping[str, Any]) -> str:
    place = parse_place(given["registry"])
    if "*" in place:
        raise BadInput("registry_check: %s is many registries" % place, "name the one that is pulled from")
    return place


def _chart(given: Mapping[str, Any]) -> Union[Reference, ChartOf]:
    if given["repository"]:
        return parse_chart_of(given["repository"], given["chart"], given["version"], given["digest"])
    return parse_chart(given["chart"], given["version"], given["digest"])


def _sites(given: Sequence[Mapping[str, Any]], place_of: Callable[[Mapping[str, Any]], str]) -> list[Site]:
    sites = []
    for one in given:
        site = Site(place_of(one), None, one["ca_file"], one.get("plain_http", False))
        username = one["username"] or (NVIDIA_USER if one["password"] and is_nvidia(site.name) else "")
        login = Login(username, one["password"]) if username or one["password"] else None
        sites.append(replace(site, login=login))
    places = [site.place for site in sites]
    doubled = sorted({place for place in places if places.count(place) > 1})
    if doubled:
        raise BadInput("registry_check: %s is given twice" % ", ".join(doubled), "give each registry once")
    return sites


def _asked(things: Sequence[Any], ask: Callable[[Any], Outcome], kind: str, until: float) -> list[Outcome]:
    answers = ask_all(things, ask, max(0.0, until - time.monotonic()))
    return [answer or _late(kind, thing) for answer, thing in zip(answers, things)]


def _late(kind: str, thing: Any) -> Outcome:
    name = thing.place if isinstance(thing, Site) else str(thing)
    return _failed(kind, name, TimedOut("%s: no answer before the time for all was over" % name))


class Inquiry:
    """The questions, and the connections that they are asked by.

    Attributes:
        closed: the registries that need not be asked further, and why.
    """

    def __init__(self, sites: Sequence[Site], platforms: Sequence[str], timeout: float) -> None:
        self.closed: Mapping[str, Outcome] = {}
        self._sites = sorted(sites, key=lambda site: len(site.place), reverse=True)  # the closest comes first
        self._platforms = platforms
        self._timeout = timeout
        self._indexes: dict[str, Mapping[str, Any]] = {}  # of the repositories that answered
        self._transports = {ca_file: Transport(ca_file) for ca_file in {"", *(site.ca_file for site in sites)}}

    def close(self) -> None:
        """Close the connections."""
        for transport in self._transports.values():
            transport.close()

    def registry(self, site: Site) -> Outcome:
        """Does it answer, and accept the credentials?"""
        if _hopeless(site):
            return _failed(REGISTRY, site.place, _not_tried(site))
        try:
            self._client(site, site.host).log_in()
        except RecoveryError as exc:
            if site.login is None and isinstance(exc, BadCredentials):
                # whether strangers may pull what is wanted shows with each image
                return Outcome(REGISTRY, site.place, ACCEPTED, PASSED, "answers; no credentials are given")
            return _failed(REGISTRY, site.place, exc)
        return Outcome(REGISTRY, site.place, ACCEPTED, PASSED)

    def repository(self, site: Site) -> Outcome:
        """Does it answer with its index, and accept the credentials?"""
        if _hopeless(site):
            return _failed(REPOSITORY, site.place, _not_tried(site))
        try:
            self._indexes[site.place] = self._of(site).index()
        except RecoveryError as exc:
            return _failed(REPOSITORY, site.place, exc)
        return Outcome(REPOSITORY, site.place, ACCEPTED, PASSED)

    def image(self, reference: Reference) -> Outcome:
        """Can it be pulled?"""
        return self._pull(IMAGE, reference, lambda client: look.image(client, reference, self._platforms))

    def chart(self, wanted: Union[Reference, ChartOf]) -> Outcome:
        """Can it be pulled?"""
        if isinstance(wanted, ChartOf):
            return self._pull_from_repository(wanted)
        return self._pull(CHART, wanted, lambda client: look.chart(client, wanted))

    def _pull(self, kind: str, reference: Reference, ask: Callable[[RegistryClient], look.Seen]) -> Outcome:
        name = "%s/%s" % (reference.registry, reference.repository)
        sites = (one for one in self._sites if not one.is_repository and covers(one.place, name))
        site = next(sites, Site(reference.registry, None))
        return self._answered(kind, reference, site, lambda: ask(self._client(site, reference.registry)))

    def _pull_from_repository(self, wanted: ChartOf) -> Outcome:
        sites = (one for one in self._sites if one.place == wanted.repository)
        site = next(sites, Site(wanted.repository, None))

        def ask() -> look.Seen:
            client = self._of(site)
            entries = self._indexes.get(site.place)
            return client.chart(wanted, client.index() if entries is None else entries)

        return self._answered(CHART, wanted, site, ask)

    def _answered(self, kind: str, wanted: object, site: Site, ask: Callable[[], look.Seen]) -> Outcome:
        shut = self.closed.get(site.place)
        if shut is not None:
            why = "not asked for, its registry is not open to us (%s)" % shut.answer
            return Outcome(kind, str(wanted), shut.answer, shut.status, why, shut.hint)
        try:
            seen = ask()
        except RecoveryError as exc:
            return _failed(kind, str(wanted), exc)
        return Outcome(kind, str(wanted), PRESENT, PASSED, digest=seen.digest)

    def _of(self, site: Site) -> RepositoryClient:
        return RepositoryClient(site.place, site.login, self._transports[site.ca_file], self._timeout)

    def _client(self, site: Site, registry: str) -> RegistryClient:
        transport = self._transports[site.ca_file]
        return RegistryClient(registry, site.login, transport, self._timeout, site.plain_http)


def _hopeless(site: Site) -> bool:
    """Whether the credentials cannot be right by their form: they are not tried."""
    faults = [] if site.login is None else faults_of(site.name, site.login, time.time())
    return any(fault.certain for fault in faults)


def _not_tried(site: Site) -> BadCredentials:
    return BadCredentials("%s: not asked, the credentials cannot be right" % site.place)


def _failed(kind: str, name: str, exc: RecoveryError) -> Outcome:
    _kind, answer, status, hint = next(row for row in _OUTCOMES if isinstance(exc, row[0]))
    return Outcome(kind, name, answer, status, str(exc), hint)


def _form(site: Site, now: float) -> tuple[str, str]:
    """Status and words of the form of one registry's credentials."""
    faults = [] if site.login is None else faults_of(site.name, site.login, now)
    if not faults:
        return PASSED, ""
    status = FAILED if any(fault.certain for fault in faults) else WARNING
    return status, "%s: %s" % (site.place, "; ".join(fault.text for fault in faults))


def _credentials_check(sites: Sequence[Site], forms: Sequence[tuple[str, str]]) -> Check:
    status = _worst([status for status, _text in forms])
    words = [text for _status, text in forms if text]
    total = sum(site.login is not None for site in sites)
    return Check(
        "registry_credentials",
        "Registry credentials",
        "user and password have the form that their registry's have",
        "; ".join(words) or "%d of %d" % (total, total),
        status,
        "" if status == PASSED else "give the credentials exactly as the registry shows them, from the vault",
    )


_TITLES = {
    REGISTRY: ("registry_access", "Registries", "every registry answers and accepts its credentials"),
    REPOSITORY: (
        "chart_repositories",
        "Chart repositories",
        "every repository answers with its index and accepts its credentials",
    ),
    IMAGE: ("registry_images", "Images", "every image can be pulled"),
    CHART: ("registry_charts", "Charts", "every chart can be pulled"),
}


def _check(kind: str, outcomes: Sequence[Outcome]) -> Optional[Check]:
    """The answers of a kind as one check; None where nothing of it was asked."""
    if not outcomes:
        return None
    number, title, required = _TITLES[kind]
    status = _worst([outcome.status for outcome in outcomes])
    wrong = sorted((one for one in outcomes if one.status != PASSED), key=lambda one: _ORDER.index(one.status))
    found = "%d of %d" % (len(outcomes) - len(wrong), len(outcomes))
    if wrong:
        told = [_told(outcome) for outcome in wrong[:_SHOWN]]
        rest = len(wrong) - _SHOWN
        found += ": not %s" % "; ".join(told) + ("; and %d more" % rest if rest > 0 else "")
    hints = "; ".join(dict.fromkeys(outcome.hint for outcome in wrong if outcome.hint))
    return Check(number, title, required, found, status, hints)


def _told(outcome: Outcome) -> str:
    return outcome.why if outcome.why.startswith(outcome.name) else "%s (%s)" % (outcome.name, outcome.why)


def _worst(statuses: Sequence[str]) -> str:
    return min(statuses, key=_ORDER.index, default=PASSED)
