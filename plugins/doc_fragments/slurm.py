# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that runs Slurm's commands."""

from __future__ import annotations


class ModuleDocFragment:
    """How to reach Slurm, and how to bear a target that is refused."""

    DOCUMENTATION = r"""
options:
  bin_dir:
    description: Where Slurm's commands are. Empty takes E(PATH).
    type: path
  timeout:
    description: Seconds for each command of Slurm. One that takes longer is killed, and nothing is known.
    type: int
    default: 10
requirements:
  - Slurm's client commands (20.11 or later)
"""

    TOLERATE = r"""
options:
  tolerate:
    description:
      - End without failure also where a target is refused or failed; RV(results) tells.
      - Otherwise the module fails after it has done what it could, and its result says the same.
    type: bool
    default: false
"""
