# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every script says what it is for when it is asked, and does nothing then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
#: These hand all their arguments to another program.
PASSING = ("kubectl", "helm")
SCRIPTS = sorted(
    str(path.relative_to(CHECKOUT))
    for folder in ("tools", "lab")
    for path in (CHECKOUT / folder).iterdir()
    if path.is_file() and os.access(path, os.X_OK) and path.name not in PASSING
)


def test_there_are_scripts() -> None:
    assert {"tools/wheelhouse", "tools/clean", "tools/environment", "lab/up"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script: str, tmp_path: Path) -> None:
    environment = {**os.environ, "JOB_RECOVERY_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([CHECKOUT / script, "--help"], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 40, done.stdout
    assert not done.stdout.startswith("#")
    assert list(tmp_path.iterdir()) == []
