# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Event source `slurm`: faults of nodes and jobs, as Slurm shows them.

Arguments:
    settings: path of the recovery's settings file (default: `$JOB_RECOVERY_SETTINGS`, else
        `/etc/job-recovery/settings.yml`). It is read anew for each look.

Events: `{"fault": {...}}`, see `plugins/module_utils/recovery/fault.py`.

Looks at the nodes every `slurm.interval` and at the jobs every `slurm.job_interval` seconds. After a start it sends
what is wrong now. A lasting fault is sent again once a minute. While Slurm does not answer nothing is known, and
nothing sent.

Beside it, with signs of life of its own under the name `loss`, nodes that run opted-in jobs are probed every
`slurm.probe_interval` seconds: a dead one is told before Slurm notices. Under the name `hang`, logs of running opted-in
jobs are watched where `slurm.hang_after` says so.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    hang_watch,
    heartbeat,
    loss_watch,
    settings,
    source,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.loss_watch import LossWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import AsyncSlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import SOURCE, SlurmWatch


async def main(queue: asyncio.Queue, args: dict[str, Any]) -> None:
    """Send faults into `queue`, for ever. Raises only for unusable settings, before the first look."""
    path = args.get("settings")
    first = settings.load(path)
    slurm = AsyncSlurmCli(first.slurm.bin_dir, first.slurm.timeout)
    watch = SlurmWatch(slurm)
    losses = LossWatch(watch, slurm)
    hangs = hang_watch.HangWatch(watch, slurm)

    async def look() -> list[dict[str, Any]]:
        return await watch.look(settings.load(path))

    def interval() -> float:
        return watch.interval(settings.load(path).slurm.interval)

    async def probe() -> list[dict[str, Any]]:
        return await losses.look(settings.load(path))

    async def listen() -> list[dict[str, Any]]:
        return await hangs.look(settings.load(path))

    try:
        await asyncio.gather(
            source.keep_looking(SOURCE, queue, look, interval, heartbeat.writer(first)),
            source.keep_looking(loss_watch.SOURCE, queue, probe, losses.pause, heartbeat.writer(first)),
            source.keep_looking(hang_watch.SOURCE, queue, listen, hangs.pause, heartbeat.writer(first)),
        )
    finally:
        losses.close()
