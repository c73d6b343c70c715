# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.resend import Resend

LOOKS = [
    ("new is sent", [(0, "a", "a")]),
    ("a lasting one waits for a minute", [(0, "a", "a"), (59, "a", ""), (60, "a", "a"), (61, "a", "")]),
    ("one that was gone is new", [(0, "a", "a"), (1, "", ""), (2, "a", "a")]),
    ("another one goes at once", [(0, "a", "a"), (1, "ab", "b"), (60, "ab", "a"), (61, "ab", "b")]),
    ("the order of the look, and each once", [(0, "baab", "ba")]),
]


@pytest.mark.parametrize(("_case", "looks"), LOOKS)
def test_due(_case, looks):
    resend = Resend(every=60)
    assert [(now, seen, "".join(resend.due(seen, now))) for now, seen, _due in looks] == looks


def test_a_candidate_is_sent_a_limited_number_of_times():
    resend = Resend(every=10, times=2)
    assert [resend.due(["a"], now) for now in (0, 10, 20, 30)] == [["a"], ["a"], [], []]
