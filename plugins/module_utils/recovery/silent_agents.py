# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents that were heard and are not heard any more, while others are: what people are told of, and nothing more.

When each was heard last is in a file of the service's state, `{"heard": {machine: epoch seconds}}`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import state_file

_NAME = "agents-heard.json"


@dataclass(frozen=True)
class Silent:
    """A node whose agent is silent, and when it was heard last, epoch seconds."""

    node: str
    heard_at: float


def silent(heard: Mapping[str, float], after: float, now: float) -> list[Silent]:
    """Those that were not heard for `after` seconds (0: nobody is told of), the longest silent first. Pure.

    None where no agent was heard in this time: then it is the controller that hears nobody, which its own signs of
    life tell.
    """
    if not after or not any(now - at < after for at in heard.values()):
        return []
    found = [Silent(name, at) for name, at in heard.items() if now - at >= after]
    return sorted(found, key=lambda each: (each.heard_at, each.node))


def load(state_dir: str) -> dict[str, float]:
    """By machine when its agent was heard last; nothing where nothing can be read."""
    try:
        with open(os.path.join(state_dir, _NAME), encoding="utf-8") as handle:
            return {str(name): float(at) for name, at in json.load(handle)["heard"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def save(state_dir: str, heard: Mapping[str, float]) -> None:
    """Keep it, in place of what was kept. Raises OSError."""
    state_file.replace(os.path.join(state_dir, _NAME), json.dumps({"heard": dict(heard)}))
