# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make lint`, `sanity`, `unit`, `molecule` and `test` run.

Standard library only, but for the scripts that lint.py starts: it works, and says what failed, before anything is
installed.
"""
