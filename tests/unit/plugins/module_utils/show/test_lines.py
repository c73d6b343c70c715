# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that are made of a real ledger's rows."""

from __future__ import annotations

import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.history import READERS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import lines

from .history import do_step, open_incident, recover

KEYS = {
    "at", "kind", "incident", "target_kind", "target", "machine", "scheduler", "fault_kind", "remediation", "step",
    "status", "gate", "why", "seconds", "id",
}  # fmt: skip
HOSTILE = "{{ lookup('pipe','id') }} \x1b[31m\n<script>\u202e " + "\U0001f4a5" * 3000


def told(store: Store, since: float = 0.0) -> list[lines.Line]:
    return [lines.lines_of(what, row) for what, read in READERS.items() for row in read(store.database, since, 100, 0)]


def bodies(store: Store) -> list[dict]:
    return [json.loads(line.text) for line in told(store)]


def test_a_repair_from_the_fault_to_the_outcome(store: Store) -> None:
    incident = recover(store, "node1")
    found = sorted(told(store), key=lambda line: line.at)
    shown = [(line.kind, line.outcome, json.loads(line.text)) for line in found]
    assert [(kind, outcome, body.get("step"), body.get("status")) for kind, outcome, body in shown] == [
        ("fault", "", None, None),
        ("step", "", "restart_daemon", "started"),
        ("step", "", "restart_daemon", "done"),
        ("step", "", "confirm", "started"),
        ("step", "", "confirm", "done"),
        ("outcome", "recovered", None, "recovered"),
    ]
    for _kind, _outcome, body in shown:
        assert set(body) <= KEYS
        assert (body["incident"], body["target"], body["machine"]) == (incident.id, "node1", "node1")
        assert body["fault_kind"] == "daemon_down"
        assert body["at"].endswith("Z")
    assert shown[-1][2]["seconds"] == pytest.approx(incident.closed_at - incident.opened_at, abs=0.001)
    assert shown[-1][2]["remediation"] == "restart_daemon"


def test_what_was_not_proved_is_no_recovery(store: Store) -> None:
    left = do_step(store, open_incident(store, "node1"), changes.escalate("it stays dead", {}), "failed", "no answer")
    gone = open_incident(store, "node2")
    store.incidents.change(gone.id, changes.close("gone: looked at again", {}))
    by_hand = do_step(store, open_incident(store, "node3"), changes.escalate("x", {}), "failed")
    store.incidents.change(by_hand.id, changes.close("well again, not by us", {}))
    # a proof of an earlier round is none of the last
    again = recover(store, "node4")
    store.incidents.change(again.id, changes.plan("restart_daemon", "restart_daemon", "x", {}, new_round=True))
    store.incidents.change(again.id, changes.close("well again, not by us", {}))
    found = {line["incident"]: line["status"] for line in bodies(store) if line["kind"] == "outcome"}
    assert found == {left.id: "escalated", gone.id: "ended", by_hand.id: "ended", again.id: "ended"}


def test_refusals_attached_faults_and_commands(store: Store) -> None:
    incident = open_incident(store, "node1")
    store.records.attach(incident.id, "node:node1", "node_not_responding", "slurm", {})
    store.records.refuse("node:node2", "daemon_down", "slurm", "mode", "observing", {}, "restart_daemon")
    store.records.refuse("job:kubernetes:team/train", "job_failed", "kubernetes", "opt_in", "not asked for", {})
    store.commands.note("stop", "root", reason="maintenance")
    found = {line.kind + json.loads(line.text).get("target", ""): line for line in told(store) if line.kind != "step"}
    refused = json.loads(found["refusalnode2"].text)
    assert (refused["gate"], refused["machine"], refused["remediation"]) == ("mode", "node2", "restart_daemon")
    assert found["refusalnode2"].outcome == "refused"
    job = json.loads(found["refusalteam/train"].text)
    assert (job["target_kind"], job["scheduler"]) == ("job", "kubernetes")
    assert not {"machine", "incident"} & set(job)
    command = json.loads(found["command"].text)
    assert (command["status"], command["why"]) == ("stop", "by root: maintenance")
    attached = [json.loads(line.text) for line in told(store) if line.ref.startswith("attached")]
    assert [(line["fault_kind"], line["incident"], line["status"]) for line in attached] == [
        ("node_not_responding", incident.id, "attached")
    ]


def test_text_is_harmless_and_bounded(store: Store) -> None:
    fault = Fault("daemon_down", "slurm", "lab", "slurm", (Target("node", "node1"),), 1.0, "restart_daemon")
    opened = store.incidents.open(fault, fault.targets[0], "node:node1", "node1", Request(HOSTILE[:100], HOSTILE))
    store.incidents.change(opened.id, changes.close(HOSTILE, {}))
    store.records.refuse("node:node2", "daemon_down", "slurm", "owner", HOSTILE, {})
    store.commands.note("retry", HOSTILE, HOSTILE, HOSTILE)
    for line in told(store):
        assert line.text.isascii()
        assert line.text.isprintable()
        assert len(line.text) < 20000
        for value in json.loads(line.text).values():
            assert str(value).isprintable()


def test_the_same_row_is_the_same_line_and_a_second_end_is_another(store: Store) -> None:
    incident = recover(store, "node1")
    first = told(store)
    assert told(store) == first
    assert len({line.ref for line in first}) == len(first)
    store.incidents.change(incident.id, changes.close("again", {}))
    more = {line.ref for line in told(store)} - {line.ref for line in first}
    assert len(more) == 1
    assert more.pop().startswith("outcome:%d:" % incident.id)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (1796076000.123456, "2026-11-30T22:00:00.123456Z"),
        (1796076000.9999999, "2026-11-30T22:00:01.000000Z"),
    ],
)
def test_times(moment: float, text: str) -> None:
    assert lines.rfc3339(moment) == text
