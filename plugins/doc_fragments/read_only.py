# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attributes of every module that only reads."""

from __future__ import annotations


class ModuleDocFragment:
    """Nothing is changed in any mode."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
"""
