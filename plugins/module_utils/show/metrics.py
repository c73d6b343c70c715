# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus is told: metrics in its text format (0.0.4), by its conventions. Pure.

https://prometheus.io/docs/instrumenting/exposition_formats/ and https://prometheus.io/docs/practices/naming/
Every label has few values, all of them known beforehand: no name of a node or a job is one. Counters stand at 0 before
anything happened, so that Prometheus sees the first thing happen. What is not known now is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import gates, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    OPEN,
    WAITING,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import ACT, OBSERVE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import totals as counted
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.totals import TARGET_KINDS, Totals

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "job_recovery_"
_STATES = (OPEN, WAITING, ESCALATED)

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # what follows the name, labels, value


@dataclass(frozen=True)
class Family:
    """One metric with all its samples."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


@dataclass(frozen=True)
class Standing:
    """What stands in the ledger.

    Attributes:
        incidents: number of those that are not closed, by `(target_kind, state)`.
        nodes_out: number of nodes that recovery holds out of service, by what they wait for.
        breaker: by target kind `{failures, broken}`.
        canary: `{sent_at, way}`, epoch seconds and seconds; each may be None.
        outbox: number of lines that are not told yet, by sink.
        silent_agents: number of nodes whose agent is silent while others are heard.
    """

    stopped: bool
    restored: bool
    incidents: Mapping[tuple[str, str], int]
    nodes_out: Mapping[str, int]
    breaker: Mapping[str, Mapping[str, Any]]
    canary: Mapping[str, Optional[float]] = field(default_factory=dict)
    outbox: Mapping[str, int] = field(default_factory=dict)
    silent_agents: int = 0


@dataclass(frozen=True)
class Known:
    """Everything that is told.

    Attributes:
        standing: None while the ledger does not answer.
        ledger_at: when it answered last, epoch seconds; None for never.
        beats: signs of life of the event sources and of the reporter's workers: `{name, at, error}`.
        sources: the event sources that must be there.
    """

    cluster: str
    mode: str
    standing: Optional[Standing]
    ledger_at: Optional[float]
    totals: Totals
    beats: Sequence[Mapping[str, Any]]
    sources: Sequence[str]


def exposition(known: Known) -> str:
    """The page that Prometheus reads."""
    return render([*_standing(known), *_signs(known), *_counters(known.totals)], {"cluster": known.cluster})


def render(families: Iterable[Family], labels: Labels) -> str:
    """Metrics as text; every sample gets the common labels too."""
    lines = []
    for family in families:
        name = _PREFIX + family.name
        lines.append("# HELP %s %s" % (name, family.help.replace("\\", "\\\\").replace("\n", "\\n")))
        lines.append("# TYPE %s %s" % (name, family.kind))
        for suffix, own, value in family.samples:
            pairs = ",".join('%s="%s"' % (key, _escaped(some)) for key, some in {**labels, **own}.items())
            lines.append("%s%s{%s} %s" % (name, suffix, pairs, _number(value)))
    return "\n".join([*lines, ""])


def _standing(known: Known) -> list[Family]:
    now = known.standing
    made = [
        _one("ledger_up", "Whether the ledger answered when it was last asked.", float(now is not None)),
        Family("mode", GAUGE, "1 for the mode that is set.", _each("mode", (OBSERVE, ACT), {known.mode: 1}.get)),
    ]
    if known.ledger_at is not None:
        made.append(_one("ledger_last_answer_timestamp_seconds", "When the ledger answered last.", known.ledger_at))
    if now is None:
        return made
    open_ones = [
        ("", {"target_kind": kind, "state": state}, float(now.incidents.get((kind, state), 0)))
        for kind in TARGET_KINDS
        for state in _STATES
    ]
    broken = {kind: state["broken"] for kind, state in now.breaker.items()}
    failures = {kind: state["failures"] for kind, state in now.breaker.items()}
    made += [
        _one("stopped", "Whether somebody has stopped recovery.", float(now.stopped)),
        _one("ledger_restored", "Whether the ledger is older than what was seen of it before.", float(now.restored)),
        Family("incidents_open", GAUGE, "Incidents that are not closed; escalated: they wait for a person.", open_ones),
        Family(
            "nodes_out",
            GAUGE,
            "Nodes that recovery holds out of service.",
            _each("waiting_for", counted.WAITING_FOR, now.nodes_out.get),
        ),
        Family(
            "breaker_open",
            GAUGE,
            "Whether so many repairs have failed in a row that no new one is begun.",
            _each("target_kind", TARGET_KINDS, broken.get),
        ),
        Family(
            "breaker_failures",
            GAUGE,
            "Repairs that have failed in a row.",
            _each("target_kind", TARGET_KINDS, failures.get),
        ),
        _one("agents_silent", "Nodes whose agent is silent while others are heard.", float(now.silent_agents)),
        Family(
            "outbox_lines", GAUGE, "Lines that are not told yet.", _each("sink", sorted(now.outbox), now.outbox.get)
        ),
    ]
    moments = {
        "canary_sent_timestamp_seconds": ("When an event was last sent the whole way.", now.canary.get("sent_at")),
        "canary_way_seconds": ("How long the last event took that went the whole way.", now.canary.get("way")),
    }
    return made + [_one(name, text, value) for name, (text, value) in moments.items() if value is not None]


def _signs(known: Known) -> list[Family]:
    """Of every source that must be there, and of whatever else shows signs of life."""
    seen = {str(beat["name"]): beat for beat in known.beats}
    names = sorted({*known.sources, *seen})
    at = {name: float(seen[name]["at"]) if name in seen else 0.0 for name in names}
    failing = {name: bool(seen.get(name, {}).get("error")) for name in names}
    return [
        Family(
            "source_last_seen_timestamp_seconds",
            GAUGE,
            "The last sign of life of an event source or a worker of the reporter; 0 for never.",
            _each("source", names, at.get),
        ),
        Family(
            "source_failing",
            GAUGE,
            "Whether an event source or a worker of the reporter has said that it cannot do its work.",
            _each("source", names, failing.get),
        ),
    ]


def _counters(totals: Totals) -> list[Family]:
    def of(*key: str) -> float:
        return totals.counts.get(key, 0.0)

    step_counts = [
        ("", {"step": step, "status": status}, of(counted.STEPS, step, status))
        for step in (*plans.ORDER, counted.OTHER)
        for status in counted.STATUSES
    ]
    ends = [
        ("", {"target_kind": kind, "outcome": outcome}, of(counted.INCIDENTS, kind, outcome))
        for kind in TARGET_KINDS
        for outcome in counted.OUTCOMES
    ]
    return [
        _counter("faults_total", "Faults that were taken up.", "fault_kind", KINDS, counted.FAULTS, of),
        _counter("refusals_total", "Refusals by the gate that said no.", "gate", gates.GATES, counted.REFUSALS, of),
        Family("steps_total", COUNTER, "Steps that ended.", step_counts),
        Family("incidents_total", COUNTER, "Incidents that ended.", ends),
        Family(
            "node_out_seconds_total",
            COUNTER,
            "Time for which recovery held nodes out of service, from the fault to the return.",
            _each("waiting_for", counted.WAITING_FOR, lambda who: of(counted.OUT, who)),
        ),
        Family(
            "recovery_seconds",
            HISTOGRAM,
            "Time from a fault to the proof that it is gone.",
            [sample for kind in TARGET_KINDS for sample in _histogram(kind, of)],
        ),
    ]


def _histogram(kind: str, of: Callable[..., float]) -> list[Sample]:
    samples: list[Sample] = []
    sum_of = 0.0
    for most in (*map(str, counted.BUCKETS), counted.OVER):
        sum_of += of(counted.BUCKET, kind, most)
        samples.append(("_bucket", {"target_kind": kind, "le": most}, sum_of))
    labels = {"target_kind": kind}
    return [*samples, ("_sum", labels, of(counted.SECONDS, kind)), ("_count", labels, sum_of)]


def _counter(name: str, text: str, label: str, words: Iterable[str], what: str, of: Callable[..., float]) -> Family:
    return Family(name, COUNTER, text, _each(label, (*words, counted.OTHER), lambda word: of(what, word)))


def _one(name: str, text: str, value: float) -> Family:
    return Family(name, GAUGE, text, [("", {}, value)])


def _each(label: str, words: Iterable[str], of: Callable[[str], Any]) -> list[Sample]:
    return [("", {label: word}, float(of(word) or 0.0)) for word in words]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "%d" % value if value == int(value) else repr(value)
