# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the module of this name inside ansible-playbook; see plugin_utils/direct.py."""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.direct import ActionModule

__all__ = ("ActionModule",)
