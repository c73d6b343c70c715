# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing of ended steps is left in the slurmd spool: a left-over PMIx socket keeps the next run from starting."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_job_end import (
    still_active,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    done,
    identity_words,
    retry,
    slurm_name,
    trouble,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import (
    Places,
    answers_of,
    ask_places,
    find_places,
    read_jobs,
    read_parts,
    serious,
)

_CLEAN_DEADLINE = 12.0
_NAMED = 20


class CleanSpool(Plain):
    """For a node: all of its ended steps. For a job: its own files, on every node that it ever ran on.

    The helper removes by an allow-list, and nothing of a step whose slurmstepd lives.
    Waits for: a short time, for a node that does not answer; `job_not_active`, should the job have started again.
    Proof: the helper looks again after the cleaning and finds nothing of ended steps.
    """

    name = plans.CLEAN_SPOOL

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes of all works at once; each node once for all of its jobs."""
        answers = Answers(works, tools)
        jobs = [work for work in works if work.target.kind == JOB]
        _clean_nodes(answers, [work for work in works if work.target.kind != JOB], tools)
        try:
            _clean_jobs(answers, jobs, tools)
        except RecoveryError as exc:
            answers.give_error(jobs, exc)
        return answers.all()


def _clean_nodes(answers: Answers, works: Sequence[Work], tools: Tools) -> None:
    for work in works:
        if not slurm_name(work, tools):
            answers.give(done(work, "the node is not in Slurm"))
    allowed, seconds = answers.guarded()
    chosen = [work for work in allowed if work in works]
    words = {work.incident: ["spool-clean", *identity_words(work)] for work in chosen}
    told = ask_nodes(chosen, tools, lambda work: words[work.incident], min(_CLEAN_DEADLINE, seconds))
    for work in chosen:
        answer = told[work.incident]
        if answer.error is not None:
            answers.give(trouble(work, tools, answer.error))
        else:
            answers.give(_outcome(work, tools, {work.target.name: answer.data}, ""))


def _clean_jobs(answers: Answers, works: Sequence[Work], tools: Tools) -> None:
    if not works:
        return
    parts = read_parts(works, read_jobs(works, tools), tools)
    places = find_places(works, parts, tools)
    for work in works:
        if any(job.on_nodes for job in parts.get(work.incident, ())):
            answers.give(still_active(work, tools, parts[work.incident]))
        elif work.incident not in places:
            answers.give(done(work, "the job never had nodes"))
    allowed, seconds = answers.guarded()
    chosen = [places[work.incident] for work in allowed]
    told = ask_places("spool-clean", chosen, tools, min(_CLEAN_DEADLINE, seconds), _words)
    for work in allowed:
        data, errors = answers_of(places[work.incident], told)
        of_last = serious(places[work.incident], errors)
        if of_last:
            answers.give(trouble(work, tools, of_last[0]))
            continue
        silent = "nodes of earlier runs did not answer: %s" % ", ".join(sorted(errors)) if errors else ""
        answers.give(_outcome(work, tools, data, silent))


def _words(place: Places) -> list[str]:
    return [word for number in place.numbers for word in ("--job", str(number))]


def _outcome(work: Work, tools: Tools, data: Mapping[str, Mapping[str, Any]], note: str) -> Outcome:
    """By node name what its helper answered."""
    left = {name: len(answer.get("stale") or ()) for name, answer in data.items() if answer.get("stale")}
    if left:
        where = ", ".join("%d on %s" % (count, name) for name, count in sorted(left.items()))
        return retry(work, tools, "files of ended steps are still there: %s" % where)
    removed = {name: list(answer.get("removed") or ())[:_NAMED] for name, answer in data.items()}
    return done(
        work, note, proof={"nodes": sorted(data), "removed": {name: each for name, each in removed.items() if each}}
    )
