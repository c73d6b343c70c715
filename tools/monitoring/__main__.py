# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the dashboards into the chart: `make dashboards`. A test holds the files to what this makes."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.mission_control.job_recovery.tools.monitoring.dashboards import files

TARGET = Path(__file__).resolve().parents[2] / "charts" / "job-recovery-monitoring" / "files" / "dashboards"


def main() -> None:
    """Write every dashboard, and remove files that are none any more."""
    made = files()
    for old in TARGET.glob("*.json"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
