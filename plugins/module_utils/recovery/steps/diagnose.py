# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why the job failed, as far as its log tells: read before a requeue overwrites it."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import evidence, job_log, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.diagnose_pods import (
    diagnose_pods,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_diagnosis import (
    concluded,
    kib_read,
    not_read,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import (
    addresses_of,
    read_jobs,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

_DEADLINE = 9.0  # the helper gives up each of two files after four seconds
_NODES = 2  # that are asked: the one of the job's script, and another where that is silent


class Diagnose(Plain):
    """Never waits and never fails, and nothing follows from what it finds: the job's log is its user's text. It is
    told to the user and to people.

    Proof: the verdict, and the fault that decided.
    Remembers: `diagnosis`; `evidence`, the folder with the lines that say so.
    """

    name = plans.DIAGNOSE

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """Slurm's jobs together, and Kubernetes' Jobs together."""
        in_kubernetes = [work for work in works if "/" in work.target.name]
        in_slurm = [work for work in works if work not in in_kubernetes]
        made: dict[int, Outcome] = {}
        for theirs, there, diagnose in (
            (in_kubernetes, tools.kubernetes, diagnose_pods),
            (in_slurm, tools.slurm, _diagnose_slurm),
        ):
            if theirs:
                told = diagnose(theirs, tools) if kib_read(tools) and there is not None else _none_read(theirs)
                made.update({outcome.incident: outcome for outcome in told})
        return [made[work.incident] for work in works]


def _none_read(works: Sequence[Work]) -> list[Outcome]:
    return [done(work, "the site reads no logs of jobs") for work in works]


def _diagnose_slurm(works: Sequence[Work], tools: Tools) -> list[Outcome]:
    """One look for all jobs, one call for all nodes."""
    answers = Answers(works, tools)
    allowed, seconds = answers.guarded()
    kib = kib_read(tools)
    try:
        jobs = read_jobs(allowed, tools)
        asked = _asked(answers, jobs, tools)
        told = tools.nodes.call(_requests(asked, jobs, kib), min(_DEADLINE, seconds)) if asked else {}
    except RecoveryError as exc:
        for work in answers.open:
            answers.give(not_read(work, exc))
        return answers.all()
    for work in answers.open:
        answers.give(_told(work, jobs[work.incident], [told[address] for address in asked[work.incident]], tools))
    return answers.all()


def _asked(answers: Answers, jobs: Mapping[int, Job], tools: Tools) -> dict[int, list[str]]:
    """By incident the addresses of the nodes that are asked for its job's log, each for one job only."""
    nodes: dict[int, list[str]] = {}
    for work in answers.open:
        why = _unreadable(work, jobs.get(work.incident))
        if why:
            answers.give(not_read(work, why))
        else:
            nodes[work.incident] = _nodes(work, jobs[work.incident])
    addresses = addresses_of({name for names in nodes.values() for name in names}, tools)
    asked: dict[int, list[str]] = {incident: [] for incident in nodes}
    taken: set[str] = set()
    for _turn in range(_NODES):
        for incident, names in nodes.items():
            free = [addresses[name] for name in names if addresses.get(name) and addresses[name] not in taken]
            asked[incident].extend(free[:1])
            taken.update(free[:1])
    for work in answers.open:
        if not asked[work.incident]:
            answers.give(not_read(work, "none of its nodes can be asked now"))
    return {incident: found for incident, found in asked.items() if found}


def _unreadable(work: Work, job: Optional[Job]) -> str:
    """Why there is no log to read; the empty text where there is one."""
    seen = work.memory.get("job_seen") or {}
    if job is None:
        return "Slurm has forgotten the job"
    if job.on_nodes or seen.get("restart_count", job.restart_count or 0) != (job.restart_count or 0):
        return "the job runs again"
    if job.uid is None:
        return "its user is not known"
    if not job.log_paths:
        return "Slurm names no file"
    return "" if _nodes(work, job) else "its nodes are not known"


def _nodes(work: Work, job: Job) -> list[str]:
    """The nodes of its last run, that of its script first."""
    run = work.memory.get("failed_run") or {}
    names = [job.batch_host or "", *(job.nodes or hostlist.expand(str(run.get("nodes") or "")))]
    return [name for name in dict.fromkeys(names) if name]


def _requests(asked: Mapping[int, Sequence[str]], jobs: Mapping[int, Job], kib: int) -> dict[str, list[str]]:
    return {
        address: job_log.words(jobs[incident], kib) for incident, addresses in asked.items() for address in addresses
    }


def _told(work: Work, job: Job, answers: Sequence[NodeAnswer], tools: Tools) -> Outcome:
    why = "its nodes do not tell"
    for answer in answers:
        try:
            if answer.error is not None:
                raise answer.error
            texts = _texts(answer.data)
        except RecoveryError as exc:
            why = str(exc)
            continue
        if texts:
            return concluded(work, "job-%d" % job.id, texts, tools)
        missing = answer.data.get("missing")
        why = "; ".join(map(str, missing.values())) if isinstance(missing, Mapping) else why
    return not_read(work, why)


def _texts(data: Mapping[str, Any]) -> list[str]:
    """The files' texts, of a helper's answer.

    Raises:
        Unreadable: it is not understood.
    """
    files, sizes = evidence.unpack(data), data.get("sizes")
    if not isinstance(sizes, Mapping) or not all(isinstance(sizes.get(name), int) for name in files):
        raise Unreadable("the helper's answer is not understood")
    return [reading.text_of(content, sizes[name]) for name, content in files.items()]
