# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running totals of what happened, which only ever grow. Pure.

Prometheus takes a counter that falls for one that began anew, and adds all of it. The ledger forgets (retention), so
its numbers of rows fall. So rows are counted by day, and what a day has more than when it was last looked at is added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, KINDS, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.figures import DAY
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import CLOSED, ESCALATED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import DONE, FAILED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.lines import (
    ENDED,
    LEFT_TO_A_PERSON,
    RECOVERED,
    outcome_of,
)

OTHER = "other"  # in the place of a word that no list knows: labels are bounded whatever the ledger holds
TARGET_KINDS = (NODE, JOB)
OUTCOMES = (RECOVERED, LEFT_TO_A_PERSON, ENDED)
STATUSES = (DONE, FAILED)
BY_RECOVERY, BY_PERSON = WAITING_FOR = ("recovery", "person")
BUCKETS = (5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)  # seconds
OVER = "+Inf"

FAULTS, INCIDENTS, STEPS, REFUSALS = "faults", "incidents", "steps", "refusals"
SECONDS, BUCKET, OUT = "seconds", "bucket", "out"
Key = tuple[str, ...]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Totals:
    """What was counted.

    Attributes:
        at: until when, epoch seconds by the database's clock; None before the first look.
        counts: by `(what, label ...)`.
        seen: what each day had at the last look, by `(what, label ..., day)`; of the days that are looked at again.
    """

    at: Optional[float] = None
    counts: Mapping[Key, float] = field(default_factory=dict)
    seen: Mapping[Key, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What the ledger says: rows of `ledger.figures` and of `history.ended`, since `since(totals, at)`."""

    at: float
    faults: Sequence[Row] = ()
    ended: Sequence[Row] = ()
    steps: Sequence[Row] = ()
    refusals: Sequence[Row] = ()
    nodes_out: Sequence[Row] = ()


def since(totals: Totals, now: float) -> float:
    """From when on rows are read: whole days, one more than were looked at, as a transaction may show its rows late."""
    return ((now if totals.at is None else min(totals.at, now)) // DAY - 1) * DAY


def add(totals: Totals, look: Look) -> Totals:
    """The totals after a look. The first look only takes note of what is there."""
    days = _by_day(look)
    if totals.at is None:
        return Totals(look.at, {}, days)
    counts = dict(totals.counts)
    for key, value in days.items():
        more = value - totals.seen.get(key, 0.0)
        if more > 0:  # less: an incident that a person went on with has not ended after all
            counts[key[:-1]] = counts.get(key[:-1], 0.0) + more
    if look.at > totals.at:
        for who, seconds in out_between(look.nodes_out, totals.at, look.at).items():
            counts[OUT, who] = counts.get((OUT, who), 0.0) + seconds
    return Totals(max(totals.at, look.at), counts, days)


def out_between(rows: Iterable[Row], begin: float, end: float) -> dict[str, float]:
    """Seconds that nodes were out of service in this time, by what they waited for."""
    seconds = dict.fromkeys(WAITING_FOR, 0.0)
    for row in rows:
        closed = end if row["closed_at"] is None else row["closed_at"]
        seconds[BY_RECOVERY] += max(0.0, min(closed, end) - max(row["opened_at"], begin))
        if row["state"] == ESCALATED:
            seconds[BY_PERSON] += max(0.0, end - max(closed, begin))
    return seconds


def _by_day(look: Look) -> dict[Key, float]:
    days: dict[Key, float] = {}

    def note(key: Key, value: float, day: int) -> None:
        days[(*key, str(day))] = days.get((*key, str(day)), 0.0) + value

    for row in look.faults:
        note((FAULTS, known(row["fault_kind"], KINDS)), row["n"], row["day"])
    for row in look.steps:
        note((STEPS, known(row["step"], plans.ORDER), known(row["status"], STATUSES)), row["n"], row["day"])
    for row in look.refusals:
        note((REFUSALS, known(row["gate"], gates.GATES)), row["n"], row["day"])
    for row in look.ended:
        kind, outcome, day = known(row["target_kind"], TARGET_KINDS), outcome_of(row), int(row["closed_at"] // DAY)
        note((INCIDENTS, kind, outcome), 1.0, day)
        if row["state"] == CLOSED and outcome == RECOVERED:
            took = max(0.0, row["closed_at"] - row["opened_at"])
            note((SECONDS, kind), took, day)
            note((BUCKET, kind, next((str(most) for most in BUCKETS if took <= most), OVER)), 1.0, day)
    return days


def known(word: str, words: Iterable[str]) -> str:
    """The word, if it is one of these."""
    return word if word in words else OTHER


def dump(totals: Totals) -> str:
    """As text, for a file."""
    parts = {name: [[list(key), value] for key, value in getattr(totals, name).items()] for name in ("counts", "seen")}
    return json.dumps({"at": totals.at, **parts})


def load(text: str) -> Totals:
    """What `dump` made.

    Raises:
        ValueError: it is something else.
    """
    data = json.loads(text)
    try:
        parts = {
            name: {tuple(str(word) for word in key): float(value) for key, value in data[name]}
            for name in ("counts", "seen")
        }
        return Totals(float(data["at"]), **parts)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError("no totals") from exc
