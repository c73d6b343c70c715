# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings files keep what a person wrote."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.utils.yaml import from_yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.text import (
    literal,
    reference,
    set_values,
)

HAND_MADE = """---
# my cluster
b: 1   # one
a:
  # why
  - x

- no list
- of mine
c: |
  text
   more

d: 4
"""


@pytest.mark.parametrize(("values", "after"), [
    ({}, HAND_MADE),
    ({"b": "2"}, HAND_MADE.replace("b: 1   # one", "b: 2")),
    ({"a": '["y"]'}, HAND_MADE.replace("a:\n  # why\n  - x\n", 'a: ["y"]\n')),
    ({"c": '"t"'}, HAND_MADE.replace("c: |\n  text\n   more\n", 'c: "t"\n')),
    ({"e": "5"}, HAND_MADE + "e: 5\n"),
    ({"text": "5"}, HAND_MADE + "text: 5\n"),  # not the one inside c
])
def test_only_the_value_changes(values: dict[str, str], after: str) -> None:
    assert set_values(HAND_MADE, values) == after
    assert set_values(after, values) == after


def test_a_list_whose_dashes_are_not_indented_is_replaced_as_a_whole() -> None:
    assert set_values("a:\n- x\n- y\nb: 1\n", {"a": "[]"}) == "a: []\nb: 1\n"


def test_a_new_file_and_one_without_a_last_newline() -> None:
    assert yaml.safe_load(set_values("", {"a": "1"})) == {"a": 1}
    assert set_values("a: 1", {"b": "2"}) == "a: 1\nb: 2\n"


@pytest.mark.parametrize("value", [
    "plain", "", "a'b", 'a"b', "a\\b", "#x", "{{ x }}", "{% x %}", "{# x #}", "yes", "null", "1.0", "- x", "a: b", "%x",
    "!vault x", "&a", "*a", "$oauthtoken", "tab\there", "ü€",
    "\U0001f600", "\\ud83d\\ude00", "\u2028\x85", "`id`", "@x",
    True, False, ["a", "b"], [],
])
def test_every_value_comes_back(value: Any) -> None:
    text = set_values("", {"a": literal(value)})
    assert from_yaml(text)["a"] == value
    assert text.count("\n") == 3


def test_text_of_a_secret_is_no_template_and_a_reference_is_one() -> None:
    assert literal("{{ lookup('pipe', 'id') }}").startswith("!unsafe ")
    assert yaml.safe_load(reference("vault_x")) == "{{ vault_x }}"
