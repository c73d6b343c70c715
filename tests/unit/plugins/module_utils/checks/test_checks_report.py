# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import html
import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.report import (
    run,
    run_and_tell,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable

from ..html_reader import HOSTILE, Page


def made(check_id, status, **other):
    check = {"id": check_id, "title": "Title", "required": "much", "found": "little", "status": status, "hint": "do it"}
    return {**check, **other}


def report(*checks, accept=(), dest=None, html=None, check_mode=False, title="Pre-flight"):
    params = {"checks": list(checks), "accept": list(accept), "dest": dest and str(dest), "width": 100}
    params.update(html=html and str(html), title=title)
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


@pytest.mark.parametrize("show", [False, True])
def test_the_table_is_shown_as_lines_where_that_is_wished(show):
    params = {"checks": [made("a", "failed"), made("b", "passed")], "accept": [], "dest": None, "width": 100}
    shown = []
    result = run_and_tell({**params, "title": "T", "show": show, "notes": []}, False, shown.append)
    assert "\n".join(shown).strip().splitlines() == (result["table"] if show else [])


def test_notes_stand_below_the_table():
    params = {"checks": [made("a", "passed")], "accept": [], "dest": None, "width": 100, "title": "T", "show": True}
    shown = []
    run_and_tell({**params, "notes": ["going on:", "  #7 \x1b[2J"]}, False, shown.append)
    assert "\n".join(shown).splitlines()[-2:] == ["going on:", "  #7 \\x1b[2J"]


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
    written = json.loads(path.read_text())
    assert written["checks"][0]["id"] == "a"
    assert (written["unmet"], written["counts"]["failed"]) == (["a"], 1)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["id", "title", "required", "found", "hint"])
def test_nothing_on_the_page_is_more_than_text(tmp_path, field, text):
    plain = tmp_path / "plain.html"
    hostile = tmp_path / "hostile.html"
    report(made("a", "failed"), html=plain, title="T")
    report(made("a", "failed", **{field: text}), html=hostile, title=text)
    good, bad = Page(plain.read_text()), Page(hostile.read_text())
    assert bad.tags == good.tags
    assert bad.attributes == good.attributes
    assert bad.open == []
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    assert any(shown in cell for cell in bad.cells)
    assert all(letter.isprintable() or letter == "\n" for letter in hostile.read_text())


def test_the_page_needs_nothing_else_and_can_load_nothing(tmp_path):
    path = tmp_path / "page.html"
    report(made("a", "failed"), made("b", "passed"), html=path)
    page = Page(path.read_text())
    assert not {"script", "link", "img", "iframe", "object", "form", "a"} & set(page.tags)
    assert not [name for name, _value in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in path.read_text()
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_the_page_says_what_the_table_says(tmp_path):
    path = tmp_path / "page.html"
    checks = [made("a", "passed"), made("b", "warning", found="<1>"), made("c", "unknown"), made("d", "failed")]
    result = report(*checks, html=path, title="Pre-flight of lab")
    text = path.read_text()
    cells = Page(text).cells
    assert [cell[1:] for cell in cells[::4]] == ["failed", "unknown", "warning", "passed"]
    assert [cell.endswith("do it") for cell in cells[2::4]] == [True, True, True, False]
    assert "2 of 4 requirements are not met." in text
    assert html.escape("<1>") in text
    assert result["unmet"] == ["d", "c"]
    assert report(*checks, html=path, title="Pre-flight of lab")["changed"] is False


def test_a_page_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(Unreadable, match="cannot be written"):
        report(made("a", "failed"), html=tmp_path / "not" / "there.html")
