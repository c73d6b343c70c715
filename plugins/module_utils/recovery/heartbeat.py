# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs of life of the event sources and of the reporter's workers: one small JSON file for each, replaced as a whole.

`{"name": "slurm", "at": epoch seconds, "error": text or null, "pid": number}` in systemd's runtime directory of the
service (`$RUNTIME_DIRECTORY`, /run/job-recovery), else in the state directory.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import state_file
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings

RUNTIME_DIR = "/run/job-recovery"
REPORTER_DIR = "/run/job-recovery-reporter"
SILENT_AFTER = 60.0  # seconds without a sign of life after which a source counts as deaf
_SUFFIX = ".beat.json"
_MAX_ERROR = 500


def directory(settings: Settings) -> str:
    """Where the service writes them."""
    return os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0] or settings.state_dir


def writer(settings: Settings) -> Callable[[str, float, Optional[str]], None]:
    """A function (name, epoch seconds, error or None) for `source.keep_looking`; it raises OSError."""
    folder = directory(settings)

    def beat(name: str, at: float, error: Optional[str]) -> None:
        path = os.path.join(folder, name + _SUFFIX)
        life = {"name": name, "at": at, "error": error[:_MAX_ERROR] if error else None, "pid": os.getpid()}
        state_file.replace(path, json.dumps(life))

    return beat


def read_all(settings: Settings) -> list[dict[str, Any]]:
    """The last sign of life of every source, by name; what is not readable is left out."""
    found: dict[str, dict[str, Any]] = {}
    for folder in (settings.state_dir, RUNTIME_DIR, REPORTER_DIR):
        for beat in _read_folder(folder):
            known = found.get(beat["name"])
            if known is None or known["at"] < beat["at"]:
                found[beat["name"]] = beat
    return [found[name] for name in sorted(found)]


def _read_folder(folder: str) -> list[dict[str, Any]]:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except OSError:
        return []
    beats = [_read(os.path.join(folder, name)) for name in names]
    return [beat for beat in beats if beat]


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as handle:
            beat = json.load(handle)
    except (OSError, ValueError):
        return {}
    if not isinstance(beat, dict) or not isinstance(beat.get("name"), str):
        return {}
    if isinstance(beat.get("at"), bool) or not isinstance(beat.get("at"), (int, float)):
        return {}
    return beat
