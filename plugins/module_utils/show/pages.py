# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recovery has seen, decided and done as HTML pages: a list, and one page for each incident. Pure.

Names, reasons and log lines are other people's words; html_page.py tells what keeps them harmless.
"""

from __future__ import annotations

import time
from typing import Any, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.html_page import document, text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import DECISION

INDEX = "index.html"
_TONES = {"escalated": "failed", "open": "warning", "waiting": "warning", "closed": "passed"}
_STATUS_TONES = {"done": "passed", "failed": "failed"}
_DEPTH = 6  # of data within data
_ITEMS = 200  # of a list or mapping
_LETTERS = 4000  # of one text
_STYLE = """
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem }
p { margin: .25rem 0 .75rem }
.state { color: var(--tone); font-weight: 600 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 }
dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
pre { margin: 0; padding: .5rem .75rem; overflow-x: auto; background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; font-size: .85rem; white-space: pre-wrap; overflow-wrap: anywhere }
.scroll { overflow-x: auto }
time, .number { white-space: nowrap }
"""

Record = Mapping[str, Any]


def file_name(incident: int) -> str:
    """The name of an incident's page."""
    return "incident-%d.html" % incident


def pages(ledger: Record, now: float) -> dict[str, str]:
    """By file name the pages of what `recovery_incident_info` tells: `{incidents, refusals, overview}`.

    Args:
        now: epoch seconds; stands on the pages.
    """
    made = {INDEX: _index(ledger, now)}
    for incident in ledger["incidents"]:
        made[file_name(incident["id"])] = _incident(incident, ledger, now)
    return made


# ---- the list ----


def _index(ledger: Record, now: float) -> str:
    seen = ledger["overview"]
    title = "Recovery of %s" % seen["cluster"]
    return document(
        title,
        _STYLE,
        [
            "<h1>%s</h1>" % text(title),
            "<p>As of %s.</p>" % _moment(now),
            *_standing(seen),
            *_section(
                "For a person",
                ("Incident", "Target", "Since", "Why", "What to do"),
                [
                    (_link(each["incident"]), *_cells(each["target"]), _moment(each["since"]))
                    + _cells(each["why"], each["what_to_do"])
                    for each in seen["for_a_person"]
                ],
            ),
            *_section(
                "Incidents",
                ("Incident", "Target", "Fault", "State", "Done", "Opened", "Took", "Why"),
                [_incident_row(each, now) for each in ledger["incidents"]],
            ),
            *_refusals(ledger["refusals"]),
            *_section(
                "Commands",
                ("When", "Command", "About", "Who", "Why"),
                [
                    (_moment(each["at"]), *_cells(each["command"], each["subject"], each["who"], each["reason"]))
                    for each in seen["commands"]
                ],
            ),
        ],
    )


def _standing(seen: Record) -> list[str]:
    """What hinders everything: told above all else."""
    told = []
    if seen["stopped"]:
        told.append("Nothing is done: %s." % seen["stopped"])
    if seen["restored"]:
        told.append("The ledger was restored from an old backup: recovery only observes.")
    for kind, state in seen["breaker"].items():
        if state["broken"]:
            told.append("The last %d repairs of %ss failed: nothing new is begun." % (state["failures"], kind))
    if told:
        return ['<p class="verdict failed state">%s</p>' % text(line) for line in told]
    if seen["mode"] != "act":
        return ['<p class="verdict warning state">Recovery only observes.</p>']
    return ['<p class="verdict passed state">Recovery acts.</p>']


def _incident_row(each: Record, now: float) -> tuple[str, ...]:
    return (
        _link(each["id"]),
        *_cells(each["target"], each["fault_kind"]),
        _state(each["state"], _TONES),
        *_cells(each["plan"] or "not decided"),
        _moment(each["opened_at"]),
        _span(each["opened_at"], each["closed_at"], now),
        *_cells(each["why"]),
    )


def _refusals(refusals: Iterable[Record]) -> list[str]:
    return _section(
        "Refused",
        ("Target", "Fault", "Gate", "Times", "Last", "Why", "All gates that said no"),
        [
            (
                *_cells(each["target"], each["fault_kind"], each["gate"], each["times"]),
                _moment(each["last_at"]),
                *_cells(each["why"]),
                _data({gate: why for gate, why in dict(each["gates"]).items() if why}),
            )
            for each in refusals
        ],
    )


# ---- one incident ----


def _incident(incident: Record, ledger: Record, now: float) -> str:
    title = "#%d %s: %s" % (incident["id"], incident["target"], incident["fault_kind"])
    about = [each for each in ledger["refusals"] if each["incident"] == incident["id"]]
    seen = [each for each in incident["evidence"] if each["kind"] != DECISION]
    return document(
        title,
        _STYLE,
        [
            '<p><a href="%s">All incidents</a></p>' % INDEX,
            "<h1>%s</h1>" % text(title),
            '<p class="verdict %s state">%s</p>' % (_TONES.get(incident["state"], "unknown"), text(incident["state"])),
            _data(_facts(incident, ledger["overview"], now)),
            *_section(
                "Seen",
                ("What", "Told by", "Times", "First", "Last", "Content"),
                [
                    (*_cells(each["kind"], each["source"], each["times"]), _moment(each["first_at"]))
                    + (_moment(each["last_at"]), _data(each["body"]))
                    for each in seen
                ],
            ),
            *_decided(incident),
            *_section(
                "Done",
                ("Step", "Round", "Status", "Began", "Took", "Why", "Proof"),
                [_step(each, now) for each in incident["steps"]],
            ),
            *_refusals(about),
        ],
    )


def _facts(incident: Record, overview: Record, now: float) -> dict[str, Any]:
    kind = KINDS.get(incident["fault_kind"])
    person = [each for each in overview["for_a_person"] if each["incident"] == incident["id"]]
    facts = {
        "Fault": kind.meaning if kind else "",
        "Why": incident["why"],
        "What to do": person[0]["what_to_do"] if person else "",
        "Target": "%s %s" % (incident["target_kind"], incident["target"]),
        "Machine": incident["machine"],
        "Scheduler": incident["scheduler"],
        "Noticed by": incident["source"],
        "Asked for by": incident["requested_by"],
        "Asked because": incident["request_reason"],
        "Overridden gates": ", ".join(incident["override"]),
        "Held as": incident["reason"] if incident["acted"] and incident["target_kind"] == "node" else "",
        "Waits for": incident["waits_for"],
        "Evidence on the controller": incident["evidence_folder"],
    }
    moments = {"Seen": "seen_at", "Opened": "opened_at", "Ended": "closed_at", "Waits until": "waits_until"}
    times = {name: _Html(_moment(incident[key])) for name, key in moments.items() if incident[key]}
    times["Took"] = _Html(_span(incident["opened_at"], incident["closed_at"], now))
    return {**{name: value for name, value in facts.items() if value}, **times}


def _decided(incident: Record) -> list[str]:
    said = [each["body"] for each in incident["evidence"] if each["kind"] == DECISION]
    decisions = [_data({name: value for name, value in each.items() if name != "evidence_ref"}) for each in said]
    return ["<h2>Decided</h2>", "<p>%s</p>" % text(incident["plan"] or "nothing yet"), *decisions]


def _step(each: Record, now: float) -> tuple[str, ...]:
    intent = {"intended": each["intent"]} if each["intent"] else {}
    return (
        *_cells(each["step"], each["round"]),
        _state(each["status"], _STATUS_TONES),
        _moment(each["started_at"]),
        _span(each["started_at"], each["finished_at"], now),
        *_cells(each["why"]),
        _data({**each["proof"], **intent}),
    )


# ---- parts of a page; all of them return HTML ----


class _Html(str):
    """Text that is HTML already."""


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table under a title; `rows` hold HTML. Nothing where it has no rows."""
    if not rows:
        return []
    return [
        "<h2>%s</h2>" % text(title),
        '<div class="scroll"><table>',
        "<thead><tr>%s</tr></thead>" % "".join("<th>%s</th>" % text(head) for head in heads),
        "<tbody>",
        *("<tr>%s</tr>" % "".join("<td>%s</td>" % cell for cell in row) for row in rows),
        "</tbody>",
        "</table></div>",
    ]


def _cells(*values: Any) -> tuple[str, ...]:
    return tuple(_short(value) for value in values)


def _short(value: Any) -> str:
    whole = str(value)
    return text(whole if len(whole) <= _LETTERS else whole[:_LETTERS] + "...")


def _link(incident: int) -> str:
    return '<a class="number" href="%s">#%d</a>' % (file_name(incident), incident)


def _state(word: str, tones: Mapping[str, str]) -> str:
    return '<span class="state %s">%s</span>' % (tones.get(word, "unknown"), text(word))


def _moment(moment: Optional[float]) -> str:
    if not moment:
        return "-"
    parts = time.gmtime(moment)
    return '<time datetime="%s">%s</time>' % (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", parts),
        time.strftime("%Y-%m-%d %H:%M:%S UTC", parts),
    )


def _span(begin: float, end: Optional[float], now: float) -> str:
    """From begin to end; to now, and so said, where there is no end."""
    seconds = max(0.0, (end or now) - begin)
    if seconds < 60:
        told = "%.1f s" % seconds
    elif seconds < 3600:
        told = "%d min %02d s" % divmod(int(seconds), 60)
    else:
        told = "%d h %02d min" % divmod(int(seconds) // 60, 60)
    return '<span class="number">%s</span>' % (told if end else "%s until now" % told)


def _data(value: Any, depth: int = 0) -> str:
    """Data of any shape; log lines (`lines`: texts, or pairs of number and text) as they would stand in the log."""
    if isinstance(value, _Html):
        return value
    if depth >= _DEPTH or not isinstance(value, (Mapping, list, tuple)):
        return _short(value)
    if isinstance(value, Mapping):
        pairs = [
            "<dt>%s</dt><dd>%s</dd>" % (_short(name), _lines(some) if name == "lines" else _data(some, depth + 1))
            for name, some in list(value.items())[:_ITEMS]
        ]
        return "<dl>%s</dl>" % "".join(pairs) + _more(len(value)) if pairs else ""
    return "<br>".join(_data(some, depth + 1) for some in value[:_ITEMS]) + _more(len(value))


def _lines(value: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return _data(value, 1)
    told = [line[1] if isinstance(line, (list, tuple)) and len(line) == 2 else line for line in value[:_ITEMS]]
    return "<pre>%s</pre>" % "\n".join(_short(line) for line in told) + _more(len(value))


def _more(count: int) -> str:
    return "<p>and %d more</p>" % (count - _ITEMS) if count > _ITEMS else ""
