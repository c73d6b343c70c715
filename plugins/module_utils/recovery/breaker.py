# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The breaker: after so many failed repairs in a row nothing new is begun, until one succeeds or a person resets it.

Nodes and jobs have a breaker each: what goes wrong with jobs, which their users can make, stops no repair of a node.
"""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Limits

RESET = "breaker_reset"

# Plans that repair nothing; a quarantine ends with a person by design.
_NO_REPAIRS = tuple(plan for plan in plans.PLANS if not decide.ends_closed(plan))


def failures(store: Store, kind: str, limits: Limits) -> int:
    """How many of the last repairs of this kind of target (node or job) failed, since the last one that did not, and
    since a person reset the breaker; counted up to the limit."""
    row = store.control.get(RESET)
    since = float(row["changed_at"]) if row else 0.0
    return store.incidents.failures_in_a_row(kind, limits.breaker_failures, _NO_REPAIRS, since)


def reset(store: Store, who: str) -> None:
    """A person has looked: the failures until now count no longer."""
    store.control.put(RESET, "", who)
