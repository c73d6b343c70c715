# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an incident changes, as the columns of its row. Pure: the store writes them, alone or together with a claim.

`dispatch_until` and `dispatch_tries` belong to every change by a run: it has arrived. Only what is no progress (a wait)
keeps the number of tries, so that a wait that is due again and again is not dispatched without a pause.
"""

from __future__ import annotations

from typing import Any, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import (
    NOW,
    Sql,
    clip,
    pack,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    ESCALATED,
    OPEN,
    WAITING,
    Request,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Wait

WHY = 1000  # characters of the column

Columns = dict[str, Any]


def plan(name: str, step: str, why: str, memory: Mapping[str, Any], new_round: bool) -> Columns:
    """A decision: what is done, beginning with which step. `new_round` begins the bookkeeping of the steps anew."""
    return {
        **_state(OPEN, why, memory),
        **_arrived(),
        "plan": name,
        "step": step,
        "round": Sql("round + 1") if new_round else Sql("round"),
        "open_key": Sql("target_key"),
        "closed_at": None,
    }


def asked(request: Request) -> Columns:
    """Who wants it to go on, and why."""
    return {
        "requested_by": clip(request.by, 128),
        "request": pack({"reason": clip(request.reason, WHY), "override": list(request.override)}),
    }


def advance(step: str, why: str, memory: Mapping[str, Any]) -> Columns:
    """On to the next step; `why` stays the decision's."""
    return {**_state(OPEN, why, memory), **_arrived(), "step": step}


def resume() -> Columns:
    """A wait is over, or a run died: on with the step at which it stands."""
    return {"state": OPEN, "updated_at": Sql(NOW), **_no_wait()}


def wait(for_what: Wait, why: str, memory: Mapping[str, Any]) -> Columns:
    """What is waited for, until when."""
    return {
        **_state(WAITING, why, memory),
        "wait_kind": for_what.kind,
        "wait_args": pack(dict(for_what.args)),
        "wait_until": for_what.until,
        "dispatch_until": None,
    }


def escalate(why: str, memory: Mapping[str, Any]) -> Columns:
    """To a person. The target gets no other incident until it is well again by somebody's hand."""
    return {
        **_state(ESCALATED, why, memory),
        **_arrived(),
        "step": "",
        "open_key": Sql("target_key"),
        "closed_at": Sql(NOW),
    }


def close(why: str, memory: Mapping[str, Any]) -> Columns:
    """Over."""
    return {**_state(CLOSED, why, memory), **_arrived(), "step": "", "open_key": None, "closed_at": Sql(NOW)}


def note(why: str) -> Columns:
    """Why it does not go on just now."""
    return {"why": clip(why, WHY), "dispatch_until": None, "updated_at": Sql(NOW)}


def _state(state: str, why: str, memory: Mapping[str, Any]) -> Columns:
    return {
        "state": state,
        "why": clip(why, WHY),
        "memory": pack(dict(memory)),
        "updated_at": Sql(NOW),
        **_no_wait(),
    }


def _no_wait() -> Columns:
    return {"wait_kind": "", "wait_args": "", "wait_until": None}


def _arrived() -> Columns:
    return {"dispatch_until": None, "dispatch_tries": 0}
