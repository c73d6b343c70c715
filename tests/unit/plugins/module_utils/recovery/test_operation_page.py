# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/operation.md explains every gate and every step once, and names every command and only settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import control, gates, plans

CHECKOUT = Path(__file__).resolve().parents[5]
PAGE = (CHECKOUT / "docs/operation.md").read_text()


def explained(title: str) -> list[str]:
    """The words of the first column of the table with this first heading."""
    table = re.search(r"^\| %s \|.*\n\|[-|]+\|\n((?:\|.*\n)+)" % title, PAGE, re.MULTILINE)
    assert table, title
    return [word for row in table.group(1).splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1])]


@pytest.mark.parametrize(("title", "names"), [("gate", tuple(gates.GATES)), ("step", plans.ORDER)])
def test_the_table_has_each_once(title: str, names: tuple[str, ...]) -> None:
    assert sorted(explained(title)) == sorted(names)


def test_every_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        control.main(["--help"])
    commands = re.search(r"\{([a-z,-]+)\}", capsys.readouterr().out)
    assert commands
    assert set(commands.group(1).split(",")) <= set(re.findall(r"job-recovery ([a-z-]+)", PAGE))


def test_every_setting_that_is_named_exists() -> None:
    known: set[str] = set()
    for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            known.update(entry.get("options", {}))
    assert set(re.findall(r"`(job_recovery_[a-z_]+)", PAGE)) <= known
