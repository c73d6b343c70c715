# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people see of the recovery, and what they can tell it: over a real MariaDB."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    again,
    breaker,
    plans,
    silent_agents,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    ESCALATED,
    OPEN,
    WAITING,
    Incident,
    Request,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import (
    lines,
    overview,
    what_to_do,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    AgentSettings,
    LedgerSettings,
    load,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Wait

from .test_control import HOSTILE, path, run
from .world import fault_of, job_fault, settings_of

__all__ = ["path"]

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def open_one(store: Store, name: str = "node1", **columns: Any) -> int:
    kind = "job" if name.isdigit() else "node"
    fault = job_fault(name) if kind == "job" else fault_of(name)
    key = "job:slurm:%s" % name if kind == "job" else "node:%s" % name
    machine = "" if kind == "job" else name
    number = store.incidents.open(fault, Target(kind, name), key, machine, Request()).id
    store.incidents.change(number, columns)
    return number


def incident(**fields: Any) -> Incident:
    values: dict[str, Any] = {
        "id": 7,
        "key": "node:node1",
        "target": Target("node", "node1"),
        "scheduler": "slurm",
        "fault_kind": "node_not_responding",
        "source": "slurm",
        "suggested": "reboot_node",
        "state": ESCALATED,
        "machine": "node1",
        "acted": True,
        "plan": "reboot_over_ssh",
    }
    return Incident(**{**values, **fields})


JOB = {"target": Target("job", "77"), "machine": "", "plan": "requeue_job", "fault_kind": "job_failed"}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (incident(), "`job-recovery release 7`"),
        (incident(plan="quarantine_node"), "`job-recovery release 7`"),
        (incident(plan="restart_daemon"), "`job-recovery retry 7`"),
        (incident(memory={plans.TAKEN_OVER: True}), "somebody else has the node"),
        (incident(acted=False, plan=""), "this ends by itself"),
        (incident(**JOB), "`job-recovery retry 7`"),
    ],
)
def test_what_to_do(made: Incident, words: str) -> None:
    assert words in what_to_do(made)


@pytest.mark.parametrize(
    ("command", "made", "wish"),
    [
        ("retry", incident(), ("reboot_node", "node1")),
        ("retry", incident(suggested="report", fault_kind="node_misconfigured"), ("return_node", "node1")),
        ("retry", incident(suggested="quarantine_node", fault_kind="node_suspect"), ("return_node", "node1")),
        ("retry", incident(suggested="restart_daemon", fault_kind="daemon_down"), ("restart_daemon", "node1")),
        ("retry", incident(**JOB), ("requeue_job", "77")),
        ("retry", incident(**{**JOB, "scheduler": "kubernetes"}), ("rerun_kubernetes_job", "77")),
        ("release", incident(), ("return_node", "node1")),
        ("release", incident(plan="quarantine_node", fault_kind="node_suspect"), ("return_node", "node1")),
    ],
)
def test_what_going_on_means(command: str, made: Incident, wish: tuple[str, str]) -> None:
    told = again.again(command, made)
    assert (told.remediation, told.target) == wish
    assert set(told.override).isdisjoint(("stopped", "scope", "identity", "duplicate", "owner", "maintenance"))


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("retry", incident(state=OPEN)),
        ("retry", incident(state=WAITING)),
        ("retry", incident(state=CLOSED)),
        ("release", incident(state=WAITING)),
        ("release", incident(**JOB)),
        ("release", incident(plan="restart_daemon")),
        ("release", incident(acted=False, plan="")),
    ],
)
def test_what_was_not_left_to_a_person_is_not_gone_on_with(command: str, made: Incident) -> None:
    with pytest.raises(BadInput):
        again.again(command, made)


def test_a_wish_is_kept_and_becomes_a_remediation(path: str, store: Store) -> None:
    number = open_one(store, acted=1, plan="quarantine_node", **changes.escalate("flaky", {}))
    words = ["--settings", path, "release", "node1", "--reason", "GPU is back " + HOSTILE, "--wait", "-v"]
    made = again.command(words)
    assert made[:2] == ["ansible-playbook", "mission_control.job_recovery.return_node"]
    assert '!unsafe "node1"' in made[3]
    assert '!unsafe "breaker"' in made[3]
    assert "wait: true" in made[3]
    assert made[-1] == "-v"
    assert again.command(["--settings", path, "retry", str(number)])[1].endswith("reboot_node")
    kept = store.commands.since(0.0, 10)
    assert [(row["command"], row["subject"]) for row in kept] == [
        ("retry", "#%d node1" % number),
        ("release", "#%d node1" % number),
    ]
    assert kept[0]["who"]
    assert kept[0]["reason"] == "retry of #%d" % number
    with pytest.raises(BadInput, match="no incident 'node9' is open"):
        again.command(["--settings", path, "retry", "node9"])
    assert len(store.commands.since(0.0, 10)) == 2


def test_no_machine_is_repaired_for_another_one_of_the_same_name(path: str, store: Store) -> None:
    """The inventory counts from one, slurm.conf from nought."""
    for name, slurm_name in [("node1", "node0"), ("node2", "node1"), ("node3", "")]:
        store.machines.put(Machine(name, slurm_name, "", "ssh-" + name))
    number = open_one(store, acted=1, plan="quarantine_node", **changes.escalate("flaky", {}))
    made = again.command(["--settings", path, "release", str(number)])
    assert '!unsafe "node0"' in made[3]
    store.machines.put(Machine("node1", "", "", "ssh-node1"))  # not in Slurm any more
    with pytest.raises(BadInput, match="another machine"):
        again.command(["--settings", path, "release", str(number)])


def test_a_number_that_may_be_an_incident_or_a_job_is_asked_about(path: str, store: Store) -> None:
    number = open_one(store, acted=1, plan="quarantine_node", **changes.escalate("flaky", {}))
    job = open_one(store, str(number), acted=1, plan="requeue_job", **changes.escalate("again", {}))
    with pytest.raises(BadInput, match="is an incident, and the job of incident #%d" % job):
        again.command(["--settings", path, "retry", str(number)])
    assert again.command(["--settings", path, "retry", "#%d" % number])[1].endswith("reboot_node")
    assert again.command(["--settings", path, "retry", "#%d" % job])[1].endswith("requeue_job")


def test_nothing_is_begun_for_what_is_closed(path: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    number = open_one(store, **changes.close("well", {}))
    assert again.main(["--settings", path, "release", "#%d" % number]) == 1
    assert "is closed, and not left to a person" in capsys.readouterr().err


def test_the_overview(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    settings = settings_of(ledger, str(tmp_path))
    wait = changes.wait(Wait("node_registered", {"node": "node1"}, 2e9), "the boot is awaited", {})
    first = open_one(store, "node1", acted=1, plan="reboot_over_ssh", step="await_boot", **wait)
    second = open_one(store, "node2", acted=1, plan="quarantine_node", **changes.escalate(HOSTILE, {}))
    third = open_one(store, "77", **changes.escalate("reported", {}))
    for name in ("node3", "node4", "node4"):
        store.records.refuse("node:" + name, "node_drained", "slurm", "owner", "why of " + name, {})
    store.records.refuse("node:node5", "node_drained", "slurm", "blast_radius", HOSTILE, {})
    store.database.write("UPDATE refusals SET last_at = last_at - 90 WHERE target_key = 'node:node3'")
    held = store.incidents.get(first)
    assert held is not None
    token = store.claims.begin("test", "test", 30)
    assert store.claims.take(held.key, token, 30, first)
    for name in ("await_boot", "reboot", "release_successor", "tell"):  # what only waits or tells is no act
        store.steps.start(replace(held, step=name), token, {})
    store.commands.note("stop", "alice " + HOSTILE, reason=HOSTILE)
    seen = overview(settings, store)
    assert [(each["incident"], each["waits_for"], each["waits_until"]) for each in seen["going_on"]] == [
        (first, "node_registered", 2e9)
    ]
    assert [(each["incident"], bool(each["what_to_do"])) for each in seen["for_a_person"]] == [
        (second, True),
        (third, True),
    ]
    by_gate = {each["gate"]: each for each in seen["refusals"]}
    assert (by_gate["owner"]["times"], by_gate["owner"]["targets"], by_gate["owner"]["why"]) == (3, 2, "why of node4")
    assert by_gate["blast_radius"]["why"] == HOSTILE
    assert [(each["incident"], each["target"], each["step"]) for each in seen["last_acts"]] == [
        (first, "node1", "release_successor"),
        (first, "node1", "reboot"),
    ]
    assert seen["commands"][0]["command"] == "stop"
    assert seen["breaker"]["node"] == {"failures": 0, "limit": 3, "broken": False}
    told = lines(seen)
    assert all(line.isprintable() for line in told)
    for words in ("going on:", "for a person:", "refused in the last day:", "last acts:", "last commands:"):
        assert words in told
    assert any("until 2033-05-18" in line for line in told)


@pytest.mark.parametrize(
    ("agents", "ago", "told"),
    [
        ({"port": 6838}, {"node1": 10.0, "node2": 901.0}, ["node2"]),
        ({"port": 6838, "silent_after": 5.0}, {"node1": 10.0, "node2": 901.0}, []),
        ({"port": 0}, {"node1": 10.0, "node2": 901.0}, []),
        ({"port": 6838}, None, []),
    ],
    ids=["one is silent", "all are", "nobody listens", "none was heard"],
)
def test_silent_agents_are_told(
    ledger: LedgerSettings, store: Store, tmp_path: Path, agents: dict[str, Any], ago: Any, told: list[str]
) -> None:
    if ago is not None:
        silent_agents.save(str(tmp_path), {name: store.now() - seconds for name, seconds in ago.items()})
    settings = replace(settings_of(ledger, str(tmp_path)), agents=AgentSettings(**agents))
    seen = overview(settings, store)
    assert [each["node"] for each in seen["silent_agents"]] == told
    assert [line.split(",")[0] for line in lines(seen) if "heard last at" in line] == ["  " + name for name in told]


def test_long_lists_are_cut(ledger: LedgerSettings, store: Store, tmp_path: Path) -> None:
    for number in range(25):
        open_one(store, "node%d" % number, **changes.escalate("reported", {}))
    told = lines(overview(settings_of(ledger, str(tmp_path)), store))
    assert "  and 5 more; `job-recovery incidents`" in told


def test_the_breaker_is_seen_and_reset(path: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    limits = load(path).limits
    for number in range(3):
        open_one(store, "node%d" % number, acted=1, plan="reboot_over_ssh", **changes.escalate("no boot", {}))
    open_one(store, "77", acted=1, plan="requeue_job", **changes.escalate("again", {}))
    assert (breaker.failures(store, "node", limits), breaker.failures(store, "job", limits)) == (3, 1)
    rc, said = run(path, "status")
    assert rc == 1
    assert "breaker: the last node repairs failed (3)" in said
    time.sleep(0.01)
    assert run(path, "reset-breaker", "--reason", "the BMCs' switch is back")[0] == 0
    assert (breaker.failures(store, "node", limits), breaker.failures(store, "job", limits)) == (0, 0)
    assert "breaker" not in run(path, "status")[1].partition("last commands")[0]
    open_one(store, "node9", acted=1, plan="reboot_over_ssh", **changes.escalate("no boot", {}))
    assert breaker.failures(store, "node", limits) == 1
    (kept,) = store.commands.since(0.0, 10)
    assert (kept["command"], kept["reason"]) == ("reset-breaker", "the BMCs' switch is back")
    assert kept["who"].startswith("alice")


def test_who_stopped_resumed_and_approved_is_kept(path: str, store: Store) -> None:
    run(path, "stop", "--reason", "fire")
    run(path, "resume")
    run(path, "approve")
    assert [row["command"] for row in store.commands.since(0.0, 10)] == ["approve", "resume", "stop"]


@pytest.mark.parametrize("words", [("run",), ("retry",), ("release",)])
def test_what_the_launcher_takes_comes_first(path: str, words: tuple[str, ...]) -> None:
    assert run(path, *words)[0] == 2


def test_the_launcher_sends_each_command_where_it_belongs(tmp_path: Path) -> None:
    root = Path(__file__).parents[5]
    text = (root / "roles/controller/templates/job-recovery.sh.j2").read_text(encoding="utf-8")
    values = {"job_recovery_etc": str(tmp_path), "job_recovery_state_dir": str(tmp_path)}
    values["job_recovery_user"] = pwd.getpwuid(os.getuid()).pw_name
    for name, value in values.items():
        text = text.replace("{{ %s }}" % name, value)
    (tmp_path / "environment").write_text("PATH=%s:/usr/bin:/bin\n" % tmp_path, encoding="utf-8")
    (tmp_path / "python").write_text('#!/bin/sh\nshift; echo "${1##*.} $2 $3"\n', encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "launcher").write_text(text, encoding="utf-8")
    for words, told in (
        ("run reboot_node x", "by_hand reboot_node x"),
        ("retry 17", "again retry 17"),
        ("release node1", "again release node1"),
        ("status --json", "control status --json"),
        ("", "control  "),
    ):
        argv = ["sh", str(tmp_path / "launcher"), *words.split()]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        assert ended.stdout.rstrip("\n") == told
