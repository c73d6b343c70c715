# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus' own checker, promtool, for metrics, rules and queries; fetched at the first use, see tools/promtool."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


@cache
def _path() -> str:
    return subprocess.run(
        [str(CHECKOUT / "tools" / "promtool")], check=True, capture_output=True, text=True, timeout=300
    ).stdout.strip()


def promtool(*arguments: str, text: str = "") -> tuple[int, str]:
    """Run it; its exit code and all that it said."""
    done = subprocess.run(
        [_path(), *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        check=False,
    )
    return done.returncode, done.stdout
