# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching the logs of running opted-in jobs: one that does not grow for long is reported. The I/O around `progress`.

Size and time of the files are asked for on the node of the job's script, by the helper and as the job's user. Whether a
job that writes nothing hangs or thinks, its user knows: it is only reported.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, NodeShell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import job_log
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, valid_job_name
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.loss_watch import read_machines
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    REPORT,
    NodeSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect, progress, queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import SlurmWatch, events_of

SOURCE = "hang"
KIND = "job_hung"

_DEADLINE = 12.0  # of one round of helpers
_ROUNDS = 4  # jobs of one node that are asked about in one look; the others in the next
_JOBS = 500  # in one look
_RARELY = 60.0
_LOOKS = 4  # within the time after which a job counts as hung, at least


class HangWatch:
    """What the source remembers between two looks; nothing of it is needed after a restart.

    Args:
        watch: whose looks tell which jobs run and opted in.
        slurm: an `AsyncSlurmCli`.
        machines: reads the ledger's machines; blocking.
        shell: makes the way to the nodes.
        steady: seconds of a clock that only grows.
    """

    def __init__(
        self,
        watch: SlurmWatch,
        slurm: Any,
        machines: Callable[[Settings], list[Machine]] = read_machines,
        shell: Callable[[NodeSettings], Any] = NodeShell,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch, self._slurm = watch, slurm
        self._machines, self._shell, self._steady = machines, shell, steady
        self._tracks: dict[progress.Run, progress.Track] = {}
        self._asked: dict[progress.Run, float] = {}
        self._resend = Resend()
        self._interval = _RARELY

    def pause(self) -> float:
        """Seconds until the next look."""
        return self._interval

    async def look(self, settings: Settings) -> list[dict[str, Any]]:
        """Look at the logs once, and return the events to send.

        Raises:
            RecoveryError: Slurm or the ledger does not answer. Nothing is known then.
        """
        after = settings.slurm.hang_after
        if not (settings.slurm.enabled and after):
            self._tracks, self._interval = {}, _RARELY
            return []
        self._interval = max(1.0, min(_RARELY, after / _LOOKS))
        names = [name for name in self._watch.opted_in.running() if valid_job_name(name, SLURM)]
        jobs = {}
        for job in await self._slurm.jobs(sorted(names), missing_ok=True) if names else []:
            if job.state == "RUNNING" and not job.completing:
                jobs[queue.job_name(job), job.submit_time or 0] = job
        marks = await self._marks(settings, jobs)
        now = self._steady()
        seen = {run: marks.get(run) for run in jobs}
        self._tracks = progress.follow(self._tracks, seen, now)
        hung = progress.hung(self._tracks, seen, after, now)
        due = self._resend.due([(KIND, REPORT, detect.Seen(KIND, *run)) for run in hung], now)
        return events_of(due, settings.cluster, time.time())

    async def _marks(
        self, settings: Settings, jobs: Mapping[progress.Run, Job]
    ) -> dict[progress.Run, Optional[progress.Mark]]:
        """By run the mark of its log, of as many as can be asked now: those that were not asked for longest."""
        askable = {run: words for run, job in jobs.items() for words in (job_log.words(job, 1),) if words}
        if not askable:
            return {}
        machines = await asyncio.to_thread(self._machines, settings)
        addresses = {each.slurm_name: each.ssh_address for each in machines if each.slurm_name and each.ssh_address}
        rounds: list[dict[str, progress.Run]] = [{} for _round in range(_ROUNDS)]
        for run in sorted(askable, key=lambda run: self._asked.get(run, 0.0))[:_JOBS]:
            address = addresses.get(jobs[run].batch_host or "")
            free = next((each for each in rounds if address not in each), None)
            if address and free is not None:
                free[address] = run
        shell, marks = self._shell(settings.nodes), {}
        self._asked = {run: self._asked[run] for run in jobs if run in self._asked}
        for each in rounds:
            requests = {address: askable[run] for address, run in each.items()}
            told: Mapping[str, NodeAnswer] = (
                await asyncio.to_thread(shell.call, requests, _DEADLINE) if requests else {}
            )
            for address, run in each.items():
                self._asked[run] = self._steady()
                answer = told[address]
                marks[run] = None if answer.error is not None else progress.mark_of(answer.data)
        return marks
