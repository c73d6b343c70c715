# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source `kubernetes`: faults of nodes, Jobs and pods, as the API server shows them.

Arguments:
    settings: path of the recovery's settings file (default: `$JOB_RECOVERY_SETTINGS`, else
        `/etc/job-recovery/settings.yml`). It is read anew for each look.

Events: `{"fault": {...}}`, see `plugins/module_utils/recovery/fault.py`.

Nodes, Jobs and pods are watched by threads of their own; once a second what they saw is judged. After a start it sends
what is wrong now. A lasting fault is sent again once a minute. While the API server does not answer nothing is known,
and nothing sent. Without `kubernetes.kubeconfig` in the settings it waits for one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.sight import (
    INTERVAL,
    SOURCE,
    KubernetesSight,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat, settings, source


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Send faults into `queue`, for ever. Raises only for unusable settings, before the first look."""
    path = args.get("settings")
    first = settings.load(path)
    sight = KubernetesSight()

    async def look() -> list[dict[str, Any]]:
        return await asyncio.to_thread(_look, sight, path)

    try:
        await source.keep_looking(SOURCE, queue, look, lambda: INTERVAL, heartbeat.writer(first))
    finally:
        sight.close()


def _look(sight: KubernetesSight, path: Any) -> list[dict[str, Any]]:
    return sight.look(settings.load(path))
