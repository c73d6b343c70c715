# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.report import run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput


def made(check_id, status, **other):
    check = {"id": check_id, "title": "Title", "required": "much", "found": "little", "status": status, "hint": "do it"}
    return {**check, **other}


def report(*checks, accept=(), dest=None, check_mode=False):
    params = {"checks": list(checks), "accept": list(accept), "dest": dest and str(dest), "width": 100}
    return run(params, check_mode)


def test_failures_come_first_and_stop_and_hints_are_for_what_does_not_pass():
    result = report(made("a", "passed"), made("b", "warning"), made("c", "unknown"), made("d", "failed"))
    assert [line.split()[1] for line in result["table"]] == ["d", "c", "b", "a"]
    assert result["unmet"] == ["d", "c"]
    assert result["counts"] == {"failed": 1, "unknown": 1, "warning": 1, "passed": 1}
    assert ["-> do it" in line for line in result["table"]] == [True, True, True, False]


def test_what_the_site_accepts_is_a_warning_that_says_so():
    result = report(made("a", "failed"), made("b", "failed"), accept=["a"])
    assert result["unmet"] == ["b"]
    assert "(accepted)" in result["table"][1]


def test_a_misspelt_acceptance_is_an_error():
    with pytest.raises(BadInput, match="there is no check x"):
        report(made("a", "failed"), accept=["x"])


@pytest.mark.parametrize("check", [{"id": "a"}, made("a", "fine")])
def test_what_is_no_check_is_an_error(check):
    with pytest.raises(BadInput):
        report(check)


def test_no_control_character_reaches_the_terminal():
    result = report(made("a", "failed", found="\x1b[2Jx\ny\u202e"))
    assert all(line.isprintable() for line in result["table"])


def test_the_file_is_written_once(tmp_path):
    path = tmp_path / "preflight.json"
    assert report(made("a", "failed"), dest=path, check_mode=True)["changed"] is True
    assert not path.exists()
    assert report(made("a", "failed"), dest=path)["changed"] is True
    assert report(made("a", "failed"), dest=path)["changed"] is False
    assert json.loads(path.read_text())["checks"][0]["id"] == "a"
