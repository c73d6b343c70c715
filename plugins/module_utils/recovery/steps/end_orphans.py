# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No process of the job is left on any of its nodes.

After kill -9 of slurmstepd the script and the ranks live on, and Slurm knows nothing of them: started again beside
them, the job would run twice on one checkpoint.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, job_words
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.await_job_end import (
    still_active,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
    failed,
    job_opted_in,
    retry,
    trouble,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import (
    Places,
    answers_of,
    ask_places,
    find_places,
    may_live_on,
    read_jobs,
    read_parts,
    serious,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

_LOOK_DEADLINE = 8.0
_END_DEADLINE = 12.0
_ROUNDS = 3
_NAMED = 100  # processes in one request; what is left is found by the next round


class EndOrphans(Plain):
    """Only of a job that is opted in and not on its nodes. Listed first, then the job is looked at once more, and only
    what was listed is ended: whatever starts in between is a new run's.

    Waits for: `job_not_active`, should the job have started again; a short time for a node that does not answer.
    Failed: processes that do not end, or are left of a job that is not opted in (its node then needs a person).
    Proof: every node that the job ever ran on says that none is left. Of runs before the last, one may be
    silent that Slurm hears, or that is proved off.
    """

    name = plans.END_ORPHANS

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """Each node is asked once a round, for all jobs."""
        answers = Answers(works, tools)
        try:
            jobs = read_jobs(works, tools)
            parts = read_parts(works, jobs, tools)
            places = find_places(works, parts, tools)
            for work in works:
                if any(job.on_nodes for job in parts.get(work.incident, ())):
                    answers.give(still_active(work, tools, parts[work.incident]))
                elif work.incident not in places:
                    answers.give(done(work, "the job never had nodes"))
            for _round in range(_ROUNDS):
                if answers.open:
                    _round_of(answers, jobs, places, tools)
        except RecoveryError as exc:
            answers.give_error(answers.open, exc)
        for work in answers.open:
            answers.give(retry(work, tools, "processes of job %s are still ending" % work.target.name))
        return answers.all()


def _round_of(answers: Answers, jobs: Mapping[int, Job], places: Mapping[int, Places], tools: Tools) -> None:
    """Look, look at the jobs again, and end what was listed."""
    works = answers.open
    told = ask_places("orphans", [places[work.incident] for work in works], tools, _LOOK_DEADLINE, _words)
    jobs_now = read_jobs(works, tools)
    living = may_live_on(_silent_earlier(works, places, told), tools)
    listed: dict[int, dict[str, list[str]]] = {}
    for work in works:
        told_of = answers_of(places[work.incident], told)
        before, now = jobs.get(work.incident), jobs_now.get(work.incident)
        found = _judge(work, before, now, places[work.incident], told_of, living, tools)
        if isinstance(found, Outcome):
            answers.give(found)
        else:
            listed[work.incident] = found
    allowed, seconds = answers.guarded()
    ended = tools.nodes.call(_requests(allowed, listed, places), min(_END_DEADLINE, seconds))
    for work in allowed:
        place = places[work.incident]
        data, errors = answers_of(place, {**told, **ended})
        if serious(place, errors):
            answers.give(trouble(work, tools, serious(place, errors)[0]))
        elif not any(_counts(place, data).values()):  # the helper has looked again after it ended them
            gone = {name: answer["ended"] for name, answer in data.items() if "ended" in answer}
            answers.give(_none_left(work, data, errors, gone))


def _words(place: Places) -> list[str]:
    return [word for number in place.numbers for word in job_words(number, place.uid)]


def _silent_earlier(
    works: Sequence[Work], places: Mapping[int, Places], told: Mapping[str, NodeAnswer]
) -> set[str]:
    """Nodes of runs before the last that gave no answer, of all these jobs."""
    found: set[str] = set()
    for work in works:
        place = places[work.incident]
        found.update(name for name in answers_of(place, told)[1] if name not in place.last)
    return found


def _judge(
    work: Work,
    before: Optional[Job],
    now: Optional[Job],
    place: Places,
    told_of: tuple[Mapping[str, Mapping[str, Any]], Mapping[str, RecoveryError]],
    living: Sequence[str],
    tools: Tools,
) -> Any:
    """An outcome, or what must be ended: by address the processes, as `pid.start`.

    Args:
        told_of: by node the answers, and the errors of those that gave none.
        living: silent nodes of which nobody knows that a job there has ended.
    """
    if now is not None and (now.on_nodes or before is None or now.restart_count != before.restart_count):
        return still_active(work, tools)
    data, errors = told_of
    trouble_of_last = serious(place, errors)
    if trouble_of_last:
        return trouble(work, tools, trouble_of_last[0])
    beside = [name for name in living if name in errors]
    if beside:
        why = "an earlier run of job %s may live on on %s, which is silent and not proved off"
        return retry(work, tools, why % (work.target.name, beside[0]))
    counts = _counts(place, data)
    if not any(counts.values()):
        return _none_left(work, data, errors, {})
    if now is None or not job_opted_in(now, tools):
        left = ", ".join("%d on %s" % (count, name) for name, count in sorted(counts.items()) if count)
        return failed(work, "processes of job %s are left (%s) and it is not opted in" % (work.target.name, left))
    return {
        place.addresses[name]: [
            "%d.%d" % (process["pid"], process["start"])
            for process in data[name].get("processes", ())
            if process.get("job") in place.numbers
        ][:_NAMED]
        for name, count in counts.items()
        if count
    }


def _requests(
    works: Sequence[Work], listed: Mapping[int, Mapping[str, Sequence[str]]], places: Mapping[int, Places]
) -> dict[str, list[str]]:
    """By address one request for all jobs there."""
    jobs: dict[str, dict[int, Places]] = {}
    processes: dict[str, list[str]] = {}
    for work in works:
        for address, names in listed[work.incident].items():
            jobs.setdefault(address, {})[places[work.incident].number] = places[work.incident]
            processes.setdefault(address, []).extend(names)
    return {
        address: [
            "end-orphans",
            *(word for number in sorted(jobs[address]) for word in _words(jobs[address][number])),
            *(word for name in names for word in ("--process", name)),
        ]
        for address, names in processes.items()
        if names
    }


def _counts(place: Places, data: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """By node name how many processes of the job are there."""
    return {
        name: sum(int((answer.get("jobs") or {}).get(str(number), 0)) for number in place.numbers)
        for name, answer in data.items()
    }


def _none_left(
    work: Work, data: Mapping[str, Any], errors: Mapping[str, RecoveryError], ended: Mapping[str, int]
) -> Outcome:
    note = "nodes of earlier runs did not answer: %s" % ", ".join(sorted(errors)) if errors else ""
    return done(work, note, proof={"nodes": sorted(data), "silent": sorted(errors), "ended": dict(ended), "left": 0})
