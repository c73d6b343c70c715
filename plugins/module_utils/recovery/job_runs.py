# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of one of Slurm's jobs, as incidents remember them, and what follows from several of them. Pure.

A number is not a job: Slurm gives numbers again when they are used up, or after a reinstallation. What tells two jobs
of one number apart is their user and the restart count, which only grows as long as it is the same job.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JOB_ENDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job

Memory = Mapping[str, Any]

# Ends that Slurm lays on the node, whatever the application did.
_OF_THE_NODE = ("NODE_FAIL", "BOOT_FAIL")
_MAX_WORDS = 300  # characters of one sentence to the user


def remembered(job: Job) -> dict[str, Any]:
    """What an incident must know later of the run that was looked at.

    `job_seen`: what it takes to know the job again. `completed_run`: the restart count of a run that ended COMPLETED.
    `failed_run`: how and where it ended otherwise, with its nodes as a host list.
    """
    memory: dict[str, Any] = {"job_seen": {"restart_count": job.restart_count or 0, "uid": job.uid}}
    if job.state == "COMPLETED":
        memory["completed_run"] = job.restart_count or 0
    if job.state in JOB_ENDS:
        memory["failed_run"] = {
            "state": job.state,
            "exit_code": job.exit_code,
            "nodes": hostlist.compress(job.nodes) if job.nodes else "",
            "user": job.user or str(job.uid),
            "at": job.end_time or 0,
            "started": job.start_time or 0,
        }
    return memory


def of_this_job(memories: Sequence[Memory], job: Optional[Job]) -> list[Memory]:
    """Those of the incidents with a job's number, the newest first, that were this job's.

    An incident that saw another user, or a higher restart count than there is later, was another job's, and so are all
    before it. Without the job, or of an incident that does not remember, nobody can tell: it counts.
    """
    if job is None:
        return list(memories)
    found = []
    count = job.restart_count or 0
    for memory in memories:
        seen = memory.get("job_seen") or {}
        before = seen.get("restart_count")
        after = memory.get("restart_count", before)
        if job.uid is not None and seen.get("uid") not in (None, job.uid):
            break
        if after is not None and after > count:
            break
        found.append(memory)
        count = count if before is None else before
    return found


def followed_by(memories: Sequence[Memory], job: Optional[Job]) -> str:
    """The successor that was released for the run that the job shows now; the empty text where none was."""
    for memory in of_this_job(memories, job):
        if job is None or memory.get("job_seen", {}).get("restart_count") == (job.restart_count or 0):
            return str(memory.get("successor", ""))
    return ""


def is_another(memory: Memory, uid: Optional[int], restart_count: int) -> bool:
    """Whether the job that has the number now cannot be the one that the incident is about."""
    seen = memory.get("job_seen") or {}
    if uid is not None and seen.get("uid") not in (None, uid):
        return True
    return restart_count < seen.get("restart_count", 0)


def the_applications(former: Sequence[Memory], job: Job) -> str:
    """Why the job's failure is its application's, and no node's: it failed the same way on other nodes before.

    Args:
        former: what earlier incidents of this job remember.

    Returns:
        One sentence, the empty text where nothing speaks for it.
    """
    if job.state not in JOB_ENDS or job.state in _OF_THE_NODE or not job.nodes:
        return ""
    for memory in former:
        run = memory.get("failed_run") or {}
        alike = (run.get("state"), run.get("exit_code")) == (job.state, job.exit_code)
        nodes = set(hostlist.expand(str(run.get("nodes") or "")))
        if alike and nodes and nodes.isdisjoint(job.nodes):
            here, there = hostlist.compress(job.nodes), str(run["nodes"])
            return "it failed the same way (%s) on %s and on %s: its application" % (_end(run), there, here)
    return ""


def suspects(memory: Memory, most: int) -> tuple[str, ...]:
    """The nodes that the next run is kept off: those on which it failed, if they are not more than `most`."""
    run = memory.get("failed_run") or {}
    nodes = hostlist.expand(str(run.get("nodes") or ""))
    return tuple(nodes) if len(nodes) <= most else ()


def sentence(fault_kind: str, memory: Memory) -> str:
    """What was done, for the job's user: only words of ours and of Slurm's, and names of nodes."""
    if memory.get("tell"):
        return _short(str(memory["tell"]) + _log_says(memory))
    words = {
        "requeued": "requeued",
        "released": "released",
        "successor": "released to follow the job before it",
    }.get(str(memory.get("did")), "let begin")
    attempt = memory.get("attempt")
    if attempt:
        words += " (%d of %d)" % (attempt[0], attempt[1])
    run = memory.get("failed_run") or {}
    if fault_kind == "stale_spool":
        words += ", left-over files of its steps were removed"
    elif fault_kind == "job_launch_held":
        words += " after its launch had failed"
    elif run:
        words += " after %s" % _end(run) + (" on %s" % run["nodes"] if run.get("nodes") else "")
    if memory.get("excluded"):
        words += "; kept off %s" % memory["excluded"]
    return _short(words + _log_says(memory))


def _log_says(memory: Memory) -> str:
    """What its log tells of why the job failed: our word for the fault, never the user's text."""
    told = memory.get("diagnosis") or {}
    if not told or told.get("why") == "nothing_found":
        return ""
    rank = "" if told.get("rank") is None else " of rank %d" % told["rank"]
    whose = "" if told.get("verdict") == "unknown" else ", %s" % told["verdict"]
    return "; its log tells of %s%s%s" % (str(told["why"]).replace("_", " "), rank, whose)


def _end(run: Memory) -> str:
    return " ".join(str(part) for part in (run.get("state"), run.get("exit_code")) if part)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_WORDS else text[: _MAX_WORDS - 3] + "..."
