# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for Loki: push, query_range, labels and ready, with the limits and answers of a current Loki."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .serving import Answer, Certificate, Request, StandIn, as_json, as_text

SECOND = 1_000_000_000  # nanoseconds
_BEHIND, _OLD, _AHEAD = 3600 * SECOND, 7 * 86400 * SECOND, 600 * SECOND
_LINE = 256 * 1024
_LABEL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_SELECTOR = re.compile(r'\s*\{\s*((?:\w+\s*(?:=~|=|!=)\s*"[^"]*"\s*,?\s*)*)\}\s*((?:\|[=~]\s*"[^"]*"\s*)*)\Z')
_MATCHER = re.compile(r'(\w+)\s*(=~|=|!=)\s*"([^"]*)"')
_FILTER = re.compile(r'\|([=~])\s*"([^"]*)"')


class _Bad(Exception):
    """400 with this plain text."""


@dataclass(frozen=True, order=True)
class Entry:
    """One line: nanoseconds since the epoch, text, structured metadata."""

    at: int
    line: str
    metadata: tuple[tuple[str, str], ...] = ()


Stream = tuple[tuple[str, str], ...]


class LokiStandIn(StandIn):
    """Loki, in memory.

    Attributes:
        tenants: whether X-Scope-OrgID is wanted (`auth_enabled`).
        ready: what /ready says.
    """

    def __init__(
        self, certificate: Certificate | None = None, tenants: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(certificate)
        self.tenants, self.ready = tenants, True
        self._clock = clock
        self._streams: dict[str, dict[Stream, set[Entry]]] = {}

    def answer(self, request: Request) -> Answer:
        if request.path == "/ready":
            return as_text(200, "ready\n") if self.ready else as_text(503, "Ingester not ready: waiting for 15s\n")
        ways = {
            "/loki/api/v1/labels": ("GET", self._labels),
            "/loki/api/v1/push": ("POST", self._push),
            "/loki/api/v1/query_range": ("GET", self._query),
        }
        method, way = ways.get(request.path, ("", None))
        if way is None:
            return as_text(404, "404 page not found\n")
        if method != request.method:
            return as_text(405, "Method Not Allowed\n")
        tenant = request.headers.get("x-scope-orgid", "")
        if self.tenants and not tenant:
            return as_text(401, "no org id\n")
        try:
            return way(request, self._streams.setdefault(tenant if self.tenants else "fake", {}))
        except _Bad as exc:
            return as_text(400, f"{exc}\n")

    def put(self, labels: dict[str, str], line: str, tenant: str = "fake") -> None:
        """Keep a line of now, without HTTP."""
        stream = tuple(sorted(labels.items()))
        entry = Entry(int(self._clock() * SECOND), line)
        self._streams.setdefault(tenant, {}).setdefault(stream, set()).add(entry)

    def _labels(self, _request: Request, streams: dict[Stream, set[Entry]]) -> Answer:
        names = sorted({name for stream in streams for name, _value in stream})
        return as_json(200, {"status": "success", **({"data": names} if names else {})})

    def _push(self, request: Request, streams: dict[Stream, set[Entry]]) -> Answer:
        """Bad entries are dropped and told, the others are taken all the same."""
        wrong = []
        for labels, entries in _pushed(request):
            stream = tuple(sorted(labels.items()))
            kept = streams.setdefault(stream, set())
            for entry in entries:
                newest = max((one.at for one in kept), default=entry.at)
                trouble = _trouble(entry, newest, int(self._clock() * SECOND))
                if trouble:
                    wrong.append(trouble)
                else:
                    kept.add(entry)  # the same once more is the same
        if wrong:
            raise _Bad(wrong[0])
        return Answer(204)

    def _query(self, request: Request, streams: dict[Stream, set[Entry]]) -> Answer:
        matchers, filters = _selector(request.query.get("query", [""])[0])
        now = int(self._clock() * SECOND)
        start = int(request.query.get("start", [now - 3600 * SECOND])[0])
        end = int(request.query.get("end", [now])[0])
        limit = int(request.query.get("limit", [100])[0])
        if end < start:
            raise _Bad("end timestamp must not be before or equal to start time")
        if end - start > 30 * 86400 * SECOND:
            raise _Bad("the query time range exceeds the limit (query length: too long, limit: 30d1h)")
        if limit > 5000:
            raise _Bad(f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({limit} > 5000)")
        found = [
            (stream, entry)
            for stream, entries in streams.items()
            if all(_matches(dict(stream).get(name, ""), sign, value) for name, sign, value in matchers)
            for entry in entries
            if start <= entry.at < end and all(one.search(entry.line) for one in filters)
        ]
        forward = request.query.get("direction", ["backward"])[0] == "forward"
        found.sort(key=lambda pair: pair[1].at, reverse=not forward)
        result: dict[Stream, list[list[str]]] = {}
        for stream, entry in found[:limit]:
            result.setdefault((*stream, *entry.metadata), []).append([str(entry.at), entry.line])
        streams_found = [{"stream": dict(stream), "values": values} for stream, values in result.items()]
        data = {"resultType": "streams", "result": streams_found, "stats": {}}
        return as_json(200, {"status": "success", "data": data})


def _pushed(request: Request) -> Iterator[tuple[dict[str, str], list[Entry]]]:
    try:
        body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
        streams = json.loads(body)["streams"]
        for stream in streams:
            labels = stream["stream"]
            strange = [name for name in labels if not _LABEL.match(name)]
            if strange:
                raise _Bad(f"error parsing labels: couldn't parse labels: {strange[0]}")
            yield labels, [Entry(int(at), line, _metadata(*rest)) for at, line, *rest in stream["values"]]
    except (ValueError, KeyError, TypeError, OSError) as exc:
        raise _Bad(f"loghttp.PushRequest.Streams: {type(exc).__name__}") from exc


def _metadata(pairs: dict[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pairs or {}).items()))


def _trouble(entry: Entry, newest: int, now: int) -> str:
    if len(entry.line) > _LINE:
        return f"max entry size '{_LINE}' bytes exceeded"
    if entry.at < now - _OLD:
        return "entry has timestamp too old"
    if entry.at > now + _AHEAD:
        return "entry has timestamp too new"
    if entry.at < newest - _BEHIND:
        return f"entry too far behind, entry timestamp is {entry.at}, oldest acceptable timestamp is {newest - _BEHIND}"
    return ""


def _selector(query: str) -> tuple[list[tuple[str, str, str]], list[re.Pattern[str]]]:
    match = _SELECTOR.match(query)
    if match is None:
        raise _Bad("parse error : syntax error: unexpected IDENTIFIER")
    matchers = _MATCHER.findall(match.group(1))
    if not any(sign != "!=" and not _matches("", sign, value) for _name, sign, value in matchers):
        raise _Bad("queries require at least one regexp or equality matcher that does not have an empty value")
    filters = _FILTER.findall(match.group(2))
    return matchers, [re.compile(text if sign == "~" else re.escape(text)) for sign, text in filters]


def _matches(value: str, sign: str, wanted: str) -> bool:
    if sign == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) is (sign == "=")
