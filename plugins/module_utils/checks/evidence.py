# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges an entry of the catalogue: how the program is recognised, and by which evidence it works.

`parse` refuses an entry that is wrong, `judge` reads the cluster and gives a verdict. Nothing here knows a component.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence

try:
    import jmespath
    import jmespath.exceptions
except ImportError:  # said clearly at use
    jmespath = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster, Thing
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.verdict import (
    ABSENT,
    BROKEN,
    PRESENT,
    WARNING,
    Verdict,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.workloads import (
    KINDS,
    Software,
    Workload,
    image_pattern,
    named,
    running,
    services_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

_ID = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_RESOURCE = re.compile(r"(?:[a-z0-9.-]+/)?v[0-9a-z]+/[a-z]+\Z")
_PATH = re.compile(r"/apis?/[A-Za-z0-9./_-]+\Z")
_TEXTS = ("title", "required", "hint")
_ENTRY = frozenset(("id", *_TEXTS, "workloads", "evidence", "when_absent"))
_WORKLOADS = frozenset(("kinds", "images", "names", "labels", "argument", "on_workers"))
_EVIDENCE = frozenset(
    ("title", "resource", "path", "select", "belongs", "good", "every", "reason", "lacking", "broken", "warns")
)
_WHEN_ABSENT = frozenset(("workloads", "resource", "path", "select", "good", "show", "text", "warns"))
_EXPRESSIONS = ("select", "good", "reason", "show")


@dataclass(frozen=True)
class Component:
    """One entry of the catalogue, checked."""

    id: str
    title: str
    required: str
    hint: str
    software: Optional[Software]
    kinds: tuple[str, ...]
    on_workers: bool
    evidence: tuple[Mapping[str, Any], ...]
    when_absent: tuple[Mapping[str, Any], ...]


def parse(entry: Any) -> Component:
    """An entry of the catalogue.

    Raises:
        BadInput: a key that is not known or lacks, an expression or a pattern that is none; the entry is named.
    """
    if not isinstance(entry, Mapping) or not _ID.match(str(entry.get("id"))):
        raise BadInput("a requirement has no id of small letters, digits and underscores: %.80r" % (entry,))
    where = "requirement %s" % entry["id"]
    _only(where, entry, _ENTRY)
    for key in _TEXTS:
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise BadInput("%s: %s is missing" % (where, key))
    if not entry.get("workloads") and not entry.get("evidence"):
        raise BadInput("%s: neither workloads nor evidence is given" % where)
    workloads = entry.get("workloads") or {}
    for number, one in enumerate(entry.get("evidence") or []):
        _check_question("%s, evidence %d" % (where, number + 1), one, _EVIDENCE, ("title", "good", "lacking"))
    for number, one in enumerate(entry.get("when_absent") or []):
        _check_question("%s, when_absent %d" % (where, number + 1), one, _WHEN_ABSENT, ("text",))
    return Component(
        id=entry["id"],
        title=entry["title"],
        required=entry["required"],
        hint=entry["hint"],
        software=software(workloads, where) if workloads else None,
        kinds=tuple(workloads.get("kinds") or ()),
        on_workers=bool(workloads.get("on_workers")),
        evidence=tuple(entry.get("evidence") or ()),
        when_absent=tuple(entry.get("when_absent") or ()),
    )


def software(workloads: Mapping[str, Any], where: str = "workloads") -> Software:
    """How to recognise a program, from the part `workloads` of an entry. Raises `BadInput`."""
    _only(where, workloads, _WORKLOADS)
    strange = set(workloads.get("kinds") or ()) - set(KINDS)
    if strange:
        raise BadInput("%s: unknown kind %s" % (where, ", ".join(sorted(map(str, strange)))))
    if not any(workloads.get(key) for key in ("images", "names", "argument")):
        raise BadInput("%s: one of images, names and argument must be given" % where)
    try:
        images = image_pattern(*workloads["images"]) if workloads.get("images") else re.compile("$^")
    except (re.error, TypeError) as exc:
        raise BadInput("%s: images are no regular expressions (%s)" % (where, exc)) from None
    return Software(
        images,
        frozenset(workloads.get("names") or ()),
        workloads.get("argument") or "",
        dict(workloads.get("labels") or {}),
    )


def judge(component: Component, cluster: Cluster) -> Verdict:
    """What the cluster has of a component. Raises what reading raises: then nobody knows."""
    found: list[Workload] = []
    if component.software is not None:
        found = running(cluster, component.software, component.kinds)
        verdict = _running(component, cluster, found)
        if verdict is not None:
            return verdict
    shown, warnings = [named(found)] if found else [], []
    for evidence in component.evidence:
        verdict = _judge_evidence(cluster, evidence, [one for one in found if one.works])
        if verdict.word == BROKEN:
            return Verdict(BROKEN, "%s (%s)" % (verdict.why, named(found)) if found else verdict.why)
        (warnings if verdict.word == WARNING else shown).append(verdict.why)
    incomplete = [one for one in found if not one.complete]
    word = WARNING if warnings or incomplete else PRESENT
    return Verdict(word, ", ".join(dict.fromkeys(part for part in [*warnings, *shown] if part)))


def belonging(cluster: Cluster, evidence: Mapping[str, Any], workloads: Sequence[Workload]) -> list[tuple[Thing, Any]]:
    """The objects that a piece of evidence is about, each with the workloads that it belongs to (or all)."""
    things = _things(cluster, evidence)
    pair = evidence.get("belongs")
    if not pair:
        return [(thing, list(workloads)) for thing in things]
    values = [(one, _texts(search(pair["workload"], _view(cluster, one)))) for one in workloads]
    pairs = []
    for thing in things:
        wanted = _texts(search(pair["object"], thing))
        mine = [one for one, theirs in values if set(wanted) & set(theirs)]
        if mine:
            pairs.append((thing, mine))
    return pairs


def search(expression: str, data: Any) -> Any:
    """The value of a JMESPath expression; None where it does not apply to this data.

    Raises:
        Unreadable: the library is missing.
        BadInput: it is no expression.
    """
    compiled = _compiled(expression)
    try:
        return compiled.search(data)
    except jmespath.exceptions.JMESPathError:
        return None  # a function got a value of another type: the field is not there


@functools.cache
def _compiled(expression: str) -> Any:
    if jmespath is None:
        raise Unreadable(
            "the Python library jmespath is missing",
            "install it for the Python that runs ansible-playbook (python -m pip install jmespath)",
        )
    try:
        return jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as exc:
        raise BadInput("%r is no JMESPath expression: %s" % (expression, str(exc).split("\n", 1)[0])) from None


def _running(component: Component, cluster: Cluster, found: Sequence[Workload]) -> Optional[Verdict]:
    """The verdict where the workloads alone decide."""
    if not found:
        return _absent(component, cluster)
    if not any(one.wanted for one in found) and any(one.kind == "DaemonSet" for one in found):
        return Verdict(BROKEN, "it matches no node (%s)" % named(found))
    if component.on_workers and all(one.control_plane_only for one in found):
        return Verdict(BROKEN, "it runs on control-plane nodes only (%s)" % named(found))
    if not any(one.works for one in found):
        return Verdict(BROKEN, "none of its pods is ready (%s)" % named(found))
    return None


def _absent(component: Component, cluster: Cluster) -> Verdict:
    kinds = " or ".join(component.kinds) or "workload"
    said = ["no %s runs %s" % (kinds, component.title)]
    for hint in component.when_absent:
        text = _instead(cluster, hint)
        if text and hint.get("warns"):
            return Verdict(WARNING, text)
        if text:
            said.append(text)
            break
    return Verdict(ABSENT, "; ".join(said))


def _instead(cluster: Cluster, hint: Mapping[str, Any]) -> str:
    """What is there in its place, in words; empty where nothing is."""
    if hint.get("workloads"):
        others = running(cluster, software(hint["workloads"]))
        return "%s (%s)" % (hint["text"], named(others)) if others else ""
    things = [thing for thing in _things(cluster, hint) if not hint.get("good") or search(hint["good"], thing)]
    if not things or not hint.get("show"):
        return hint["text"] if things else ""
    shown = {text for thing in things for text in _texts(search(hint["show"], thing))}
    return "%s %s" % (hint["text"], reading.printable(", ".join(sorted(shown))))


def _judge_evidence(cluster: Cluster, evidence: Mapping[str, Any], workloads: Sequence[Workload]) -> Verdict:
    """PRESENT with the names of what is good, WARNING or BROKEN with what is wrong."""
    bad_word = WARNING if evidence.get("warns") else BROKEN
    things = [thing for thing, dummy in belonging(cluster, evidence, workloads)]
    if not things:
        return Verdict(bad_word, evidence["lacking"])
    good = [thing for thing in things if search(evidence["good"], thing)]
    if not good or (evidence.get("every") and len(good) < len(things)):
        bad = [thing for thing in things if thing not in good]
        said = evidence.get("broken") or evidence["lacking"]
        names = ", ".join(filter(None, (_named(thing, evidence.get("reason")) for thing in bad)))
        return Verdict(bad_word, "%s: %s %s" % (said, evidence["title"], names) if names else said)
    names = ", ".join(filter(None, map(_named, good)))
    return Verdict(PRESENT, "%s %s" % (evidence["title"], names) if names else "")


def _things(cluster: Cluster, question: Mapping[str, Any]) -> list[Thing]:
    if question.get("path"):
        thing = cluster.answer(question["path"])
        return [] if thing is None else [thing]
    things = cluster.things(question["resource"])
    if not question.get("select"):
        return list(things)
    found = search(question["select"], things)
    return [thing for thing in found if isinstance(thing, Mapping)] if isinstance(found, list) else []


def _view(cluster: Cluster, one: Workload) -> Mapping[str, Any]:
    """A workload as expressions see it."""
    return {
        "kind": one.kind,
        "namespace": one.namespace,
        "name": one.name,
        "labels": dict(one.labels),
        "arguments": one.arguments,
        "images": [reading.text(container, "image") for container in one.containers],
        "services": ["%s/%s" % pair for pair in services_of(cluster, [one])],
        "pod": one.pod,
    }


def _named(thing: Thing, reason: Optional[str] = None) -> str:
    metadata = reading.part(thing, "metadata")
    name = "/".join(filter(None, (reading.text(metadata, "namespace"), reading.text(metadata, "name"))))
    why = search(reason, thing) if reason else None
    return reading.printable("%s (%s)" % (name, why) if why else name)


def _texts(value: Any) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


def _only(where: str, part: Any, known: frozenset[str]) -> None:
    if not isinstance(part, Mapping):
        raise BadInput("%s is no mapping" % where)
    strange = sorted(set(map(str, part)) - known)
    if strange:
        raise BadInput("%s: unknown key %s" % (where, ", ".join(strange)), "known are %s" % ", ".join(sorted(known)))


def _check_question(where: str, part: Any, known: frozenset[str], needed: Sequence[str]) -> None:
    _only(where, part, known)
    for key in needed:
        if not isinstance(part.get(key), str) or not part[key]:
            raise BadInput("%s: %s is missing" % (where, key))
    if part.get("workloads"):
        software(part["workloads"], where)
    elif bool(part.get("resource")) == bool(part.get("path")):
        raise BadInput("%s: exactly one of resource and path must be given" % where)
    elif part.get("resource") and not _RESOURCE.match(str(part["resource"])):
        raise BadInput("%s: %r is no GROUP/VERSION/PLURAL" % (where, part["resource"]))
    elif part.get("path") and not _PATH.match(str(part["path"])):
        raise BadInput("%s: %r is no path of the API" % (where, part["path"]))
    for expression in _expressions(where, part):
        if jmespath is not None:
            _compiled(expression)


def _expressions(where: str, part: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(part[key]) for key in _EXPRESSIONS if part.get(key))
    pair = part.get("belongs")
    if pair:
        _only(where + ", belongs", pair, frozenset(("object", "workload")))
        if len(pair) != 2:
            raise BadInput("%s: belongs needs object and workload" % where)
        yield from map(str, pair.values())
