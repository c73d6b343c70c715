# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching Slurm: cheap looks, and the events of what they show. The I/O around `detect`.

Nodes are looked at by one `sinfo` each time. Jobs are looked at by one `squeue` of all that slurmctld knows, those that
ended among them until it forgets them (MinJobAge: where that is short, the jobs are looked at more often); only what
changed since the look before is judged, and details are read only of those few whose state suggests a fault. A job that
was forgotten between two looks, or while nobody watched, is found in the accounting. On a large or slow cluster looks
are further apart. What the looks at jobs show of nodes (one that keeps a job COMPLETING, one that fails the jobs of
several users) is a fault of the node.
"""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings as settings_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    SLURM,
    Target,
    build_event,
    valid_job_name,
    valid_node_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect, queue, suspects
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JobState, NodeGroup
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.opted_in import OptedIn

SOURCE = "slurm"
#: How far back the accounting is read at the start, and how often afterwards.
_START_WINDOW = 900
_ACCOUNTING_EVERY = 30.0
_ACCOUNTING_SLACK = 60
_TARGETS_AT_ONCE = 500
_CONFIG_EVERY = 600.0
_SEEN_FOR = 15.0  # seconds that a look at the nodes holds
_ASKED_AGAIN_EVERY = 60.0
# How much of the time looks may take, and how many seconds they may be apart for it: with more, faults would be told
# late. Where that is not enough, looking takes a third of the time at most.
_NODES_SHARE, _NODES_APART = 0.04, 2.0
_JOBS_SHARE, _JOBS_APART = 0.07, 12.0
_ENDED = settings_module.JOB_ENDS


class SlurmWatch:
    """What the source remembers between two looks; nothing of it is needed after a restart.

    Args:
        slurm: an `AsyncSlurmCli`.
        clock: seconds since the epoch.

    Attributes:
        groups: the nodes as the last look that succeeded shows them.
        opted_in: which nodes run jobs that opted in.
    """

    def __init__(
        self, slurm: Any, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._slurm = slurm
        self._clock = clock
        self._steady = steady
        self._resend_nodes, self._resend_jobs = Resend(), Resend()
        self._jobs_at = -math.inf  # by the steady clock
        self._jobs_wait = False  # for the events of nodes, once
        self._jobs_trouble: Optional[RecoveryError] = None
        self._nodes_took = self._jobs_took = 0.0
        self._accounting_at = -math.inf  # by the steady clock
        self._accounting_since = 0.0
        self._accounting_trouble: Optional[RecoveryError] = None
        self._config: Mapping[str, str] = {}
        self._config_at = -math.inf  # by the steady clock
        self.groups: list[NodeGroup] = []
        self.opted_in = OptedIn(slurm)
        self._nodes_at = -math.inf  # by the steady clock
        self._all = queue.Jobs()
        self._asked_at = -math.inf  # by the steady clock
        self._jobs: dict[detect.Seen, str] = {}  # job faults that last, with their suggestion
        self._restarted: set[str] = set()  # jobs in the queue that were requeued and may find left-over files
        self._ends = suspects.Ends()
        self._by_jobs: list[detect.Seen] = []  # faults of nodes that the last look at the jobs showed

    async def look(self, settings: settings_module.Settings) -> list[dict[str, Any]]:
        """Look at what is due and return the events to send.

        Raises:
            RecoveryError: Slurm did not answer, or not understandably. Nothing is known then.
        """
        if not settings.slurm.enabled:
            return []
        now, steady = self._clock(), self._steady()
        nodes = {(fault.kind, "", fault): None for fault in await self._nodes()}
        self._nodes_took = self._steady() - steady
        events = events_of(self._resend_nodes.due(nodes, steady), settings.cluster, now)
        interval = detect.job_interval(self._config, settings.slurm.job_interval)
        due = steady - self._jobs_at >= max(interval, _apart(self._jobs_took, _JOBS_SHARE, _JOBS_APART))
        if events and due and not self._jobs_wait:
            # they wait for no look at ten thousand jobs, which comes with the next one, whatever that shows of nodes
            self._jobs_wait = True
            return self._with_trouble(events)
        if due:
            self._jobs_wait = False
            self._jobs_at, self._jobs_trouble = steady, None
            began = self._steady()
            try:
                await self._read_config()
                await self._look_at_jobs(settings, now)
                if settings.slurm.probe_interval or settings.slurm.hang_after:
                    await self.opted_in.look(self._all.queued.values(), settings.jobs == "all")
            except RecoveryError as exc:  # slurmdbd is down, or there is none: nodes are told all the same
                self._jobs_trouble = exc
            self._jobs_took = self._steady() - began
        jobs = {(fault.kind, suggestion, fault): None for fault, suggestion in self._jobs.items()}
        jobs.update({(fault.kind, "", fault): None for fault in self._by_jobs})
        return self._with_trouble(events + events_of(self._resend_jobs.due(jobs, steady), settings.cluster, now))

    def _with_trouble(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self._jobs_trouble is not None:
            raise Partial(self._jobs_trouble, events)
        return events

    def sees(self) -> bool:
        """Whether `groups` is what Slurm shows now."""
        return self._steady() - self._nodes_at <= _SEEN_FOR

    def interval(self, setting: float) -> float:
        """Seconds until the next look at the nodes: the setting, or more where a look takes long."""
        return max(setting, _apart(self._nodes_took, _NODES_SHARE, _NODES_APART))

    async def _nodes(self) -> list[detect.Seen]:
        self.groups = await self._slurm.node_groups()
        self._nodes_at = self._steady()
        return [fault for fault in detect.node_faults(self.groups) if valid_node_name(fault.name)]

    async def _read_config(self) -> None:
        """slurm.conf's time-outs, now and then; when they cannot be read, what was known stays."""
        if self._steady() - self._config_at >= _CONFIG_EVERY:
            try:
                self._config, self._config_at = await self._slurm.config(), self._steady()
            except RecoveryError as exc:
                self._jobs_trouble = exc

    async def _look_at_jobs(self, settings: settings_module.Settings, now: float) -> None:
        looked = await self._slurm.all_jobs(self._all)
        ran = await self._slurm.restarted() if not self._all.lines else frozenset()
        # what was asked before may have opted in since, or the settings may have changed
        again = self._steady() - self._asked_at >= _ASKED_AGAIN_EVERY
        known = {**looked.ended, **looked.queued}
        ids = {fault.name for fault in self._jobs}
        try:
            ids.update(await self._ended_by_accounting(now))
        except RecoveryError as exc:  # slurmdbd is down, or there is none: the queue is looked at all the same
            self._jobs_trouble = exc
        fetched = await self._states_of(sorted(name for name in ids if name not in known))
        changed = {**{name: known[name] for name in (known if again else looked.changed)}, **fetched}
        candidates: dict[detect.Seen, str] = {}
        for name, state in changed.items():
            may_have_run = state.id in ran or (bool(self._all.lines) and detect.may_have_run(state))
            before = self._all.queued.get(name)
            candidate = detect.job_candidate(state, before, name in self._restarted, may_have_run)
            if candidate and valid_job_name(name, SLURM):
                candidates[candidate] = detect.suggestion(candidate, state, settings.job_ends) or ""
        known.update(fetched)
        lasting = {fault: suggestion for fault, suggestion in self._jobs.items() if _lasts(fault, known)}
        new = {fault: suggestion for fault, suggestion in candidates.items() if fault not in lasting}
        confirmed = await self._confirmed(list(new), settings.jobs == "all")
        self._jobs = {**lasting, **{fault: new[fault] for fault in confirmed}}
        self._restarted.update(fault.name for fault in confirmed)
        self._restarted.update(name for name, state in looked.queued.items() if state.id in ran)
        faulty = {fault.name for fault in self._jobs}
        self._restarted = {name for name in self._restarted if name in looked.queued or name in faulty}
        self._all, self._asked_at = looked, self._steady() if again else self._asked_at
        ended = [state for name, state in changed.items() if name not in looked.queued]
        self._by_jobs = self._node_faults(looked.queued.values(), ended, settings, now)

    def _node_faults(
        self,
        queued: Iterable[JobState],
        ended: Iterable[JobState],
        settings: settings_module.Settings,
        now: float,
    ) -> list[detect.Seen]:
        grace = detect.completing_grace(self._config, settings.slurm.completing_grace)
        found = [] if grace is None else [
            fault for state in queued if state.flags for fault in detect.stuck_nodes(state, now, grace)
        ]
        for state in ended:
            if state.end_time and state.uid is not None:
                end = suspects.End(queue.job_name(state), str(state.uid), state.state, state.end_time)
                self._ends.note(end, state.nodes)
        limits = settings.limits
        rule = suspects.Rule(limits.suspect_failures, limits.suspect_users, limits.suspect_window)
        found += [detect.Seen("node_suspect", node) for node in self._ends.suspects(rule, now)]
        return [fault for fault in dict.fromkeys(found) if valid_node_name(fault.name)]

    async def _ended_by_accounting(self, now: float) -> set[str]:
        if self._steady() - self._accounting_at < _ACCOUNTING_EVERY:
            if self._accounting_trouble is not None:
                raise self._accounting_trouble
            return set()
        since = self._accounting_since - _ACCOUNTING_SLACK if self._accounting_since else now - _START_WINDOW
        self._accounting_at, self._accounting_trouble = self._steady(), None
        try:
            records = await self._slurm.accounting(since=int(min(since, now - _ACCOUNTING_SLACK)))
        except RecoveryError as exc:
            self._accounting_trouble = exc
            raise
        self._accounting_since = now
        return {_record_name(record) for record in records if record.state in _ENDED}

    async def _states_of(self, names: list[str]) -> dict[str, JobState]:
        found = {queue.job_name(state): state for state in await self._slurm.job_states(ids=names)} if names else {}
        return {name: found[name] for name in names if name in found}

    async def _confirmed(self, candidates: list[detect.Seen], everybody: bool) -> list[detect.Seen]:
        names = [candidate.name for candidate in candidates]
        jobs = await self._slurm.jobs(names, missing_ok=True) if names else []
        by_name = {queue.job_name(job): job for job in jobs}
        return [
            candidate
            for candidate in candidates
            if candidate.name in by_name and detect.confirmed(candidate, by_name[candidate.name], everybody)
        ]


def events_of(due: Iterable[tuple[str, str, detect.Seen]], cluster: str, now: float) -> list[dict[str, Any]]:
    """One event for all faults of one kind and suggestion, but for very many: a storm costs a run or a few.

    A job's submission goes with it: its number may be another job's by the time somebody looks again.
    """
    groups: dict[tuple[str, str], list[Target]] = {}
    for kind, suggestion, fault in due:
        target = Target(KINDS[kind].target, fault.name, str(fault.episode) if fault.episode else "")
        groups.setdefault((kind, suggestion), []).append(target)
    return [
        build_event(kind, SLURM, cluster, SOURCE, targets[start : start + _TARGETS_AT_ONCE], now, suggestion or None)
        for (kind, suggestion), targets in groups.items()
        for start in range(0, len(targets), _TARGETS_AT_ONCE)
    ]


def _apart(took: float, share: float, limit: float) -> float:
    """Seconds between two looks that take so long, such that looking takes its share of the time, or up to a third."""
    return min(took / share, max(limit, 3 * took))


def _lasts(fault: detect.Seen, known: Mapping[str, JobState]) -> bool:
    """Whether a job fault of an earlier look is still there: the same submission in the same kind of state."""
    state = known.get(fault.name)
    if state is None or (state.submit_time or 0) != fault.episode:
        return False
    if fault.kind == "job_failed":
        return state.state in _ENDED
    return state.state == "PENDING" or (fault.kind == "stale_spool" and state.state == "COMPLETED")


def _record_name(record: Any) -> str:
    if record.array_job_id and record.array_task_id is not None:
        return "%d_%d" % (record.array_job_id, record.array_task_id)
    return str(record.id)
