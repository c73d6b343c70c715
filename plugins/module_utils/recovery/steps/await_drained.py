# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs and pods of a node that is alive end, or are evicted, before it is rebooted."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import drain
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    observe,
    opt_in,
    plans,
    present,
    waits,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import KUBERNETES
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import NodeLook
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NOW
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Plain,
    done,
    each,
    failed,
    job_opted_in,
    kubernetes_name,
    over,
    slurm_name,
    slurm_nodes,
    trouble,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node

_LOOK_AGAIN = 10.0
_JOBS_AGAIN = 600.0  # which jobs run there may have changed, and how long they are waited for
_NAMED = 5
_SINCE = "evicting_since"


class AwaitDrained(Plain):
    """Jobs are never ended, they are waited for; then pods are evicted by the eviction API, so disruption budgets hold.

    One after the other: where jobs of Slurm and pods need each other (slurmd itself may run in a pod), a job that still
    runs loses nothing by an eviction. A pod that may not be evicted at all is told at once, not after the jobs' end.
    Waits for: `node_drained`, then `pods_gone` (evictions are asked for again now and then).
    Jobs that are COMPLETING past their time are not waited for where a reboot follows, as nothing else ends them.
    When the jobs' time is over: jobs that still run make the step fail, unless the site has set reboot_under_jobs; what
    only is left of ended jobs (COMPLETING) does not, as a reboot is what ends that. When the pods' time is over
    (eviction_timeout): pods that a disruption budget or their kind protects make the step fail, by name; pods that are
    only still ending do not.
    Where pods may not go and the fault is gone meanwhile, the proof says so, and the node is given back.
    A node that is not cordoned for this incident any more makes the step fail, and nothing is evicted.
    Remembers: since when pods are evicted.
    Proof: Slurm says drained, no pod of the node is left.
    """

    name = plans.AWAIT_DRAINED

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One look at Slurm for all, and a pass of evictions on each node."""
        try:
            nodes = slurm_nodes(works, tools)
        except RecoveryError as exc:
            return [trouble(work, tools, exc) for work in works]
        return each(works, tools, lambda work, guarded: _drained(work, guarded, nodes.get(work.incident)))


def _drained(work: Work, tools: Tools, node: Optional[Node]) -> Outcome:
    name = slurm_name(work, tools)
    if name and node is None:
        return failed(work, "Slurm knows no node %s" % name)
    if node is not None and not node.draining_or_drained:
        return failed(work, "somebody took the drain of %s away" % name)
    may_cut = node is not None and node.busy and _may_be_cut(work, tools, node)
    if (
        node is not None
        and node.busy
        and not may_cut
        and not over(work, tools)
        and not _only_a_reboot_ends_it(work, tools, node)
    ):
        never = _never_evicted(work, tools)
        if never:
            return _held_up(work, tools, never)
        until = tools.now() + (_JOBS_AGAIN if node.runs_jobs else _LOOK_AGAIN)
        why = "jobs of %s are still running, and are waited for (%s)" % (name, tools.settings.limits.drain_policy)
        return waiting(work, why, waits.NODE_DRAINED, {"node": name}, until)
    if node is not None and node.runs_jobs and not may_cut and not tools.settings.limits.reboot_under_jobs:
        return failed(work, "jobs still run on %s, and the node is not rebooted under them; it stays drained" % name)
    return _evicted(work, tools, node)


def _evicted(work: Work, tools: Tools, node: Optional[Node]) -> Outcome:
    remembered = work.memory.get(_SINCE)
    since = remembered if isinstance(remembered, (int, float)) else tools.now()
    jobs, work = work, replace(work, deadline=since + tools.settings.kubernetes.eviction_timeout)
    pods = _evict(work, tools)
    protected = [pod for pod in pods if pod.forbidden or pod.budget or pod.slurm_node]
    if protected and (over(work, tools) or any(pod.forbidden for pod in protected)):
        return _held_up(work, tools, protected)
    if pods and not over(work, tools):
        args = {"pods": [pod.pod for pod in pods]}
        why = "pods are still on %s: %s" % (work.target.name, _named(pods))
        return waiting(work, why, waits.PODS_GONE, args, tools.now() + _LOOK_AGAIN, {_SINCE: since})
    busy = node is not None and node.busy
    late = "its time is over, " if over(jobs, tools) or over(work, tools) else ""
    why = late + "the repair goes on with jobs or pods left" if busy or pods else ""
    proof = {"state": node.state if node is not None else "", "pods_left": [pod.pod for pod in pods][:_NAMED]}
    return done(work, why, proof=proof)


def _held_up(work: Work, tools: Tools, pods: Sequence[drain.Left]) -> Outcome:
    """Its pods may not go. Where the fault is gone meanwhile, the node is given back and not left to a person."""
    node = kubernetes_nodes.read_node(tools.kubernetes, kubernetes_name(work, tools))
    signs = tools.settings.kubernetes.node_signs
    state = present.state_of(work.fault_kind, KUBERNETES, NodeLook(kubernetes=node), signs)
    gone = {plans.FAULT_GONE: True} if state.known and not state.there else {}
    return failed(work, "pods of %s cannot be evicted: %s" % (work.target.name, _named(pods)), gone)


def _may_be_cut(work: Work, tools: Tools, node: Node) -> bool:
    """Whether the site does not wait for the jobs that are on the node: all of them may be restarted, or it does not
    spare others' either. Not where no reboot follows, which would end them.

    Raises:
        RecoveryError: nobody can tell which jobs these are.
    """
    limits = tools.settings.limits
    if limits.drain_policy != NOW or work.plan != "reboot_over_ssh":
        return False
    jobs = tools.slurm.jobs_on([node.name])
    return bool(jobs) and (limits.reboot_under_jobs or all(_restarts(job, tools) for job in jobs))


def _restarts(job: Job, tools: Tools) -> bool:
    """Whether it may be restarted, and once more. Slurm's own count is at least as high as ours."""
    if not job_opted_in(job, tools) or job.requeue is False or job.batch is False:
        return False
    said, limits = opt_in.parse(job.comment).attempts, tools.settings.limits
    allowed = min(limits.default_attempts if said is None else said, limits.max_attempts)
    return job.restart_count is not None and job.restart_count < allowed


def _only_a_reboot_ends_it(work: Work, tools: Tools, node: Node) -> bool:
    """Nothing runs there any more, and what is left of ended jobs does not end."""
    return work.plan == "reboot_over_ssh" and not node.runs_jobs and observe.only_stuck_jobs(tools, node.name)


def _cordoned(work: Work, tools: Tools) -> str:
    """The node's name in Kubernetes where the plan takes it out of service there; pods of others are left alone."""
    return kubernetes_name(work, tools) if plans.CORDON in plans.PLANS[work.plan] else ""


def _policy(tools: Tools) -> drain.Policy:
    chosen = tools.settings.kubernetes
    return drain.Policy(chosen.unmanaged_pods == "evict", chosen.local_data == "evict")


def _never_evicted(work: Work, tools: Tools) -> Sequence[drain.Left]:
    """The pods that the policy does not let go; nothing is evicted."""
    name = _cordoned(work, tools)
    return drain.forbidden(tools.kubernetes, name, str(work.incident), _policy(tools)) if name else ()


def _evict(work: Work, tools: Tools) -> Sequence[drain.Left]:
    """One pass of evictions; what is left on the node afterwards."""
    name = _cordoned(work, tools)
    if not name:
        return ()
    passed = drain.drain_pass(
        tools.kubernetes,
        name,
        str(work.incident),
        _policy(tools),
        lambda: tools.guard(work),
        lambda names: _slurm_drained(tools, names),
    )
    return passed.left


def _slurm_drained(tools: Tools, names: Sequence[str]) -> frozenset[str]:
    """Slurm nodes that run in pods have names of their own: an eviction is no drain of theirs."""
    if tools.slurm is None:
        return frozenset()
    return frozenset(node.name for node in tools.slurm.nodes(names, missing_ok=True) if node.is_drained)


def _named(pods: Sequence[drain.Left]) -> str:
    named = ["%s (%s)" % (pod.pod, pod.budget or pod.why) for pod in pods[:_NAMED]]
    more = len(pods) - len(named)
    return printable("; ".join(named) + (" and %d more" % more if more > 0 else ""))
