# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an incident may wait for, and whether it has come. Pure: a wait, one cheap look for all waits, and the time.

`kind` (args): due when

- `time`: the time is over
- `node_state_changed` (node, state): Slurm's full state is another one
- `node_registered` (node, and any of boot_time, slurmd_start_time, since): slurmd registered with later times
- `node_drained` (node): DRAIN, and nothing runs there
- `node_in_service` (node): responding, neither DOWN nor draining
- `job_pending` (job): PENDING without COMPLETING
- `job_running` (job): RUNNING without COMPLETING
- `job_not_active` (job, or jobs): none of them runs or completes
- `kubernetes_node_ready` (node, optionally boot_id, the old one): Ready, with another boot ID
- `kubernetes_job_state` (job as namespace/name, states): its state is one of them
- `pods_gone` (pods as namespace/name): none of them is there

Every wait is also due when its time is over, and what was not looked at is never due by the look.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobView, NodeView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Wait
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JobState, Node

TIME = "time"
NODE_STATE_CHANGED = "node_state_changed"
NODE_REGISTERED = "node_registered"
NODE_DRAINED = "node_drained"
NODE_IN_SERVICE = "node_in_service"
JOB_PENDING = "job_pending"
JOB_RUNNING = "job_running"
JOB_NOT_ACTIVE = "job_not_active"
KUBERNETES_NODE_READY = "kubernetes_node_ready"
KUBERNETES_JOB_STATE = "kubernetes_job_state"
PODS_GONE = "pods_gone"


@dataclass(frozen=True)
class CheapLook:
    """One look a second for all waits. A mapping that is None was not read; a name that is missing is not there.

    Attributes:
        nodes: Slurm's nodes by name, states only.
        registered: the full nodes by name, for those that `node_registered` waits for and that respond.
        jobs: Slurm's jobs by id; a job that Slurm has forgotten is missing.
        kubernetes_nodes, kubernetes_jobs, pods: by name, and by `namespace/name`; None as a value: not there.
    """

    nodes: Optional[Mapping[str, Node]] = None
    registered: Optional[Mapping[str, Node]] = None
    jobs: Optional[Mapping[str, JobState]] = None
    kubernetes_nodes: Optional[Mapping[str, Optional[NodeView]]] = None
    kubernetes_jobs: Optional[Mapping[str, Optional[JobView]]] = None
    pods: Optional[Mapping[str, bool]] = None


@dataclass(frozen=True)
class Wanted:
    """What must be looked at for some waits; the cheap look is made for exactly this."""

    nodes: frozenset[str] = field(default_factory=frozenset)
    registered: frozenset[str] = field(default_factory=frozenset)
    jobs: frozenset[str] = field(default_factory=frozenset)
    kubernetes_nodes: frozenset[str] = field(default_factory=frozenset)
    kubernetes_jobs: frozenset[str] = field(default_factory=frozenset)
    pods: frozenset[str] = field(default_factory=frozenset)


def due(wait: Wait, look: CheapLook, now: float) -> bool:
    """Whether what is waited for has come, or the time is over. An unknown kind is due by its time alone."""
    if now >= wait.until:
        return True
    rule = KINDS.get(wait.kind)
    return rule is not None and rule(wait.args, look)


def wanted(waits: Iterable[Wait]) -> Wanted:
    """What to look at for these waits."""
    found: dict[str, set[str]] = {part: set() for part in Wanted.__dataclass_fields__}
    for wait in waits:
        for part, key in _NEEDS.get(wait.kind, ()):
            value = wait.args.get(key)
            found[part].update(map(str, value) if isinstance(value, (list, tuple)) else [str(value)] if value else [])
    return Wanted(**{part: frozenset(names) for part, names in found.items()})


def _never(_args: Mapping[str, Any], _look: CheapLook) -> bool:
    return False


def _node(rule: Callable[[Mapping[str, Any], Node], bool]) -> Callable[[Mapping[str, Any], CheapLook], bool]:
    def judged(args: Mapping[str, Any], look: CheapLook) -> bool:
        node = (look.nodes or {}).get(args.get("node", ""))
        return node is not None and rule(args, node)

    return judged


def _state_changed(args: Mapping[str, Any], node: Node) -> bool:
    return node.state != args.get("state")


def _drained(_args: Mapping[str, Any], node: Node) -> bool:
    return node.is_drained


def _in_service(_args: Mapping[str, Any], node: Node) -> bool:
    return node.understood and node.responding and not node.out_of_service


def _registered(args: Mapping[str, Any], look: CheapLook) -> bool:
    node = (look.registered or {}).get(args.get("node", ""))
    if node is None or not node.registered:
        return False
    return (
        _later(node.boot_time, args.get("boot_time"))
        and _later(node.slurmd_start_time, args.get("slurmd_start_time"))
        and _later(node.slurmd_start_time, args.get("since"))
    )


def _later(told: Optional[float], recorded: Any) -> bool:
    """After the recorded time; true where none is recorded."""
    if recorded is None:
        return True
    return told is not None and told > recorded


def _job(rule: Callable[[JobState], bool]) -> Callable[[Mapping[str, Any], CheapLook], bool]:
    def judged(args: Mapping[str, Any], look: CheapLook) -> bool:
        job = (look.jobs or {}).get(str(args.get("job", "")))
        return job is not None and rule(job)

    return judged


def _pending(job: JobState) -> bool:
    return job.state == "PENDING" and "COMPLETING" not in job.flags


def _running(job: JobState) -> bool:
    return job.state == "RUNNING" and "COMPLETING" not in job.flags


def _active(job: JobState) -> bool:
    return job.state in ("RUNNING", "SUSPENDED") or "COMPLETING" in job.flags


def _not_active(args: Mapping[str, Any], look: CheapLook) -> bool:
    if look.jobs is None:
        return False
    names = [str(job) for job in args.get("jobs") or [args.get("job", "")]]
    return not any(name in look.jobs and _active(look.jobs[name]) for name in names)


def _kubernetes_ready(args: Mapping[str, Any], look: CheapLook) -> bool:
    node = (look.kubernetes_nodes or {}).get(args.get("node", ""))
    return node is not None and node.ready == "True" and bool(node.boot_id) and node.boot_id != args.get("boot_id")


def _kubernetes_job(args: Mapping[str, Any], look: CheapLook) -> bool:
    job = (look.kubernetes_jobs or {}).get(args.get("job", ""))
    return job is not None and job.state.value in args.get("states", ())


def _pods_gone(args: Mapping[str, Any], look: CheapLook) -> bool:
    if look.pods is None:
        return False
    return all(look.pods.get(name) is False for name in args.get("pods", ()))


KINDS: dict[str, Callable[[Mapping[str, Any], CheapLook], bool]] = {
    TIME: _never,
    NODE_STATE_CHANGED: _node(_state_changed),
    NODE_REGISTERED: _registered,
    NODE_DRAINED: _node(_drained),
    NODE_IN_SERVICE: _node(_in_service),
    JOB_PENDING: _job(_pending),
    JOB_RUNNING: _job(_running),
    JOB_NOT_ACTIVE: _not_active,
    KUBERNETES_NODE_READY: _kubernetes_ready,
    KUBERNETES_JOB_STATE: _kubernetes_job,
    PODS_GONE: _pods_gone,
}

_NEEDS: dict[str, tuple[tuple[str, str], ...]] = {
    NODE_STATE_CHANGED: (("nodes", "node"),),
    NODE_REGISTERED: (("nodes", "node"), ("registered", "node")),
    NODE_DRAINED: (("nodes", "node"),),
    NODE_IN_SERVICE: (("nodes", "node"),),
    JOB_PENDING: (("jobs", "job"),),
    JOB_RUNNING: (("jobs", "job"),),
    JOB_NOT_ACTIVE: (("jobs", "job"), ("jobs", "jobs")),
    KUBERNETES_NODE_READY: (("kubernetes_nodes", "node"),),
    KUBERNETES_JOB_STATE: (("kubernetes_jobs", "job"),),
    PODS_GONE: (("pods", "pods"),),
}
