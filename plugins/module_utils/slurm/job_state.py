# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requeue jobs, and let them start (module `slurm_job`).

Slurm requeues a CANCELLED or a COMPLETED job as willingly as any other, and a second requeue costs a running job its
work. So the state is read right before, the restart count that was recorded is compared, and only a count above it,
PENDING or RUNNING and not COMPLETING, proves a requeue.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import values
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import DEFAULT_TIMEOUT, SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.outcome import (
    DONE,
    FAILED,
    REFUSED,
    WAITING,
    Outcome,
    result_of,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "jobs": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "required": True, "choices": ["requeued", "released"]},
        "restart_counts": {"type": "dict"},
        "completed": {"type": "bool", "default": False},
        "tolerate": {"type": "bool", "default": False},
        "bin_dir": {"type": "path"},
        "timeout": {"type": "int", "default": int(DEFAULT_TIMEOUT)},
    },
    "supports_check_mode": True,
}

# Slurm answers a requeue before it has carried it out.
PROOF_SECONDS = 3.0
_PROOF_INTERVAL = 0.25
# A requeue by Slurm sets the begin time two minutes ahead. One that lies further ahead is the user's own (--begin).
_REQUEUE_DELAY = 15 * 60


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What to do with a job (`requeue`, `release`, `start`, or nothing), and if nothing, what stands instead."""

    act: str = ""
    status: str = DONE
    why: str = ""


def judge(
    state: str, job: Job | None, recorded: int | None, now: float, completed: bool = False, any_hold: bool = True
) -> Verdict:
    """Decide about one job from what was just read. Pure.

    Args:
        state: requeued or released.
        recorded: the restart count on record when the fault was seen; None if there is none.
        now: epoch seconds.
        completed: whether a COMPLETED job may run again (its script may have hidden the failure of its step).
        any_hold: whether a hold that somebody wished is released, too, and not only Slurm's own.
    """
    if job is None:
        return Verdict(status=REFUSED, why="purged")
    if state == "released" and job.held and not (any_hold or job.held_by_slurm):
        return Verdict(status=REFUSED, why="held")
    if state == "released":
        return _judge_release(job, now)
    if recorded is not None and (job.restart_count or 0) > recorded:
        return _judge_proof(job, recorded)
    return _judge_requeue(job, completed)


def _judge_requeue(job: Job, completed: bool) -> Verdict:
    # Text output names COMPLETING alone, and what completes may have been cancelled.
    if job.state == "COMPLETING":
        return Verdict(status=WAITING, why="completing")
    if not job.understood:
        return Verdict(status=REFUSED, why="not_understood")
    if job.state == "CANCELLED":
        return Verdict(status=REFUSED, why="cancelled")
    if job.state == "COMPLETED" and not completed:
        return Verdict(status=REFUSED, why="completed")
    if job.state == "PENDING":
        return Verdict(why="pending")
    if job.batch is False:
        return Verdict(status=REFUSED, why="not_batch")
    if not job.het_leader:
        return Verdict(status=REFUSED, why="not_het_leader")
    if job.requeue is False:
        return Verdict(status=REFUSED, why="requeue_disabled")
    return Verdict("requeue")


def _judge_proof(job: Job, recorded: int) -> Verdict:
    """Whether the job was requeued since `recorded` was read."""
    if (job.restart_count or 0) <= recorded:
        return Verdict(status=WAITING, why="not_requeued_yet")
    if job.state == "CANCELLED":
        return Verdict(status=REFUSED, why="cancelled")
    if job.completing:
        return Verdict(status=WAITING, why="completing")
    if job.state in ("PENDING", "RUNNING"):
        return Verdict(why="held" if job.held else "")
    return Verdict(status=REFUSED, why="ended_again" if job.understood else "not_understood")


def _judge_release(job: Job, now: float) -> Verdict:
    if job.completing:
        return Verdict(status=WAITING, why="completing")
    if job.state in ("RUNNING", "SUSPENDED"):
        return Verdict()
    if job.state != "PENDING" or not job.understood:
        return Verdict(status=REFUSED, why=job.state.lower() if job.understood else "not_understood")
    if job.held:
        return Verdict("release")
    ahead = (job.begin_time or 0) - now
    if ahead > _REQUEUE_DELAY:
        return Verdict(status=REFUSED, why="begin_time_of_user")
    return Verdict("start") if ahead > 0 else Verdict()


def judge_after(state: str, job: Job | None, recorded: int, now: float) -> Verdict:
    """Decide from what was read after the write whether it is proved; WAITING may still become DONE. Pure."""
    if job is None:
        return Verdict(status=FAILED, why="purged")
    if state == "requeued":
        return _judge_proof(job, recorded)
    if job.finished and job.understood:  # it was quick
        return Verdict(why="ended")
    verdict = _judge_release(job, now)
    return Verdict(verdict.act, WAITING, "not_released_yet") if verdict.act else verdict


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the jobs to the wanted state.

    Returns:
        `changed`, `diff` and `results`, one for every job: `name` (the id given), `status` (done, refused, waiting,
        failed), `why`, `changed`, `before`, `after`.

    Raises:
        RecoveryError: a job was refused or failed, unless `tolerate`; Slurm could not be read.
    """
    refs = list(dict.fromkeys(values.job_ref(job) for job in params["jobs"]))
    if not refs:
        raise BadInput("jobs is empty: no job is named")
    slurm = SlurmCli(params.get("bin_dir"), params.get("timeout") or DEFAULT_TIMEOUT)
    change = Change(slurm, params["state"], _counts(params.get("restart_counts")), bool(params.get("completed")))
    outcomes = change.bring([ref.argument for ref in refs], check_mode)
    return result_of(outcomes, bool(params.get("tolerate")), "set jobs to %s" % params["state"], change.error)


def _counts(given: Mapping[Any, Any] | None) -> dict[str, int]:
    """Restart counts by job id; ids and counts may be texts, as they come out of YAML and extra variables."""
    counts = {}
    for job, count in (given or {}).items():
        if isinstance(count, bool) or not str(count).isdigit():
            raise BadInput("the restart count of job %s is %r, not a number" % (str(job)[:40], count))
        counts[values.job_ref(job).argument] = int(count)
    return counts


class Change:
    """One change of several jobs: read all, judge, write one after another, read all again until proved.

    Args:
        counts: by the id given, the restart count on record.
        completed, any_hold: see `judge`.
        clock: the time in epoch seconds.
        pause: waits for seconds.
        before_write: called with the id given between the deciding read and the write; raises when that may not be.
    """

    def __init__(
        self,
        slurm: SlurmCli,
        state: str,
        counts: Mapping[str, int],
        completed: bool = False,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        before_write: Callable[[str], Any] = lambda _name: None,
        any_hold: bool = True,
    ) -> None:
        self._slurm = slurm
        self._state = state
        self._counts = counts
        self._completed = completed
        self._any_hold = any_hold
        self._clock = clock
        self._pause = pause
        self._before_write = before_write
        self.error: RecoveryError | None = None

    def bring(self, ids: Sequence[str], check_mode: bool) -> list[Outcome]:
        """Return an outcome for every id."""
        before = self._read(ids)
        outcomes: dict[str, Outcome] = {}
        written: list[str] = []
        for name in ids:
            verdict = self._judge(name, before.get(name))
            if verdict.act and not check_mode:
                self._before_write(name)
                verdict = self._act(verdict.act, before[name])
            if verdict.act and not check_mode:
                written.append(name)
                continue
            foreseen = _foreseen(verdict.act, before[name], self._clock()) if verdict.act else None
            outcomes[name] = Outcome(
                name, verdict.status, verdict.why, _show(before.get(name)), _show(foreseen), bool(verdict.act)
            )
        outcomes.update(self._prove(written, before))
        return [outcomes[name] for name in ids]

    def _judge(self, name: str, job: Job | None) -> Verdict:
        return judge(self._state, job, self._counts.get(name), self._clock(), self._completed, self._any_hold)

    def _read(self, ids: Sequence[str]) -> dict[str, Job]:
        """Jobs by the id given: an array or a heterogeneous job must be named by the id of one of its parts."""
        refs = {name: values.job_ref(name) for name in ids}
        jobs = self._slurm.jobs(ids, missing_ok=True)
        found = {}
        for name, ref in refs.items():
            matches = [job for job in jobs if _names(ref, job)]
            if len(matches) > 1:
                raise BadInput("%s names %d jobs; name each task or component" % (name, len(matches)))
            found.update((name, job) for job in matches)
        return found

    def _act(self, act: str, job: Job) -> Verdict:
        """Write; a complaint that is known as a refusal is one, others are a failure."""
        try:
            if act == "requeue":
                self._slurm.requeue(job.argument)
            elif act == "release":
                self._slurm.release(job.argument)
            else:
                self._slurm.update_job(job.argument, start_now=True)
        except Conflict as exc:
            return Verdict(status=REFUSED, why=exc.fields.get("cause", "refused"))
        except RecoveryError as exc:
            self.error = self.error or exc
            return Verdict(status=FAILED, why=exc.fields.get("cause", "failed"))
        return Verdict(act)

    def _prove(self, ids: Sequence[str], before: Mapping[str, Job]) -> dict[str, Outcome]:
        """Read until every job is proved or the time is over."""
        proved: dict[str, Outcome] = {}
        until = self._clock() + PROOF_SECONDS
        while len(proved) < len(ids):
            left = [name for name in ids if name not in proved]
            last = self._clock() >= until
            try:
                after = self._read(left)
            except Unreachable as exc:
                self.error = self.error or exc
                return {**proved, **{name: Outcome(name, FAILED, "unknown", _show(before[name]), None, True)
                                     for name in left}}
            for name in left:
                verdict = judge_after(self._state, after.get(name), self._recorded(name, before), self._clock())
                if last or verdict.status != WAITING:
                    shown = _show(after.get(name))
                    proved[name] = Outcome(name, verdict.status, verdict.why, _show(before[name]), shown, True)
            if len(proved) < len(ids):
                self._pause(_PROOF_INTERVAL)
        return proved

    def _recorded(self, name: str, before: Mapping[str, Job]) -> int:
        return self._counts.get(name, before[name].restart_count or 0)


def _names(ref: values.JobRef, job: Job) -> bool:
    if ref.task is not None:
        return job.array_job_id == ref.id and job.array_task_id == ref.task
    if ref.het_offset is not None:
        return job.het_job_id == ref.id and job.het_job_offset == ref.het_offset
    return job.id == ref.id


def _foreseen(act: str, job: Job, now: float) -> Job:
    """The job as it should be after the write."""
    if act == "requeue":
        return dataclasses.replace(job, state="PENDING", flags=(), restart_count=(job.restart_count or 0) + 1)
    if act == "release":
        return dataclasses.replace(job, state_reason=None, priority=None)
    return dataclasses.replace(job, begin_time=int(now))


def _show(job: Job | None) -> dict[str, Any] | None:
    """What of a job is kept in results and diffs: no text of its user."""
    if job is None:
        return None
    return {
        "id": job.id,
        "state": job.state,
        "flags": list(job.flags),
        "state_reason": job.state_reason,
        "restart_count": job.restart_count,
        "nodes": list(job.nodes),
        "begin_time": job.begin_time,
        "start_time": job.start_time,
    }
