# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The canary: an event of the ledger's source that travels the whole way to a playbook, which notes it in the ledger.

The source sends one every few minutes, and at once when somebody asks for one: whoever has changed something wants to
know now whether events still arrive, and not whether they did before. Three named values of the ledger carry it:
`canary_wanted`, `canary_sent` and `canary_seen`, the last two with the canary's number as their value.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store

WANTED, SENT, SEEN = "canary_wanted", "canary_sent", "canary_seen"
_LOOK = 0.5  # seconds between two looks for an answer


@dataclass(frozen=True)
class Canary:
    """The last one that was sent and the last that arrived, by the ledger's clock (epoch seconds; None = never).

    Attributes:
        way: seconds that the last one that arrived took; None where it is still on its way or never came.
    """

    sent_at: Optional[float] = None
    seen_at: Optional[float] = None
    way: Optional[float] = None


def read(store: Store) -> Canary:
    """The canary as it is now."""
    return of_rows(store.control.get(SENT), store.control.get(SEEN))


def of_rows(sent: Optional[Mapping[str, Any]], seen: Optional[Mapping[str, Any]]) -> Canary:
    """The canary of its two rows. Pure."""
    came = sent is not None and seen is not None and seen["value"] == sent["value"]
    return Canary(
        sent["changed_at"] if sent else None,
        seen["changed_at"] if seen else None,
        seen["changed_at"] - sent["changed_at"] if came and seen and sent else None,
    )


def send_now(store: Store) -> bool:
    """For the source: whether somebody wants one now. A yes is given once."""
    return store.control.get(WANTED) is not None and store.control.remove(WANTED)


def prove(store: Store, who: str, seconds: float) -> Optional[float]:
    """Ask for a canary and wait until it has arrived; the seconds from the wish to its arrival, None = it did not."""
    asked_at = store.now()
    store.control.put(WANTED, "", who)
    until = time.monotonic() + seconds
    while True:
        canary = read(store)
        if canary.way is not None and (canary.sent_at or 0.0) > asked_at and canary.seen_at is not None:
            return canary.seen_at - asked_at
        if time.monotonic() >= until:
            store.control.remove(WANTED)  # nobody waits for it any more
            return None
        time.sleep(_LOOK)
