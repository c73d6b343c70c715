# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many lists of checks as one table for people, one file for programs and one page for a browser."""

from __future__ import annotations

import json
import os
import textwrap
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.page import page
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "checks": {"type": "list", "elements": "dict", "required": True},
        "accept": {"type": "list", "elements": "str", "default": []},
        "dest": {"type": "path"},
        "html": {"type": "path"},
        "title": {"type": "str", "default": "Pre-flight"},
        "width": {"type": "int", "default": 118},
        "show": {"type": "bool", "default": False},
        "notes": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}

_ORDER = {FAILED: 0, UNKNOWN: 1, WARNING: 2, PASSED: 3}
_KEYS = ("id", "title", "required", "found", "status", "hint")


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Sort, count, write and lay out the checks.

    Returns:
        `{"changed", "table": [lines], "unmet": [ids], "counts": {status: number}}`; `unmet` are the checks that stop
        an installation: failed or unknown, and not accepted.

    Raises:
        BadInput: something in the list is no check. Unreadable: the file cannot be written.
    """
    checks = merge(params["checks"], params["accept"])
    counts = {status: sum(check["status"] == status for check in checks) for status in _ORDER}
    unmet = [check["id"] for check in checks if check["status"] in (FAILED, UNKNOWN)]
    files = {}
    if params["dest"]:
        content = {"title": params["title"], "counts": counts, "unmet": unmet, "checks": checks}
        files[params["dest"]] = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if params.get("html"):
        files[params["html"]] = page(params["title"], checks, counts)
    changed = [path for path, text in files.items() if _write(path, text, check_mode)]
    return {"changed": bool(changed), "table": table(checks, params["width"]), "unmet": unmet, "counts": counts}


def run_and_tell(params: dict[str, Any], check_mode: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    """The same, inside ansible-playbook: the table and the notes are shown as they are, where that is wished."""
    result = run(params, check_mode)
    if params["show"]:
        notes = ["", *map(printable, params["notes"])] if params["notes"] else []
        tell("\n".join(["", *result["table"], *notes, ""]))
    return result


def merge(checks: Sequence[Mapping[str, Any]], accept: Sequence[str]) -> list[dict[str, str]]:
    """The checks, failures first; what the site accepts becomes a warning that says so."""
    merged = []
    for check in checks:
        if set(_KEYS) - set(check) or check["status"] not in _ORDER:
            raise BadInput("%r is no check" % (check,))
        plain = {key: str(check[key]) for key in _KEYS}
        if plain["id"] in accept and plain["status"] in (FAILED, UNKNOWN):
            plain.update(status=WARNING, found="%s (accepted)" % plain["found"])
        merged.append(plain)
    unheard_of = sorted(set(accept) - {check["id"] for check in merged})
    if unheard_of:
        raise BadInput("there is no check %s to accept" % ", ".join(unheard_of), "correct preflight_accept")
    return sorted(merged, key=lambda check: _ORDER[check["status"]])  # stable: else in the order they came


def table(checks: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Lines of at most `width` characters: status, id, what was found against what is required, and what to do."""
    first = max([len(check["id"]) for check in checks] or [0])
    lead = 9 + first + 2
    lines = []
    for check in checks:
        text = "%s: %s (required: %s)" % (check["title"], check["found"], check["required"])
        if check["status"] != PASSED and check["hint"]:
            text += " -> %s" % check["hint"]
        folded = textwrap.wrap(_plain(text), max(30, width - lead)) or [""]
        lines.append("%-9s%-*s  %s" % (check["status"], first, check["id"], folded[0]))
        lines.extend(" " * lead + line for line in folded[1:])
    return lines


def _plain(text: str) -> str:
    """Found values may come from anywhere: no control character reaches the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _write(path: str, content: str, check_mode: bool) -> bool:
    """Whether the file says something else now; in check mode, whether it would."""
    try:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                if handle.read() == content:
                    return False
        if not check_mode:
            with open(path + ".new", "w", encoding="utf-8") as handle:
                handle.write(content)
            os.replace(path + ".new", path)
    except (OSError, UnicodeError) as exc:
        raise Unreadable("the report %s cannot be written (%s)" % (path, type(exc).__name__)) from exc
    return True
