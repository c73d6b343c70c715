# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose fault it is: from the findings of a job's log, and of the kernel logs of its nodes. Pure.

A job's log is its user's text, so it proves nothing about a node: whatever it says, no node is taken out of service
because of it. What it suspects is proved by the kernel log of the node in the same time. What follows from numbers is
judged elsewhere: many jobs that fail on one node by `slurm.suspects`, one that fails on many by `recovery.job_runs`.
"""

from __future__ import annotations

from typing import Optional, Sequence

from .model import (
    ACTIONS,
    FATAL,
    HARDWARE,
    IGNORE,
    NODE_ACTIONS,
    REPORT,
    UNKNOWN,
    Diagnosis,
    Finding,
    firmest,
)
from .signatures import BY_CODE, Weight

# Seconds around the end of a job in which a line of the kernel log belongs to it.
WINDOW = 600.0

# Xids after which what CUDA tells of memory is no error of the application.
_MEMORY_XIDS = frozenset(["xid48", "xid79", "xid94", "xid95"])


def diagnose(
    found: Sequence[Finding], kernel: Sequence[Finding] = (), ended: Optional[float] = None, window: float = WINDOW
) -> Diagnosis:
    """What the logs of one job, and of its nodes, together say.

    Args:
        found: of the job's log, as `jobs.findings` gives them.
        kernel: of its nodes' kernel logs.
        ended: when the job ended, in seconds since the epoch; kernel findings further away than `window` are left out,
            and those without a time. None: the kernel findings are known to belong to the job.
    """
    near = [one for one in kernel if _in_window(one, ended, window)]
    proofs = [one for one in near if _is_proof(one)]
    others = [one for one in near if not _is_proof(one)]
    ordered = sorted(enumerate(found), key=_rank_of)
    chosen = ordered[0][1] if ordered else None
    own = BY_CODE.get(chosen.code) if chosen is not None else None
    rest = (*(one for dummy, one in ordered), *others)
    if proofs and (own is None or own.by_hardware or own.weight >= Weight.OPEN):
        action = firmest(one.action for one in proofs)
        return Diagnosis(HARDWARE, action, (*proofs, *rest), "kernel_log")
    if chosen is None:
        chosen = max(others, key=_firmness, default=None)
    if chosen is None:
        return Diagnosis(UNKNOWN, IGNORE, (), "nothing_found")
    if chosen.verdict == UNKNOWN:
        return Diagnosis(UNKNOWN, REPORT if chosen.action != IGNORE else IGNORE, rest, chosen.code)
    return Diagnosis(chosen.verdict, chosen.action, rest, chosen.code)


def _rank_of(numbered: tuple[int, Finding]) -> tuple[int, int, int]:
    position, one = numbered
    row = BY_CODE.get(one.code)
    first = one.lines[0][0] if one.lines else 0
    return (int(row.weight) if row else int(Weight.OPEN), first, position)


def _firmness(one: Finding) -> tuple[bool, int]:
    return (one.verdict != UNKNOWN, ACTIONS.index(one.action))


def _is_proof(one: Finding) -> bool:
    """A finding of a kernel log that says that hardware failed, and not only that it was corrected."""
    if one.verdict != HARDWARE:
        return False
    return one.action in NODE_ACTIONS or one.severity == FATAL or one.code in _MEMORY_XIDS


def _in_window(one: Finding, ended: Optional[float], window: float) -> bool:
    if ended is None:
        return True
    return one.last is not None and (one.first or one.last) - window <= ended <= one.last + window
