#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_check
short_description: Check that images and charts can be pulled
version_added: 0.1.0
description:
  - Asks registries, in their own way (Docker's token authentication or a password), for exactly the images and charts
    that will be pulled, and reads nothing but their manifests.
  - A wrong password, missing permission, a missing image, a registry that is not reached and one that is not trusted
    are told apart in RV(results[].answer).
  - The ids are V(registry_credentials) (the form of users and passwords), V(registry_access), V(chart_repositories),
    V(registry_images) and V(registry_charts). A check is left out where there is nothing to ask.
  - What is asked is asked from where the module runs. Kubelets pull from the nodes, with their own authorities, proxies
    and routes.
  - Fails only on wrong use, never because of what it finds.
options:
  registries:
    description:
      - The registries that want credentials or have a certificate authority of their own. All others are asked without
        credentials.
    type: list
    elements: dict
    default: []
    suboptions:
      registry:
        description: Its name as it stands in images (V(nvcr.io)), or a part of one (V(registry.example.org/team)).
        type: str
        required: true
      username:
        description: The user. Empty means C($oauthtoken), literally, where the registry is NVIDIA's.
        type: str
        default: ''
      password:
        description: The password, or the key (C(nvapi-...)).
        type: str
        default: ''
      ca_file:
        description: Certificate authorities to trust besides the system's, a path where the module runs.
        type: path
        default: ''
      plain_http:
        description: Whether it does not speak TLS. User and password are then sent in clear.
        type: bool
        default: false
  repositories:
    description:
      - Chart repositories over HTTP. Each is asked for its index. Those that only charts name are asked without
        credentials.
    type: list
    elements: dict
    default: []
    suboptions:
      url:
        description: Its address, C(https://HOST/PATH).
        type: str
        required: true
      username:
        description: The user. Empty means C($oauthtoken), literally, where the repository is NVIDIA's.
        type: str
        default: ''
      password:
        description: The password, or the key (C(nvapi-...)). It is not sent without TLS, this machine apart.
        type: str
        default: ''
      ca_file:
        description: Certificate authorities to trust besides the system's, a path where the module runs.
        type: path
        default: ''
  images:
    description: Images as they stand in pods, with tag or digest.
    type: list
    elements: str
    default: []
  platforms:
    description: What every image must be there for, such as V(linux/amd64) or V(linux/arm64/v8). Empty means anything.
    type: list
    elements: str
    default: []
  charts:
    description: Helm charts in OCI registries and chart repositories.
    type: list
    elements: dict
    default: []
    suboptions:
      chart:
        description: Its address, C(oci://REGISTRY/REPOSITORY), or its name in O(charts[].repository).
        type: str
        required: true
      repository:
        description: The address of its chart repository, C(https://HOST/PATH).
        type: str
        default: ''
      version:
        description: Exactly one version. Empty means that there must be any.
        type: str
        default: ''
      digest:
        description: The digest that this version must have (C(sha256:...)), where the site pins it.
        type: str
        default: ''
  request_timeout:
    description: Seconds that each question may take, with all the requests that it needs.
    type: int
    default: 10
  deadline:
    description: Seconds that all of it may take. What is not answered then is unknown.
    type: int
    default: 60
requirements:
  - urllib3 (Python)
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
seealso:
  - module: mission_control.job_recovery.registry_secret
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Look whether what will be installed can be pulled
  mission_control.job_recovery.registry_check:
    registries:
      - registry: nvcr.io
        password: "{{ vault_nvcr_key }}"
      - registry: registry.example.org:5000
        username: puller
        password: "{{ vault_registry_password }}"
        ca_file: /etc/ssl/certs/example-ca.pem
    images:
      - nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04
      - registry.example.org:5000/tools/health:1.4
    platforms: [linux/amd64]
    charts:
      - chart: oci://registry.example.org:5000/charts/recovery-access
        version: 0.1.0
  register: registry

- name: Stop where something is missing
  ansible.builtin.assert:
    that: registry.checks | rejectattr('status', 'in', ['passed', 'warning']) | length == 0
"""

RETURN = r"""
checks:
  description: One entry for each requirement.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: A word that scripts can rely on.
      type: str
      sample: registry_images
    title:
      description: What is looked at.
      type: str
      sample: Images
    required:
      description: What should be there.
      type: str
      sample: every image can be pulled
    found:
      description: What is there.
      type: str
      sample: "1 of 2: not nvcr.io/nvidia/cuda:12.9: the repository is there, but it has none under that name"
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      sample: failed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      sample: correct the name or the version, or push it there
results:
  description: The answer for each registry, image and chart.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: One of V(registry), V(image) and V(chart).
      type: str
      sample: image
    name:
      description: What was asked for.
      type: str
      sample: nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04
    answer:
      description: >-
        V(accepted) (registries) or V(present); else V(bad_credentials), V(no_permission), V(absent), V(untrusted)
        (TLS), V(unreachable), V(timed_out), V(too_many_requests) or V(unreadable).
      type: str
      sample: present
    status:
      description: What it means for the check that it belongs to.
      type: str
      sample: passed
    why:
      description: One sentence where it is not simply so.
      type: str
      sample: ""
    digest:
      description: What the tag stands for now; empty where that is not known.
      type: str
      sample: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.registry import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
