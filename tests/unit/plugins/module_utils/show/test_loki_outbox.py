# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, told to a server that behaves as Loki, over HTTP, from a real ledger."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Busy, Entry
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.client import LokiClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    LokiSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import gather, loki_outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.loki_outbox import LokiOutbox
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import (
    Answer,
    Certificate,
    as_page,
    as_text,
    make_certificate,
)

from .history import recover

ACCOUNT = ("recovery", "s3cr3t:with colon")
LINES = 6  # of one recovery


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def loki() -> Iterator[LokiStandIn]:
    with LokiStandIn() as server:
        server.ingress = ACCOUNT
        yield server


@pytest.fixture
def settings(loki: LokiStandIn, ledger: LedgerSettings, tmp_path: Path) -> Settings:
    secret = tmp_path / "loki.credentials"
    secret.write_text(":".join(ACCOUNT) + "\n")
    told = LokiSettings(url=loki.url, credentials_file=str(secret), timeout=3.0)
    return Settings(cluster="lab", ledger=ledger, loki=told)


def ask(settings: Settings, selector: str = '{job="job-recovery"}') -> list[Entry]:
    now = time.time()
    return LokiClient(settings.loki).query_range(
        selector, int((now - 3600) * 1e9), int((now + 60) * 1e9), 5000
    )


def drain(worker: LokiOutbox, settings: Settings) -> int:
    turns = 1
    while worker.look(settings):
        turns += 1
        assert turns < 500
    return turns


def test_everything_is_told_once_and_in_order(settings: Settings, store: Store) -> None:
    incidents = [recover(store, "node%d" % number) for number in range(3)]
    worker = LokiOutbox()
    drain(worker, settings)
    drain(worker, settings)
    found = ask(settings)
    bodies = [json.loads(entry.line) for entry in found]
    assert len(found) == len({body["id"] for body in bodies}) == LINES * 3
    assert [body["at"] for body in bodies] == sorted(body["at"] for body in bodies)
    recovered = ask(settings, '{job="job-recovery", component="outcome", cluster="lab", outcome="recovered"}')
    assert [json.loads(entry.line)["incident"] for entry in recovered] == [each.id for each in incidents]
    labels = {name for entry in found for name, _value in entry.labels}
    assert labels == {"job", "component", "cluster", "outcome"}
    worker.close()


def test_a_second_reporter_tells_nothing_twice(settings: Settings, store: Store, loki: LokiStandIn) -> None:
    recover(store, "node1")
    drain(LokiOutbox(), settings)
    asked = len(loki.requests)
    drain(LokiOutbox(), settings)
    assert len(loki.requests) == asked
    recover(store, "node2")
    drain(LokiOutbox(), settings)
    assert len(ask(settings)) == LINES * 2


def test_killed_between_loki_and_the_ledger(settings: Settings, store: Store) -> None:
    recover(store, "node1")
    drain(LokiOutbox(), settings)
    store.database.write("UPDATE outbox SET ended_at = NULL")
    # what it says now of the same rows does not matter: the text of the first time is pushed again
    store.database.write("UPDATE incidents SET why = 'changed since'")
    drain(LokiOutbox(), settings)
    found = ask(settings)
    assert len(found) == LINES
    assert not any("changed since" in entry.line for entry in found)
    assert Outbox(store.database, "loki").backlog() == 0


@pytest.mark.parametrize(
    ("instead", "error", "wait"),
    [
        (as_text(429, "ingestion rate limit exceeded"), Busy, 0.0),
        (as_text(429, "slow down", **{"Retry-After": "17"}), Busy, 17.0),
        (as_text(503, "x", **{"Retry-After": "99999"}), Busy, 300.0),
        (as_text(503, "x", **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), Busy, 0.0),
        (as_text(500, "oops"), Busy, 0.0),
        (as_page(401, "<html>"), Forbidden, 0.0),
        (as_page(404, "<html>"), Unreadable, 0.0),
        (as_page(302, "", Location="/login"), Unreadable, 0.0),
        (as_text(400, "The plain HTTP request was sent to HTTPS port"), Unreadable, 0.0),
        (as_text(400, "entry has timestamp too new"), Unreadable, 0.0),
    ],
)
def test_while_loki_is_away_nothing_is_lost(
    settings: Settings, store: Store, loki: LokiStandIn, instead: Answer, error: type, wait: float
) -> None:
    worker = LokiOutbox()
    recover(store, "node1")
    loki.instead = instead
    for _turn in range(3):
        with pytest.raises(error) as caught:
            worker.look(settings)
        assert getattr(caught.value, "retry_after", 0.0) == wait
        assert ACCOUNT[1] not in str(caught.value)
    recover(store, "node2")
    assert Outbox(store.database, "loki").backlog() == LINES
    loki.instead = None
    drain(worker, settings)
    assert len(ask(settings)) == LINES * 2


def test_a_connection_refused(settings: Settings, store: Store, loki: LokiStandIn) -> None:
    recover(store, "node1")
    loki.close()
    with pytest.raises(Unreachable):
        LokiOutbox().look(settings)
    assert Outbox(store.database, "loki").backlog() == LINES


def test_what_loki_never_takes_is_given_up_alone(settings: Settings, store: Store, loki: LokiStandIn) -> None:
    for number in range(4):
        recover(store, "node%d" % number)
    old = store.incidents.report()[2]
    store.database.write("UPDATE incidents SET opened_at = opened_at - 8 * 86400 WHERE id = %s", (old.id,))
    worker = LokiOutbox()
    lines = [("old:%d" % day, time.time() - day * 86400, "fault", "", '{"kind":"fault"}') for day in (8, 9)]
    Outbox(store.database, "loki").put(lines)
    drain(worker, settings)
    ends = store.database.rows("SELECT ref, trouble FROM outbox WHERE trouble <> '' ORDER BY ref")
    assert [row["ref"] for row in ends] == ["old:8", "old:9"]
    assert all("too old" in row["trouble"] for row in ends)
    assert Outbox(store.database, "loki").backlog() == 0
    assert len(ask(settings)) == LINES * 4 - 1  # the fault of before the horizon is told no more


def test_a_row_that_shows_late_is_told_all_the_same(settings: Settings, store: Store) -> None:
    worker = LokiOutbox()
    recover(store, "node1")
    drain(worker, settings)
    late = recover(store, "node2")
    behind = gather.OVERLAP / 2
    store.database.write(
        "UPDATE incidents SET opened_at = opened_at - %s, closed_at = closed_at - %s WHERE id = %s",
        (behind, behind, late.id),
    )
    drain(worker, settings)
    assert len(ask(settings)) == LINES * 2
    # one that was stopped for longer is found by a thorough look
    later = recover(store, "node3")
    store.database.write("UPDATE incidents SET closed_at = closed_at - 1000 WHERE id = %s", (later.id,))
    drain(worker, settings)
    assert len(ask(settings)) == LINES * 3 - 1
    drain(LokiOutbox(), settings)
    assert len(ask(settings)) == LINES * 3


def test_a_long_backlog_is_pushed_in_bounded_batches(settings: Settings, store: Store, loki: LokiStandIn) -> None:
    outbox = Outbox(store.database, "loki")
    now = time.time()
    count = loki_outbox.MAX_ENTRIES * 2 + 7
    outbox.put([("x:%d" % n, now - 1800 + n * 0.001, "refusal", "refused", '{"n":%d}' % n) for n in range(count)])
    before = len(loki.requests)
    drain(LokiOutbox(), settings)
    assert len(loki.requests) - before == 3
    assert [json.loads(entry.line)["n"] for entry in ask(settings)] == list(range(count))


def test_batches_are_bounded_in_bytes() -> None:
    rows = [{"line": "x" * 400000} for _turn in range(4)]
    assert len(loki_outbox.batch(rows)) == 2
    assert len(loki_outbox.batch([{"line": "x" * 2000000}])) == 1


@pytest.mark.parametrize("change", [{"url": ""}, {"ship": False}])
def test_nothing_is_gathered_where_it_is_not_wanted(
    settings: Settings, store: Store, loki: LokiStandIn, change: dict[str, Any]
) -> None:
    recover(store, "node1")
    assert not LokiOutbox().look(dataclasses.replace(settings, loki=dataclasses.replace(settings.loki, **change)))
    assert not loki.requests
    assert Outbox(store.database, "loki").newest() is None


def test_tls_tenant_and_credentials(
    settings: Settings, store: Store, certificate: Certificate, tmp_path: Path
) -> None:
    recover(store, "node1")
    with LokiStandIn(certificate, tenants=True) as server:
        server.ingress = ACCOUNT
        ours = dataclasses.replace(
            settings.loki, url=server.url + "/loki/api/v1/", ca_file=str(certificate.ca), tenant="hpc"
        )
        site = dataclasses.replace(settings, loki=ours)
        drain(LokiOutbox(), site)
        assert len(ask(site)) == LINES
        for change, error in (
            ({"ca_file": ""}, Unreachable),
            ({"credentials_file": str(tmp_path / "none")}, Unreadable),
            ({"tenant": "a\nb"}, RecoveryError),
        ):
            wrong = dataclasses.replace(site, loki=dataclasses.replace(ours, **change))
            with pytest.raises(error):
                LokiClient(wrong.loki).push([])


def test_old_lines_leave_the_outbox(store: Store) -> None:
    outbox = Outbox(store.database, "loki")
    now = time.time()
    outbox.put([("x:%d" % days, now - days * 86400, "fault", "", "{}") for days in (1, 9, 91)])
    outbox.end([row["id"] for row in outbox.waiting(10) if row["ref"] in ("x:1", "x:9")])
    assert outbox.expire(gather.KEEP_TOLD, gather.KEEP_UNTOLD) == 2
    assert store.database.value("SELECT GROUP_CONCAT(ref) AS refs FROM outbox") == "x:1"
