# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lasts of the agents' reports, how often it is sent, and which addresses are a node's: over a real ledger."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent import munge, protocol
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener import believe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener.server import Arrival, Bucket
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener.watch import Book, resolve
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Forbidden
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import silent_agents
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

from ..recovery.world import fault_of

BOOT = "11111111-2222-3333-4444-555555555555"
NEXT = "99999999-2222-3333-4444-555555555555"
NODE1 = Machine("node1", "node1", "", "10.0.0.1")


def report(**changes: Any) -> dict[str, Any]:
    good = dict.fromkeys(("severity", "device", "cause"), "")
    good.update(id=secrets.token_hex(16), code="xid79", family="xid", verdict="hardware", action="reboot", count=1)
    return {**good, "first": None, "last": None, "boot_id": BOOT, "lines": [], **changes}


def arrival(*reports: dict[str, Any], boot: str = BOOT) -> tuple[Arrival, Machine]:
    message = protocol.Message("a" * 32, "b" * 32, "node1", boot, list(reports))
    return Arrival(munge.Decoded("10.0.0.1", 0, b""), message, "10.0.0.1"), NODE1


def nothing(_store: Store) -> None:
    pass


def an_incident_is_open(store: Store) -> None:
    store.incidents.open(fault_of("node1"), Target("node", "node1"), "node:node1", "node1", Request())


def an_incident_was_closed(store: Store) -> None:
    an_incident_is_open(store)
    store.database.write("UPDATE incidents SET open_key = NULL, closed_at = %s", (store.now() + 1,))


def the_node_was_seen_in_another_boot(store: Store) -> None:
    store.machines.seen_healthy("node1", NEXT, "")


@pytest.mark.parametrize(
    ("changes", "meanwhile", "first", "later"),
    [
        ({}, nothing, 1, 1),
        ({"action": "report"}, nothing, 1, 0),  # to be known, once
        ({"verdict": "unknown"}, nothing, 1, 0),
        ({}, an_incident_is_open, 1, 0),  # somebody is at work
        ({}, an_incident_was_closed, 1, 0),
        ({}, the_node_was_seen_in_another_boot, 1, 0),
        ({"boot_id": NEXT}, nothing, 0, 0),  # of a boot that is over
        ({"last": 1000.0}, nothing, 0, 0),  # old when it comes
    ],
)
def test_what_is_sent_again(
    ledger: LedgerSettings, store: Store, changes: dict[str, Any], meanwhile: Any, first: int, later: int
) -> None:
    store.machines.put(NODE1)
    clock = [1000.0]
    book, settings = Book(lambda: clock[0]), dataclasses.replace(Settings(cluster="lab"), ledger=ledger)
    (answer,), events = book.look(settings, [arrival(report(**changes))])
    assert (len(answer.taken), len(events)) == (1, first)
    meanwhile(store)
    assert book.look(settings, [])[1] == []
    clock[0] += 61
    assert len(book.look(settings, [])[1]) == later
    book.close()
    again = Book()  # after a restart
    assert len(again.look(settings, [])[1]) == (0 if meanwhile not in (nothing, an_incident_is_open) else first)
    again.close()


def test_who_was_heard_is_kept_and_outlives_a_restart(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    store.machines.put(NODE1)
    settings = dataclasses.replace(Settings(cluster="lab", state_dir=str(tmp_path)), ledger=ledger)
    silent_agents.save(str(tmp_path), {"node1": 1.0, "gone": 1.0})
    clock = [1000.0]
    book = Book(lambda: clock[0])
    book.look(settings, [])
    assert silent_agents.load(str(tmp_path)) == {"node1": 1.0}  # the other is no node any more
    book.look(settings, [arrival()])
    assert silent_agents.load(str(tmp_path)) == {"node1": 1.0}  # it was written just now
    clock[0] += 16
    book.look(settings, [])
    assert store.now() - 60 < silent_agents.load(str(tmp_path))["node1"] <= store.now()
    clock[0] += 16
    (tmp_path / "agents-heard.json").unlink()
    (answer,), _events = book.look(dataclasses.replace(settings, state_dir="/nonexistent"), [arrival(report())])
    assert len(answer.taken) == 1  # a report is taken though nothing can be written there
    book.close()


@pytest.mark.parametrize(
    ("proved", "why"),
    [
        (munge.Decoded("10.0.0.1", 0, b""), None),
        (munge.Decoded("10.0.0.1", 1000, b""), "uid 1000"),
        (munge.Decoded("10.0.0.2", 0, b""), "says nothing about node1"),
        (munge.Decoded("127.0.1.1", 0, b""), "--origin"),
    ],
)
def test_who_is_believed(proved: munge.Decoded, why: Optional[str]) -> None:
    if why is None:
        believe.check_sender(proved, NODE1, {"10.0.0.1"})
    else:
        with pytest.raises(Forbidden, match=why):
            believe.check_sender(proved, NODE1, {"10.0.0.1"})


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["10.0.0.1"], {"10.0.0.1"}),
        (["127.3.0.1"], {"127.3.0.1"}),  # as it was given
        (["localhost"], set()),  # a name that means every host
        (["no-such-host.invalid", "10.0.0.1"], {"10.0.0.1"}),
    ],
)
def test_addresses(names: list[str], found: set[str]) -> None:
    assert resolve(names) == found


METADATA = b"STATUS:          Success (0)\nENCODE_HOST:     %s\nUID:             %s\n\npay\n\nload"


@pytest.mark.parametrize(
    ("rc", "host", "user", "told"),
    [
        (0, b"node2 (10.89.0.12)", b"root (0)", munge.Decoded("10.89.0.12", 0, b"pay\n\nload")),
        (0, b"??? (10.89.0.12)", b"??? (1000)", munge.Decoded("10.89.0.12", 1000, b"pay\n\nload")),
        (17, b"node2 (10.89.0.12)", b"root (0)", "rc 17"),  # replayed: its metadata is printed all the same
        (0, b"node2", b"root (0)", "not understood"),
        (0, b"(10.89.0.12) x", b"root (0)", "not understood"),
    ],
)
def test_what_unmunge_says(rc: int, host: bytes, user: bytes, told: Any) -> None:
    if isinstance(told, str):
        with pytest.raises(munge.NotProved, match=told):
            munge.decoded(rc, METADATA % (host, user), b"")
    else:
        assert munge.decoded(rc, METADATA % (host, user), b"") == told


def test_a_bucket_fills_again() -> None:
    bucket = Bucket(2, 0.5, 0.0)
    assert [bucket.take(1, 0.0) for _turn in range(3)] == [True, True, False]
    assert [bucket.take(1, 2.0), bucket.take(1, 2.0)] == [True, False]
