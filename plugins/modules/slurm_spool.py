#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_spool
short_description: Clean slurmd's spool of what dead job steps left there
version_added: 0.1.0
description:
  - Runs on a cluster node. Removes the sockets, directories and files of PMIx and of steps whose C(slurmstepd) is dead,
    on which a restarted step would fail (C(Cannot bind() UNIX socket ... Address already in use)).
  - Only names of a fixed list of patterns are removed. Nothing of a living step, nothing of slurmd itself, nothing
    through a symbolic link or across a mount.
  - Processes that outlived their C(slurmstepd) are not ended by this module; end them before, or their files come back.
  - It refuses a path that is relative, unresolved, general such as C(/tmp) or C(/var/spool), slurmctld's
    C(StateSaveLocation), or without slurmd's own files.
options:
  path:
    description: The node's C(SlurmdSpoolDir), with C(%h) and C(%n) replaced.
    type: str
    required: true
  node_name:
    description: The node's C(NodeName).
    type: str
    required: true
  state:
    description: What is wanted.
    type: str
    choices: [cleaned]
    default: cleaned
  jobs:
    description: Ids of jobs to limit the cleaning to. Without it, every dead step's files are removed.
    type: list
    elements: str
  state_save_location:
    description: slurmctld's C(StateSaveLocation), which is never cleaned.
    type: str
    default: ''
  application_directories:
    description: >-
      Where PMIx keeps its C(spmix_appdir) directories. They are removed only if they belong to the user in their name.
      Empty means nowhere.
    type: str
    default: /tmp
attributes:
  check_mode:
    description: Lists what would be removed.
    support: full
  diff_mode:
    description: Shows what is removed.
    support: full
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Clean the spool of one job's dead steps
  mission_control.job_recovery.slurm_spool:
    path: /var/spool/slurmd
    node_name: gpu001
    jobs: [7]
  become: true
"""

RETURN = r"""
spool:
  description: The real path of the spool.
  returned: success
  type: str
  sample: /var/spool/slurmd
removed:
  description: Paths that were removed, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/var/spool/slurmd/pmix.7.0, /var/spool/slurmd/stepd.slurm.pmix.7.0]
kept:
  description: What was kept.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The path.
      type: str
      sample: /var/spool/slurmd/cred_state
    why:
      description: >-
        One word: C(live) (its slurmstepd is alive), C(step_starts) (one is that has not said yet of which step),
        C(other_job), C(slurmd) (slurmd's own), C(unlisted) (no pattern names it), C(young), C(changed), C(forged), or
        the kind (C(link), C(file) ...) that a name of this pattern does not have.
      type: str
      sample: slurmd
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.spool_state import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
