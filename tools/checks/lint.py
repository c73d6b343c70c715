# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static checks. Each one runs, also after one failed."""

from __future__ import annotations

import pathlib
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
        ("ruff", ["ruff", "check", "--no-cache", ".", *scripts_of("python", "python3")]),
        ("Python 3.9", ["vermin", "--target=3.9-", "--no-tips", "--violations", "--quiet", "plugins", "extensions"]),
        ("yamllint", ["yamllint", "--strict", "."]),
        ("shellcheck", ["shellcheck", "--external-sources", *scripts_of("sh", "bash", suffix=".sh")]),
        ("words", ["bash", "tools/checks/words.sh"]),
        ("rulebooks", ["python", "tools/checks/rulebooks.py"]),
        ("changelog", ["antsibull-changelog", "lint"]),
        ("plugin documentation", ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "."]),
        ("ansible-lint", ["ansible-lint", "--offline", "--profile", "production"]),
        ("archive", ["bash", "tools/checks/archive.sh"]),
    ]


def scripts_of(*interpreters: str, suffix: str = "") -> list[str]:
    """Tracked files with this suffix, and those without any whose first line names one of these interpreters."""
    found = []
    for name in process.tracked_files():
        its_suffix = pathlib.PurePath(name).suffix
        if (its_suffix and its_suffix == suffix) or (not its_suffix and _interpreter(CHECKOUT / name) in interpreters):
            found.append(name)
    return found


def _interpreter(path: pathlib.Path) -> str:
    """Name of the program that runs a script, such as bash; "" for other files."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        first = file.readline(100)
    words = first[2:].replace(b"/usr/bin/env ", b"").split() if first.startswith(b"#!") else []
    return words[0].rsplit(b"/", 1)[-1].decode(errors="replace") if words else ""
