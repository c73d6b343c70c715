# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent: follows the kernel's log of its node and reports faults to the controller. It never acts.

This folder and `logs/` are copied as they stand to the nodes (`/usr/local/lib/job-recovery/job_recovery/`) and run by
`job-recovery-agent.service`. So everything in here uses the standard library only, imports relatively and bears
Python 3.9.
"""
