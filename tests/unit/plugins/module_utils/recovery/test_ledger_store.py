# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger against a real MariaDB."""

from __future__ import annotations

import threading

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import (
    changes,
    database,
    schema,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Duplicate
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    finished,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Lost, Machine, Wait

# PyMySQL leaves its socket to the garbage collector when it cannot connect
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

HOSTILE = (
    "{{ lookup('pipe','touch /tmp/x') }}",
    "$(touch /tmp/x); `touch /tmp/x`",
    "'; DROP TABLE incidents; -- ",
    '" OR 1=1 -- \\',
    "%s %d %(name)s %%",
    "line\nfeed\ttab\x00nul\x1b[31mred\x07",
    "<script>alert(1)</script>",
    "\u202eright to left \U0001f4a5 \ud800 lone surrogate",
    "x" * 5000,
)


def fault(*names: str, kind: str = "node_not_responding") -> Fault:
    targets = tuple(Target("node", name) for name in names)
    return Fault(kind, "slurm", "lab", "slurm", targets, 1_800_000_000.0, "reboot_node")


def opened(store: Store, name: str = "node1") -> int:
    return store.incidents.open(fault(name), Target("node", name), "node:" + name, name, Request()).id


def test_migrations_bear_a_second_run(empty_ledger: LedgerSettings) -> None:
    session = database.connect(empty_ledger)
    with pytest.raises(Absent, match="version 0"):
        open_store(empty_ledger)
    assert schema.migrate(session) == list(range(1, schema.VERSION + 1))
    assert schema.migrate(session) == []
    session.write("DELETE FROM schema_version")  # died after its last statement
    assert schema.migrate(session) == list(range(1, schema.VERSION + 1))
    session.write("INSERT INTO schema_version VALUES (999, 0)")
    with pytest.raises(Conflict, match="999"):
        open_store(empty_ledger)
    session.close()


def test_one_of_many_claims_wins(ledger: LedgerSettings) -> None:
    stores = [open_store(ledger) for _turn in range(8)]
    tokens = [store.claims.begin("reboot_node", "test", 30) for store in stores]
    barrier = threading.Barrier(len(stores))
    won: list[str] = []

    def claim(store: Store, token: str) -> None:
        barrier.wait()
        if store.claims.take("node:node1", token, 30):
            won.append(token)

    threads = [threading.Thread(target=claim, args=pair) for pair in zip(stores, tokens)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    for store in stores:
        store.database.close()


def test_one_open_incident_for_a_target(store: Store) -> None:
    number = opened(store)
    with pytest.raises(Duplicate):
        opened(store)
    opened(store, "node2")
    store.incidents.change(number, changes.close("done", {}))
    assert opened(store) > number


def test_an_escalated_incident_keeps_its_target(store: Store) -> None:
    number = opened(store)
    store.incidents.change(number, changes.escalate("look at it", {}))
    with pytest.raises(Duplicate):
        opened(store)


def test_a_lease_that_is_over_is_nobodys(store: Store) -> None:
    first = store.claims.begin("reboot_node", "first", 0.05)
    second = store.claims.begin("reboot_node", "second", 30)
    assert store.claims.take("node:node1", first, 0.05)
    store.database.value("SELECT SLEEP(0.1)")
    with pytest.raises(Lost):
        store.claims.renew("node:node1", first, 30)
    with pytest.raises(Lost):
        store.claims.hold("node:node1", first, lambda: pytest.fail("the stale run wrote"))
    assert store.claims.take("node:node1", second, 30)
    with pytest.raises(Lost):
        store.claims.renew("node:node1", first, 30)
    store.claims.renew("node:node1", second, 30)
    assert store.claims.hold("node:node1", second, lambda: 7) == 7


def test_what_a_failed_transaction_wrote_is_gone(store: Store) -> None:
    token = store.claims.begin("reboot_node", "test", 30)
    store.claims.take("node:node1", token, 30)
    number = opened(store)

    def work() -> None:
        store.incidents.change(number, changes.note("never"))
        raise Conflict("no")

    with pytest.raises(Conflict):
        store.claims.hold("node:node1", token, work)
    incident = store.incidents.get(number)
    assert incident is not None
    assert incident.why == ""


def test_the_first_intent_stays(store: Store) -> None:
    number = opened(store)
    store.incidents.change(number, changes.plan("reboot_over_ssh", "drain", "because", {}, new_round=False))
    incident = store.incidents.get(number)
    assert incident is not None
    token = store.claims.begin("reboot_node", "test", 30)
    with pytest.raises(Lost):
        store.steps.start(incident, token, {"boot_id": "none"})
    store.claims.take("node:node1", token, 30, number)
    first = store.steps.start(incident, token, {"boot_id": "one"})
    second = store.steps.start(incident, token, {"boot_id": "two"})
    assert (first.intent, first.tries) == ({"boot_id": "one"}, 1)
    assert (second.intent, second.tries) == ({"boot_id": "one"}, 2)
    assert second.started_at == first.started_at
    store.claims.settle(incident, token, finished("done", "", {"proof": 1}), changes.advance("cordon", "", {"a": 1}))
    assert [(row.status, row.proof, row.tries) for row in store.steps.of([number])] == [("done", {"proof": 1}, 0)]
    after = store.incidents.get(number)
    assert after is not None
    assert (after.step, after.memory, after.acted) == ("cordon", {"a": 1}, True)
    assert store.claims.of_run(token) == [
        {"incident": number, "target_key": "node:node1", "results": 1, "live": True}
    ]
    with pytest.raises(Lost):
        store.claims.settle(incident, "b" * 32, finished("failed", "", {}), changes.close("stale", {}))
    assert store.incidents.get(number) == after


def test_refusals_are_counted(store: Store) -> None:
    for _turn in range(3):
        store.records.refuse("node:node1", "node_drained", "slurm", "owner", "a person's", {"owner": "a person's"})
    found = store.records.refusals(["node1"])
    assert [(row["gate"], row["times"]) for row in found] == [("owner", 3)]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_only_text(store: Store, text: str) -> None:
    number = store.incidents.open(
        fault("node1"), Target("node", "node1"), "node:node1", "node1", Request(text, text, (text,))
    ).id
    wait = Wait("time", {"text": text}, 1.0)
    store.incidents.change(number, changes.wait(wait, text, {"text": text, text: 1}))
    store.records.refuse("node:node1", "node_drained", "slurm", "owner", text, {"owner": text})
    store.records.attach(number, "node:node1", "node_drained", "slurm", {"text": text})
    store.control.put("stop", text, text)
    incident = store.incidents.get(number)
    assert incident is not None
    assert incident.memory["text"] == text
    assert incident.wait == wait
    assert incident.request.by == database.clip(text, 128)
    assert incident.why == database.clip(text, 1000)
    assert len(store.records.refusals()) == 1


def test_machines_by_every_name(store: Store) -> None:
    store.machines.put(Machine("node1", "node1", "k8s-1", "10.0.0.1", "https://bmc/redfish/v1/Systems/1", "uuid"))
    store.machines.put(Machine("k2", "", "k2", "10.0.0.2"))
    store.machines.put(Machine("k3", "", "k3", "10.0.0.3"))
    assert store.machines.resolve("kubernetes", ["k8s-1", "k2", "no"])["k8s-1"].name == "node1"
    assert list(store.machines.resolve("slurm", ["node1", "k2"])) == ["node1"]
    with pytest.raises(Duplicate):
        store.machines.put(Machine("other", "node1"))
    store.machines.seen_healthy("node1", "boot", "machine")
    store.machines.seen_healthy("node1", "boot2", "changed")
    machine = store.machines.get(["node1"])["node1"]
    assert (machine.boot_id, machine.machine_id) == ("boot2", "machine")


def test_dispatches_and_runs_that_are_going(store: Store) -> None:
    number = opened(store)
    assert store.incidents.idle() == {number}
    dispatch = store.incidents.dispatch({number: 30.0})
    assert store.incidents.idle() == set()
    assert store.claims.going() == 1
    token = store.claims.begin("advance", "test", 30, dispatch)
    store.claims.take("node:node1", token, 30, number)
    assert store.claims.going() == 1
    store.incidents.change(number, changes.note("arrived"))
    assert store.incidents.idle() == set()
    store.claims.release(token)
    assert store.claims.going() == 0
    assert store.incidents.idle() == {number}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"unix_socket": "/nonexistent/s"}, Unreachable),
        ({"password_file": "/nonexistent/p"}, Unreadable),
        ({"user": "nobody"}, Forbidden),
        ({"database": "no_such_database"}, Forbidden),
    ],
)
def test_each_trouble_has_its_error(ledger: LedgerSettings, change: dict[str, str], error: type) -> None:
    settings = LedgerSettings(**{**ledger.__dict__, **change})
    with pytest.raises(error):
        open_store(settings)


def test_a_frozen_database_is_a_time_out(ledger: LedgerSettings, mariadb) -> None:
    settings = LedgerSettings(**{**ledger.__dict__, "timeout": 1.0})
    with open_store(settings) as store:
        mariadb.freeze()
        try:
            with pytest.raises(TimedOut):
                store.now()
            with pytest.raises(Unreachable):
                open_store(settings)
        finally:
            mariadb.thaw()


def test_a_killed_database_is_unreachable_and_comes_back(ledger: LedgerSettings, mariadb) -> None:
    store = open_store(ledger)
    number = opened(store)
    mariadb.kill()
    try:
        with pytest.raises(RecoveryError) as caught:
            store.now()
        assert isinstance(caught.value, Unreachable)
        with pytest.raises(Unreachable):
            open_store(ledger)
    finally:
        mariadb.start()
        store.database.close()
    with open_store(ledger) as again:
        assert again.incidents.get(number) is not None


def test_no_secret_and_no_value_in_an_error(ledger: LedgerSettings, store: Store) -> None:
    with open(ledger.password_file, encoding="utf-8") as handle:
        password = handle.read().strip()
    settings = LedgerSettings(**{**ledger.__dict__, "user": "nobody"})
    with pytest.raises(Forbidden) as refused:
        open_store(settings)
    assert password not in str(refused.value)
    with pytest.raises(Unreadable) as caught:
        store.database.write("SELECT SECRET-XYZ FROM DUAL WHERE")
    assert "SECRET-XYZ" not in str(caught.value)


def test_retention_keeps_what_is_open(store: Store) -> None:
    kept, gone = opened(store, "node1"), opened(store, "node2")
    store.incidents.change(gone, changes.close("done", {}))
    store.records.refuse("node:node3", "node_drained", "slurm", "owner", "x", {})
    store.database.value("SELECT SLEEP(0.01)")
    assert store.records.expire(0.001) > 0
    assert [incident.id for incident in store.incidents.report()] == [kept]


def test_a_buried_run_frees_its_claims_and_its_incidents_are_due(ledger: LedgerSettings) -> None:
    with open_store(ledger) as store:
        number = opened(store)
        store.incidents.dispatch({number: 60.0})
        token = store.claims.begin("advance", "first", 30)
        assert store.claims.take("node:node1", token, 30, number)
        store.claims.held_by(token, "second")
        assert store.claims.holders() == {token: "second"}
        assert not store.claims.bury(token, "first")  # another process has begun since it was looked at
        assert store.incidents.idle() == set()
        assert store.claims.bury(token, "second")
        assert store.claims.holders() == {}
        assert store.incidents.idle() == {number}
        with pytest.raises(Lost):
            store.claims.renew("node:node1", token, 30)


def test_a_new_engine_sends_again_what_was_on_its_way(ledger: LedgerSettings) -> None:
    with open_store(ledger) as store:
        number = opened(store)
        store.incidents.dispatch({number: 60.0})
        assert (store.incidents.idle(), store.claims.going()) == (set(), 1)
        store.incidents.undispatch()
        assert (store.incidents.idle(), store.claims.going()) == ({number}, 0)
