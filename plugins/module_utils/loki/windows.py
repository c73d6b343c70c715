# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading on in Loki without gaps and without doubles, as lines come late and out of order. Pure.

A window begins a little before the last one ended and contains its start, but not its end. What was read before is
known by its hash. Where a window has more lines than one answer, the next question begins at the last line's own time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Entry

SECOND = 1000000000  # nanoseconds
MAX_LIMIT = 5000  # of lines that Loki gives in one answer
MAX_SEEN = 50000  # hashes


def hash_of(entry: Entry) -> bytes:
    """The same line of the same stream at the same time has the same one."""
    told = "%d\0%r\0%s" % (entry.at, entry.labels, entry.line)
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=12).digest()


@dataclass
class Reading:
    """How far a query was read.

    Attributes:
        until: nanoseconds; all that Loki had before then was read.
        seen: by hash the time of the lines that were read and may come again.
    """

    until: int
    seen: dict[bytes, int] = field(default_factory=dict)

    def start(self, overlap: float) -> int:
        """Where the next window begins, so that late lines are read, too."""
        return max(0, self.until - int(overlap * SECOND))

    def fresh(self, entries: Sequence[Entry], so_far: Sequence[Entry] = ()) -> list[Entry]:
        """Those that were not read before, nor among those of the same look so far."""
        known = {hash_of(entry) for entry in so_far if entry.at >= entries[0].at} if entries else set()
        found = {hash_of(entry): entry for entry in entries}
        return [entry for name, entry in found.items() if name not in self.seen and name not in known]

    def end(self, read: Sequence[Entry], until: int, overlap: float) -> None:
        """A window was read to its end, or as far as `until`; what cannot come again is forgotten."""
        self.seen.update((hash_of(entry), entry.at) for entry in read)
        self.until = max(self.until, until)
        first = self.start(overlap)
        kept = sorted(((at, name) for name, at in self.seen.items() if at >= first), reverse=True)[:MAX_SEEN]
        self.seen = {name: at for at, name in kept}


def following(entries: Sequence[Entry]) -> int:
    """Where to ask on after a full answer: at its last line's time; behind it where all lines are of one time, for
    more of them cannot be had."""
    first, last = entries[0].at, entries[-1].at
    return last + 1 if first == last else last
