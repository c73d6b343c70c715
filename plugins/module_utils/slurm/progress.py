# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs whose logs do not grow. Pure.

What counts is that a log is the same in all looks of such a time, by the clock of who looks: clocks of nodes and file
servers differ. After a restart of the one who looks, the time begins anew. A log that cannot be read tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

Run = tuple[str, int]  # a job's name and its submission, which changes with each requeue
Mark = tuple[tuple[str, int, float], ...]  # of each of its log's files: name, size, time of the last change


@dataclass(frozen=True)
class Track:
    """What a run's log was when it changed last, and since when it is so, in seconds of a clock that only grows."""

    mark: Mark
    since: float


def mark_of(answer: Mapping[str, Any]) -> Optional[Mark]:
    """The mark by a helper's answer to `job-log`; None where it could read none of the files."""
    sizes, modified = answer.get("sizes"), answer.get("modified")
    if not isinstance(sizes, Mapping) or not isinstance(modified, Mapping) or not sizes:
        return None
    if not all(isinstance(sizes[name], int) and isinstance(modified.get(name), (int, float)) for name in sizes):
        return None
    return tuple(sorted((str(name), int(sizes[name]), float(modified[name])) for name in sizes))


def follow(tracks: Mapping[Run, Track], seen: Mapping[Run, Optional[Mark]], now: float) -> dict[Run, Track]:
    """The tracks after a look; `seen` holds every run that goes on, None for one whose log could not be read."""
    followed = {}
    for run, mark in seen.items():
        before = tracks.get(run)
        if mark is not None and (before is None or before.mark != mark):
            followed[run] = Track(mark, now)
        elif before is not None:
            followed[run] = before
    return followed


def hung(tracks: Mapping[Run, Track], seen: Mapping[Run, Optional[Mark]], after: float, now: float) -> list[Run]:
    """Runs whose logs were read in this look, and have been the same for `after` seconds."""
    return [run for run, mark in seen.items() if mark is not None and now - tracks[run].since >= after]
