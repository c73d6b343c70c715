# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opted-in jobs that a node's death requeued may begin at once, not two minutes later."""

from __future__ import annotations

from typing import Collection, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
    job_opted_in,
    poll,
    power_off_proved,
    slurm_name,
    trouble,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import may_live_on
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import job_state, outcome
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

_MAX_WAIT = 60.0  # seconds that a node's repair stays for a job that is slow to come off its other nodes
_REQUEUE_DELAY = 150.0  # Slurm sets the begin time two minutes ahead; what lies further ahead is the user's wish
# a job that was just requeued has no reason yet: the scheduler writes BeginTime with its next pass
_DELAYED = (None, "", "None", "BeginTime")
_MAX_ASKED = 500  # jobs whose runs are looked up at once


class FreeJobs(Plain):
    """Jobs that were on the node when it was drained, and of a node that is off or came back those that died on it.

    Only of a node that is proved off or to have another boot: its processes are dead. Of a job of several nodes all
    others must be heard by Slurm, which then has ended the job there, or be proved off as well.
    A job that is not opted in, held, cancelled or ended is left alone. One that does not come off its nodes in time, or
    may still live on another silent node, is left to Slurm, which starts it itself two minutes later.
    Waits for: `job_pending`, for at most a minute.
    Proof: begin times before and after.
    """

    name = plans.FREE_JOBS

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One look at all jobs of all nodes; one call for each job whose begin time is cleared."""
        answers = Answers(works, tools)
        try:
            for work in works:
                if not _processes_ended(work):
                    answers.give(
                        done(work, "its processes are not proved to have ended, so its jobs are left to Slurm")
                    )
            jobs = {work.incident: _candidates(work) for work in answers.open if slurm_name(work, tools)}
            for incident, died in _died_on(answers.open, tools).items():
                jobs.setdefault(incident, set()).update(died)
            freeing = _Freeing(answers, jobs, tools)
            poll(freeing.make_a_pass)
            freeing.give_up()
        except RecoveryError as exc:
            for work in answers.open:
                # a job that is not hurried starts by itself: that is no reason to keep the node waiting
                answers.give(done(work, str(exc)) if _is_late(work, tools) else trouble(work, tools, exc))
        return answers.all()


def _processes_ended(work: Work) -> bool:
    """Slurm gives the processes of a silent node two minutes to end; only what is known to be dead may be hurried.

    A reboot over SSH was only ordered by now: nobody knows yet when the old system has gone down.
    """
    return power_off_proved(work) or work.memory.get("same_boot") is False


def _candidates(work: Work) -> set[int]:
    return {job for job in work.memory.get("jobs") or () if isinstance(job, int)}


def _died_on(works: Sequence[Work], tools: Tools) -> dict[int, set[int]]:
    """By incident, jobs that wait for their begin time after a run there: given up before we drained the node.

    A node that we reboot over SSH is not off yet.
    """
    nodes = {
        slurm_name(work, tools): work.incident
        for work in works
        if work.plan == "return_node" or power_off_proved(work)
    }
    nodes.pop("", None)
    if not nodes:
        return {}
    states = tools.slurm.job_states()
    pending = [job.id for job in states if job.state == "PENDING" and job.state_reason in _DELAYED][:_MAX_ASKED]
    found: dict[int, set[int]] = {}
    for job, names in _last_nodes(pending, tools).items():
        for name in set(names).intersection(nodes):
            found.setdefault(nodes[name], set()).add(job)
    return found


def _last_nodes(jobs: Sequence[int], tools: Tools) -> dict[int, tuple[str, ...]]:
    """By job the nodes of its last run, as far as accounting knows one."""
    last: dict[int, tuple[float, tuple[str, ...]]] = {}
    for run in tools.slurm.accounting(jobs) if jobs else ():
        started = float(run.start_time or 0)
        if run.step is None and run.nodes and started >= last.get(run.id, (0.0, ()))[0]:
            last[run.id] = (started, run.nodes)
    return {job: names for job, (_started, names) in last.items()}


def _may_live_on(jobs: Sequence[int], dead: Collection[str], tools: Tools) -> dict[int, str]:
    """By job a node of its last run where it may live on, besides those whose processes are known to be dead."""
    others = {job: set(names).difference(dead) for job, names in _last_nodes(jobs, tools).items()}
    living = may_live_on(set().union(*others.values()), tools)
    found = {job: [name for name in living if name in names] for job, names in others.items()}
    return {job: names[0] for job, names in found.items() if names}


class _Freeing:
    """Passes over the jobs of all works, until each work has its outcome.

    Args:
        jobs: by incident the ids of its jobs.
    """

    def __init__(self, answers: Answers, jobs: Mapping[int, set[int]], tools: Tools) -> None:
        self._answers, self._jobs, self._tools = answers, jobs, tools
        self._freed: dict[int, str] = {}
        self._slow: dict[int, int] = {}

    def make_a_pass(self) -> bool:
        """Free what can be freed now; true when no work has a job left that may yet come off its nodes."""
        ids = sorted(set().union(*map(self._of, self._answers.open)) - set(self._freed))
        found = self._tools.slurm.jobs(ids, missing_ok=True) if ids else []
        jobs = {job.id: job for job in found if job_opted_in(job, self._tools)}
        now = self._tools.now()
        self._free({number for number, job in jobs.items() if _is_delayed(job, now)})
        for work in self._answers.open:
            name = slurm_name(work, self._tools)
            slow = [number for number in sorted(self._of(work)) if number in jobs and _is_on(jobs[number], name)]
            if slow:
                self._slow[work.incident] = slow[0]
            else:
                freed = {str(job): why for job, why in sorted(self._freed.items()) if job in self._of(work)}
                self._answers.give(done(work, proof={"jobs": freed}))
        return not self._answers.open

    def give_up(self) -> None:
        """Outcomes for works with jobs that did not come off their nodes: wait a little, then leave them to Slurm."""
        for work in self._answers.open:
            job = self._slow[work.incident]
            why = "job %d is still on its nodes" % job
            if _is_late(work, self._tools):
                self._answers.give(done(work, "%s and is left to Slurm" % why))
            else:
                until = work.first_started_at + _MAX_WAIT
                self._answers.give(waiting(work, why, waits.JOB_PENDING, {"job": str(job)}, until))

    def _of(self, work: Work) -> set[int]:
        return self._jobs.get(work.incident, set())

    def _free(self, ready: set[int]) -> None:
        if not ready:
            return
        works, _seconds = self._answers.guarded()
        allowed = ready & set().union(*map(self._of, works))
        dead = {slurm_name(work, self._tools) for work in works}
        for job, node in _may_live_on(sorted(allowed), dead, self._tools).items():
            allowed.discard(job)
            self._freed[job] = "left to Slurm: it ran on %s too, which is silent and not proved off" % node
        if allowed:
            change = job_state.Change(self._tools.slurm, "released", {}, any_hold=False)
            for result in change.bring(sorted(map(str, allowed)), False):
                self._freed[int(result.name)] = "begins now" if result.status == outcome.DONE else result.why


def _is_delayed(job: Job, now: float) -> bool:
    """Waits for the begin time that a requeue by Slurm set."""
    ahead = (job.begin_time or 0) - now
    return job.state == "PENDING" and not job.completing and not job.held and 0 < ahead <= _REQUEUE_DELAY


def _is_on(job: Job, node: str) -> bool:
    """Not yet given up by the node; a job that runs elsewhere by now has moved on."""
    return job.completing or (job.state in ("RUNNING", "SUSPENDED") and node in job.nodes)


def _is_late(work: Work, tools: Tools) -> bool:
    return tools.now() >= work.first_started_at + _MAX_WAIT
