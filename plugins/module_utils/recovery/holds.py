# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that we hold out of service: how many they are, and that two runs do not both take the last one.

A node that was left to a person counts for a while only: a few that are broken for weeks must not keep all others from
being repaired. What persons and other tools hold is no hold of ours.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Incident
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    OBSERVE,
    Limits,
    Settings,
)

_HOLDING = tuple(plan for plan in plans.PLANS if decide.holds_node(plan))
_REPEAT_SHADOW = 180.0  # how long a target counts as held by us when we only observe; a lasting fault comes each minute
_LOCK = "holds"


def besides(store: Store, settings: Settings, key: str) -> int:
    """How many other nodes we hold; observing, with those that we would hold if we acted."""
    held = _held(store, settings.limits, key)
    if settings.mode == OBSERVE:
        held += store.records.shadow_holds(key, _REPEAT_SHADOW)
    return held


def take(
    store: Store, limits: Limits, incident: Incident, token: str, change: Mapping[str, Any], allowed: Optional[int]
) -> bool:
    """Write a decision that takes its node out of service; False, and nothing written, where too many others are.

    Args:
        allowed: how many nodes may be held, this one included; None for any number.

    Raises:
        Lost: the claim is another run's, or the lease is over.
    """

    def counted() -> bool:
        store.control.lock(_LOCK)  # between the gates and this another run may have taken the last one
        if _held(store, limits, incident.key) >= (allowed or 0):
            return False
        store.claims.decide(incident, token, change)
        return True

    if allowed is None:
        store.claims.decide(incident, token, change)
        return True
    return store.claims.hold(incident.key, token, counted)


def _held(store: Store, limits: Limits, key: str) -> int:
    return store.incidents.held(key, _HOLDING, limits.quarantine_counts)
