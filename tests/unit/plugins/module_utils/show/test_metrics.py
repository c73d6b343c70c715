# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics' text, and the worker that serves it: over a real MariaDB, by HTTP, judged by Prometheus' own checker."""

from __future__ import annotations

import http.client
import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    heartbeat,
    silent_agents,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    AgentSettings,
    LedgerSettings,
    MetricsSettings,
    Settings,
    SlurmSettings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.metrics import Family, render
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.metrics_server import MetricsServer

from ....prometheus import promtool
from .history import do_step, open_incident, recover

# PyMySQL leaves the socket of a connection that failed to be collected
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

ANYWHERE = MetricsSettings("127.0.0.1:0")


@pytest.fixture
def settings(ledger: LedgerSettings, tmp_path: Path) -> Settings:
    return Settings(
        cluster='a "lab" \\',
        stop_file=str(tmp_path / "STOP"),
        state_dir=str(tmp_path),
        slurm=SlurmSettings(enabled=False),
        ledger=ledger,
        metrics=ANYWHERE,
    )


@pytest.fixture
def server(settings: Settings, store: Store) -> Iterator[MetricsServer]:
    """A worker that has looked once at an empty ledger."""
    made = MetricsServer()
    made.look(settings)
    yield made
    made.close()


def ask(server: MetricsServer, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def values(server: MetricsServer) -> dict[str, float]:
    """By name and labels, without the cluster's."""
    status, text = ask(server)
    assert status == 200
    samples = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
    return {name.replace(r'cluster="a \"lab\" \\"', "").replace("{,", "{").replace("{}", ""): float(value)
            for name, _space, value in samples}


def test_prometheus_has_nothing_to_say_against_them(server: MetricsServer, settings: Settings, store: Store) -> None:
    recover(store, "node1")
    heartbeat.writer(settings)("ledger", time.time(), "boom")
    server.look(settings)
    assert promtool("check", "metrics", text=ask(server)[1]) == (0, "")


def test_prometheus_would_have_something_to_say() -> None:
    assert promtool("check", "metrics", text=render([Family("x_total", "gauge", "", [("", {}, 1.0)])], {}))[0] != 0


def test_what_happened_is_counted_once(server: MetricsServer, settings: Settings, store: Store) -> None:
    assert values(server)['job_recovery_incidents_total{target_kind="node",outcome="recovered"}'] == 0
    recover(store, "node1")
    left = open_incident(store, "node2", "reboot_over_ssh", "drain")
    do_step(store, left, changes.escalate("no", {}), "failed", "no")
    open_incident(store, "node3", "reboot_over_ssh", "drain")
    for _each in range(3):
        store.records.refuse("node:node4", "node_back", "slurm", "owner", "bob has it", {})
    for _each in range(2):
        server.look(settings)
        seen = values(server)
        for name, value in (
            ('incidents_total{target_kind="node",outcome="recovered"}', 1),
            ('incidents_total{target_kind="node",outcome="escalated"}', 1),
            ('incidents_total{target_kind="job",outcome="recovered"}', 0),
            ('faults_total{fault_kind="daemon_down"}', 3),
            ('refusals_total{gate="owner"}', 3),
            ('steps_total{step="restart_daemon",status="done"}', 1),
            ('steps_total{step="drain",status="failed"}', 1),
            ('recovery_seconds_bucket{target_kind="node",le="5"}', 1),
            ('recovery_seconds_bucket{target_kind="node",le="+Inf"}', 1),
            ('recovery_seconds_count{target_kind="node"}', 1),
            ('incidents_open{target_kind="node",state="escalated"}', 1),
            ('incidents_open{target_kind="node",state="open"}', 1),
            ('nodes_out{waiting_for="person"}', 1),
            ('breaker_failures{target_kind="node"}', 1),
            ('mode{mode="observe"}', 1),
            ("stopped", 0),
            ("ledger_up", 1),
        ):
            assert seen["job_recovery_" + name] == value, name
    store.database.write("DELETE FROM refusals")  # retention
    store.database.write("DELETE FROM steps")
    server.look(settings)
    assert values(server)['job_recovery_refusals_total{gate="owner"}'] == 3


def test_a_new_process_goes_on_with_what_was_counted(server: MetricsServer, settings: Settings, store: Store) -> None:
    recover(store, "node1")
    server.look(settings)
    server.close()
    recover(store, "node2")  # nobody looked
    after = MetricsServer()
    after.look(settings)
    assert values(after)['job_recovery_incidents_total{target_kind="node",outcome="recovered"}'] == 2
    after.close()


def test_damaged_totals_begin_anew(settings: Settings, store: Store, tmp_path: Path) -> None:
    (tmp_path / "metrics-totals.json").write_text('{"at": 17, ')
    recover(store, "node1")
    made = MetricsServer()
    made.look(settings)
    assert values(made)['job_recovery_incidents_total{target_kind="node",outcome="recovered"}'] == 0
    assert json.loads((tmp_path / "metrics-totals.json").read_text())["at"] > 17
    made.close()


def test_time_out_of_service_goes_on(server: MetricsServer, settings: Settings, store: Store) -> None:
    held = open_incident(store, "node1", "reboot_over_ssh", "drain")
    do_step(store, held, changes.advance("cordon", "", {}))
    time.sleep(1.1)
    server.look(settings)
    seen = values(server)
    assert 1 <= seen['job_recovery_node_out_seconds_total{waiting_for="recovery"}'] < 60
    assert seen['job_recovery_nodes_out{waiting_for="recovery"}'] == 1


def test_what_is_not_known_is_left_out(server: MetricsServer, settings: Settings) -> None:
    before = values(server)
    gone = replace(settings, ledger=replace(settings.ledger, unix_socket="/nowhere", host="127.0.0.1", port=1))
    with pytest.raises(RecoveryError):
        server.look(gone)
    seen = values(server)
    assert seen["job_recovery_ledger_up"] == 0
    lost = {name.partition("{")[0] for name in set(before) - set(seen)}
    assert {"job_recovery_incidents_open", "job_recovery_stopped", "job_recovery_breaker_open"} <= lost
    assert not [name for name in lost if name.endswith(("_total", "_bucket"))]
    assert seen["job_recovery_ledger_last_answer_timestamp_seconds"] == before[
        "job_recovery_ledger_last_answer_timestamp_seconds"
    ]
    server.look(settings)
    assert values(server)["job_recovery_ledger_up"] == 1


def test_silent_agents_are_counted(server: MetricsServer, settings: Settings, store: Store) -> None:
    heard = {"node1": store.now(), "node2": store.now() - 1000.0, "node3": store.now() - 2000.0}
    silent_agents.save(settings.state_dir, heard)
    for port, number in ((0, 0.0), (6838, 2.0)):
        server.look(replace(settings, agents=AgentSettings(port)))
        assert values(server)["job_recovery_agents_silent"] == number


def test_a_stop_is_told(server: MetricsServer, settings: Settings, store: Store) -> None:
    store.control.put(stop.STOP, "", "alice")
    server.look(settings)
    assert values(server)["job_recovery_stopped"] == 1


def test_signs_of_life_are_those_of_the_moment_of_the_scrape(server: MetricsServer, settings: Settings) -> None:
    assert values(server)['job_recovery_source_last_seen_timestamp_seconds{source="ledger"}'] == 0
    heartbeat.writer(settings)("ledger", 1790000000.5, None)
    heartbeat.writer(settings)("reporter-loki", 1790000001.0, "429")
    seen = values(server)
    assert seen['job_recovery_source_last_seen_timestamp_seconds{source="ledger"}'] == 1790000000.5
    assert seen['job_recovery_source_failing{source="ledger"}'] == 0
    assert seen['job_recovery_source_failing{source="reporter-loki"}'] == 1


def test_only_metrics_are_served(server: MetricsServer) -> None:
    found = {path: ask(server, path)[0] for path in ("/", "/metrics/", "/../etc/passwd", "/metrics?x=1")}
    assert list(found.values()) == [404, 404, 404, 200]


def test_slow_clients_do_not_keep_prometheus_out(server: MetricsServer) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _each in range(20)]
    until = time.monotonic() + 30
    answer = 0
    while not answer and time.monotonic() < until:
        try:
            answer = ask(server)[0]
        except OSError:
            time.sleep(0.2)
    assert answer == 200
    for each in slow:
        each.close()


@pytest.mark.parametrize("listen", ["9832", "host:port", "host:", ":99999"])
def test_an_address_that_is_none_is_an_error(settings: Settings, store: Store, listen: str) -> None:
    with pytest.raises(BadInput, match="ADDRESS:PORT"):
        MetricsServer().look(replace(settings, metrics=MetricsSettings(listen)))


def test_a_port_that_is_taken_is_an_error_and_is_tried_again(settings: Settings, store: Store) -> None:
    made = MetricsServer()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = replace(settings, metrics=MetricsSettings("127.0.0.1:%d" % other.getsockname()[1]))
        with pytest.raises(Unreadable, match="cannot be listened on"):
            made.look(taken)
    made.look(taken)
    assert ask(made)[0] == 200
    made.look(replace(settings, metrics=MetricsSettings("")))
    assert made.port == 0
    made.close()


def test_without_an_address_the_ledger_is_not_asked(settings: Settings) -> None:
    made = MetricsServer()
    nowhere: Any = LedgerSettings(host="127.0.0.1", port=1)
    assert made.look(replace(settings, ledger=nowhere, metrics=MetricsSettings(""))) is False
