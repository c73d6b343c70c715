# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import (
    End,
    Ends,
    Rule,
    is_suspect,
    streak,
)

RULE = Rule(failures=4, users=3, window=1000)


def ends(*words: str) -> list[End]:
    """`a:FAILED` is a run of user a; a job each, one after the other, the last at 100."""
    first = 100 - len(words)
    split = [word.split(":") for word in words]
    return [End(str(number), user, state, first + number) for number, (user, state) in enumerate(split, 1)]


ROWS = [
    (["a:FAILED", "b:FAILED", "c:FAILED", "a:FAILED"], True),
    (["a:FAILED", "b:NODE_FAIL", "c:BOOT_FAIL", "d:FAILED"], True),
    # too few, or too few users
    (["a:FAILED", "b:FAILED", "c:FAILED"], False),
    (["a:FAILED", "b:FAILED", "a:FAILED", "b:FAILED", "a:FAILED"], False),
    (["a:FAILED"] * 9, False),
    # a success there ends the row
    (["a:FAILED", "b:FAILED", "x:COMPLETED", "c:FAILED", "a:FAILED"], False),
    (["a:FAILED", "b:FAILED", "c:FAILED", "a:FAILED", "x:COMPLETED"], False),
    (["x:COMPLETED", "a:FAILED", "b:FAILED", "c:FAILED", "a:FAILED"], True),
    # what says nothing about the node neither ends nor lengthens it
    (["a:FAILED", "b:FAILED", "c:CANCELLED", "d:TIMEOUT", "e:OUT_OF_MEMORY", "f:PREEMPTED", "g:REQUEUED"], False),
    (["a:FAILED", "b:FAILED", "x:CANCELLED", "c:FAILED", "x:TIMEOUT", "a:FAILED"], True),
    (["a:UNHEARD_OF", "b:UNHEARD_OF", "c:UNHEARD_OF", "d:UNHEARD_OF"], False),
    ([], False),
]


@pytest.mark.parametrize(("words", "suspect"), ROWS)
def test_a_row_of_failures(words, suspect):
    made = ends(*words)
    assert is_suspect(streak(reversed(made), 100, RULE.window), RULE) is suspect
    seen = Ends()
    for end in made:
        seen.note(end, ["n1"])
    assert (seen.suspects(RULE, 100) == ["n1"]) is suspect


def test_old_failures_do_not_count():
    made = ends("a:FAILED", "b:FAILED", "c:FAILED", "d:FAILED")
    assert is_suspect(streak(made, 1090, RULE.window), RULE)
    assert not is_suspect(streak(made, 1098, RULE.window), RULE)


def test_nobody_is_suspect_where_it_is_turned_off():
    assert not is_suspect(streak(ends(*["a:FAILED", "b:FAILED", "c:FAILED"] * 5), 100, 1000), Rule(0, 0, 1000))


def test_one_run_on_two_nodes_and_one_run_seen_twice():
    seen = Ends()
    for end in ends("a:FAILED", "b:FAILED", "c:FAILED", "d:FAILED"):
        for _look in range(3):
            seen.note(end, ["n1", "n2"] if end.user != "d" else ["n1"])
    assert seen.suspects(RULE, 100) == ["n1"]
    seen.note(End("9", "z", "COMPLETED", 101), ["n1"])
    assert seen.suspects(RULE, 101) == []


def test_the_same_job_run_twice_is_two_failures():
    again = [End("7", user, "FAILED", at) for at, user in enumerate("abca", 90)]
    assert is_suspect(streak(again, 100, 1000), RULE)
