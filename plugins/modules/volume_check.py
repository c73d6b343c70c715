#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try whether a claim gets a volume; the work is in module_utils/checks/volume.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: volume_check
short_description: Try whether a claim really gets a volume
version_added: 0.1.0
description:
  - Makes a PersistentVolumeClaim and a pod that writes to it, and deletes both. The only check that makes something.
  - The id is V(volume_probe). A requirement that is not met does not fail the module; it fails only on wrong use.
options:
  image:
    description: An image with C(sh), C(cat) and C(rm) that the nodes can pull.
    type: str
    required: true
  namespace:
    description: Where the claim and the pod are made.
    type: str
    default: default
  storage_class:
    description: The StorageClass. Empty for the default one.
    type: str
    default: ""
  size_gb:
    description: What is claimed, in decimal gigabytes.
    type: int
    default: 1
  timeout:
    description: Seconds until the pod must have written.
    type: int
    default: 60
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    support: full
    description: Makes nothing, and says that it was not tried.
  diff_mode:
    support: none
    description: There is no diff.
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Try the default StorageClass
  mission_control.job_recovery.volume_check:
    kubeconfig: /root/.kube/config
    image: docker.io/library/busybox:1.36
  register: volume
"""

RETURN = r"""
checks:
  description: One entry.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Name of the check.
      type: str
      sample: volume_probe
    title:
      description: What is checked, in a few words.
      type: str
      sample: A volume for a claim
    required:
      description: What is required.
      type: str
      sample: a pod writes to a new volume
    found:
      description: What was found.
      type: str
      sample: a pod wrote to a new volume of the default class
    status:
      description: V(passed), V(failed), or V(unknown) where it cannot be told.
      type: str
      sample: passed
    hint:
      description: What to do when it is not passed.
      type: str
      sample: ""
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.volume import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
