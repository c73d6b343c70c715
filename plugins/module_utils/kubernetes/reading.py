# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Careful reading of API objects: a field of the wrong type is as good as none, and nothing raises. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Iterable, Mapping, Optional


def part(thing: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The mapping under `keys`, or an empty one."""
    value: Any = thing
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(thing: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings in the list under `key`, or none."""
    value = thing.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text(thing: Mapping[str, Any], key: str) -> str:
    """The text under `key`, or the empty text."""
    value = thing.get(key)
    return value if isinstance(value, str) else ""


def given_text(thing: Mapping[str, Any], key: str) -> Optional[str]:
    """The text under `key`, which may be empty, or None."""
    value = thing.get(key)
    return value if isinstance(value, str) else None


def texts(thing: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The texts in the list under `key`, or none."""
    value = thing.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def first_text(thing: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The first text that is not empty under one of `keys`."""
    return next((found for found in (text(thing, key) for key in keys) if found), "")


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of type `kind`, or an empty mapping."""
    return next((entry for entry in items(status, "conditions") if entry.get("type") == kind), {})


def controller(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference of the controller, or an empty mapping."""
    return next((owner for owner in items(metadata, "ownerReferences") if owner.get("controller") is True), {})


def made_by(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference of the controller, else the first one, or an empty mapping."""
    return controller(metadata) or next(iter(items(metadata, "ownerReferences")), {})


def owner_text(owner: Mapping[str, Any]) -> str:
    """An owner reference as `Kind/name`; Volcano's Job, which is none of batch, as `Job.batch.volcano.sh/name`."""
    group, slash, _version = text(owner, "apiVersion").partition("/")
    kind = text(owner, "kind")
    if kind == "Job" and slash and group != "batch":
        kind = "%s.%s" % (kind, group)
    return "%s/%s" % (kind, text(owner, "name")) if owner else ""


def reporter(event: Mapping[str, Any]) -> str:
    """Who reported an Event."""
    return text(event, "reportingComponent") or text(part(event, "source"), "component")


def epoch(value: Any) -> Optional[float]:
    """Seconds since the epoch of the API's time text (`2026-11-30T11:07:00Z`, with or without fractions), or None."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def printable(value: Any, limit: int = 200) -> str:
    """Text that somebody else wrote, made harmless for a message: one line, no control characters, not endless."""
    return "".join(letter if letter.isprintable() else " " for letter in str(value))[:limit]
