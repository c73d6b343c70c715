# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.silent_agents import (
    load,
    save,
    silent,
)


@pytest.mark.parametrize(
    ("heard", "after", "found"),
    [
        ({}, 900.0, []),
        ({"a": 999.0, "b": 100.0, "c": 50.0, "d": 101.0}, 900.0, ["c", "b"]),
        ({"a": 99.0, "b": 50.0}, 900.0, []),  # nobody is heard: the controller itself is deaf
        ({"a": 999.0, "b": 100.0}, 0.0, []),
        ({"a": 2000.0, "b": 100.0}, 900.0, ["b"]),  # clocks that were set back
    ],
)
def test_who_is_silent(heard: dict[str, float], after: float, found: list[str]) -> None:
    assert [each.node for each in silent(heard, after, 1000.0)] == found


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"heard": 1}', '{"heard": {"a": "x"}}', '{"heard": {"a": null}}'])
def test_what_is_not_understood_is_nothing(tmp_path: Path, content: str) -> None:
    save(str(tmp_path), {"a": 1.5})
    assert load(str(tmp_path)) == {"a": 1.5}
    (tmp_path / "agents-heard.json").write_text(content)
    assert load(str(tmp_path)) == {}
