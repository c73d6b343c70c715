# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of an event source: look, put events, wait; for ever.

ansible-rulebook ends all sources when one returns or raises. So once `keep_looking` runs, nothing but a cancellation
gets out of it: an error of a look is reported once, backed off from, and told again when it is over. A failed look
produces no event: an outage is not an empty queue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Awaitable, Callable, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError

Event = dict[str, Any]
Look = Callable[[], Awaitable[Sequence[Event]]]
Beat = Callable[[str, float, Optional[str]], None]

_MAX_PAUSE = 30.0
_BEAT_EVERY = 5.0


async def keep_looking(
    name: str,
    queue: asyncio.Queue,
    look: Look,
    interval: Callable[[], float],
    beat: Optional[Beat] = None,
) -> None:
    """Call `look` for ever, every `interval()` seconds, and put its events into `queue`.

    Args:
        name: of the source, for the log and the heartbeat.
        queue: ansible-rulebook's; putting waits where it is full.
        look: one look; any exception of it means that nothing is known.
        interval: seconds between the ends and starts of two looks, asked for anew each time.
        beat: called with (name, epoch seconds, error or None) after a look, at most every five seconds unless the
            outcome changed; its own errors are logged and ignored.
    """
    log = logging.getLogger("job_recovery.%s" % name)
    outage = Outage(log)
    beats = Beats(name, beat, log)
    while True:
        try:
            partial = False
            events = await look()
            outage.over()
        except Exception as exc:  # noqa: BLE001 (an error of one look must not end the other sources)
            partial = isinstance(exc, Partial)
            events = exc.events if isinstance(exc, Partial) else []
            outage.report(exc)
        for event in events:
            await queue.put(event)
        beats.tell(outage.message)
        await asyncio.sleep(_interval(interval) if partial else outage.pause(_interval(interval)))


class Partial(RecoveryError):
    """A look that saw something, and could not see all: its events are sent, and the trouble is told."""

    def __init__(self, trouble: RecoveryError, events: Sequence[Event]) -> None:
        super().__init__(str(trouble))
        self.events = events


class Outage:
    """Reports an error once while it lasts, and how long it lasted; says how long to back off."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._since = 0.0
        self._count = 0
        self.message: Optional[str] = None

    def report(self, exc: Exception) -> None:
        """Note the error of a look; it is logged when it is new or its text changed."""
        text = str(exc) if isinstance(exc, RecoveryError) else "%s: %s" % (type(exc).__name__, exc)
        if text != self.message:
            # the traceback of an error that is not ours shows a defect; one of ours explains itself
            self._log.error("nothing is known: %s", text, exc_info=not isinstance(exc, RecoveryError))
        if not self._count:
            self._since = time.monotonic()
        self._count += 1
        self.message = text

    def over(self) -> None:
        """Note a look that succeeded."""
        if self._count:
            self._log.warning("answers again after %.0f s", time.monotonic() - self._since)
        self._count = 0
        self.message = None

    def pause(self, interval: float) -> float:
        """Seconds to wait before the next look: twice as long after each error, half a minute at most."""
        return min(max(interval, 0.1) * 2 ** min(self._count, 8), max(_MAX_PAUSE, interval))


class Beats:
    """Signs of life, at most every five seconds unless the outcome changed; they never fail."""

    def __init__(self, name: str, beat: Optional[Beat], log: logging.Logger) -> None:
        self._name, self._beat, self._log = name, beat, log
        self._last = 0.0
        self._error: Optional[str] = None

    def tell(self, error: Optional[str]) -> None:
        """Show that a look has ended, and how."""
        now = time.monotonic()
        if self._beat is None or (now - self._last < _BEAT_EVERY and error == self._error and self._last):
            return
        self._last, self._error = now, error
        try:
            self._beat(self._name, time.time(), error)
        except Exception as exc:  # noqa: BLE001 (a full disk must not make the recovery deaf)
            self._log.error("heartbeat not written: %s", exc)


def _interval(interval: Callable[[], float]) -> float:
    try:
        return interval()
    except Exception:  # noqa: BLE001 (unreadable settings are reported by the look itself)
        return 1.0
