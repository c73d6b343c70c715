# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""People are told by a site's own task file, in a real ansible-playbook, from a real ledger."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    NotifySettings,
    Settings,
    parse,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import notice, notifier
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.notifier import Notifier, NotTold
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import Answer, Request, StandIn

from .history import do_step, open_incident, recover

EXAMPLE = Path(__file__).resolve().parents[5] / "inventory/example/files"
SECRET = "https://chat.example.org/hooks/0123456789abcdef"  # as the example has it


class Chat(StandIn):
    """Takes what is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[Any] = []

    def answer(self, request: Request) -> Answer:
        self.posted.append(json.loads(request.body))
        return Answer(200, b"ok")


@pytest.fixture
def chat() -> Iterator[Chat]:
    with Chat() as server:
        yield server


@pytest.fixture
def settings(chat: Chat, ledger: LedgerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A site that uses the example for chats."""
    tasks = tmp_path / "notify.yml"
    tasks.write_text((EXAMPLE / "notify-chat.yml").read_text().replace(SECRET, chat.url + "/hooks/s3cr3t"))
    data = {
        "cluster": "lab",
        "state_dir": str(tmp_path),
        "slurm": {"enabled": False},
        "ledger": dict(ledger.__dict__),
        "notify": {"tasks": str(tasks), "states": ["escalated", "recovered"], "timeout": 90},
    }
    path = tmp_path / "settings.yml"
    path.write_text(yaml.safe_dump(data))
    monkeypatch.setenv("JOB_RECOVERY_SETTINGS", str(path))
    return parse(data)


def escalate(store: Store, node: str, why: str) -> int:
    incident = open_incident(store, node)
    return do_step(store, incident, changes.escalate(why, {}), "failed", why).id


def waiting(store: Store) -> int:
    return Outbox(store.database, notifier.SINK).backlog()


def again_now(store: Store) -> None:
    store.database.write("UPDATE outbox SET due_at = 0")


def test_told_once_and_never_as_a_template(settings: Settings, store: Store, chat: Chat, tmp_path: Path) -> None:
    recover(store, "before")
    worker = Notifier()
    worker.look(settings)  # from now on
    trap = tmp_path / "trap"
    hostile = "{{ lookup('pipe','touch %s') }} {%% raw %%} ``` $(touch %s) \x1b[31m\n</b>" % (trap, trap)
    escalate(store, "node1", hostile)
    recover(store, "node2")
    open_incident(store, "node3")
    for _turn in range(3):
        worker.look(settings)
    Notifier().look(settings)  # another one, after a restart
    assert len(chat.posted) == 1
    said = chat.posted[0]["text"]
    assert "job-recovery lab: node1 escalated and 1 more" in said
    assert "{{ lookup('pipe','touch %s') }} {%% raw %%}" % trap in said
    assert "node2: recovered" in said
    assert "before" not in said
    assert "node3" not in said
    assert "\x1b" not in said
    assert said.count("```") == 2
    assert not trap.exists()
    assert waiting(store) == 0
    worker.close()


def test_a_chat_that_is_away_is_tried_again_and_given_up_at_last(
    settings: Settings, store: Store, chat: Chat, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Notifier()
    worker.look(settings)
    escalate(store, "node1", "it stays dead")
    chat.instead = Answer(503, b"s3cr3t")
    with pytest.raises(NotTold, match="failed") as caught:
        worker.look(settings)
    assert "s3cr3t" not in str(caught.value)
    worker.look(settings)  # not due yet
    assert len(chat.requests) == 1
    again_now(store)
    chat.instead = None
    worker.look(settings)
    assert len(chat.posted) == 1
    escalate(store, "node2", "it stays dead")
    chat.instead = Answer(503)
    once = dataclasses.replace(settings, notify=dataclasses.replace(settings.notify, tries=1))
    with pytest.raises(NotTold):
        worker.look(once)
    assert waiting(store) == 0
    assert "given up" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_tasks_that_hang_are_ended(settings: Settings, store: Store, tmp_path: Path) -> None:
    tasks = tmp_path / "hang.yml"
    tasks.write_text("- ansible.builtin.command: {argv: [sleep, '600']}\n")
    hang = NotifySettings(tasks=str(tasks), timeout=0.5)
    with pytest.raises(NotTold, match="did not end"):
        notifier.run_tasks(hang, [{"incident": 1, "state": "escalated"}])


def test_what_was_being_told_when_the_service_died_is_told_again_later(store: Store) -> None:
    outbox = Outbox(store.database, notifier.SINK)
    outbox.put([("outcome:1:1", store.now(), "outcome", "escalated", '{"incident":1}')])
    [row] = outbox.waiting(10)
    outbox.again(row["id"], 60.0)  # and here it died
    assert outbox.waiting(10) == []  # the tasks of before may still run
    again_now(store)
    assert [row["tries"] for row in outbox.waiting(10)] == [1]


def test_other_states_begin_anew(settings: Settings, store: Store) -> None:
    first = notifier.begun(store, ["escalated"])
    assert notifier.begun(store, ["escalated"]) == first
    assert notifier.begun(store, ["escalated", "opened"]) > first


@pytest.mark.parametrize(
    ("component", "outcome", "state"),
    [
        ("fault", "", "opened"),
        ("outcome", "recovered", "recovered"),
        ("outcome", "escalated", "escalated"),
        ("outcome", "ended", "ended"),
        ("refusal", "refused", ""),
        ("step", "", ""),
        ("command", "", ""),
    ],
)
def test_states(component: str, outcome: str, state: str) -> None:
    assert notifier.state_of(component, outcome) == state


def test_the_module(settings: Settings, store: Store) -> None:
    number = escalate(store, "node1", "it\x1b[0m stays dead")
    notices = [{"incident": number, "state": "escalated"}, {"incident": 999, "state": "ended"}]
    answer = notice.run({"notices": notices, "settings": None}, False)
    assert answer["subject"] == "job-recovery lab: node1 escalated"
    assert [each["incident"] for each in answer["incidents"]] == [number]
    assert answer["incidents"][0]["why"] == "it\\x1b[0m stays dead"
    assert "what to do: repair it" in answer["text"]
    opened = notice.run({"notices": [{"incident": number, "state": "opened"}], "settings": None}, False)
    assert "what to do" not in opened["text"]
    with pytest.raises(BadInput, match="999"):
        notice.run({"notices": [{"incident": 999, "state": "ended"}], "settings": None}, False)


def test_unknown_states_are_refused() -> None:
    with pytest.raises(BadInput, match=r"notify\.states"):
        parse({"cluster": "lab", "slurm": {"enabled": False}, "notify": {"states": ["refused"]}})


def test_the_example_for_mail_is_made_of_tasks() -> None:
    [task] = yaml.safe_load((EXAMPLE / "notify-mail.yml").read_text())
    assert "job_recovery_notice.text" in task["ansible.builtin.command"]["stdin"]


def test_killed_while_the_tasks_run_it_does_not_run_them_at_once_again(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    Path(settings.notify.tasks).write_text(
        "- ansible.builtin.copy: {content: x, dest: %s}\n- ansible.builtin.command: {argv: [sleep, '20']}\n" % begun
    )
    notifier.begun(store, settings.notify.states)
    escalate(store, "node1", "it stays dead")
    module = "ansible_collections.mission_control.job_recovery.plugins.module_utils.show.reporter"
    reporter = subprocess.Popen(
        [sys.executable, "-m", module],
        env={**os.environ, "RUNTIME_DIRECTORY": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        reporter.kill()
        reporter.wait(10)
    outbox = Outbox(store.database, notifier.SINK)
    assert outbox.backlog() == 1
    assert outbox.waiting(10) == []
    again_now(store)
    assert [row["tries"] for row in outbox.waiting(10)] == [1]
