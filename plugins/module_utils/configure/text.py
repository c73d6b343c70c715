# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings files as text: values are set in them, and everything else in them stays as somebody wrote it. Pure.

A file is not loaded and dumped, because that would lose comments, order and the way things are written. Only top-level
variables are set: a new one is appended, a present one is replaced from its line to the next that is not indented.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

HEADER = """---
# Made by configure.yml, which asks for what is missing and leaves what is here. Change it by hand as you like.
"""
# JSON spells a character beyond U+FFFF as two, which YAML would take for two.
_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
_TEMPLATE = re.compile(r"\{[{%#]")


def reference(name: str) -> str:
    """The value of a variable that stands in the vault under another name."""
    return '"{{ %s }}"' % name


def literal(value: Any) -> str:
    """A value as YAML on one line, which is JSON; text that Ansible would take for a template is marked as none."""
    text = _SURROGATES.sub(_one_escape, json.dumps(value))
    return "!unsafe " + text if isinstance(value, str) and _TEMPLATE.search(value) else text


def _one_escape(pair: re.Match[str]) -> str:
    high, low = int(pair.group(1), 16), int(pair.group(2), 16)
    return "\\U%08x" % (0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def set_values(text: str, values: Mapping[str, str]) -> str:
    """`text` with top-level variables set to values that are YAML already."""
    text = text or HEADER
    for name, value in values.items():
        text = _set(text, name, value)
    return text


def _set(text: str, name: str, value: str) -> str:
    line = "%s: %s\n" % (name, value)
    lines = text.splitlines(keepends=True)
    start = next((number for number, found in enumerate(lines) if re.match(r"%s\s*:" % re.escape(name), found)), None)
    if start is None:
        return text + ("" if text.endswith("\n") else "\n") + line
    end = start + 1
    while end < len(lines) and re.match(r"[ \t]+\S|-[ \t]", lines[end]):
        end += 1
    return "".join(lines[:start]) + line + "".join(lines[end:])
