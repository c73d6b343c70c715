# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that run jobs which opted in, from the cheap looks at the queue.

A cheap look shows no comment, so the details of each job are read once, when it is first seen running, some at a time.
A job whose user opts in only later is not found here: its node's loss is noticed by Slurm's own verdict.
"""

from __future__ import annotations

from typing import Any, Collection, Iterable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect, queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JobState

_ASKED_AT_ONCE = 1000  # jobs in one look
_Run = tuple[str, int]  # a job's name and its submission, which changes with each requeue


class OptedIn:
    """Args: slurm: an `AsyncSlurmCli`."""

    def __init__(self, slurm: Any) -> None:
        self._slurm = slurm
        self._known: dict[_Run, bool] = {}
        self._nodes: dict[str, set[str]] = {}  # by partition

    async def look(self, queued: Iterable[JobState], everybody: bool) -> None:
        """Take over a look at the whole queue, and read the details of jobs that are new in it.

        Args:
            everybody: the site recovers all jobs.

        Raises:
            RecoveryError: the details cannot be read; they are asked for again by the next look.
        """
        running = {_run(state): state for state in queued if _runs(state)}
        self._known = {run: everybody or self._known[run] for run in running if everybody or run in self._known}
        try:
            await self._read([run for run in running if run not in self._known][:_ASKED_AT_ONCE])
        finally:
            self._nodes = {}
            for run, state in running.items():
                if self._known.get(run):
                    self._nodes.setdefault(state.partition or "", set()).update(state.nodes)

    async def _read(self, new: list[_Run]) -> None:
        if not new:
            return
        jobs = await self._slurm.jobs([run[0] for run in new], missing_ok=True)
        comments = {queue.job_name(job): job.comment for job in jobs}
        self._known.update({run: detect.asks_for_recovery(comments[run[0]]) for run in new if run[0] in comments})

    def running(self) -> list[str]:
        """Names of the running jobs that opted in, as of the last look."""
        return [run[0] for run, opted in self._known.items() if opted]

    def nodes(self, partitions: Collection[str]) -> set[str]:
        """Nodes of these partitions that run such a job, as of the last look."""
        return set().union(*(self._nodes.get(partition, ()) for partition in partitions))


def _run(state: JobState) -> _Run:
    return queue.job_name(state), state.submit_time or 0


def _runs(state: JobState) -> bool:
    """A job whose nodes are still being powered up (CONFIGURING) waits for them; one that completes has ended."""
    return state.state == "RUNNING" and not {"CONFIGURING", "COMPLETING"}.intersection(state.flags)
