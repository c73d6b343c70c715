#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
short_description: Requeue Slurm jobs and let them start
version_added: 0.1.0
description:
  - Requeues batch jobs, at most once for one fault, and never one that was cancelled, which Slurm itself would revive.
  - A requeue counts as done when the job's restart count is above the one on record, and the job is pending or running
    and no longer completing. The module waits three seconds for that; after that the status is C(waiting), and the same
    call with O(restart_counts) later tells how it ended, without a second requeue.
options:
  jobs:
    description: >-
      Ids of single jobs: V(7), V(57829110_3) for a task of an array, V(123) for a heterogeneous job's leader.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(requeued) puts the jobs back into the queue.
      - V(released) lets pending jobs start. A hold is released; a begin time of at most 15 minutes ahead, as Slurm sets
        it when it requeues a job itself, is cleared. A later one is the user's own and stays.
    type: str
    required: true
    choices: [requeued, released]
  restart_counts:
    description:
      - By job id, the restart count that was recorded when the fault was seen. A job whose count is above it was
        requeued already, and is not requeued again.
      - Without it the count that is read right before the requeue is taken.
    type: dict
  completed:
    description: Whether O(state=requeued) may run a job again that ended COMPLETED, because its script hid the failure.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.slurm
  - mission_control.job_recovery.slurm.tolerate
attributes:
  check_mode:
    description: Reads and decides the same, and writes nothing.
    support: full
  diff_mode:
    description: Shows the jobs' states before and after.
    support: full
notes:
  - The account needs Slurm's operator level, or to be the jobs' user.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Requeue a job that lost its node
  mission_control.job_recovery.slurm_job:
    jobs: [7]
    state: requeued
    restart_counts: {"7": 0}

- name: Let it start at once
  mission_control.job_recovery.slurm_job:
    jobs: [7]
    state: released
"""

RETURN = r"""
results:
  description: What became of every job. A module that fails returns it too, unless nothing could be read.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: The id as it was given.
      type: str
      sample: "7"
    status:
      description: C(done), C(refused), C(waiting) or C(failed).
      type: str
      sample: done
    why:
      description: >-
        One word for it. Refused: C(cancelled), C(completed), C(purged), C(not_batch), C(requeue_disabled),
        C(not_het_leader), C(ended_again), C(begin_time_of_user), C(not_understood). Waiting: C(completing),
        C(not_requeued_yet), C(not_released_yet). Done: C(pending), C(held), C(ended). Failed: C(unknown), C(purged), or
        the cause that Slurm gave, such as C(forbidden).
      type: str
      sample: ""
    changed:
      description: Whether this job was changed.
      type: bool
      sample: true
    before:
      description: The job as it was right before; null if Slurm does not know it.
      type: dict
      sample: {"id": 7, "state": "NODE_FAIL", "flags": [], "state_reason": null, "restart_count": 0, "nodes": ["n1"],
               "begin_time": 1758466901, "start_time": 1758466931}
    after:
      description: The job as it was afterwards, or in check mode would be.
      type: dict
      sample: {"id": 7, "state": "PENDING", "flags": [], "state_reason": "BeginTime", "restart_count": 1, "nodes": [],
               "begin_time": 1758467121, "start_time": null}
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.job_state import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
