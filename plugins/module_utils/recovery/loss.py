# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are lost, told from probes of their network and looks at their BMCs. Pure: rounds in, a verdict out.

A round asks every node once whether its network answers at all, be it by refusing. What the rounds add up to is one
`Track` a node. A node is

- *dead* when it is silent and its own BMC, of proved identity, says Off;
- *long silent* when it has not answered for `silence` seconds and its BMC says On, or nothing.

Nothing is said of any node when the silence may be the controller's own:

- it does not reach more than half of the other nodes;
- more nodes are silent than may be out of service at once;
- the controller itself stood still (SIGSTOP, a paused machine, no processor time): the silence before is void, and is
  measured anew;
- it could not even ask (no route, no descriptor, a name that is not resolved): that is no silence.

For a node that is dead the BMC's word is the proof, so a cluster of one or two nodes is enough. Silence alone is worth
less: then at least two other nodes must answer. On smaller clusters Slurm's own verdict is awaited.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Collection, Mapping, Optional

MISSES = 2  # rounds in a row without an answer, until a node counts as silent
_LONG_MISSES = 5  # and at least so many within `silence`
_WITNESSES = 2  # other nodes that must answer before silence alone counts
_OFF_AGE = 10.0  # seconds that a BMC's word holds
# Seconds from the end of a round to the begin of the next, and for a round, after which we did not run ourselves.
_MAX_PAUSE = 6.0
_MAX_ROUND = 8.0

CUT_OFF = "most other nodes do not answer either: the controller may be the one that is cut off"
TOO_MANY = "more nodes are silent at once than blast_radius allows"
FEW = "too few other nodes answer to tell a lost node from a lost network"


@dataclass(frozen=True)
class Moment:
    """One time by two clocks, in seconds: the machine's uptime, its sleep included, and the wall's."""

    up: float
    wall: float


@dataclass(frozen=True)
class Round:
    """One look at some nodes.

    Attributes:
        began, ended: when.
        seen: by node whether it answered; None where we could not ask.
    """

    began: Moment
    ended: Moment
    seen: Mapping[str, Optional[bool]]


@dataclass(frozen=True)
class Track:
    """What the rounds add up to for one node; times are uptimes.

    Attributes:
        answers: it answered when it was asked last.
        misses: rounds in a row without an answer.
        silent_since: begin of the first of them.
        off_at: when its BMC said Off, as the last thing it said since the node is silent.
    """

    answers: bool = False
    misses: int = 0
    silent_since: float = 0.0
    off_at: Optional[float] = None


@dataclass(frozen=True)
class Rules:
    """What the site says.

    Attributes:
        silence: seconds of silence that count without a BMC's Off; 0: they never do.
        allowed: nodes that may be silent at once.
    """

    silence: float
    allowed: int


@dataclass(frozen=True)
class Verdict:
    """What is said: nodes that are dead; nodes that are long silent, with the seconds; or why nothing is said."""

    dead: tuple[str, ...] = ()
    silent: Mapping[str, float] = field(default_factory=dict)
    withheld: str = ""


def stood_still(before: Optional[Moment], look: Round) -> bool:
    """Whether the controller did not run for a while, in the round or since `before`, the end of the one before it."""
    return _apart(look.began, look.ended) > _MAX_ROUND or (
        before is not None and _apart(before, look.began) > _MAX_PAUSE
    )


def follow(tracks: Mapping[str, Track], before: Optional[Moment], look: Round) -> dict[str, Track]:
    """The tracks after a round; of a round in which we stood still only the answers count.

    Args:
        before: the end of the round before; None for the first one.
    """
    if stood_still(before, look):
        return {name: Track(answers=look.seen.get(name) is True) for name in {**tracks, **look.seen}}
    return {**tracks, **{name: _after(tracks.get(name, Track()), seen, look) for name, seen in look.seen.items()}}


def told(track: Track, off: bool, at: float) -> Track:
    """The track after its BMC, of proved identity, was asked at the uptime `at`."""
    if not track.misses or at < track.silent_since:
        return track
    return replace(track, off_at=at if off else None)


def judge(tracks: Mapping[str, Track], candidates: Collection[str], rules: Rules, now: float) -> Verdict:
    """Say what is lost.

    Args:
        tracks: of all nodes that are probed.
        candidates: those that something may be said of; the others only bear witness.
        now: the uptime.
    """
    dead = tuple(name for name in candidates if name in tracks and _is_dead(tracks[name], now))
    silent = {
        name: now - tracks[name].silent_since
        for name in candidates
        if name in tracks and name not in dead and _is_long_silent(tracks[name], rules, now)
    }
    if not dead and not silent:
        return Verdict()
    answering = sum(track.answers for track in tracks.values())
    if sum(track.misses > 0 for track in tracks.values()) > rules.allowed:
        return Verdict(withheld=TOO_MANY)
    if cut_off(answering, len(tracks) - 1):
        return Verdict(withheld=CUT_OFF)
    if silent and answering < _WITNESSES:
        return Verdict(dead, withheld=FEW)
    return Verdict(dead, silent)


def cut_off(answering: int, others: int) -> bool:
    """Whether so few of the other nodes answer that the silence of one may be the controller's own."""
    return others > 0 and answering * 2 <= others


def _after(track: Track, seen: Optional[bool], look: Round) -> Track:
    if seen is not False:
        return Track(answers=seen is True)
    if not track.misses:
        return Track(misses=1, silent_since=look.began.up)
    return replace(track, misses=track.misses + 1)


def _is_dead(track: Track, now: float) -> bool:
    return track.misses >= MISSES and track.off_at is not None and now - track.off_at <= _OFF_AGE


def _is_long_silent(track: Track, rules: Rules, now: float) -> bool:
    return rules.silence > 0 and track.misses >= _LONG_MISSES and now - track.silent_since >= rules.silence


def _apart(one: Moment, other: Moment) -> float:
    """Seconds between two moments, by the clock that says more: neither counts all sleep of all machines."""
    return max(other.up - one.up, other.wall - one.wall)
