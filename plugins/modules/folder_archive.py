#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack a folder reproducibly; the work is in module_utils/archive.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: folder_archive
short_description: Pack a folder so that the same content gives the same archive
version_added: 0.1.0
description:
  - Makes a gzipped tar archive of a folder in which only names, the executable bit and contents count, so that two
    archives, or their digests, tell whether two folders hold the same.
  - Symbolic links and everything else that is no regular file are left out, and so is C(.git).
options:
  path:
    description: The folder.
    type: path
    required: true
  include:
    description:
      - Shell patterns; a file is taken when one of them is like the beginning of its path below O(path), whole parts
        only.
    type: list
    elements: str
    default: ["*"]
  exclude:
    description: Shell patterns; a file is left out when one of them is like any part of its path below O(path).
    type: list
    elements: str
    default: [__pycache__, "*.pyc"]
  dest:
    description: Where the archive is written. Without it only the digest is told.
    type: path
attributes:
  check_mode:
    description: Reads and compares, and writes nothing.
    support: full
  diff_mode:
    description: There is no diff.
    support: none
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Pack the playbooks of a checkout
  mission_control.job_recovery.folder_archive:
    path: /srv/checkout
    include: [playbooks, roles]
    dest: /tmp/playbooks.tar.gz
  delegate_to: localhost
"""

RETURN = r"""
digest:
  description: SHA-256 over names, modes and contents.
  returned: success
  type: str
  sample: 6d3c8a0b7f0e5f7a0f9f5a7f5c2b7c1d0a9d8c7b6a5f4e3d2c1b0a9f8e7d6c5b
files:
  description: Number of files.
  returned: success
  type: int
  sample: 143
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.archive import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
