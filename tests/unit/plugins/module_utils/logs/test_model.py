# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of actions, and what of a line is kept."""

from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import model


@pytest.mark.parametrize(
    ("actions", "firmest"),
    [
        ([], "ignore"),
        (["report", "ignore"], "report"),
        (["report", "restart_app"], "restart_app"),
        (["reboot", "reset_gpu", "restart_app"], "reboot"),
        (["drain_and_report", "reboot"], "drain_and_report"),
    ],
)
def test_firmest(actions: list[str], firmest: str) -> None:
    assert model.firmest(actions) == firmest


def test_lines_are_bounded() -> None:
    assert model.bounded(7, "x" * 10_000) == (7, "x" * model.MAX_LINE_LENGTH)
