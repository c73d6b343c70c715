# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source `loki`: faults that lines in Loki tell.

Arguments:
    settings: path of the recovery's settings file (default: `$JOB_RECOVERY_SETTINGS`, else
        `/etc/job-recovery/settings.yml`). It is read anew for each look.

Events: `{"fault": {...}}`, see `plugins/module_utils/recovery/fault.py`, of the kinds `gpu_fault`, `kernel_fault` and
`job_hung`.

Asks Loki every five seconds for the lines of `loki.queries` since the last look, late ones included, where `loki.watch`
is set in the settings. After a restart it goes on where it stopped. While Loki does not answer nothing is known, and
nothing sent; what it has missed meanwhile is read when Loki answers again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.watch import INTERVAL, SOURCE, LokiWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat, settings, source


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Send faults into `queue`, for ever. Raises only for unusable settings, before the first look."""
    path = args.get("settings")
    first = settings.load(path)
    watch = LokiWatch()

    async def look() -> list[dict[str, Any]]:
        return await asyncio.to_thread(lambda: watch.look(settings.load(path)))

    try:
        await source.keep_looking(SOURCE, queue, look, lambda: INTERVAL, heartbeat.writer(first))
    finally:
        watch.close()
