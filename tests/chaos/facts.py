# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What witnesses tell of a run in which things were broken: facts, no judgement. Times are epoch seconds of one clock.

None of it is the engine's own word, but for the ledger's rows, which are what a person would find there: boots are told
by the nodes, power by the BMCs, holds and restarts by Slurm, lives by journals that the jobs' own processes write, and
breakages by whoever broke something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Mapping, Optional

COMPLETED, FAILED, KILLED = "completed", "failed", "killed"
OPEN, WAITING, ESCALATED, CLOSED = "open", "waiting", "escalated", "closed"


@dataclass(frozen=True)
class Breakage:
    """One fault, as whoever made it tells.

    Attributes:
        target: the node, or the job's id.
        until: when it was whole again, by itself or by a repair; None: it lasts.
        boots: how many boots of the node belong to it (one: it reboots by itself, or a reboot may repair it).
        fatal: whether jobs on the node may be lost by it, or by its repair.
        resets: how many resets of the node's GPU belong to it.
    """

    at: float
    target: str
    until: Optional[float] = None
    boots: int = 1
    fatal: bool = True
    resets: int = 0


@dataclass(frozen=True)
class Boot:
    """A node began another boot, by its own boot ID. The one with which the run began is none."""

    at: float
    node: str
    boot_id: str = ""


@dataclass(frozen=True)
class Reset:
    """A node's GPU was reset, by its driver's log."""

    at: float
    node: str


@dataclass(frozen=True)
class Switch:
    """A BMC was asked for another level of power and took it, by its own log."""

    at: float
    node: str
    level: str


@dataclass(frozen=True)
class Life:
    """The processes of one run of a job, on any of its nodes, by the journal that they write.

    Attributes:
        until: when the last one ended; None: one lives.
        end: COMPLETED, FAILED (by itself), KILLED (from outside); empty while it lives.
    """

    job: int
    nodes: tuple[str, ...]
    at: float
    until: Optional[float] = None
    end: str = ""


@dataclass(frozen=True)
class Requeue:
    """Slurm counted one more restart of a job; `asked`: because the recovery's account asked for it."""

    at: float
    job: int
    asked: bool = False


@dataclass(frozen=True)
class Hold:
    """A node was drained or set down with a reason, as Slurm recorded it; `until` None: it still is."""

    at: float
    node: str
    reason: str
    until: Optional[float] = None


@dataclass(frozen=True)
class Row:
    """An incident in the ledger at the end.

    Attributes:
        claimed: a run holds it now.
        wait_until: when its wait ends at the latest; None where it waits for nothing.
        sent_until: until when a dispatch of it counts as on its way.
        updated_at: its last change.
        closed_at: when it was closed or escalated last.
    """

    number: int
    target: str
    state: str
    opened_at: float
    updated_at: float
    closed_at: Optional[float] = None
    reason: str = ""
    claimed: bool = False
    wait_until: Optional[float] = None
    sent_until: Optional[float] = None


def row_of(columns: Mapping[str, Any], claimed: Collection[str]) -> Row:
    """An incident from the columns of its table.

    Args:
        claimed: the keys of the targets that a run holds now.
    """
    return Row(
        number=columns["id"],
        target=columns["target_name"],
        state=columns["state"],
        opened_at=columns["opened_at"],
        updated_at=columns["updated_at"],
        closed_at=columns["closed_at"],
        reason=columns["reason"],
        claimed=columns["target_key"] in claimed,
        wait_until=columns["wait_until"],
        sent_until=columns["dispatch_until"],
    )


@dataclass(frozen=True)
class Stop:
    """The emergency stop was set; `until` None: it still is."""

    at: float
    until: Optional[float] = None


@dataclass(frozen=True)
class Wish:
    """A person drained a node with these words, and did not take it back."""

    at: float
    node: str
    reason: str


@dataclass(frozen=True)
class Forced:
    """Kubernetes was told to give up pods of a node without its kubelet; `power`: the node's, at this moment."""

    at: float
    node: str
    power: str


@dataclass(frozen=True)
class Record:
    """All that the witnesses of one run told.

    Attributes:
        now: when they were asked, after everything had come to rest.
        allowed: by job how often its user lets it be restarted.
        most_held: how many nodes the recovery may hold at once.
        stopped_services: nodes on which a service is stopped that ran before and should run.
    """

    now: float
    breakages: tuple[Breakage, ...] = ()
    boots: tuple[Boot, ...] = ()
    resets: tuple[Reset, ...] = ()
    switches: tuple[Switch, ...] = ()
    lives: tuple[Life, ...] = ()
    requeues: tuple[Requeue, ...] = ()
    holds: tuple[Hold, ...] = ()
    rows: tuple[Row, ...] = ()
    stops: tuple[Stop, ...] = ()
    wishes: tuple[Wish, ...] = ()
    forced: tuple[Forced, ...] = ()
    allowed: tuple[tuple[int, int], ...] = ()
    most_held: Optional[int] = None
    stopped_services: tuple[str, ...] = ()
