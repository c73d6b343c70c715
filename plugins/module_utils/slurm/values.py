# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single values of Slurm's text and JSON, converted once: numbers, times, ids and Slurm's many words for nothing."""

from __future__ import annotations

import calendar
import dataclasses
import math
import re
import time
from typing import Any, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist

NULLS = frozenset(
    ("", "NONE", "None", "N/A", "n/a", "Unknown", "UNKNOWN", "(null)", "UNLIMITED", "INFINITE", "Partition_Limit")
)
# slurm.h: NO_VAL, NO_VAL64; INFINITE, INFINITE64. JSON of older versions knows signed numbers only.
_NO_VALUES = (0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE, -2)
_INFINITE_VALUES = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1)

_MAX_IDS = 1000  # components of one heterogeneous job; Slurm allows 128

Number = Union[int, float]


def text(value: str | None) -> str | None:
    """A word that Slurm itself wrote, or None for one of its words for nothing. Not for text that a user wrote."""
    return None if value is None or value.strip() in NULLS else value.strip()


def user_text(value: str | None) -> str | None:
    """Text that a user wrote, unchanged; only the empty text and `(null)` are nothing."""
    return None if value is None or value in ("", "(null)") else value


def number(value: Any) -> Number | None:
    """A number of Slurm's JSON: plain, or `{"set": ..., "infinite": ..., "number": ...}`; `math.inf` is "infinite"."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _number_object(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _no_number(value)
    if value in _NO_VALUES:
        return None
    if value in _INFINITE_VALUES:
        return math.inf
    if not value >= 0:  # negative, or no number at all (NaN)
        raise _no_number(value)
    return value


def _number_object(value: dict[str, Any]) -> Number | None:
    known, infinite = value.get("set"), value.get("infinite", False)
    if not isinstance(known, bool) or not isinstance(infinite, bool) or "number" not in value:
        raise _no_number(value)
    if infinite:
        return math.inf
    if isinstance(value["number"], dict):
        raise _no_number(value)
    return number(value["number"]) if known else None


def _no_number(value: Any) -> Unreadable:
    return Unreadable("%s is not a number of Slurm's JSON" % shown(value))


def shown(value: Any) -> str:
    """A value of JSON in a message: bounded, and of what may be nested deeply only what it is."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return ascii(value)[:80]


def integer(value: Any) -> int | None:
    """A whole number of Slurm's JSON, None where there is none or no bound."""
    found = number(value)
    if found is None or found == math.inf:
        return None
    if found != int(found):
        raise _no_number(value)
    return int(found)


def json_time(value: Any) -> int | None:
    """A time of Slurm's JSON in epoch seconds; 0 stands for "never"."""
    return integer(value) or None


def text_integer(value: str | None, what: str) -> int | None:
    """A whole number of Slurm's text; its number for "none" is None (`ArrayTaskId=4294967294`)."""
    word = text(value)
    if word is None:
        return None
    if not re.match(r"[0-9]{1,20}\Z", word):
        raise Unreadable("%s is %r, not a number" % (what, word[:80]))
    return None if int(word) in _NO_VALUES else int(word)


def text_time(value: str | None, what: str = "time") -> int | None:
    """A time of Slurm's text in epoch seconds.

    Slurm's commands are run with SLURM_TIME_FORMAT=%s and TZ=UTC: an epoch, or, where a command does not heed that,
    the standard format in UTC. Anything else (`2025-07-21 14:35:22.UTC`, `Tomorr 08:00`) is ambiguous and refused.
    """
    word = text(value)
    if word is None:
        return None
    if re.match(r"[0-9]{1,12}\Z", word):
        return int(word) or None
    try:
        return calendar.timegm(time.strptime(word, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        raise Unreadable("%s is %r, neither epoch seconds nor YYYY-MM-DDTHH:MM:SS" % (what, word[:80])) from None


def nodes(value: str | None) -> tuple[str, ...]:
    """The expanded names of a host list in Slurm's answer."""
    try:
        return tuple(hostlist.expand(value))
    except hostlist.HostlistError as exc:
        raise Unreadable(str(exc)) from None


def ids(value: str | None) -> tuple[int, ...]:
    """The ids of a set such as `23-24,27`."""
    found: list[int] = []
    for part in (text(value) or "").split(","):
        first, dash, last = part.partition("-")
        if part and not (first.isdigit() and (last.isdigit() or not dash)):
            raise Unreadable("%r is no set of ids" % str(value)[:80])
        if part:
            found.extend(range(int(first), min(int(last or first), int(first) + _MAX_IDS) + 1))
    return tuple(found)


def exit_code_of_status(status: int) -> str:
    """`code:signal` from a wait status, as older JSON gives it."""
    return "%d:%d" % ((status >> 8) & 0xFF, status & 0x7F)


@dataclasses.dataclass(frozen=True)
class JobRef:
    """A job as a person or a command names it.

    `57829110_[5-100]` has tasks, `715219_23.batch` a task and a step, `123+1` the offset of a heterogeneous job,
    `123;clusterA` a cluster.
    """

    id: int
    task: int | None = None
    tasks: str | None = None
    het_offset: int | None = None
    step: str | None = None
    cluster: str | None = None

    @property
    def argument(self) -> str:
        """As Slurm's commands take it.

        Raises:
            BadInput: the job is another cluster's; the same number is another job here.
        """
        if self.cluster is not None:
            raise BadInput("job %d of cluster %s is not this cluster's" % (self.id, self.cluster))
        if self.task is not None:
            return "%d_%d" % (self.id, self.task)
        if self.het_offset is not None:
            return "%d+%d" % (self.id, self.het_offset)
        return str(self.id)


_JOB_REF = re.compile(
    r"(?P<id>[0-9]{1,10})"
    r"(?:_(?:(?P<task>[0-9]{1,10})|\[(?P<tasks>[0-9,:%-]+(?:\.\.\.)?(?:%[0-9]+)?)\]|(?P<any>\*))|\+(?P<het>[0-9]{1,10}))?"
    r"(?:\.(?P<step>[A-Za-z0-9_+]+))?"
    r"(?:;(?P<cluster>[A-Za-z0-9_.-]+))?\Z"
)


def job_ref(value: Any) -> JobRef:
    """Read a job id of any of Slurm's forms.

    Raises:
        BadInput: it is none.
    """
    match = _JOB_REF.match(str(value).strip())
    if not match or int(match.group("id")) == 0:
        raise BadInput("%r is not the id of a job" % str(value)[:80])
    task, offset = match.group("task"), match.group("het")
    return JobRef(
        id=int(match.group("id")),
        task=None if task is None else int(task),
        tasks=match.group("tasks") or match.group("any"),
        het_offset=None if offset is None else int(offset),
        step=match.group("step"),
        cluster=match.group("cluster"),
    )
