# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source `ledger`: open incidents that go on now, because their wait is over or their run died.

Arguments:
    settings: path of the recovery's settings file (default: `$JOB_RECOVERY_SETTINGS`, else
        `/etc/job-recovery/settings.yml`). It is read anew for each look.

Events: `{"due": {"incidents": [numbers], "dispatch": number}}`, and every five minutes, or when somebody wants one,
`{"canary": {"number": ...}}`, which travels the whole way to a playbook and back into the ledger.

While the database does not answer, nothing is sent and nothing begun; that is said once, and again when it is over.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat, settings, source
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.dispatch import LedgerWatch

SOURCE = "ledger"


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Send what is due into `queue`, for ever. Raises only for unusable settings, before the first look."""
    path = args.get("settings")
    first = settings.load(path)
    watch = LedgerWatch()

    async def look() -> list[dict[str, Any]]:
        return await asyncio.to_thread(lambda: watch.look(settings.load(path)))

    try:
        await source.keep_looking(
            SOURCE, queue, look, lambda: settings.load(path).slurm.interval, heartbeat.writer(first)
        )
    finally:
        watch.close()  # a look that still runs in its thread loses its session, and what it does not know is not sent
