# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the installer asks of the ledger: does its account work, and are its tables of this version."""

from __future__ import annotations

from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Forbidden, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import load

SPEC: dict[str, Any] = {
    "argument_spec": {
        "settings": {"type": "path"},
        "state": {"type": "str", "choices": ["reachable", "migrated"], "default": "migrated"},
    },
    "supports_check_mode": True,
}


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Ask the ledger, or bring its tables up to date.

    Returns:
        `{"changed", "reachable": true, "version" (of the tables, afterwards), "migrations" (numbers that ran)}`; in
        check mode before the account exists, `{"changed": true, "reachable": false}`.

    Raises:
        RecoveryError: as `database.connect` and `schema.migrate` do.
    """
    try:
        session = database.connect(load(params["settings"]).ledger)
    except (Forbidden, Unreadable):
        if not check_mode or params["state"] == "reachable":
            raise
        return {"changed": True, "reachable": False}
    try:
        missing = _missing(session) if check_mode or params["state"] == "reachable" else schema.migrate(session)
        changed = bool(missing) and params["state"] == "migrated"
        return {
            "changed": changed,
            "reachable": True,
            "version": schema.version(session),
            "migrations": missing if changed else [],
        }
    finally:
        session.close()


def _missing(session: database.Database) -> list[int]:
    return list(range(schema.version(session) + 1, schema.VERSION + 1))
