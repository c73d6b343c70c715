# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Captures with anything in their fields: understood, or refused by an error of ours; nothing is ever invented.

What is put in is made by chance, and the same in each run.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import (
    hostlist,
    models,
    parse_json,
    parse_text,
    reasons,
    values,
)

CAPTURES = pathlib.Path(__file__).parent / "captures"
SEED = 20261130

PIECES = [
    "", "(null)", "N/A", "None assigned", "=", "a=b", " ", "\x00", "\x1b[31m", "\t", "\r", "\n", "\n\n", "\n   ",
    "[", "]", "(", "n[1-", "9" * 5000, "-1", "4294967294", "{{ x }}", "'", '"', "|", "+", "*", "?", "\u00e9", "\u00b2",
    "\u2028", "\udc80", " [root@5]", "\nJobId=9 JobName=x", "\nNodeName=x State=IDLE", "\n   UserId=root(0)",
    "\n   JobState=RUNNING", "\n   State=IDLE", "\n   ArrayJobId=99 ArrayTaskId=3", "\n   HetJobId=5 HetJobOffset=0",
    "\n   Requeue=1 Restarts=9", "\n   Restarts=9", "\n   NodeList=victim", "\n   BatchHost=victim",
    "\n   BootTime=1 SlurmdStartTime=1", "\n   RealMemory=1", "\n   NodeAddr=victim NodeHostName=victim",
    "\n   StdOut=/etc/passwd", "\n   Anything=1 JobId=9 Partition=other",
]
VALUES = [
    None, True, False, 0, -1, -7, 7.5, 1e400, -1e400, float("nan"), 10**300, "", "x", "9" * 5000, "NaN", "IDLE", [], {},
    [None], [1], ["IDLE"], ["?"], [[]], {"a": 1}, {"set": True}, {"set": "false", "infinite": False, "number": 7},
    {"set": True, "infinite": False, "number": None}, {"set": True, "infinite": False, "number": {"set": True}},
    {"set": True, "infinite": True, "number": 0}, {"signal": 5}, {"signal": {"id": "x"}}, {"return_code": {}},
]
# The line that each text of a job or node stands in, and what of the model may tell of it.
JOB_TEXTS = ("JobName", "Network", "Command", "WorkDir", "Comment", "StdErr", "StdIn", "StdOut")
NODE_TEXTS = ("Comment", "Extra")
TEXT_FIELDS = {"name", "comment", "admin_comment", "stdout", "stderr", "extra"}


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def noise(chance: random.Random) -> str:
    return "".join(
        chance.choice(PIECES) if chance.random() < 0.7 else chr(chance.randrange(1, 0x2100))
        for _turn in range(chance.randrange(1, 6))
    )


def bare(model: Any) -> dict[str, Any]:
    """A model without what its owner's texts may change; the name of a node is no such text."""
    kept = dataclasses.asdict(model)
    texts = TEXT_FIELDS - ({"name"} if isinstance(model, models.Node) else set())
    return {key: value for key, value in kept.items() if key not in texts}


@pytest.mark.parametrize(("name", "parse", "texts"), [
    ("scontrol_job-24.11-array_task.txt", parse_text.parse_jobs, JOB_TEXTS),
    ("scontrol_job-24.11-pending.txt", parse_text.parse_jobs, JOB_TEXTS),
    ("scontrol_job-24.11.5-cluster.txt", parse_text.parse_jobs, JOB_TEXTS),
    ("scontrol_node-24.11-free_text.txt", parse_text.parse_nodes, NODE_TEXTS),
    ("scontrol_node-24.11.5-cluster.txt", parse_text.parse_nodes, NODE_TEXTS),
])
def test_texts_change_nothing_but_themselves(name: str, parse: Callable[[str], list], texts: tuple[str, ...]) -> None:
    chance = random.Random(SEED)
    text = capture(name)
    places = [end + len(key) + 1 for key in texts for end in starts(text, key + "=")]
    good = [bare(model) for model in parse(text)]
    read = 0
    for _turn in range(50):
        place = chance.choice(places)
        try:
            found = parse(text[:place] + noise(chance) + text[place:])
        except Unreadable:
            continue
        assert [bare(model) for model in found] == good
        read += 1
    assert read > 5


def starts(text: str, key: str) -> Iterator[int]:
    """Where a key begins: at the begin of a line, or behind a blank."""
    for before in ("\n   ", " "):
        place = text.find(before + key)
        while place >= 0:
            yield place + len(before)
            place = text.find(before + key, place + 1)


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.glob("*.json")))
def test_anything_in_the_place_of_a_value(name: str) -> None:
    chance = random.Random(SEED)
    key, parse = ("nodes", parse_json.parse_nodes) if "node" in name else ("jobs", parse_json.parse_jobs)
    answer = json.loads(capture(name))
    answer[key] = answer[key][:1]
    parse(json.dumps(answer))
    for _turn in range(40):
        other = copy.deepcopy(answer)
        for _place in range(chance.randrange(1, 3)):
            where, at = chance.choice(list(slots(other)))
            where[at] = copy.deepcopy(chance.choice([*VALUES, *PIECES]))
        text = json.dumps(other)
        assert all(isinstance(said, str) for said in parse_json.errors(text))
        understood(parse, text)


def slots(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value in nested lists and objects."""
    for at, inner in list(thing.items() if isinstance(thing, dict) else enumerate(thing)):
        yield thing, at
        if isinstance(inner, (dict, list)):
            yield from slots(inner)


def understood(parse: Callable[..., Any], *given: Any) -> Any:
    """What is read, or None where it is refused by one of our errors, in a bounded message; no other error passes."""
    refusal = ""
    found = None
    try:
        found = parse(*given)
    except RecoveryError as exc:
        refusal = str(exc)
    assert len(refusal) < 500
    return found


SINGLE: list[Callable[[str], Any]] = [
    hostlist.expand, values.job_ref, values.text_time, parse_text.accounting_state, parse_text.split_reason_stamp,
    parse_text.parse_config, lambda text: values.text_integer(text, "x"), lambda text: models.split_node_state([text]),
    lambda text: models.split_job_state([text]), reasons.reason_owner, parse_json.errors, parse_json.parse_nodes,
    lambda text: parse_text.parse_node_events("n1|" + text, ["n1", "n2"]),
    lambda text: parse_text.parse_nodes("NodeName=n1\n   State=IDLE\n   Reason=x" + text),
    lambda text: parse_text.parse_jobs("JobId=1 JobName=" + text),
    lambda text: parse_text.Columns(("a", "b"), "~").parse(text),
]


@pytest.mark.parametrize("parse", SINGLE)
def test_any_text_alone(parse: Callable[[str], Any]) -> None:
    chance = random.Random(SEED)
    for text in PIECES:
        understood(parse, text)
    for _turn in range(100):
        understood(parse, noise(chance))
        understood(parse, "".join(chance.choice("n[]0-9,1 a.\n%+_;*=|@()~") for _letter in range(20)))


UNITS = ["x", "[", "{", "9", "*", "\n", "x\n", "n,", "n[0-9]", "n[0][0]", "a=b ", " [a@", "(", "\n   A=b", "~\n", "+",
         "1_[", "\nn1|DRAIN|x|", "CANCELLED by 9", "n[1,", ", ", "[0-99999],"]


@pytest.mark.parametrize("parse", SINGLE)
def test_four_times_as_much_takes_no_more_than_a_few_times_as_long(parse: Callable[[str], Any]) -> None:
    for unit in UNITS:
        little, much = (seconds(parse, unit * (size // len(unit))) for size in (5_000, 20_000))
        assert much < 8 * little + 0.05, unit


def seconds(parse: Callable[[str], Any], text: str) -> float:
    """How long it works, at best; neither what else the machine does nor the interpreter's own work is counted."""
    best = float("inf")
    for _turn in range(5):
        started = time.process_time()
        understood(parse, text)
        best = min(best, time.process_time() - started)
        if best < 0.01:
            break
    return best


def test_a_long_name_is_not_made_a_hundred_thousand_times() -> None:
    """Nor counted to a number that cannot be printed."""
    for text in ("[0-99999]" + "x" * 100_000, "n" * 300 + "[1-90000]", "n" + "[000-999]" * 90, "n" + "[0-9]" * 5_000):
        with pytest.raises(hostlist.HostlistError):
            hostlist.expand(text)
        assert seconds(hostlist.expand, text) < 0.5
