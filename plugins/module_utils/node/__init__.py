# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node helper: the only thing that the controller's SSH key may run on a cluster node.

This folder is copied as it stands to every node (`/usr/local/lib/job-recovery/job_recovery_node/`) and started by
`/usr/local/sbin/job-recovery-node`, which the key's `restrict,command=` in authorized_keys names. So everything in
here uses the standard library only, imports relatively, bears Python 3.9, and starts fast.
"""
