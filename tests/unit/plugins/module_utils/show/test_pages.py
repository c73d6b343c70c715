# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of incidents: over what a real MariaDB tells, and with hostile text in every field."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import stop
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    DECISION,
    ESCALATED,
    WAITING,
    Request,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store, finished
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import overview
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.report import report
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.pages import INDEX, file_name, pages
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.publish import run

from ..html_reader import HOSTILE, Page
from ..recovery.world import fault_of, job_fault, settings_of

NOW = 1790000000.0
LINE = "NVRM: Xid (PCI:0000:17:00): 79, pid=1234, name=python, GPU has fallen off the bus."
TAGS = set(
    "a br body dd div dl dt h1 h2 head html main meta p pre span style table tbody td th thead time title tr".split()
)
ATTRIBUTES = {
    "href": r"(index|incident-[0-9]+)\.html",
    "datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "class": r"number|scroll|(verdict )?(failed|unknown|warning|passed) state|state (failed|unknown|warning|passed)",
}


@pytest.fixture
def settings(ledger: LedgerSettings, tmp_path: Path) -> Settings:
    return settings_of(ledger, str(tmp_path))


@pytest.fixture
def told(store: Store, settings: Settings) -> dict[str, Any]:
    """What the ledger tells of a repaired node, one for a person, a job that waits, a refusal and a command."""
    done = {"state": CLOSED, "plan": "reboot_by_power", "open_key": None, "closed_at": NOW, "why": "the fault is gone"}
    left = {"state": ESCALATED, "plan": "quarantine_node", "closed_at": NOW, "why": "GPU 3 is missing"}
    for name, columns in (("node1", done), ("node2", left)):
        request = Request("alice", "it smells", ("cooldown",)) if name == "node2" else Request()
        one = store.incidents.open(fault_of(name), Target("node", name), "node:" + name, name, request)
        token = store.claims.begin("reboot_node", "host:1", 60.0)
        assert store.claims.take(one.key, token, 60.0, one.id)
        held = replace(one, step="drain")
        store.steps.start(held, token, {"reason": held.reason})
        proof = {"boot": {"before": "a", "after": ["b", None]}}
        store.claims.settle(held, token, finished("done", "", proof), changes.advance("cordon", "", {}))
        store.incidents.change(one.id, columns)
        store.records.attach(one.id, one.key, "gpu_fault", "node_agent", {"code": "xid79", "lines": [[7, LINE]]})
    why = "of the site's nodes one is held"
    store.records.refuse("node:node3", "node_back", "slurm", "blast_radius", why, {"age": "", "blast_radius": why})
    store.records.refuse("node:node2", "node_back", "slurm", "owner", "bob has it", {"owner": "bob has it"}, "", one.id)
    job = store.incidents.open(job_fault("77"), Target("job", "77"), "job:slurm:77", "", Request())
    store.incidents.change(
        job.id, {"state": WAITING, "plan": "requeue_job", "wait_kind": "time", "wait_until": NOW + 60}
    )
    store.commands.note("release", "bob", "#2", "GPU replaced")
    return {**report(store), "overview": overview(settings, store)}


def numbers(told: dict[str, Any]) -> list[int]:
    """The incidents in the order in which they were opened."""
    return sorted(each["id"] for each in told["incidents"])


def params(told: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {**told, "dest": str(folder)}


def text_of(page: str) -> str:
    """What a reader sees, in one line."""
    seen = Page("<main>%s" % page.partition("<main>")[2].partition("</main>")[0])
    return " ".join(" ".join(seen.data).split())


def test_every_incident_has_a_page_that_tells_what_was_seen_decided_and_done(told: dict[str, Any]) -> None:
    made = pages(told, NOW)
    names = [file_name(number) for number in numbers(told)]
    assert set(made) == {INDEX, *names}
    first, second, third = (text_of(made[name]) for name in names)
    for words in (LINE, "xid79", "node_agent", "reboot_by_power", "drain 0 done", "after b None before a", "closed"):
        assert words in first
    held = "job-recovery #%d node_not_responding" % numbers(told)[1]
    for words in ("alice", "it smells", "cooldown", held, "job-recovery release", "bob has it"):
        assert words in second
    assert "Waits for time" in third
    assert "2026-09-21 14:14:20 UTC" in third
    listed = text_of(made[INDEX])
    for words in ("Recovery acts.", "GPU 3 is missing", "blast_radius", "GPU replaced", "the fault is gone"):
        assert words in listed
    links = [value for name, value in Page(made[INDEX]).attributes if name == "href"]
    assert set(links) == set(names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stopped": "stopped by the file /x"}, "Nothing is done: stopped by the file /x."),
        ({"restored": True}, "restored from an old backup"),
        ({"breaker": {"node": {"failures": 3, "limit": 3, "broken": True}}}, "last 3 repairs of nodes failed"),
        ({"mode": "observe"}, "Recovery only observes."),
    ],
)
def test_what_hinders_recovery_stands_above_all(told: dict[str, Any], change: dict[str, Any], words: str) -> None:
    assert words in text_of(pages({**told, "overview": {**told["overview"], **change}}, NOW)[INDEX])


def test_what_the_gates_said_stands_under_the_decision_and_not_under_what_was_seen(
    store: Store, settings: Settings, told: dict[str, Any]
) -> None:
    first = numbers(told)[0]
    body = {"passed": "age, gone", "overridden": "cooldown"}
    store.records.attach(first, "node:node1", DECISION, "recovery", body)
    made = text_of(pages({**report(store), "overview": overview(settings, store)}, NOW)[file_name(first)])
    assert "Decided reboot_by_power overridden cooldown passed age, gone Done" in made


def replaced(value: Any, text: str) -> Any:
    """The same data with this text in the place of every text."""
    if isinstance(value, str):
        return text
    if isinstance(value, dict):
        return {(text if name == "lines" else name): replaced(some, text) for name, some in value.items()}
    return [replaced(some, text) for some in value] if isinstance(value, list) else value


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_the_ledger_is_more_than_text(told: dict[str, Any], text: str) -> None:
    bodies = [replaced(each, text) for each in told["incidents"]]
    for incident, before in zip(bodies, told["incidents"]):
        incident["evidence"] += [{**each, "body": {"lines": [[1, text], text]}} for each in before["evidence"]]
    made = pages({**replaced(told, text), "incidents": bodies}, NOW)
    assert len(made) == 4
    for page in made.values():
        seen = Page(page)
        assert seen.open == []
        assert set(seen.tags) <= TAGS
        for name, value in seen.attributes:
            assert name in ("lang", "charset", "http-equiv", "content", "name") or re.fullmatch(
                ATTRIBUTES[name], value or ""
            )
        assert all(letter.isprintable() or letter == "\n" for letter in page)
        shown = "".join(letter if letter.isprintable() else " " for letter in text)
        assert shown in "".join(seen.data)


def test_no_page_loads_anything(told: dict[str, Any]) -> None:
    for page in pages(told, NOW).values():
        assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in Page(page).attributes
        assert "url(" not in page
        assert "//" not in page.partition("<main>")[2]


def test_much_evidence_is_cut_and_so_said(told: dict[str, Any]) -> None:
    body = {"lines": [[number, "x" * 9000] for number in range(1000)], "deep": {}}
    inner = body["deep"]
    for _each in range(50):
        inner["deep"] = {}
        inner = inner["deep"]
    told["incidents"][0]["evidence"][:] = [
        {"kind": "a", "source": "b", "times": 1, "first_at": NOW, "last_at": NOW, "body": body}
    ]
    page = pages(told, NOW)[file_name(told["incidents"][0]["id"])]
    assert "and 800 more" in page
    assert len(page) < 1_000_000


def test_pages_are_written_and_those_of_forgotten_incidents_removed(told: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    assert run(params(told, folder), True)["pages"] == 3
    assert not folder.exists()
    assert run(params(told, folder), False)["index"] == str(folder / INDEX)
    (folder / "notes.html").write_text("mine")
    (folder / "incident-x.html").write_text("mine")
    result = run(params({**told, "incidents": told["incidents"][:1]}, folder), False)
    first, second, third = map(file_name, numbers(told))
    assert result["removed"] == sorted([first, second])
    assert set(os.listdir(folder)) == {third, "incident-x.html", INDEX, "notes.html"}
    assert {path.stat().st_mode & 0o007 for path in (folder, folder / INDEX, folder / third)} == {0}


def test_pages_go_through_no_link_that_somebody_placed(told: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / (INDEX + ".new")).symlink_to(tmp_path / "precious")
    with pytest.raises(Unreadable):
        run(params(told, tmp_path), False)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("change", [{"overview": {}}, {"incidents": [{"id": 1}]}, {"incidents": [{"id": "x"}]}])
def test_what_is_no_ledger_is_an_error(told: dict[str, Any], tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="recovery_incident_info"):
        run(params({**told, **change}, tmp_path / "x"), False)
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_written_is_an_error(told: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreadable, match="cannot be written"):
        run(params(told, tmp_path / "file"), False)


def test_a_stop_by_hand_is_told(store: Store, settings: Settings, told: dict[str, Any]) -> None:
    store.control.put(stop.STOP, "", "alice")
    seen = pages({**told, "overview": overview(settings, store)}, NOW)
    assert "Nothing is done: stopped by 'alice' in the ledger." in text_of(seen[INDEX])
