# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people told the recovery to do, by which command, about what and why. Part of the ledger."""

from __future__ import annotations

from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    NOW,
    Database,
    clip,
)

_WHY = 1000  # characters of the column


class Commands:
    """The table `commands`: only ever added to, until it is too old to be of use."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def note(self, command: str, who: str, subject: str = "", reason: str = "") -> None:
        """Keep that somebody gave a command."""
        self._db.write(
            "INSERT INTO commands (command, subject, who, reason, at) VALUES (%s, %s, %s, %s, " + NOW + ")",
            (clip(command, 32), clip(subject, 330), clip(who, 128), clip(reason, _WHY)),
        )

    def since(self, moment: float, limit: int) -> list[dict[str, Any]]:
        """`{command, subject, who, reason, at}`, the newest first; `moment` and `at` in epoch seconds."""
        return self._db.rows(
            "SELECT command, subject, who, reason, at FROM commands WHERE at >= %s ORDER BY id DESC LIMIT %s",
            (moment, limit),
        )

    def expire(self, seconds: float) -> int:
        """Retention: remove what is older; the number of rows."""
        return self._db.write("DELETE FROM commands WHERE at < " + NOW + " - %s", (seconds,))
