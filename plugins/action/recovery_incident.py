# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of this name inside ansible-playbook; see plugin_utils/direct.py.

ansible-playbook loads this file before it forks a process for a task. So what the module needs is imported here, once
in a run, and not by each of its tasks, which would take 0.4 s each time.
"""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.modules import recovery_incident
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.direct import ActionModule

__all__ = ("ActionModule", "recovery_incident")
