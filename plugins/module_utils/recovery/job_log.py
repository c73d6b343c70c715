# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node's helper is asked for the log of a job. Pure."""

from __future__ import annotations

import os

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job


def words(job: Job, kib: int) -> list[str]:
    """The helper's words for the last `kib` KiB of each of the job's files; none where Slurm names no file or user."""
    if job.uid is None or not job.log_paths:
        return []
    named = [word for path in job.log_paths for word in ("--path", os.fsencode(path).hex())]
    return ["job-log", *named, "--uid", str(job.uid), "--kib", str(kib)]
