# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Did a user allow that his job is restarted? The JSON in the job's comment or annotation, and nothing else.

    {"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 3}}

The text is written by users and is hostile until it is parsed: it is bounded, read as JSON only, and never quoted
further than a short `repr` in the refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text

REQUEUE = "requeue"
SINGLETON = "singleton_dependency"
MODES = (REQUEUE, SINGLETON)

_MAX_TEXT = 4096
_MAX_TIMES = 1000


@dataclass(frozen=True)
class OptIn:
    """What the user's text says.

    Attributes:
        allowed: whether it allows a restart.
        mode: `requeue` or `singleton_dependency` where it does.
        attempts: how many restarts at most, None where the text does not say.
        problem: why the text is none of ours, in words, where it tries to be; empty for a text that says nothing.
    """

    allowed: bool = False
    mode: str = ""
    attempts: Optional[int] = None
    problem: str = ""


NOTHING = OptIn()


def parse(text: Optional[str]) -> OptIn:
    """Read a job's comment or annotation.

    A text without a brace, or JSON without `APS`, says nothing: comments serve other purposes too. What begins like
    our JSON and cannot be read is a problem to be told, so that the user learns why his job was not restarted.
    """
    stripped = (text or "").strip()
    if "{" not in stripped:
        return NOTHING
    if len(stripped) > _MAX_TEXT:
        return OptIn(problem="the text has more than %d characters" % _MAX_TEXT)
    try:
        data = json_text.loads(stripped)
    except ValueError:
        return OptIn(problem="no JSON: %s" % _quote(stripped)) if "APS" in stripped else NOTHING
    if not isinstance(data, dict) or "APS" not in data:
        return NOTHING
    return _parse_settings(data["APS"])


def _parse_settings(settings: Any) -> OptIn:
    if not isinstance(settings, dict):
        return OptIn(problem="APS is no mapping")
    mode = settings.get("auto_resume_mode")
    if not isinstance(mode, str) or mode not in MODES:
        return OptIn(problem="auto_resume_mode is %s, not one of %s" % (_quote(mode), ", ".join(MODES)))
    attempts = settings.get("max_requeue_times")
    if attempts is None:
        return OptIn(allowed=True, mode=mode)
    number = _number(attempts)
    if number is None:
        return OptIn(problem="max_requeue_times is %s, not a number from 0 to %d" % (_quote(attempts), _MAX_TIMES))
    return OptIn(allowed=True, mode=mode, attempts=number)


def _number(value: Any) -> Optional[int]:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 4:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_TIMES:
        return None
    return value


def _quote(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
