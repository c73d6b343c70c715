# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Loki's answers mean. Pure.

Seen on Loki 3: a push of which some entries cannot be taken is answered 400 in plain text, and the others are taken all
the same; the same entry pushed twice is kept once. A question over a limit is 400, too; over the rate it is 429,
without Retry-After. https://grafana.com/docs/loki/latest/reference/loki-http-api/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import web
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Reply

MAX_PAUSE = 300.0  # seconds that a Retry-After is obeyed at most

# What Loki says of an entry that it will never take.
_NEVER = re.compile(r"too far behind|timestamp too old|out of order|max entry size|line too long", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]{1,6}\Z")
_NANOSECONDS = re.compile(r"[0-9]{1,19}\Z")


class Busy(Unreachable):
    """Loki, or what stands before it, cannot take it now; `retry_after` is seconds, 0 where it does not say."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message, "it is tried again")
        self.retry_after = retry_after


class Refused(RecoveryError):
    """Loki understands the question and will not answer it."""


@dataclass(frozen=True)
class Taken:
    """What became of a push: `never` is why one or more of its entries will never be taken, empty when all were."""

    never: str = ""


@dataclass(frozen=True, order=True)
class Entry:
    """One line: `at` in nanoseconds since the epoch, its text, its stream's labels with structured metadata, sorted."""

    at: int
    line: str
    labels: tuple[tuple[str, str], ...] = ()


def of_push(reply: Reply) -> Taken:
    """Judge the answer to a push.

    Raises:
        Busy, Forbidden, Unreadable: nothing is known to be taken.
    """
    if reply.status in (200, 204):
        return Taken()
    said = web.text_of(reply, 200)
    if reply.status == 400 and _NEVER.search(said):
        return Taken(said)
    raise _trouble(reply)


def of_query(reply: Reply) -> list[Entry]:
    """Judge the answer to a question for lines; the earliest first.

    Raises:
        Refused, Busy, Forbidden, Unreadable: nothing is known.
    """
    if reply.status in (400, 422):
        raise Refused("Loki refuses the question: %s" % web.text_of(reply, 200), "correct the query or the labels")
    if reply.status != 200:
        raise _trouble(reply)
    told = web.json_of(reply) or {}
    data = told.get("data")
    if told.get("status") != "success" or not isinstance(data, Mapping):
        raise Unreadable("Loki: the answer is none of Loki's (HTTP 200)", "look whether the address leads to Loki")
    if data.get("resultType") != "streams":
        raise Refused("Loki: the query asks for numbers and not for lines", "give a log query")
    return sorted(entry for stream in _list(data.get("result")) for entry in _entries(stream))


def retry_after(reply: Reply) -> float:
    """Seconds that the answer wants us to wait, 0 where it does not say (or gives a date)."""
    said = reply.headers.get("retry-after", "").strip()
    return min(float(said), MAX_PAUSE) if _SECONDS.match(said) else 0.0


def _trouble(reply: Reply) -> RecoveryError:
    told = "Loki: HTTP %d (%s)" % (reply.status, web.text_of(reply) or "no text")
    if reply.status == 429 or reply.status >= 500:
        return Busy(told, retry_after(reply))
    if reply.status in (401, 403):
        return Forbidden(told, "look whether user, password and tenant are right")
    return Unreadable(told, "look whether the address leads to Loki")


def _entries(stream: Any) -> list[Entry]:
    labels = stream.get("stream") if isinstance(stream, Mapping) else None
    if not isinstance(labels, Mapping):
        raise _strange()
    sorted_labels = tuple(sorted((str(name), str(value)) for name, value in labels.items()))
    return [_entry(value, sorted_labels) for value in _list(stream.get("values"))]


def _entry(value: Any, labels: tuple[tuple[str, str], ...]) -> Entry:
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], str):
        raise _strange()
    if not _NANOSECONDS.match(str(value[0])):
        raise _strange()
    return Entry(int(value[0]), value[1], labels)


def _list(value: Optional[Any]) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _strange()
    return value


def _strange() -> Unreadable:
    return Unreadable("Loki: its list of lines is not understood", "is it a Loki of version 2.4 or newer?")
