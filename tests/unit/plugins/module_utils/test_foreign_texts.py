# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON and YAML of others: read, or a ValueError; never another error, and never the text in the message."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text, yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings

DEEP = 100_000
NO_JSON = ["", " ", "{", "[1,]", "{'a': 1}", "nan", "\ufeff{}", "9" * 5000, "[" * DEEP, "{" * DEEP,
           '{"a":' * DEEP, b"\xff", b""]
NO_YAML = [
    "a: [", "a: *b", "\x00", "a: 2026-13-45", "!!timestamp x", "!!int ''", "!!int x", "!!float ''", "!!bool x",
    "{[]: 1}", "!!python/object/apply:os.system [id]", "!!binary \u00e9", "=", "<<: 1", "9" * 5000, "[" * DEEP,
    "- " * DEEP, "{a: " * DEEP, b"\xff", "a: b: c", "\t- x",
]


@pytest.mark.parametrize("text", NO_JSON)
def test_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]{1,200}\Z"):
        json_text.loads(text)


@pytest.mark.parametrize("text", NO_YAML)
def test_no_yaml(text: str) -> None:
    for read in (yaml_text.loads, yaml_text.documents):
        with pytest.raises(ValueError, match=r"\A[A-Za-z]{1,40}\Z"):
            read(text)


def test_what_is_read() -> None:
    assert json_text.loads(b'{"a": [1, null]}') == {"a": [1, None]}
    assert yaml_text.loads("a: [1, ~]") == {"a": [1, None]}
    assert yaml_text.loads("") is None
    assert yaml_text.documents("a: 1\n---\n---\nb\n") == [{"a": 1}, None, "b"]
    with pytest.raises(ValueError, match="more than one document"):
        yaml_text.loads("a\n---\nb\n")


@pytest.mark.parametrize("text", [text for text in NO_YAML if isinstance(text, str)])
def test_settings_that_are_none(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "settings.yml").write_text(text, encoding="utf-8")
    with pytest.raises(RecoveryError, match="no YAML"):
        settings.load(str(tmp_path / "settings.yml"))
