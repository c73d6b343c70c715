# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All jobs that slurmctld knows, look after look. Pure.

Of tens of thousands of jobs few change between two looks: a line of squeue that stood in the look before is not read
again.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import JOB_ENDED, JobState


def job_name(state: Any) -> str:
    """The id by which Slurm's commands take a `Job` or `JobState`; a task of an array by array and task."""
    if state.array_job_id and state.array_task_id is not None:
        return "%d_%d" % (state.array_job_id, state.array_task_id)
    return str(state.id)


@dataclasses.dataclass(frozen=True)
class Jobs:
    """One look at all jobs, those that ended and are not forgotten yet among them.

    Attributes:
        lines: by the line that shows it, each job.
        changed: names of the jobs whose line is new in this look.
        separator: between the columns; the same in all looks, so that lines can be compared.
    """

    lines: Mapping[str, JobState] = dataclasses.field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    separator: str = dataclasses.field(default_factory=lambda: "~%s~" % secrets.token_hex(8))
    queued: Mapping[str, JobState] = dataclasses.field(init=False, repr=False)
    ended: Mapping[str, JobState] = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        named = [(job_name(state), state) for state in self.lines.values()]
        object.__setattr__(self, "queued", {name: state for name, state in named if not _has_ended(state)})
        object.__setattr__(self, "ended", {name: state for name, state in named if _has_ended(state)})

    def then(self, output: str, parse: Callable[[list[str]], JobState]) -> Jobs:
        """The next look.

        Args:
            output: lines, each of whose columns ends in the separator.
            parse: makes a job of the columns of a line.

        Raises:
            Unreadable: a line is damaged.
        """
        end = self.separator + "\n"
        texts = output.split(end)
        if texts.pop():
            raise Unreadable("the last line of squeue's answer is cut off")
        before = self.lines
        lines = {text: before.get(text) or parse(text.split(self.separator)) for text in texts}
        changed = frozenset(job_name(lines[text]) for text in lines.keys() - before.keys())
        return Jobs(lines, changed, self.separator)


def _has_ended(state: JobState) -> bool:
    return state.state in JOB_ENDED and "COMPLETING" not in state.flags
