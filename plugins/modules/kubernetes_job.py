#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_job
short_description: Run failed Kubernetes Jobs again
version_added: 0.1.0
description:
  - Makes a new Job of a failed one, with all that is the user's and nothing that is the server's. The old Job stays,
    with its pods and their logs.
  - The new name follows from the first Job of the chain and the attempt, so doing it twice makes one Job. The
    annotation C(mission-control/job-recovery) counts the attempts and tells on the old Job as which it runs again.
  - Refused are Jobs that have not failed, were deleted or replaced, or belong to somebody who runs them again himself
    (CronJob, JobSet, Kueue, Argo, a training operator ...).
options:
  jobs:
    description: The Jobs to run again.
    type: list
    elements: dict
    required: true
    suboptions:
      job:
        description: The Job as C(namespace/name).
        type: str
        required: true
      uid:
        description: The uid of the Job that is meant. Another Job of the same name is refused. Empty takes any.
        type: str
        default: ''
  state:
    description: V(rerun) runs each of the Jobs again, once.
    type: str
    required: true
    choices: [rerun]
  max_attempts:
    description: How often the first Job of a chain may be run again; V(0) sets no limit.
    type: int
    default: 0
  nodes_proved_off:
    description:
      - Nodes whose power is proved off. Pods of the failed Job that are bound to other nodes and have not ended may
        still be running, and the Job waits for them.
    type: list
    elements: str
    default: []
  tolerate:
    description: End without failure also where a Job is refused, waiting or failed; RV(results) tells.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    support: full
    description: Can run in check mode and tell what would be changed.
  diff_mode:
    support: full
    description: Tells what was changed, or would be in check mode.
seealso:
  - module: mission_control.job_recovery.kubernetes_node
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Run a Job again that lost its node
  mission_control.job_recovery.kubernetes_job:
    jobs:
      - job: team-a/train
    state: rerun
    kubeconfig: /etc/job-recovery/kubeconfig
"""

RETURN = r"""
results:
  description: What became of each Job, in the order of O(jobs). A failed module returns it too.
  returned: when the API server was reached
  type: list
  elements: dict
  contains:
    name:
      description: The Job as C(namespace/name).
      type: str
      sample: team-a/train
    status:
      description: One of V(done), V(refused), V(waiting) and V(failed).
      type: str
      sample: done
    why:
      description: One sentence where it is not simply done.
      type: str
      sample: it has not failed, it is complete
    before:
      description: As which Job it ran again before; empty where it did not.
      type: dict
      sample: {rerun_as: ""}
    after:
      description: The same afterwards.
      type: dict
      sample: {rerun_as: train-f6b3ae-r1}
    new:
      description: The name of the new Job, in the same namespace; empty where there is none.
      type: str
      sample: train-f6b3ae-r1
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.jobs import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
