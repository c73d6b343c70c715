# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean slurmd's spool on this node (module `slurm_spool`); the rules are those of `node.spool`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import spool

SPEC: dict[str, Any] = {
    "argument_spec": {
        "path": {"type": "str", "required": True},
        "node_name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["cleaned"], "default": "cleaned"},
        "jobs": {"type": "list", "elements": "str"},
        "state_save_location": {"type": "str", "default": ""},
        "application_directories": {"type": "str", "default": spool.APP_DIRS},
    },
    "supports_check_mode": True,
}


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Clean the spool, or in check mode say what would be removed.

    Raises:
        BadInput: the path is not one that may be cleaned.
        RecoveryError: something stale could not be removed.
    """
    act = spool.look if check_mode else spool.clean
    try:
        found = act(
            params["path"],
            params["node_name"],
            params.get("jobs"),
            params.get("state_save_location") or "",
            tmp=params.get("application_directories") or "",
        )
    except spool.SpoolRefused as exc:
        raise BadInput("the spool is not cleaned: %s" % exc, cause=exc.cause) from None
    failed = found.pop("failed")
    result = {
        "changed": bool(found["removed"]),
        **found,
        "diff": {"before": "".join(path + "\n" for path in found["removed"]), "after": ""},
    }
    if failed:
        named = ", ".join("%s (%s)" % (each["path"], each["why"]) for each in failed[:10])
        raise RecoveryError("%d stale entries could not be removed: %s" % (len(failed), named), failed=failed, **result)
    return result
