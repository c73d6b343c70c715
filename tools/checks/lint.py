# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static checks. Each one runs, also after one failed."""

from __future__ import annotations

from collections.abc import Iterator

from . import process
from .process import CHECKOUT, Environment, Result

PART = "lint"


def check(environment: Environment) -> Iterator[Result]:
    """Yield one result for each static check."""
    for name, argv in commands():
        yield process.run_logged(PART, name, argv, environment)


def commands() -> list[tuple[str, list[str]]]:
    """The command of each check. Those in python live beside this file and need the tool environment."""
    return [
        ("ruff", ["ruff", "check", "--no-cache", "."]),
        ("yamllint", ["yamllint", "--strict", "."]),
        ("shellcheck", ["shellcheck", "--severity=info", "--external-sources", *shell_scripts()]),
        ("words", ["bash", "tools/checks/words.sh"]),
        ("rulebooks", ["python", "tools/checks/rulebooks.py"]),
        ("changelog", ["antsibull-changelog", "lint"]),
        ("plugin documentation", ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "."]),
        ("ansible-lint", ["ansible-lint", "--offline", "--profile", "production"]),
        ("archive", ["bash", "tools/checks/archive.sh"]),
    ]


def shell_scripts() -> list[str]:
    """Tracked files that a shell runs: by suffix or by their first line."""
    return [name for name in process.tracked_files() if _is_shell(name)]


def _is_shell(name: str) -> bool:
    path = CHECKOUT / name
    if path.suffix == ".sh":
        return True
    if path.suffix or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and first.split()[-1].rsplit(b"/", 1)[-1] in {b"sh", b"bash"}
