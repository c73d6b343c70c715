# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors a person can act on."""

from __future__ import annotations


class LabError(Exception):
    """Something the lab cannot do; the text says what and what to do about it. Shown without a traceback."""
