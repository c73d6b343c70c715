# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a lasting fault is sent again: the memory of an event source between two looks.

A fault is sent when it is first seen and, while it lasts, at most once in `every` seconds. One that was gone for a look
and is there again is new. All new targets of one kind go into one event, so that a storm costs one run.
"""

from __future__ import annotations

from typing import Hashable, Iterable, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Resend:
    """Which of the faults seen in a look are to be sent now.

    Args:
        every: seconds between two sendings of one lasting fault.
        times: how often one fault is sent at most while it lasts; 0 for no limit.
    """

    def __init__(self, every: float = 60.0, times: int = 0) -> None:
        self._every = every
        self._times = times
        self._sent: dict[Hashable, tuple[float, int]] = {}

    def due(self, seen: Iterable[Key], now: float) -> list[Key]:
        """Those of `seen` that are new or were sent long enough ago, in their order; the others are forgotten or kept.

        Args:
            seen: every fault of this look, and no other: what is missing is gone.
            now: seconds of any clock that only goes forward.
        """
        present = list(dict.fromkeys(seen))
        self._sent = {key: self._sent[key] for key in present if key in self._sent}
        due = [key for key in present if self._is_due(key, now)]
        for key in due:
            self._sent[key] = (now, self._sent.get(key, (0.0, 0))[1] + 1)
        return due

    def _is_due(self, key: Hashable, now: float) -> bool:
        if key not in self._sent:
            return True
        last, times = self._sent[key]
        return now - last >= self._every and (not self._times or times < self._times)
