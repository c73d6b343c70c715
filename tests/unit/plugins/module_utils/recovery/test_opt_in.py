# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The users' JSON, and what users write instead of it."""

from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import opt_in
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.opt_in import OptIn


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"APS":{"auto_resume_mode":"requeue","max_requeue_times":3}}', OptIn(True, "requeue", 3)),
        ('  {"APS": {"auto_resume_mode": "requeue"}}\n', OptIn(True, "requeue")),
        ('{"APS":{"auto_resume_mode":"singleton_dependency"}}', OptIn(True, "singleton_dependency")),
        ('{"APS":{"auto_resume_mode":"requeue","max_requeue_times":"3"}}', OptIn(True, "requeue", 3)),
        ('{"APS":{"auto_resume_mode":"requeue","max_requeue_times":0}}', OptIn(True, "requeue", 0)),
        ('{"APS":{"auto_resume_mode":"requeue","future":true},"other":1}', OptIn(True, "requeue")),
        (None, OptIn()),
        ("", OptIn()),
        ("nightly run", OptIn()),
        ("{not ours}", OptIn()),
        ('{"other":{}}', OptIn()),
        ("[1]", OptIn()),
    ],
)
def test_parse(text: str, expected: OptIn) -> None:
    assert opt_in.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"APS":{"auto_resume_mode":"requeue"}',
        "{'APS':{'auto_resume_mode':'requeue'}}",
        '{"APS":[]}',
        '{"APS":{}}',
        '{"APS":{"auto_resume_mode":true}}',
        '{"APS":{"auto_resume_mode":["requeue"]}}',
        '{"APS":{"auto_resume_mode":"REQUEUE"}}',
        '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":-1}}',
        '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":1.5}}',
        '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":true}}',
        '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":"\u0663"}}',
        '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":' + "9" * 5000 + "}}",
        '{"APS":' * 3000,
        '{"APS":{"auto_resume_mode":"{{ lookup(\'pipe\',\'id\') }}"}}',
        '{"APS":{"auto_resume_mode":"\x1b[31m"}}',
        '{"APS":{"auto_resume_mode":"\\u001b]0;owned\\u0007"}}',
    ],
)
def test_a_problem_is_told_in_short_and_harmlessly(text: str) -> None:
    said = opt_in.parse(text)
    assert not said.allowed
    assert said.problem
    assert len(said.problem) < 200
    assert said.problem.isprintable()
    assert said.problem.isascii()
