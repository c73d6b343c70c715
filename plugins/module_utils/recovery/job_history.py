# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger knows of a job's earlier runs, and of the runs on a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import origin_of
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    gates,
    job_runs,
    looks,
    observe,
    opt_in,
    plans,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import target_key
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import JobLook, Look
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Limits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import End


@dataclass(frozen=True)
class OfJob:
    """See the fields of the same names in `gates.History`."""

    attempts: int = 0
    former: tuple[Mapping[str, Any], ...] = ()
    followed: str = ""


def of_job(store: Store, key: str, look: Look, limits: Limits) -> OfJob:
    """What is known of the job with this key, which looks so now."""
    if not isinstance(look, JobLook):
        return OfJob()
    if look.kubernetes is not None:
        return OfJob(_of_kubernetes(store, key, look, limits))
    former = job_runs.of_this_job(store.incidents.restarted(key, plans.REQUEUE), look.job)
    # a failure that is still to be seen was answered once: the next job that waits is for the next failure
    followed = job_runs.followed_by(store.incidents.restarted(key, plans.RELEASE_SUCCESSOR), look.job)
    return OfJob(len(former) + _before(store, look, look.job), tuple(former), followed)


def _of_kubernetes(store: Store, key: str, look: JobLook, limits: Limits) -> int:
    """A Kubernetes Job has another name each time: its annotation counts, too."""
    counted = store.incidents.attempts(key, plans.RERUN)
    try:
        return max(counted, origin_of(look.kubernetes).attempt)
    except Unreadable:  # whoever wrote it there: nobody can tell any more
        return limits.max_attempts


def _before(store: Store, look: JobLook, job: Optional[Job]) -> int:
    """Restarts of the jobs that this one followed as their successor: a chain has its attempts together."""
    if job is None or gates.consent_of(look).mode != opt_in.SINGLETON:
        return 0
    before = store.incidents.released(job.id) or {}
    same_user = (before.get("job_seen") or {}).get("uid") == job.uid
    return int(before["attempt"][0]) if same_user and before.get("attempt") else 0


def of_nodes(
    store: Store, machines: Mapping[str, Machine], names: Sequence[str], since: float
) -> dict[str, observe.Past]:
    """By Slurm's name what is known of a node's jobs: runs that failed there since a time and were requeued, and when
    the node was last given back; what failed before that does not count any more."""
    runs = store.incidents.failed_runs(since)
    return {name: past_of(name, runs, _last_return(store, machines.get(name))) for name in names}


def _last_return(store: Store, machine: Optional[Machine]) -> float:
    key = target_key(Target(NODE, machine.name), looks.SLURM, machine.name) if machine is not None else ""
    return store.incidents.last_closed(key, 0) or 0.0


def past_of(name: str, runs: Sequence[Mapping[str, Any]], since: float) -> observe.Past:
    """What the ledger's failed runs say of one node. Pure."""
    ends = [
        End(str(run["job"]), str(run["user"]), str(run["state"]), int(run["at"]), int(run["started"]))
        for run in runs
        if name in hostlist.expand(str(run["nodes"]))
    ]
    return observe.Past(tuple(ends), since)
