# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rank the others waited for: from the words of PyTorch's NCCL watchdog.

The time-out of a collective operation appears on every rank that waited, and names no culprit. Who is behind shows only
when the ranks are compared: it never enqueued the operation on which the others timed out, it completed less than they,
PyTorch's own desync report names it, or it alone is silent. Where more than half would be to blame, none is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_GROUP = re.compile(r"\[PG (?:ID )?(\w{1,40})[^\]]{0,80}[Rr]ank (\d{1,6})\]")
_RANK = re.compile(r"\[[Rr]ank ?(\d{1,6})\]")
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w{1,40}), NumelIn=(\d{1,20}), NumelOut=(\d{1,20})")
_STUCK = re.compile(r"(?:detected by watchdog at work|at NCCL work)(?: sequence id)?: (\d{1,15})")
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (-?\d{1,15})")
_COMPLETED = re.compile(r"last completed (?:NCCL )?work: (-?\d{1,15})")
_DESYNC = re.compile(r"\[([0-9, ]{1,400})\] (?:finished collective #\d{1,15}, but didn't join|joined but didn't)")
_BARRIER = re.compile(r"Ranks? ([0-9, ]{1,400}) failed to pass monitoredBarrier")
_WORLD = re.compile(r"(?:nranks|world[_ ]size)[ =:]{1,3}(\d{1,6})\b")

_MOST_RANKS = 100000  # of all groups together
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "REDUCE")  # operations whose tensors are equally large on all ranks


@dataclass
class _State:
    """What one rank of a process group says: where it is stuck, and what it enqueued and completed before."""

    stuck: int = -1
    enqueued: int = -1
    completed: int = -1
    work: tuple = ()  # number, operation, elements of its last time-out


@dataclass
class Ranks:
    """The ranks of one job, as far as its log tells of them.

    Attributes:
        world: how many there are, 0 where the log does not say.
        named: those that a report of PyTorch names.
    """

    world: int = 0
    named: set = field(default_factory=set)
    _groups: dict = field(default_factory=dict)
    _count: int = 0

    def take(self, line: str) -> None:
        """One line of the watchdog, of a report of PyTorch, or with the number of ranks."""
        for pattern in (_DESYNC, _BARRIER):
            found = pattern.search(line)
            if found:
                self.named.update(int(part) for part in found.group(1).replace(",", " ").split())
        found = _WORLD.search(line)
        if found:
            self.world = max(self.world, int(found.group(1)))
        state = self._state(line)
        if state is None:
            return
        for name, pattern in (("stuck", _STUCK), ("enqueued", _ENQUEUED), ("completed", _COMPLETED)):
            found = pattern.search(line)
            if found:
                setattr(state, name, max(getattr(state, name), int(found.group(1))))
        found = _WORK.search(line)
        if found:
            number, operation, elements = int(found.group(1)), found.group(2), int(found.group(3))
            state.stuck = max(state.stuck, number)
            state.work = (number, operation, elements)

    def _state(self, line: str):
        if "SeqNum=" not in line and "ork: " not in line and "sequence id" not in line:
            return None
        found = _GROUP.search(line)
        group, rank = (found.group(1), found.group(2)) if found else ("", None)
        if rank is None:
            found = _RANK.search(line)
            rank = found.group(1) if found else None
        if rank is None or self._count >= _MOST_RANKS:
            return None
        states = self._groups.setdefault(group, {})
        if int(rank) not in states:
            self._count += 1
        return states.setdefault(int(rank), _State())

    def behind(self) -> tuple[int, ...]:
        """The ranks that the others waited for; empty where the log does not tell, or would blame most of them."""
        seen = set().union(*self._groups.values()) if self._groups else set()
        total = max(self.world, len(seen), max(seen | self.named, default=-1) + 1)
        if self.named:
            return _few(self.named, total)
        found: set = set()
        for states in self._groups.values():
            found.update(_few(_late(states), len(states)))
        if found:
            return _few(found, total)
        return _few(set(range(self.world)) - seen, self.world) if len(seen) > 1 and self._is_whole() else ()

    def _is_whole(self) -> bool:
        """Whether all that timed out waited in one group, which then is all of the job."""
        waiting = [name for name, states in self._groups.items() if any(state.stuck >= 0 for state in states.values())]
        named = [name for name in waiting if name]
        return len(named) <= 1 and (not named or named[0] in ("0", "default_pg"))

    def mismatched(self) -> bool:
        """Whether ranks of one group wait in the same place for different operations: the application's own error."""
        for group, states in self._groups.items():
            works: dict[int, set] = {}
            for state in states.values():
                if group and state.work:
                    number, operation, elements = state.work
                    works.setdefault(number, set()).add((operation, elements if operation in _SAME_SIZE else 0))
            if any(len(kinds) > 1 for kinds in works.values()):
                return True
        return False


def _late(states: dict) -> set:
    """Of one group: who never enqueued what the others wait for, else who completed less than they did."""
    stuck = max((state.stuck for state in states.values()), default=-1)
    missing = {rank for rank, state in states.items() if 0 <= state.enqueued < stuck}
    if missing:
        return missing
    most = max((state.completed for state in states.values()), default=-1)
    return {rank for rank, state in states.items() if 0 <= state.completed < most}


def _few(ranks: set, total: int) -> tuple[int, ...]:
    return tuple(sorted(ranks)) if 0 < 2 * len(ranks) < total else ()
