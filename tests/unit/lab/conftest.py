# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab is a program of its own beside the collection: its package lies in lab/."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab"))

from joblab.instance import Instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """Instance 3 of a checkout that holds nothing."""
    return Instance(3, tmp_path)
