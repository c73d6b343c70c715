# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's tests ask the recovery and its ledger."""

from __future__ import annotations

from joblab.demo.cluster import wait


def listening(cluster):
    """Whether every source has looked within the last seconds and has no error to tell."""
    return cluster.head("job-recovery status >/dev/null && echo yes", check=False) == "yes"


def incidents(cluster, target=None):
    """Incidents since the test began, of one target or of all."""
    return [row for row in cluster.ledger(cluster.begun)["incidents"] if target in (None, row["target"])]


def settled(cluster, target, seconds=240):
    """Wait until the target's newest incident is not open any more, and return its incidents."""

    def look():
        found = incidents(cluster, target)
        return found if found and all(row["state"] not in ("open", "waiting") for row in found) else None

    found = wait(look, seconds, interval=1.0)
    assert found, f"{target} has no settled incident after {seconds} s: {incidents(cluster, target)}"
    return found


def steps_of(row, name):
    """The runs of one step of an incident."""
    return [step for step in row["steps"] if step["step"] == name]


def sleep_until(condition, seconds, interval=0.1):
    """Poll for a moment in the middle of something; the answer, or a failure."""
    answer = wait(condition, seconds, interval)
    assert answer, f"did not happen within {seconds} s"
    return answer
