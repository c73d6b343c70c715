# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Totals that only grow, whatever the ledger forgets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.figures import DAY
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.totals import (
    Look,
    Totals,
    add,
    dump,
    load,
    out_between,
    since,
)

DAY_NUMBER = 20000
RECOVERED = ("incidents", "node", "recovered")
NOW = DAY_NUMBER * DAY + 3600


def look(at: float = NOW, day: int = DAY_NUMBER, **counts: int) -> Look:
    """What the ledger has of one day: refusals by gate."""
    return Look(at, refusals=[{"gate": gate, "day": day, "n": number} for gate, number in counts.items()])


NEXT = partial(look, NOW + DAY, DAY_NUMBER + 1)


def ended(state: str = "closed", took: float = 40.0, **columns: Any) -> dict[str, Any]:
    row = {"target_kind": "node", "state": state, "acted": 1, "proved": 1, "opened_at": NOW - took, "closed_at": NOW}
    return {**row, **columns}


def after(*looks: Look) -> dict[tuple[str, ...], float]:
    totals = Totals()
    for each in looks:
        totals = add(load(dump(totals)) if totals.at is not None else totals, each)
    return dict(totals.counts)


@pytest.mark.parametrize(
    ("looks", "counted"),
    [
        ([look(owner=5)], {}),  # what was there before is not counted: nobody knows when it was
        ([look(owner=5), look(owner=5)], {}),
        ([look(owner=5), look(owner=8), look(owner=8), look(owner=9)], {"owner": 4}),
        ([look(), look(owner=2, scope=1)], {"owner": 2, "scope": 1}),
        ([look(owner=5), look(owner=2), look(owner=5)], {"owner": 3}),  # rows that went and new ones
        ([look(owner=5), NEXT(owner=3)], {"owner": 3}),
        ([look(owner=5), NEXT(owner=1), NEXT(owner=4)], {"owner": 4}),
        ([look(), look(heard_of=2)], {"other": 2}),  # a newer version's gate
    ],
)
def test_what_a_day_has_more_is_added(looks: list[Look], counted: dict[str, float]) -> None:
    assert {key[1]: value for key, value in after(*looks).items() if key[0] == "refusals"} == counted


@pytest.mark.parametrize(
    ("row", "counted"),
    [
        (ended(), {RECOVERED: 1, ("seconds", "node"): 40, ("bucket", "node", "60"): 1}),
        (ended(took=60.0), {RECOVERED: 1, ("seconds", "node"): 60, ("bucket", "node", "60"): 1}),
        (ended(took=9e9), {RECOVERED: 1, ("seconds", "node"): 9e9, ("bucket", "node", "+Inf"): 1}),
        (ended("escalated"), {("incidents", "node", "escalated"): 1}),
        (ended(proved=0), {("incidents", "node", "ended"): 1}),
        (ended(acted=0), {("incidents", "node", "ended"): 1}),
        (ended(target_kind="pod", acted=0), {("incidents", "other", "ended"): 1}),
    ],
)
def test_how_incidents_ended(row: dict[str, Any], counted: dict[tuple[str, ...], float]) -> None:
    assert {key: value for key, value in after(Look(NOW), Look(NOW, ended=[row])).items() if key[0] != "out"} == counted


def test_an_incident_that_is_tried_again_and_then_recovers_is_counted_for_both() -> None:
    left, well = Look(NOW, ended=[ended("escalated")]), Look(NOW, ended=[ended()])
    counts = after(Look(NOW), left, Look(NOW), well, well)
    assert (counts["incidents", "node", "escalated"], counts["incidents", "node", "recovered"]) == (1, 1)


@pytest.mark.parametrize(
    ("opened", "closed", "state", "recovery", "person"),
    [
        (100, None, "open", 10, 0),
        (115, None, "waiting", 5, 0),
        (100, 118, "closed", 8, 0),
        (100, 105, "closed", 0, 0),
        (100, 114, "escalated", 4, 6),
        (50, 60, "escalated", 0, 10),
        (130, None, "open", 0, 0),  # of a clock that was put back
    ],
)
def test_time_out_of_service(opened: float, closed: float, state: str, recovery: float, person: float) -> None:
    row = {"opened_at": opened, "closed_at": closed, "state": state}
    assert out_between([row], 110, 120) == {"recovery": recovery, "person": person}


def test_time_out_of_service_is_counted_once() -> None:
    row = {"opened_at": NOW - 1000, "closed_at": None, "state": "open"}
    looks = [Look(NOW + seconds, nodes_out=[row]) for seconds in (0, 10, 10, 5, 30)]
    assert after(*looks)["out", "recovery"] == 30


@pytest.mark.parametrize(
    ("at", "begin"),
    [
        (None, DAY_NUMBER - 1),
        (NOW, DAY_NUMBER - 1),
        (NOW - 10 * DAY, DAY_NUMBER - 11),  # it was down for ten days
        (NOW + 10 * DAY, DAY_NUMBER - 1),  # the database's clock was wrong
    ],
)
def test_rows_are_read_from_the_day_before_the_last_look(at: float, begin: int) -> None:
    assert since(Totals(at), NOW) == begin * DAY


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"at": null, "counts": [], "seen": []}', '{"at": 1, "counts": 3, "seen": []}']
)
def test_what_is_no_totals_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        load(text)
