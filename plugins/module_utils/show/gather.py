# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers what happened into the outbox of a sink.

Rows bear the time at which their statement began, and appear when its transaction ends: a run that is stopped in
between shows a row late. So each look goes back a little, and now and then one goes back as far as lines are still
taken. What is in the outbox already stays as it is, so that going back costs time and makes nothing twice.
"""

from __future__ import annotations

import math
import time
from typing import Callable, Collection, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.history import READERS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.lines import Line, lines_of

OVERLAP = 120.0  # seconds that every look goes back
HORIZON = 6.5 * 86400.0  # that a thorough one goes back; Loki takes lines of the last seven days
THOROUGH_EVERY = 600.0
EXPIRE_EVERY = 3600.0
KEEP_TOLD = 8 * 86400.0  # seconds that lines stay in the outbox; longer than anything is gathered again
KEEP_UNTOLD = 90 * 86400.0
PAGE = 1000  # rows in one query


class Gatherer:
    """One sink's. Remembers what it has put, so that it is not written again at every look.

    Args:
        what: keys of `history.READERS`; all of them by default.
        wanted: which lines this sink gets; all of them by default.
    """

    def __init__(
        self,
        sink: str,
        what: Collection[str] = tuple(READERS),
        wanted: Optional[Callable[[Line], bool]] = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._what, self._wanted, self._steady = sink, what, wanted, steady
        self._known: dict[str, float] = {}
        self._thorough_at = -math.inf
        self._looked_at = -math.inf
        self._expired_at = -math.inf

    def gather(self, store: Store, outbox: Outbox, first: Optional[float] = None) -> None:
        """Put into the outbox what happened since the last look, and now and then remove what is old.

        Args:
            first: epoch seconds; what happened before is not this sink's. None: all that lines are taken of.

        Raises:
            RecoveryError: the ledger cannot be asked; the next look begins where this one did.
        """
        now = store.now()
        newest = outbox.newest()
        thorough = self._steady() - self._thorough_at >= THOROUGH_EVERY
        known_until = max(self._looked_at, -math.inf if newest is None else newest)
        since = now - HORIZON if thorough else max(known_until - OVERLAP, now - HORIZON)
        since = since if first is None else max(since, first)
        for what in self._what:
            self._take(store, outbox, what, since)
        if thorough:
            self._thorough_at = self._steady()
        self._looked_at = now
        self._known = {ref: at for ref, at in self._known.items() if at >= now - 2 * OVERLAP}
        if self._steady() - self._expired_at >= EXPIRE_EVERY:
            self._expired_at = self._steady()
            outbox.expire(KEEP_TOLD, KEEP_UNTOLD)

    def _take(self, store: Store, outbox: Outbox, what: str, since: float) -> None:
        for offset in range(0, 1 << 31, PAGE):
            rows = READERS[what](store.database, since, PAGE, offset)
            fresh = [line for line in (lines_of(what, row) for row in rows) if line.ref not in self._known]
            chosen = [line for line in fresh if self._wanted is None or self._wanted(line)]
            outbox.put([(line.ref, line.at, line.kind, line.outcome, line.text) for line in chosen])
            self._known.update((line.ref, line.at) for line in fresh)
            if len(rows) < PAGE:
                return
