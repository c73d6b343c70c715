# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One clock for everything that is simulated, and what is to happen when."""

from __future__ import annotations

import heapq
import itertools
from typing import Callable

START = 1_800_000_000.0


class Clock:
    """Time that passes only when somebody waits. It stands in for `time.time`, `time.monotonic` and `time.sleep`."""

    def __init__(self) -> None:
        self._now = START
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        """Epoch seconds."""
        return self._now

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._agenda, (self._now + seconds, next(self._order), do))

    def sleep(self, seconds: float) -> None:
        """Let time pass; what is due meanwhile happens at its moment."""
        until = self._now + max(0.0, seconds)
        while self._agenda and self._agenda[0][0] <= until:
            moment, _number, do = heapq.heappop(self._agenda)
            self._now = max(self._now, moment)
            do()
        self._now = max(self._now, until)
