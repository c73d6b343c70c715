# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for Loki answers as a current Loki was seen to answer."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from urllib.parse import urlencode

import pytest
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import SECOND, LokiStandIn

NOW = 1_800_000_000


@pytest.fixture
def loki():
    with LokiStandIn(clock=lambda: NOW) as made:
        yield made


def ask(loki, path, body=None, **headers):
    request = urllib.request.Request(loki.url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def push(loki, *entries, labels=None, packed=False):
    values = [[str(int((NOW + ago) * SECOND)), line, *rest] for ago, line, *rest in entries]
    body = json.dumps({"streams": [{"stream": {"job": "x"} if labels is None else labels, "values": values}]}).encode()
    headers = {"Content-Type": "application/json", **({"Content-Encoding": "gzip"} if packed else {})}
    return ask(loki, "/loki/api/v1/push", gzip.compress(body) if packed else body, **headers)


def query(loki, **wish):
    wish = {"query": '{job="x"}', "start": (NOW - 9 * 86400) * SECOND, "end": (NOW + 60) * SECOND, **wish}
    return ask(loki, "/loki/api/v1/query_range?" + urlencode(wish))


def lines(loki, **wish):
    status, text = query(loki, **wish)
    assert status == 200, text
    return [line for stream in json.loads(text)["data"]["result"] for _at, line in stream["values"]]


def test_the_same_entry_twice_is_shown_once(loki):
    assert push(loki, (-1, "a")) == (204, "")
    assert push(loki, (-1, "a"), packed=True) == (204, "")
    assert lines(loki) == ["a"]
    assert ask(loki, "/loki/api/v1/push")[0] == 405
    assert json.loads(ask(loki, "/loki/api/v1/labels")[1]) == {"status": "success", "data": ["job"]}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((-600, "late"), ""),
        ((-10800, "late"), "entry too far behind"),
        ((-8 * 86400, "old"), "timestamp too old"),
        ((3600, "new"), "timestamp too new"),
        ((0, "x" * 300_000), "max entry size"),
    ],
)
def test_a_bad_entry_is_dropped_and_told_and_the_rest_is_taken(loki, entry, said):
    push(loki, (0, "newest"))
    status, text = push(loki, entry, (-1, "good"))
    assert status == (400 if said else 204)
    assert said in text
    assert "good" in lines(loki)
    assert (entry[1] in lines(loki)) is not bool(said)


def test_what_it_does_not_take(loki):
    assert push(loki, (0, "a"), labels={"a-b": "c"})[0] == 400
    assert push(loki, (0, "a"), labels={})[0] == 204
    assert ask(loki, "/loki/api/v1/push", b"{")[0] == 400
    assert query(loki, query='{job="x"')[0] == 400
    assert query(loki, query="{}")[0] == 400
    assert query(loki, limit=5001)[0] == 400
    assert query(loki, start=(NOW - 40 * 86400) * SECOND)[0] == 400
    assert query(loki, end=0)[0] == 400


def test_start_is_in_and_end_is_not(loki):
    push(loki, (-2, "first"), (-1, "second"))
    assert lines(loki, start=(NOW - 2) * SECOND, end=(NOW - 1) * SECOND) == ["first"]
    assert lines(loki, direction="forward", limit=1) == ["first"]
    assert lines(loki, query='{job="x"} |= "sec"') == ["second"]
    assert lines(loki, query='{job="x",job!="x"}') == []


def test_structured_metadata_makes_streams_of_its_own(loki):
    push(loki, (-2, "a", {"pod": "1"}), (-1, "b", {"pod": "2"}))
    result = json.loads(query(loki)[1])["data"]["result"]
    assert sorted(stream["stream"]["pod"] for stream in result) == ["1", "2"]
