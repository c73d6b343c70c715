# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that fail the jobs of several users one after another. Pure.

One failed job tells nothing of its node, and one user's jobs may all have the same defect. Failures of several users in
a row, with no job in between that completed there, do. The source keeps the ends that it sees, and the run that acts
reads them again from the accounting: the rule is the same.
"""

from __future__ import annotations

import dataclasses
from typing import Iterable, Sequence

_FAILURES = frozenset(("FAILED", "NODE_FAIL", "BOOT_FAIL"))
_SUCCESSES = frozenset(("COMPLETED",))
_KEPT = 50  # ends of one node that the source remembers


@dataclasses.dataclass(frozen=True)
class End:
    """How one run of a job ended.

    Attributes:
        job: its id, as Slurm shows it.
        user: whose it is: a login name or a number, the same way for all ends that are compared.
        state: the base state.
        at: when, epoch seconds.
        started: when it began, epoch seconds.
    """

    job: str
    user: str
    state: str
    at: int
    started: int = 0


@dataclasses.dataclass(frozen=True)
class Rule:
    """What makes a node suspect: so many failures in a row, of so many users, within so many seconds; 0: nothing."""

    failures: int
    users: int
    window: float


def streak(ends: Iterable[End], now: float, window: float) -> tuple[End, ...]:
    """The failures since the last success, oldest first; one for each run of a job.

    What its user or an administrator cancelled, and what ended at a limit, says nothing about a node.
    """
    found: dict[tuple[str, int], End] = {}
    for end in sorted(ends, key=lambda each: each.at):
        if end.state in _SUCCESSES:
            found.clear()
        elif end.state in _FAILURES and now - end.at <= window:
            found[end.job, end.at] = end
    return tuple(found.values())


def is_suspect(failures: Sequence[End], rule: Rule) -> bool:
    """Whether this row of failures is the node's."""
    if not rule.failures or len(failures) < rule.failures:
        return False
    return len({end.user for end in failures}) >= rule.users


class Ends:
    """The ends that a source has seen, by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[End]] = {}

    def note(self, end: End, nodes: Iterable[str]) -> None:
        """A job has ended on these nodes; the same end again changes nothing."""
        if end.state not in _FAILURES | _SUCCESSES:
            return
        for node in nodes:
            if end.state in _SUCCESSES:
                self._by_node.pop(node, None)
            elif end not in self._by_node.setdefault(node, []):
                self._by_node[node] = [*self._by_node[node], end][-_KEPT:]

    def suspects(self, rule: Rule, now: float) -> list[str]:
        """The nodes that are suspect now, by name. What is older than the rule's window is forgotten."""
        kept = {node: list(streak(ends, now, rule.window)) for node, ends in self._by_node.items()}
        self._by_node = {node: ends for node, ends in kept.items() if ends}
        return sorted(node for node, ends in self._by_node.items() if is_suspect(ends, rule))
