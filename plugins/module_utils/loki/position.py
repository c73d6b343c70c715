# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far Loki was read, in a file of the service's state: after a restart the source goes on from there.

`{"until": {query: nanoseconds}, "told": [[[target, code, device], epoch seconds]]}`; a query is named by its own text,
so that a changed one begins anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import state_file

_NAME = "loki-position.json"
_MAX_TOLD = 5000


@dataclass
class Position:
    """How far each query was read, and when each fault was told of last."""

    until: dict[str, int] = field(default_factory=dict)
    told: dict[tuple[str, ...], float] = field(default_factory=dict)


def load(state_dir: str) -> Position:
    """What was kept; nothing where nothing can be read: then the last minutes are read again."""
    try:
        with open(os.path.join(state_dir, _NAME), encoding="utf-8") as handle:
            data = json.load(handle)
        until = {str(query): int(at) for query, at in data["until"].items()}
        return Position(until, {tuple(map(str, key)): float(at) for key, at in data["told"]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Position()


def save(state_dir: str, position: Position) -> None:
    """Keep it, in place of what was kept.

    Raises:
        Unreadable: it cannot be written.
    """
    newest = sorted(position.told.items(), key=_at, reverse=True)[:_MAX_TOLD]
    path = os.path.join(state_dir, _NAME)
    kept = {"until": position.until, "told": [[list(key), at] for key, at in newest]}
    try:
        state_file.replace(path, json.dumps(kept))
    except OSError as exc:
        raise Unreadable("how far Loki was read cannot be kept in %s (%s)" % (path, exc.strerror)) from exc


def _at(item: tuple[tuple[str, ...], float]) -> float:
    return item[1]
