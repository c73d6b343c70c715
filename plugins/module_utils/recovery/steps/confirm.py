# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof that the fault is gone, looked at once more in the scheduler itself. It closes the incident."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs as kubernetes_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobState, job_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    done,
    each,
    failed,
    kubernetes_name,
    over,
    poll,
    retry,
    slurm_name,
    slurm_nodes,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_places import read_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.release_successor import (
    successor_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node

_BRIEF = 3.0  # a node is NOT_RESPONDING for about a second after a resume


class Confirm(Plain):
    """A node: in service in Slurm (after a restarted daemon: responding and not DOWN), and Ready and schedulable in
    Kubernetes. A Slurm job: PENDING, RUNNING or COMPLETED with the restart count of its requeue. A Kubernetes Job: the
    new one is there and has not failed.

    What a person or another tool wished meanwhile (a drain, a cordon, a cancelled job) ends the incident too.
    Waits for: `node_in_service`, `kubernetes_node_ready`, `job_pending`; failed at the step's deadline.
    """

    name = plans.CONFIRM

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all nodes and one for all jobs; Kubernetes for each."""
        answers = Answers(works, tools)
        for kind in (_confirm_nodes, _confirm_jobs):
            try:
                kind(answers, tools)
            except RecoveryError as exc:
                answers.give_error(answers.open, exc)
        return answers.all()


def _confirm_nodes(answers: Answers, tools: Tools) -> None:
    works = [work for work in answers.open if work.target.kind == NODE]
    proofs: dict[int, dict[str, object]] = {work.incident: {} for work in works}
    missing: dict[int, str] = {}
    poll(lambda: _nodes_in_service(works, tools, proofs, missing), _BRIEF)
    for work in works:
        if work.incident in missing:
            answers.give(_node_not_yet(work, tools, missing[work.incident]))
    for outcome in each([work for work in works if work in answers.open], tools, _in_kubernetes):
        proof = {**proofs[outcome.incident], **outcome.proof}
        answers.give(Outcome(outcome.incident, outcome.status, outcome.why, outcome.wait, outcome.remember, proof))


def _nodes_in_service(
    works: Sequence[Work], tools: Tools, proofs: dict[int, dict[str, object]], missing: dict[int, str]
) -> bool:
    """Look once; true when it is no use to look again at once: only a node that does not respond yet soon will."""
    missing.clear()
    soon = False
    nodes = slurm_nodes(works, tools)
    for work in works:
        if slurm_name(work, tools):
            node = nodes.get(work.incident)
            why = "Slurm knows no such node" if node is None else _not_in_service(work, node)
            if why:
                missing[work.incident] = why
                soon = soon or (node is not None and not node.responding and not over(work, tools))
            elif node is not None:
                proofs[work.incident] = {"state": node.state, "reason": reasons.clean_text(node.reason or "")}
    return not soon


def _not_in_service(work: Work, node: Node) -> str:
    """Why it is not, or the empty text."""
    if not node.understood or not node.responding:
        return "it is %s" % node.state
    if reasons.reason_owner(node.reason, work.reason) in (reasons.PERSON, reasons.TOOL):
        return ""  # whoever took it out of service gives it back
    # a restarted daemon is all that was asked of a node whose drain Slurm itself keeps
    out = node.down if work.plan == "restart_daemon" else node.out_of_service
    return "it is %s" % node.state if out else ""


def _node_not_yet(work: Work, tools: Tools, why: str) -> Outcome:
    why = "node %s is not back in service: %s" % (work.target.name, why)
    if over(work, tools):
        return failed(work, why)
    return waiting(work, why, waits.NODE_IN_SERVICE, {"node": slurm_name(work, tools)})


def _in_kubernetes(work: Work, tools: Tools) -> Outcome:
    name = kubernetes_name(work, tools)
    if not name:
        return done(work)
    node = kubernetes_nodes.read_node(tools.kubernetes, name)
    proof = {"ready": node.ready, "unschedulable": node.unschedulable, "kubernetes_boot_id": node.boot_id}
    if node.ready != "True":
        why = "node %s is not Ready in Kubernetes" % name
        return (
            failed(work, why) if over(work, tools) else waiting(work, why, waits.KUBERNETES_NODE_READY, {"node": name})
        )
    ours = kubernetes_nodes.standing(node) is kubernetes_nodes.Standing.OURS or kubernetes_nodes.fenced_by_us(node)
    if ours and work.plan != "restart_daemon":
        return retry(work, tools, "node %s is still cordoned or tainted by us" % name)
    return done(work, proof=proof)


def _confirm_jobs(answers: Answers, tools: Tools) -> None:
    works = [work for work in answers.open if work.target.kind != NODE]
    for outcome in each([work for work in works if work.plan == "rerun_kubernetes_job"], tools, _rerun_runs):
        answers.give(outcome)
    for outcome in each([work for work in works if work.plan == "release_successor"], tools, _successor_goes_on):
        answers.give(outcome)
    slurm = [work for work in works if work in answers.open]
    jobs = read_jobs(slurm, tools) if slurm else {}
    for work in slurm:
        answers.give(_requeued(work, tools, jobs))


def _requeued(work: Work, tools: Tools, jobs: Mapping[int, Job]) -> Outcome:
    job = jobs.get(work.incident)
    if job is None:
        return done(work, "Slurm has forgotten the job since it was requeued")
    count: Optional[int] = work.memory.get("restart_count")
    proof = {"state": job.state, "flags": list(job.flags), "restart_count": job.restart_count}
    if count is not None and (job.restart_count or 0) < count:
        return retry(work, tools, "job %s has restart count %s, not %s" % (work.target.name, job.restart_count, count))
    if job.completing and job.state in ("PENDING", "COMPLETING"):
        why = "job %s is still on its nodes" % work.target.name
        return (
            failed(work, why) if over(work, tools) else waiting(work, why, waits.JOB_PENDING, {"job": work.target.name})
        )
    ended = "" if job.state in ("PENDING", "RUNNING", "COMPLETED") else "it has ended again (%s)" % job.state
    return done(work, ended, proof=proof)


def _successor_goes_on(work: Work, tools: Tools) -> Outcome:
    name = successor_of(work)
    job = next(iter(tools.slurm.jobs([name], missing_ok=True)), None) if name else None
    if job is None:
        return done(work, "Slurm has forgotten the successor since it was released")
    proof = {"successor": name, "state": job.state, "flags": list(job.flags)}
    return done(work, "its user holds the successor again" if job.held else "", proof=proof)


def _rerun_runs(work: Work, tools: Tools) -> Outcome:
    new = str(work.memory.get("rerun_as") or "")
    if not new:
        return failed(work, "which Job runs in place of %s is not on record" % work.target.name)
    try:
        job = job_view(kubernetes_jobs.read_job(tools.kubernetes, new))
    except Absent:
        return done(work, "the Job %s is gone: it has ended, or somebody deleted it" % new)
    ended = "it has failed again" if job.state in (JobState.FAILED, JobState.FAILING) else ""
    return done(work, ended, proof={"job": new, "state": job.state.value})
