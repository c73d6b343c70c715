# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kernel logs and job logs say: pure, standard library only, relative imports, Python 3.9.

The node agent carries this folder to the nodes beside the helper.
"""
