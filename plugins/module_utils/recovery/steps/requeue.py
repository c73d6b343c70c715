# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job starts again: requeued exactly once, and free to begin now."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    job_runs,
    plans,
    present,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.followers import with_dependents
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    Lost,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    done,
    failed,
    retry,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import read_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_words import not_done
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist, job_state, outcome
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JOB_ENDED, Job


class Requeue:
    """A job that Slurm or its own script requeued already is not requeued again, only its begin time is cleared.

    Waits for: `job_pending`, while the job is still completing.
    Failed: cancelled, purged, not a batch job, --no-requeue ... (a named refusal).
    Proof: restart count above the recorded one, PENDING or RUNNING, not COMPLETING; or PENDING as it was found.
    Remembers: `restart_count`, the count after it.
    """

    name = plans.REQUEUE

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """The restart count, which tells later whether the requeue has happened, and whose job it is."""
        try:
            jobs = read_jobs(works, tools)
        except RecoveryError:
            jobs = {}
        return {
            work.incident: {"restart_count": job.restart_count or 0, "uid": job.uid} if job is not None else {}
            for work in works
            for job in (jobs.get(work.incident),)
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One look for all jobs, one call for each that is to be requeued."""
        answers = Answers(works, tools)
        for work in works:
            if job_runs.is_another(work.memory, work.intent.get("uid"), work.intent.get("restart_count", math.inf)):
                answers.give(failed(work, "another job has the number %s by now" % work.target.name))
        _keep_from_dependents(answers, tools)
        for hidden in (False, True):
            try:
                _requeue(answers, [work for work in answers.open if _may_hide(work) is hidden], tools, hidden)
            except RecoveryError as exc:
                answers.give_error([work for work in answers.open if _may_hide(work) is hidden], exc)
        return answers.all()


def _keep_from_dependents(answers: Answers, tools: Tools) -> None:
    """The gate `dependents` once more: jobs may have begun behind this one while its processes were waited for."""
    try:
        jobs = read_jobs(answers.open, tools)
        ended = {
            work.incident: JobLook(job=jobs[work.incident])
            for work in answers.open
            if work.incident in jobs and jobs[work.incident].state in JOB_ENDED and "dependents" not in work.overridden
        }
        seen = with_dependents(ended, tools) if ended else {}
    except RecoveryError as exc:
        answers.give_error(answers.open, exc)
        return
    for work in [work for work in answers.open if work.incident in seen]:
        look = seen[work.incident]
        why = present.dependents(look)
        if why:
            answers.give(retry(work, tools, why) if look.dependents is None else failed(work, "dependents: %s" % why))


def _may_hide(work: Work) -> bool:
    """A script may have hidden that its step could not start on left-over files: COMPLETED then means nothing.

    Only where the run that was looked at for the decision had ended so already, with its left-overs on the node: a run
    that began or ended later has shown nothing, and one that completed is never thrown away.
    """
    run = work.memory.get("completed_run")
    return work.fault_kind == "stale_spool" and run is not None and run == work.intent.get("restart_count")


def _requeue(answers: Answers, works: Sequence[Work], tools: Tools, completed: bool) -> None:
    guarded, _seconds = answers.guarded()
    chosen = {work.target.name: work for work in guarded if work in works}
    if not chosen:
        return
    counts = {
        name: int(work.intent["restart_count"]) for name, work in chosen.items() if "restart_count" in work.intent
    }
    change = job_state.Change(
        tools.slurm, "requeued", counts, completed, before_write=lambda name: tools.guard(chosen[name])
    )
    requeued = change.bring(list(chosen), False)
    good = [result.name for result in requeued if result.status == outcome.DONE]
    for result in requeued:
        if result.status != outcome.DONE:
            answers.give(not_done(chosen[result.name], tools, result))
    jobs = read_jobs([chosen[name] for name in good], tools)
    held = [name for name in good if _is_wished_hold(jobs.get(chosen[name].incident))]
    for name in held:
        answers.give(_done(chosen[name], jobs.get(chosen[name].incident), "it is held by a person"))
    free = [name for name in good if name not in held]
    excluded = {name: _exclude(chosen[name], tools, jobs.get(chosen[name].incident)) for name in free}
    did = {result.name: "requeued" for result in requeued if _was_requeued(result, chosen[result.name])}
    for result in job_state.Change(tools.slurm, "released", {}, any_hold=False).bring(free, False) if free else ():
        work = chosen[result.name]
        if result.status == outcome.WAITING:
            answers.give(not_done(work, tools, result))
        why = "" if result.status == outcome.DONE else "it is requeued and not let begin at once: %s" % result.why
        more = {"did": did.get(result.name, "released" if result.changed else "found"), **excluded[result.name]}
        answers.give(_done(work, jobs.get(work.incident), why, more))


def _was_requeued(result: outcome.Outcome, work: Work) -> bool:
    """By this run, or by one that was killed before it could say so."""
    after = result.after or result.before or {}
    return result.changed or (after.get("restart_count") or 0) > work.intent.get("restart_count", math.inf)


def _exclude(work: Work, tools: Tools, job: Optional[Job]) -> dict[str, Any]:
    """Keep the job's next run off the nodes on which it failed, where enough others are left; what was done.

    The exclusion stays with the job. What its user excludes, or requires, stays as well.
    """
    nodes = set(job_runs.suspects(work.memory, tools.settings.limits.exclude_nodes))
    if job is None or not nodes or job.state != "PENDING" or job.het_job_id or nodes.intersection(job.required_nodes):
        return {}
    names = sorted(nodes.union(job.excluded_nodes))
    try:
        partitions = set((job.partition or "").split(","))
        there = [node for node in tools.slurm.nodes() if node.in_service and partitions.intersection(node.partitions)]
        if len({node.name for node in there}.difference(names)) < len(nodes):
            return {}
        if nodes.difference(job.excluded_nodes):
            tools.guard(work)
            tools.slurm.update_job(job.argument, excluded_nodes=names)
    except Lost:
        raise
    except RecoveryError as exc:
        return {"not_excluded": str(exc)[:200]}
    return {"excluded": hostlist.compress(sorted(nodes))}


def _is_wished_hold(job: Optional[Job]) -> bool:
    return job is not None and job.held and not job.held_by_slurm


def _done(work: Work, job: Optional[Job], why: str, more: Optional[Mapping[str, Any]] = None) -> Outcome:
    count = job.restart_count if job is not None else None
    proof = {"restart_count_before": work.intent.get("restart_count"), "restart_count": count}
    if job is not None:
        proof.update(state=job.state, flags=list(job.flags))
    return done(work, why, {"restart_count": count, **(more or {})}, proof)
