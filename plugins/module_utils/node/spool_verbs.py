# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's verbs about the slurmd spool; the rules are `spool`'s."""

from __future__ import annotations

import os

from . import spool
from .answer import Refusal

_LISTED = 500  # entries named in an answer


def look(here, jobs: list) -> dict:
    """What of ended steps (of these jobs; of all, when none is named) lies in the spool.

    Returns:
        `{"spool": path, "stale": [path], "kept": [{"path", "why"}]}`

    Raises:
        Refusal: `absent` when this node has no spool, `failed` when it is none that may be cleaned.
    """
    seen = _call(spool.look, here, jobs)
    return {"spool": seen["spool"], "stale": seen["removed"][:_LISTED], "kept": seen["kept"][:_LISTED]}


def clean(here, jobs: list) -> dict:
    """Remove it, and look again.

    A directory of PMIx in /tmp that cannot be removed is told and keeps no job waiting: any user may make one that
    bears another's job id, and a mount of his own in it.

    Returns:
        as `look`, and `{"removed": [path], "failed": [{"path", "why"}]}`; `stale` is what is still there.
    """
    cleaned = _call(spool.clean, here, jobs)
    seen = look(here, jobs)
    users = {each["path"] for each in cleaned["failed"] if os.path.dirname(each["path"]) == spool.APP_DIRS}
    seen["stale"] = [path for path in seen["stale"] if path not in users]
    return {**seen, "removed": cleaned["removed"][:_LISTED], "failed": cleaned["failed"][:_LISTED]}


def _call(function, here, jobs: list) -> dict:
    config = here.configuration
    if not config.spool_dir:
        raise Refusal("absent", "no slurmd spool is configured on this node")
    name = config.node_name or os.uname().nodename.partition(".")[0]
    path = config.spool_dir.replace("%n", name).replace("%h", os.uname().nodename.partition(".")[0])
    wanted = [str(job) for job in jobs] or None
    try:
        return function(path, name, wanted, config.state_save_location, here.proc)
    except spool.SpoolRefused as exc:
        raise Refusal("absent" if exc.cause == "absent" else "failed", str(exc)) from exc
