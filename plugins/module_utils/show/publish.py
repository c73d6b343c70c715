# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of incidents in a folder; the module `incident_pages`."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.pages import INDEX, pages

SPEC: dict[str, Any] = {
    "argument_spec": {
        "incidents": {"type": "list", "elements": "dict", "required": True},
        "refusals": {"type": "list", "elements": "dict", "default": []},
        "overview": {"type": "dict", "required": True},
        "dest": {"type": "path", "required": True},
    },
    "supports_check_mode": True,
}
_OURS = re.compile(r"incident-[1-9][0-9]{0,17}\.html\Z")


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Write the pages, and remove those of incidents that are not told any more.

    Returns:
        `{"changed", "index": path, "pages": number of incidents, "removed": [names]}`.

    Raises:
        BadInput: the options are not what `recovery_incident_info` returns. Unreadable: the folder cannot be written.
    """
    ledger = {name: params[name] for name in ("incidents", "refusals", "overview")}
    try:
        made = pages(ledger, time.time())
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise BadInput("this is not what recovery_incident_info returns (%s)" % ascii(exc)[:100]) from exc
    folder = params["dest"]
    try:
        gone = sorted(name for name in _there(folder) if _OURS.match(name) and name not in made)
        if not check_mode:
            _write(folder, made)
            for name in gone:
                os.unlink(os.path.join(folder, name))
    except OSError as exc:
        raise Unreadable("the pages cannot be written to %s (%s)" % (folder, exc.strerror)) from exc
    return {"changed": True, "index": os.path.join(folder, INDEX), "pages": len(made) - 1, "removed": gone}


def _there(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _write(folder: str, made: Mapping[str, str]) -> None:
    """The list last: it leads to no page that is not there."""
    os.makedirs(folder, mode=0o750, exist_ok=True)
    for name in sorted(made, key=[INDEX].count):
        path = os.path.join(folder, name)
        fresh = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
        with open(fresh, "w", encoding="utf-8") as handle:
            handle.write(made[name])
        os.replace(path + ".new", path)
