# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strikes as data, and the moments at which they fall: the points between which a process can be killed or stopped.

Every statement to the ledger, every look at the world and every act in it passes a point. A process that is stopped
there sleeps while everything else goes on; one that is killed does nothing any more.

Nobody can be kept from stopping between the last look at its lease and the act itself, so no pause falls there: what is
shown is that whoever slept looks again before it acts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence

KILL, PAUSE, HEAD = "kill", "pause", "kill the head of"
LOOK, ACT, ACTED, SQL = "look", "act", "acted", "sql"
_DEEPEST = 3  # pauses within pauses


@dataclass(frozen=True)
class Strike:
    """One blow.

    Attributes:
        how: KILL, PAUSE (SIGSTOP, after `seconds` SIGCONT), or HEAD: every process of the controller, which starts
            again after `seconds`.
        number: it falls at the so-manieth point that fits.
        label: only points whose label begins so; empty: any.
        step: only while this step is being done; empty: any time.
        after: only when the process has passed a point with such a label in the same step.
    """

    how: str
    number: int
    seconds: float = 45.0
    label: str = ""
    step: str = ""
    after: str = ""

    def __str__(self) -> str:
        where = "%s in %s" % (self.label or "any point", self.step or "anything")
        return "%s it at point %d (%s) for %g s" % (self.how, self.number, where, self.seconds)


@dataclass
class Process:
    """A process of the recovery: the engine of a controller, or one of its runs."""

    controller: str
    name: str
    dead: bool = False
    step: str = ""
    trail: list[str] = field(default_factory=list)  # the labels that it passed in this step

    def begin(self, step: str) -> None:
        """It does another step from now on."""
        self.step = step
        self.trail.clear()


class Died(BaseException):
    """The process that raised this was killed; it is caught by whoever simulated the process."""

    def __init__(self, process: Process, head: bool = False) -> None:
        super().__init__(process.name)
        self.process, self.head = process, head


@dataclass
class Points:
    """Where strikes fall.

    Args:
        pause: lets everything but the stopped process go on for so many seconds.
    """

    pause: Callable[[Process, float], None]
    strikes: list[Strike] = field(default_factory=list)
    fallen: list[tuple[Strike, str]] = field(default_factory=list)
    passed: int = 0
    labels: list[tuple[str, str]] = field(default_factory=list)
    stack: list[Process] = field(default_factory=list)
    in_transaction: int = 0
    _seen: Counter = field(default_factory=Counter)

    @property
    def running(self) -> Optional[Process]:
        """The process whose code runs now."""
        return self.stack[-1] if self.stack else None

    def reach(self, kind: str, label: str) -> None:
        """A process is about to look, to act, or has acted.

        Raises:
            Died: it was killed here, or before.
        """
        process = self.running
        if process is None:
            return
        if process.dead:
            raise Died(process)
        self.passed += 1
        self.labels.append(("%s %s" % (kind, label), process.step))
        for strike in self._falling(kind, "%s %s" % (kind, label), process):
            self.strikes.remove(strike)
            self.fallen.append((strike, "%s %s of %s %s" % (kind, label, process.name, process.step)))
            if strike.how == PAUSE:
                self.pause(process, strike.seconds)
            else:
                process.dead = True
                raise Died(process, strike.how == HEAD)
            if process.dead:
                raise Died(process)
        process.trail.append("%s %s" % (kind, label))

    def die(self) -> None:
        """The process that runs now is killed."""
        process = self.stack[-1]
        process.dead = True
        raise Died(process)

    def _falling(self, kind: str, label: str, process: Process) -> Sequence[Strike]:
        found = []
        for strike in self.strikes:
            if not label.startswith(strike.label) or strike.step not in ("", process.step):
                continue
            if strike.after and not any(passed.startswith(strike.after) for passed in process.trail):
                continue
            self._seen[id(strike)] += 1
            due = self._seen[id(strike)] >= strike.number
            if due and (strike.how != PAUSE or self._may_pause(kind)):
                found.append(strike)
        return found[:1]

    def _may_pause(self, kind: str) -> bool:
        return kind != ACT and not self.in_transaction and len(self.stack) <= _DEEPEST
