# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What agent and controller say to each other. Pure; both sides use it.

One exchange is one TCP connection of three lines of JSON:

1. the controller greets: `{"job_recovery_agent": 1, "nonce": TEXT}`;
2. the agent sends `{"credential": TEXT}`, a munge credential that holds a `Message` with that nonce, so that nobody
   can send it a second time, whatever munged remembers;
3. the controller answers `{"credential": TEXT}`, which holds an `Answer` with the agent's own nonce, so that nobody
   but the controller can make an agent forget a report. A refusal of the whole is `{"refused": WHY}` and proves
   nothing: the agent keeps its reports.

A report is a plain dictionary, see `REPORT`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from ..logs import model

VERSION = 1
MAX_LINE = 262144  # bytes of one line
MAX_REPORTS = 50  # in one message

_NONCE = re.compile(r"[0-9a-f]{32}\Z")
_ID = re.compile(r"[0-9a-f]{32}\Z")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{1,262000}:\Z")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_MAX_DEVICE = 64
_MAX_COUNT = 10**12
_MAX_WHY = 300


class Malformed(Exception):
    """A line, a message or a report that is not of this protocol."""


class Message(NamedTuple):
    """What an agent says: the nonce that it was greeted with, the one it wants answered, who it is, and its reports."""

    nonce: str
    answer: str
    node: str
    boot_id: str
    reports: list


class Answer(NamedTuple):
    """What the controller did with the reports: ids that it took, and by id why it will never take one."""

    answer: str
    taken: list
    refused: dict


def greeting(nonce: str) -> dict:
    """The controller's first line."""
    return {"job_recovery_agent": VERSION, "nonce": nonce}


def greeted(line: dict) -> str:
    """The nonce of a greeting."""
    if line.get("job_recovery_agent") != VERSION:
        raise Malformed("this is no listener for agents of version %d" % VERSION)
    return _text(line, "nonce", _NONCE)


def credential(line: dict) -> str:
    """The credential that a line brings."""
    if "refused" in line:
        raise Malformed("refused: %s" % str(line["refused"])[:_MAX_WHY])
    return _text(line, "credential", _CREDENTIAL)


def pack_line(value: dict) -> bytes:
    """One line to send."""
    return json.dumps(value, separators=(",", ":")).encode("utf-8") + b"\n"


def unpack(data: bytes) -> dict:
    """The object that a line or a credential's payload holds."""
    if len(data) > MAX_LINE:
        raise Malformed("%d bytes are too many" % len(data))
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise Malformed("no JSON") from exc
    if not isinstance(value, dict):
        raise Malformed("no JSON object")
    return value


def message_of(value: dict) -> Message:
    """Read an agent's message. Each of its reports has an id; the rest of it is for `report_of`."""
    reports = value.get("reports")
    if not isinstance(reports, list) or len(reports) > MAX_REPORTS:
        raise Malformed("reports are no list, or more than %d" % MAX_REPORTS)
    for report in reports:
        id_of(report)  # without it nobody could say which one is refused
    return Message(
        nonce=_text(value, "nonce", _NONCE),
        answer=_text(value, "answer", _NONCE),
        node=_text(value, "node", _NAME),
        boot_id=_text(value, "boot_id", _BOOT_ID),
        reports=reports,
    )


def answer_of(value: dict) -> Answer:
    """Read the controller's answer."""
    taken, refused = value.get("taken"), value.get("refused")
    if not isinstance(taken, list) or not isinstance(refused, dict):
        raise Malformed("no answer")
    reasons = {str(key): str(why)[:_MAX_WHY] for key, why in refused.items()}
    return Answer(_text(value, "answer", _NONCE), [name for name in taken if isinstance(name, str)], reasons)


def id_of(report: Any) -> str:
    """The id of a report, whatever else is wrong with it."""
    if not isinstance(report, dict):
        raise Malformed("a report is no object")
    return _text(report, "id", _ID)


def report_of(report: Any) -> dict:
    """A report with exactly the keys of `REPORT`, each checked; lines and names in it stay hostile text."""
    if not isinstance(report, dict) or set(report) != set(REPORT):
        raise Malformed("a report's keys are not %s" % ", ".join(sorted(REPORT)))
    for key, check in REPORT.items():
        if not check(report[key]):
            raise Malformed("%s of a report is %s" % (key, ascii(report[key])[:80]))
    return report


def _text(value: dict, key: str, pattern: Any) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not pattern.match(found):
        raise Malformed("%s is missing or wrong" % key)
    return found


def _like(pattern: Any) -> Any:
    return lambda value: isinstance(value, str) and pattern.match(value) is not None


def _one_of(*words: str) -> Any:
    return lambda value: isinstance(value, str) and value in words


def _short(limit: int) -> Any:
    return lambda value: isinstance(value, str) and len(value) <= limit


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT


def _is_time(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11)


def _are_lines(value: Any) -> bool:
    short = _short(model.MAX_LINE_LENGTH)
    return isinstance(value, list) and len(value) <= model.MAX_LINES and all(map(short, value))


# By key of a report what its value must be. `first` and `last` are epoch seconds or null, `lines` texts.
REPORT = {
    "id": _like(_ID),
    "code": _like(_CODE),
    "family": _like(_CODE),
    "verdict": _one_of(*model.VERDICTS),
    "action": _one_of(*model.ACTIONS),
    "severity": _one_of(model.FATAL, model.NONFATAL, ""),
    "device": _short(_MAX_DEVICE),
    "cause": _short(_MAX_DEVICE),
    "count": _is_count,
    "first": _is_time,
    "last": _is_time,
    "boot_id": _like(_BOOT_ID),
    "lines": _are_lines,
}
