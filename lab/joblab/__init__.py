# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab: a real Slurm and Kubernetes cluster in containers on one Debian machine.

Standard library only: it runs before anything of this project is installed.
"""
