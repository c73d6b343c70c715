#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job_info
short_description: Read jobs of a Slurm cluster
version_added: 0.1.0
description:
  - Reads jobs by id, or those that are on some nodes now, by one call each.
  - A job that Slurm has forgotten (C(MinJobAge) after its end) is only in the accounting and counts as absent here.
  - Texts that users wrote (C(name), C(comment), C(stdout), C(stderr)) are returned unchanged, and are data.
options:
  jobs:
    description: >-
      Ids of jobs in any of Slurm's forms: V(7), V(57829110_3) for a task of an array, V(123+1) for a component of a
      heterogeneous job. The id of an array gives all its tasks.
    type: list
    elements: str
    default: []
  nodes:
    description: Nodes, as names or host lists, whose running, suspended and completing jobs are read.
    type: list
    elements: str
    default: []
  tolerate:
    description: Leave out jobs that Slurm does not know, instead of failing.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.slurm
attributes:
  check_mode:
    description: Reads in check mode too.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Read two jobs
  mission_control.job_recovery.slurm_job_info:
    jobs: [7, "57829110_3"]
  register: these

- name: Read what is on a node
  mission_control.job_recovery.slurm_job_info:
    nodes: [gpu001]
  register: there
"""

RETURN = r"""
jobs:
  description: The jobs, each once.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The job's own id; a task of an array has one too.
      type: int
      sample: 2653326
    array_job_id:
      description: The id of the array that the job is a task of; null if it is none.
      type: int
      sample: 2653325
    array_task_id:
      description: The number of the task in its array.
      type: int
      sample: 1
    array_tasks:
      description: The tasks of an array that have not started, which are one record together.
      type: str
      sample: 5-100%3
    het_job_id:
      description: The id of the heterogeneous job that the job is a component of; null if it is none.
      type: int
      sample: null
    het_job_offset:
      description: The number of the component.
      type: int
      sample: null
    het_jobs:
      description: The ids of all components of a heterogeneous job; empty if it is none.
      type: list
      elements: int
      sample: []
    name:
      description: The job's name.
      type: str
      sample: train
    user:
      description: The job's user.
      type: str
      sample: alice
    uid:
      description: The user's number.
      type: int
      sample: 1000
    account:
      description: The account that pays.
      type: str
      sample: physics
    state:
      description: >-
        The base state: PENDING, RUNNING, SUSPENDED, COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL, PREEMPTED,
        BOOT_FAIL, DEADLINE or OUT_OF_MEMORY. Versions of Slurm without JSON hide it behind some flags; then it is the
        flag's name.
      type: str
      sample: RUNNING
    flags:
      description: >-
        All flags of the state, sorted. A job with COMPLETING has not finished, whatever its state says.
      type: list
      elements: str
      sample: [COMPLETING]
    state_reason:
      description: Why the job is pending or ended; null if Slurm gives no reason.
      type: str
      sample: BeginTime
    exit_code:
      description: Exit code and signal.
      type: str
      sample: "0:0"
    nodes:
      description: The nodes of the job, expanded.
      type: list
      elements: str
      sample: [n01, n02]
    batch_host:
      description: The node that runs the batch script.
      type: str
      sample: n01
    restart_count:
      description: How often the job was requeued, by anybody.
      type: int
      sample: 0
    requeue:
      description: Whether the job may be requeued.
      type: bool
      sample: true
    batch:
      description: Whether it is a batch job; others cannot be requeued.
      type: bool
      sample: true
    comment:
      description: The user's comment.
      type: str
      sample: '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":3}}'
    admin_comment:
      description: The administrator's comment.
      type: str
      sample: null
    stdout:
      description: Path of the script's output.
      type: str
      sample: /home/alice/slurm-7.out
    stderr:
      description: Path of the script's errors.
      type: str
      sample: /home/alice/slurm-7.out
    submit_time:
      description: Submission, or the last requeue, in seconds since the epoch.
      type: int
      sample: 1758466900
    begin_time:
      description: When the job may start, or could have, in seconds since the epoch.
      type: int
      sample: 1758466901
    start_time:
      description: Start, or the expected one, in seconds since the epoch.
      type: int
      sample: 1758466931
    end_time:
      description: End, or the latest possible one, in seconds since the epoch.
      type: int
      sample: null
    partition:
      description: The job's partition.
      type: str
      sample: main
    dependency:
      description: What the job waits for, as Slurm spells it.
      type: str
      sample: null
    excluded_nodes:
      description: Nodes that the job must not get.
      type: list
      elements: str
      sample: []
    required_nodes:
      description: Nodes that the job must get.
      type: list
      elements: str
      sample: []
    priority:
      description: The job's priority; 0 means held.
      type: int
      sample: 1
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.info import (
    JOB_SPEC as SPEC,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.info import (
    run_jobs as run,
)


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
