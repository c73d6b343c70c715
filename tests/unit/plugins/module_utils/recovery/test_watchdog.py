# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.watchdog import (
    CANARY_LATE,
    SILENT_AFTER,
    Canary,
    judge,
    main,
)

NOW = 1000000.0
WELL = [{"name": "slurm", "at": NOW - 5, "error": None}, {"name": "ledger", "at": NOW - 1, "error": None}]
SILENT = [{"name": "slurm", "at": NOW - SILENT_AFTER - 1, "error": None}, WELL[1]]
IN_TROUBLE = [{"name": "slurm", "at": NOW - 5, "error": "slurmctld does not answer"}, WELL[1]]


@pytest.mark.parametrize(
    ("beats", "canary", "well", "trouble"),
    [
        (WELL, None, False, ""),
        (WELL, Canary("7", CANARY_LATE + 1, "7"), False, ""),
        (WELL, Canary("7", CANARY_LATE - 1, "6"), False, ""),
        (WELL, Canary("7", CANARY_LATE + 1, "6"), False, "has not arrived"),
        (SILENT, None, False, "slurm is silent"),
        (WELL[1:], None, False, "slurm has shown no sign of life"),
        ([], None, False, "no sign of life"),
        (IN_TROUBLE, None, False, ""),  # a restart does not bring Slurm back
        (IN_TROUBLE, None, True, "slurmctld does not answer"),
    ],
)
def test_what_is_deaf(beats, canary, well, trouble):
    found = "; ".join(judge(beats, canary, ["slurm", "ledger"], NOW, well))
    assert trouble in found
    assert bool(found) is bool(trouble)


def test_without_settings_nothing_is_well(tmp_path, capsys):
    assert main(["--settings", str(tmp_path / "none.yml")]) == 1
    assert "none.yml" in capsys.readouterr().err


def test_no_sign_of_life_and_no_ledger(tmp_path, capsys):
    settings = tmp_path / "settings.yml"
    settings.write_text(
        "{cluster: c, scope: {partitions: [p]}, state_dir: %s, ledger: {port: 1, password_file: ''}}" % tmp_path
    )
    assert main(["--settings", str(settings), "--source", "slurm"]) == 1
    assert "slurm has shown no sign of life" in capsys.readouterr().err
