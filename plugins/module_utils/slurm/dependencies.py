# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs depend on another one. Pure.

slurmctld drops a dependency as soon as it is satisfied, and nothing in the queue tells of it any more. What stays is
the command by which the dependent job was submitted (SubmitLine in the accounting). A dependency that stands in the
script (#SBATCH), or was set later, is not to be seen there.
"""

from __future__ import annotations

import re
from typing import Iterable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    AccountingRecord,
    Job,
)

# -d afterok:1, -dafterok:1, --dependency=afterok:1, and every beginning of it that getopt_long takes.
_OPTION = re.compile(r"(?:^|\s)(?:-d\s*|--dep[a-z]*[=\s]\s*)(?P<list>[^\s]+)")
# Types that wait for the end of a job; `after` waits for its beginning.
_AT_THE_END = re.compile(r"(?:afterany|afterok|afternotok|aftercorr|afterburstbuffer):(?P<ids>[0-9_:+\[\]*,-]+)")
_ID = re.compile(r"[0-9]+(?:_[0-9]+)?")


def depends_on(submit_line: str, names: Iterable[str]) -> bool:
    """Whether a job that was submitted so waited for the end of a job with one of these names (`12`, `12_3`)."""
    wanted = set(names)
    for option in _OPTION.finditer(submit_line):
        for part in _AT_THE_END.finditer(option.group("list")):
            # `afterok:1:2+10`: ids, a time behind some
            ids = [each.partition("+")[0] for each in part.group("ids").split(":")]
            if wanted.intersection(match.group(0) for match in map(_ID.match, ids) if match):
                return True
    return False


def names_of(job: Job) -> set[str]:
    """How a dependency may name a job: by its id, as a task, as the whole array, by the leader."""
    names = {str(number) for number in (job.id, job.array_job_id, job.het_job_id) if number}
    if job.array_job_id and job.array_task_id is not None:
        names.add("%d_%d" % (job.array_job_id, job.array_task_id))
    return names


def started_behind(job: Job, submitted: Sequence[AccountingRecord]) -> tuple[str, ...]:
    """The ids of jobs that waited for the end of this one and have started since."""
    names, ended = names_of(job), job.end_time or 0
    return tuple(
        str(record.id)
        for record in submitted
        if record.id != job.id
        and record.start_time is not None
        and record.start_time >= ended
        and depends_on(record.submit_line or "", names)
    )


def is_successor(job: Job, other: Job) -> bool:
    """Whether `other` was put behind this job by its user: held by him under the same name, and never started.

    So it stands after `sbatch --dependency=singleton --hold` of the same script.
    """
    return (
        other.id != job.id
        and other.uid is not None
        and (other.uid, other.name, other.partition) == (job.uid, job.name, job.partition)
        and other.understood
        and other.held
        and other.state_reason == "JobHeldUser"
        and not other.restart_count
        and other.array_job_id is None
        and other.het_job_id is None
    )
