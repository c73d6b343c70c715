# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source `node_agent`: faults that the kernels of nodes tell, as the agents on the nodes report them.

Arguments:
    settings: path of the recovery's settings file (default: `$JOB_RECOVERY_SETTINGS`, else
        `/etc/job-recovery/settings.yml`). It is read anew for each look.

Events: `{"fault": {...}}`, see `plugins/module_utils/recovery/fault.py`, of the kinds `gpu_fault` and `kernel_fault`.

Listens on `agents.port`; without one in the settings it waits for one. A report is acknowledged when it is in the
ledger, and believed of nobody but the host that it comes from. A fault that lasts is sent again once a minute, until
the node has rebooted, an incident of it was closed, or it is an hour old. While the database does not answer, agents
keep their reports.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener.watch import (
    SOURCE,
    AgentWatch,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat, settings, source


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Send faults into `queue`, for ever. Raises only for unusable settings, before the first look."""
    path = args.get("settings")
    first = settings.load(path)
    watch = AgentWatch(logging.getLogger("job_recovery.%s" % SOURCE))

    async def look() -> list[dict[str, Any]]:
        return await watch.look(settings.load(path))

    def interval() -> float:
        return 0.0 if settings.load(path).agents.port else 5.0

    try:
        await source.keep_looking(SOURCE, queue, look, interval, heartbeat.writer(first))
    finally:
        await watch.close()
