# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.hostlist import (
    HostlistError,
    compress,
    expand,
    expand_all,
)

MANY_FORMS = "gpu[001-004,007],rack1-[01-02]n[1-8],b04-[09-10],solo,a1.example.com"


def test_every_form_at_once() -> None:
    names = expand(MANY_FORMS)
    assert len(names) == len(set(names)) == 25
    assert names[:5] == ["gpu001", "gpu002", "gpu003", "gpu004", "gpu007"]
    assert names[5] == "rack1-01n1"
    assert names[20] == "rack1-02n8"
    assert names[21:] == ["b04-09", "b04-10", "solo", "a1.example.com"]


@pytest.mark.parametrize(("text", "names"), [
    ("n[9-10]", ["n9", "n10"]),
    ("n[09-10]", ["n09", "n10"]),
    ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ("n[3]", ["n3"]),
    ("n[1,1-2]", ["n1", "n1", "n2"]),
    ("[1-2]", ["1", "2"]),
    ("r[0-1]n[0-1]", ["r0n0", "r0n1", "r1n0", "r1n1"]),
    ("n[1-2].example.com", ["n1.example.com", "n2.example.com"]),
    (" n1 , n2 ", ["n1", "n2"]),
    ("n_1-a", ["n_1-a"]),
    ("n[0-1]", ["n0", "n1"]),
    ("n[00-01]", ["n00", "n01"]),
    ("n[1,3-4,10]", ["n1", "n3", "n4", "n10"]),
    ("n[1-2 ,4]", ["n1", "n2", "n4"]),
    ("n1,n1", ["n1", "n1"]),
    ("10.0.0.1", ["10.0.0.1"]),
    ("n" * 255, ["n" * 255]),
])
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", [None, "", "  ", "\n", "(null)", " (null) ", "None assigned", "none assigned", "N/A",
                                  "n/a"])
def test_words_for_nothing(text: str) -> None:
    assert expand(text) == []


@pytest.mark.parametrize("text", [
    "n[1-2", "n1-2]", "n[[1-2]]", "n]1[", "n[", "n[]", "n[1-]", "n[-1]", "n[a-b]", "n[2-1]", "n[1-2-3]", "n[1,]",
    "n1,,n2", ",", "n1,", "-n1", "n 1", "n1;id", "n$(id)", "ALL", "all", "n/1", "{{ n }}", "n1\nn2", "n" * 300,
    "n[%s]" % ("9" * 5000), "n[1-2]]", "[", "]", "[]", "n[1 2]", "n[0x1-0x2]", "n[\u0661-\u0662]", "n[+1]",
    "n[1-2],", ",n1", "n1 n2", "n1;n2", "n1,-x", "n1,ALL", "n[1-2].ALL/..", "n\x00", "\u00e9", "n1,(null)", "n" * 256,
    "n" * 254 + "[1-99]", "n" + "[0-9]" * 5000, "[0-99999]" + "x" * 300, "n[%s" % ("[" * 5000),
])
def test_not_a_host_list(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize("text", ["n[0-99999999]", "n[0-999]m[0-999]", "n[0-99999]m[0-99999]o[0-99999]",
                                  "n[1-60000],m[1-60000]", "n[0-9]" * 40, "n[000000-999999]"])
def test_too_many_names_are_refused_at_once(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(HostlistError, match="limit"):
        expand(text)
    assert time.monotonic() - started < 0.1


@pytest.mark.parametrize("text", ["n[%s]" % ",".join(["1"] * 100_001), ",".join(["n"] * 100_001)])
def test_too_many_names_one_by_one(text: str) -> None:
    with pytest.raises(HostlistError, match="limit"):
        expand(text)
    assert len(expand(text, limit=100_001)) == 100_001


@pytest.mark.parametrize(("names", "text"), [
    ([], ""),
    (["n1"], "n1"),
    (["n2", "n1", "n3", "n7", "n1"], "n[1-3,7]"),
    (["n9", "n10", "n11"], "n[9-11]"),
    (["n09", "n10"], "n[09-10]"),
    (["n099", "n100", "n1000"], "n[099-100,1000]"),
    (["b1", "a2", "solo", "a1.example.com"], "a1.example.com,solo,a2,b1"),
    (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
])
def test_compress(names: list[str], text: str) -> None:
    assert compress(names) == text
    assert set(expand(text)) == set(names)


def test_compress_and_expand_agree() -> None:
    names = expand(MANY_FORMS) + ["n%d" % number for number in range(1, 120)] + ["z%03d" % number for number in (7, 8)]
    assert sorted(expand(compress(names))) == sorted(names)


def test_expand_all_keeps_the_first_mention() -> None:
    assert expand_all(["n[2-3]", "n1", "n3"]) == ["n2", "n3", "n1"]
