# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The looks of the source `loki`: faults that lines in Loki tell.

Windows join without a gap: each begins a little before the end of the last one, for lines that come late, and lines
that were read are known. How far it was read is kept when the events of a look are on their way, so that a restart
reads again rather than leaves out; a fault whose last line was told before is not told again.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import labels, position, queries
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Busy, Entry
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.client import LokiClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.faults import Found, Key, Reader
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.windows import (
    MAX_LIMIT,
    SECOND,
    Reading,
    following,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import TooLong
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import build_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LokiQuery,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

SOURCE = "loki"
INTERVAL = 5.0
_BUDGET = 20.0  # seconds of questions in one look
_MACHINES_EVERY = 60.0
_AT_ONCE = 1000  # lines in one answer


class LokiWatch:
    """See above. Blocking: for a thread of its own, one call at a time.

    Args:
        wall: epoch seconds.
        steady: seconds that never go back.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._session = LedgerSession()
        self._position: Optional[position.Position] = None
        self._readings: dict[str, Reading] = {}
        self._on_from: dict[str, int] = {}  # where a window goes on that one look could not read
        self._limits: dict[str, int] = {}
        self._reader = Reader()
        self._held: dict[Key, tuple[Found, int]] = {}
        self._resend = Resend()
        self._machines: dict[str, Machine] = {}
        self._machines_at = float("-inf")
        self._busy_until = float("-inf")

    def look(self, settings: Settings) -> list[dict[str, Any]]:
        """One look: the events to send.

        Raises:
            Partial: not all could be read, with the events of what could.
            RecoveryError: nothing is known.
        """
        if not settings.loki.url or not settings.loki.watch or self._steady() < self._busy_until:
            return []
        if self._position is None:
            self._position = position.load(settings.state_dir)
        else:  # the events of the look before are on their way
            position.save(settings.state_dir, self._position)
        try:
            with self._session.open(settings) as store:
                return self._look(settings, store, self._position)
        except Partial:
            raise
        except RecoveryError:  # what was read is not in the ledger: it is read again
            self._readings, self._on_from, self._reader = {}, {}, Reader()
            raise

    def close(self) -> None:
        """End the session with the ledger."""
        self._session.close()

    def _look(self, settings: Settings, store: Store, kept: position.Position) -> list[dict[str, Any]]:
        self._refresh(store)
        client = LokiClient(settings.loki)
        until = self._steady() + _BUDGET
        trouble: Optional[RecoveryError] = None
        for query in queries.queries_of(settings.loki):
            try:
                entries = self._read(client, query, settings, kept, until)
            except RecoveryError as exc:
                trouble = trouble or exc
                if isinstance(exc, Busy):
                    self._busy_until = self._steady() + exc.retry_after
                    break
                continue
            for found in self._reader.read(query.reads, entries, settings.loki.labels, self._machines):
                self._keep(store, found, kept)
            kept.until[query.query] = self._readings[query.query].until
        self._reader.end_bursts(self._wall())
        events = self._events(settings, kept.told)
        if trouble is not None:
            raise Partial(trouble, events)
        return events

    def _refresh(self, store: Store) -> None:
        if self._steady() - self._machines_at >= _MACHINES_EVERY:
            self._machines = labels.by_name(store.machines.all())
            self._machines_at = self._steady()

    def _read(
        self, client: LokiClient, query: LokiQuery, settings: Settings, kept: position.Position, until: float
    ) -> list[Entry]:
        """The fresh lines of a query, as far as the time allows; the next look goes on where this one ends.

        What was read when an error comes is read again by the next look.
        """
        now = int(self._wall() * SECOND)
        first = now - int(settings.limits.max_age * SECOND)  # what is older is too old to act on
        name, lateness = query.query, settings.loki.lateness
        reading = self._readings.setdefault(name, Reading(min(kept.until.get(name, first), now)))
        start = self._on_from.get(name, reading.start(lateness))
        fresh: list[Entry] = []
        while start < now:
            entries, full = self._ask(client, query, start, now)
            fresh += reading.fresh(entries, fresh)
            if not full:
                self._on_from.pop(name, None)
                reading.end(fresh, now, lateness)
                return fresh
            start = following(entries)
            if self._steady() >= until:
                break
        self._on_from[name] = start
        reading.end(fresh, start, lateness)
        return fresh

    def _ask(self, client: LokiClient, query: LokiQuery, start: int, end: int) -> tuple[list[Entry], bool]:
        """One answer, and whether there may be more; fewer lines are asked for while they are too long for one."""
        limit = self._limits.setdefault(query.query, _AT_ONCE)
        too_long = False
        while True:
            try:
                entries = client.query_range(query.query, start, end, limit)
            except TooLong:
                if limit == 1:
                    raise
                limit = self._limits[query.query] = max(1, limit // 4)
                too_long = True
                continue
            of_one_time = len(entries) >= limit and entries[0].at == entries[-1].at
            if of_one_time and limit < MAX_LIMIT and not too_long:
                limit = self._limits[query.query] = MAX_LIMIT
                continue
            return entries, len(entries) >= limit

    def _keep(self, store: Store, found: Found, kept: position.Position) -> None:
        """Hold a fault, with its evidence in the ledger, unless it was told of before the last restart."""
        if found.at <= kept.told.get(found.key, float("-inf")) and found.key not in self._held:
            return
        before = self._held.get(found.key)
        if before is None or not store.records.renew(before[1], found.body):
            number = store.records.keep(found.subject.key, found.kind, SOURCE, found.body)
        else:
            number = before[1]
        self._held[found.key] = (found, number)

    def _events(self, settings: Settings, told: dict[tuple[str, ...], float]) -> list[dict[str, Any]]:
        """Each fault is sent once, and again once a minute while its line is young: it may be refused for a moment."""
        old = self._wall() - settings.limits.max_age
        self._held = {
            key: each
            for key, each in self._held.items()
            if each[0].at > old or each[0].at > told.get(key, float("-inf"))
        }
        due = self._resend.due(list(self._held), self._steady())
        made = [self._event(settings.cluster, *self._held[key]) for key in due]
        told.update((key, self._held[key][0].at) for key in due)
        return made

    def _event(self, cluster: str, found: Found, evidence: int) -> dict[str, Any]:
        """It was seen when the line was written: of an old line the gate `age` tells that it is old."""
        subject = found.subject
        return build_event(
            found.kind, subject.scheduler, cluster, SOURCE, [subject.target], found.at, found.suggested, evidence
        )
