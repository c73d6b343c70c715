# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that have been silent too long, from the event source to the runs: one small JSON file.

The source alone has looked all the time, so only it can say since when a node is silent; a run looks once. The file is
`{"at": epoch seconds, "silent": {node: seconds}}` beside the signs of life. It is written anew as long as it holds, so
that one which is old says nothing: after a restart of the source silence is measured anew.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat, state_file
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings

HOLDS = 10.0  # seconds
_NAME = "silent.json"


def write(settings: Settings, silent: Mapping[str, float], now: float) -> None:
    """Say which nodes are silent (Slurm's names) and for how many seconds.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(heartbeat.directory(settings), _NAME)
    state_file.replace(path, json.dumps({"at": now, "silent": dict(silent)}))


def read(settings: Settings, now: float) -> dict[str, float]:
    """By node the seconds of its silence, as far as that is known now; what is old or not readable says nothing."""
    found: dict[str, float] = {}
    for directory in dict.fromkeys((settings.state_dir, heartbeat.RUNTIME_DIR, heartbeat.directory(settings))):
        found.update(_read(os.path.join(directory, _NAME), now))
    return found


def _read(path: str, now: float) -> dict[str, float]:
    try:
        with open(path, encoding="utf-8") as handle:
            told: Any = json.load(handle)
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict) or not _is_number(told.get("at")) or not isinstance(told.get("silent"), dict):
        return {}
    if abs(now - told["at"]) > HOLDS:
        return {}
    return {name: float(seconds) for name, seconds in told["silent"].items() if _is_number(seconds)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
