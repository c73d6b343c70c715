# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A canary comes when it is asked for: the source's own look, and a ledger on a real MariaDB."""

from __future__ import annotations

import threading
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import canary
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.dispatch import LedgerWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    parse,
)


def settings(ledger: LedgerSettings, folder: object):
    data = {"cluster": "lab", "stop_file": "%s/STOP" % folder, "state_dir": str(folder), "slurm": {"enabled": False}}
    made = parse(data)
    object.__setattr__(made, "ledger", ledger)
    return made


def row(value: str, at: float) -> dict:
    return {"value": value, "changed_at": at, "changed_by": "x"}


@pytest.mark.parametrize(
    ("sent", "seen", "expected"),
    [
        (None, None, canary.Canary()),
        (row("1", 10.0), None, canary.Canary(10.0)),
        (row("2", 20.0), row("1", 11.0), canary.Canary(20.0, 11.0)),
        (row("2", 20.0), row("2", 21.5), canary.Canary(20.0, 21.5, 1.5)),
        (None, row("2", 21.5), canary.Canary(None, 21.5)),
    ],
)
def test_what_the_rows_say(sent, seen, expected) -> None:
    assert canary.of_rows(sent, seen) == expected


def test_the_source_sends_one_at_once_when_asked(ledger: LedgerSettings, store: Store, tmp_path) -> None:
    made = settings(ledger, tmp_path)
    source = LedgerWatch()
    try:
        assert ["canary" in event for event in source.look(made)] == [True]
        assert source.look(made) == []
        store.control.put(canary.WANTED, "", "root")
        assert ["canary" in event for event in source.look(made)] == [True]
        assert source.look(made) == []
    finally:
        source.close()


def test_a_proof_is_of_now_and_not_of_before(ledger: LedgerSettings, store: Store) -> None:
    store.control.put(canary.SENT, "1", "ledger")
    store.control.put(canary.SEEN, "1", "a run")
    assert canary.prove(store, "root", 0.2) is None
    assert store.control.get(canary.WANTED) is None, "nobody waits any more"

    def answer() -> None:
        with open_store(ledger) as other:
            until = time.monotonic() + 10
            while not canary.send_now(other) and time.monotonic() < until:
                time.sleep(0.05)
            other.control.put(canary.SENT, "2", "ledger")
            other.control.put(canary.SEEN, "2", "a run")

    engine = threading.Thread(target=answer)
    engine.start()
    took = canary.prove(store, "root", 10.0)
    engine.join()
    assert took is not None
    assert 0.0 < took < 10.0
