# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, as structured lines: one JSON object a line, from the ledger's rows (`ledger.history`). Pure.

Keys, absent where there is nothing to say: `at` (RFC 3339, UTC), `kind` (fault, refusal, step, outcome, command),
`incident`, `target_kind`, `target`, `machine`, `scheduler`, `fault_kind`, `remediation`, `step`, `status`, `gate`,
`why`, `seconds`, `id`. Text that people wrote (`why`, a command's subject) is harmless to a terminal and bounded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    STARTED,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

FAULT, REFUSAL, STEP, OUTCOME, COMMAND = KINDS = ("fault", "refusal", "step", "outcome", "command")
# How an incident ended. ENDED: the trouble went without us, or nothing was done about it.
RECOVERED, LEFT_TO_A_PERSON, ENDED = "recovered", "escalated", "ended"
REFUSED = "refused"
JOB_LABEL = "job-recovery"  # of all our streams in Loki
OUTCOMES = (RECOVERED, LEFT_TO_A_PERSON, ENDED, REFUSED)

_MAX_TEXT = 2000  # characters, after escaping

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One thing that happened.

    Attributes:
        ref: names it for ever: the same for the same thing, however often it is read.
        at: when, epoch seconds.
        kind: one of KINDS.
        outcome: one of OUTCOMES, or empty.
        text: the JSON object.
    """

    ref: str
    at: float
    kind: str
    outcome: str
    text: str


def lines_of(what: str, row: Row) -> Line:
    """The line of one row that `history.READERS[what]` gave."""
    return _MAKERS[what](row)


def outcome_of(row: Row) -> str:
    """How an incident of `history.ended` ended: recovered only where its proof was made."""
    if row["state"] == ESCALATED:
        return LEFT_TO_A_PERSON
    return RECOVERED if row["acted"] and row["proved"] else ENDED


def micros(moment: float) -> int:
    """Epoch seconds as whole microseconds, which is what the ledger's clock gives."""
    return round(moment * 1e6)


def rfc3339(moment: float) -> str:
    """Epoch seconds as text."""
    whole, rest = divmod(micros(moment), 1000000)
    stamp = datetime.fromtimestamp(whole, tz=timezone.utc).replace(microsecond=rest)
    return stamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(kind: str, name: str, at: float, body: Mapping[str, Any], outcome: str = "") -> Line:
    ref = "%s:%d" % (name, micros(at))
    told = {"at": rfc3339(at), "kind": kind, **body, "id": ref}
    kept = {key: value for key, value in told.items() if value not in (None, "")}
    return Line(ref, at, kind, outcome, json.dumps(kept, separators=(",", ":"), ensure_ascii=True))


def _about(row: Row) -> dict[str, Any]:
    return {
        "incident": row["incident"],
        "target_kind": row["target_kind"],
        "target": row["target"],
        "machine": row["machine"],
        "scheduler": row["scheduler"],
        "fault_kind": row["fault_kind"],
    }


def _text(value: Any) -> str:
    shown = printable(str(value or ""))
    return shown if len(shown) <= _MAX_TEXT else shown[: _MAX_TEXT - 3] + "..."


def _opened(row: Row) -> Line:
    who = "asked for by %s" % row["requested_by"] if row["requested_by"] else "noticed by %s" % row["source"]
    body = {**_about(row), "remediation": row["suggested"], "why": _text(who)}
    return _line(FAULT, "fault:%d" % row["incident"], row["opened_at"], body)


def _attached(row: Row) -> Line:
    body = {**_about(row), "status": "attached", "why": _text("noticed by %s" % row["source"])}
    return _line(FAULT, "attached:%d" % row["evidence"], row["first_at"], body)


def _refused(row: Row) -> Line:
    kind, _colon, rest = str(row["target_key"]).partition(":")
    scheduler, target = ("", rest) if kind == NODE else (rest.partition(":")[0], rest.partition(":")[2])
    body = {
        "incident": row["incident"] or None,
        "target_kind": kind if kind in (NODE, JOB) else "",
        "target": target,
        "machine": target if kind == NODE else "",
        "scheduler": scheduler,
        "fault_kind": row["fault_kind"],
        "remediation": row["plan"],
        "gate": row["gate"],
        "why": _text(row["why"]),
    }
    return _line(REFUSAL, "refusal:%d" % row["id"], row["first_at"], body, REFUSED)


def _step(row: Row, at: float, status: str, more: Mapping[str, Any]) -> Line:
    name = "step:%d:%d:%s:%s" % (row["incident"], row["step_round"], row["step"], status)
    plan = row["plan"] if row["step_round"] == row["round"] else ""  # of an earlier round it is not on record any more
    body = {**_about(row), "remediation": plan, "step": row["step"], "status": status, **more}
    return _line(STEP, name, at, body)


def _step_begun(row: Row) -> Line:
    return _step(row, row["started_at"], STARTED, {})


def _step_ended(row: Row) -> Line:
    seconds = _seconds(row["started_at"], row["finished_at"])
    return _step(row, row["finished_at"], row["status"], {"why": _text(row["why"]), "seconds": seconds})


def _ended(row: Row) -> Line:
    outcome = outcome_of(row)
    body = {
        **_about(row),
        "remediation": row["plan"],
        "status": outcome,
        "why": _text(row["why"]),
        "seconds": _seconds(row["opened_at"], row["closed_at"]),
    }
    return _line(OUTCOME, "outcome:%d" % row["incident"], row["closed_at"], body, outcome)


def _commanded(row: Row) -> Line:
    reason = ": %s" % row["reason"] if row["reason"] else ""
    body = {
        "status": row["command"],
        "target": _text(row["subject"]),
        "why": _text("by %s%s" % (row["who"], reason)),
    }
    return _line(COMMAND, "command:%d" % row["id"], row["at"], body)


def _seconds(begin: float, end: float) -> float:
    return round(max(0.0, end - begin), 3)


_MAKERS: Mapping[str, Callable[[Row], Line]] = {
    "opened": _opened,
    "attached": _attached,
    "refused": _refused,
    "steps_begun": _step_begun,
    "steps_ended": _step_ended,
    "ended": _ended,
    "commanded": _commanded,
}
