#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_secret
short_description: Keep the pull secret of a registry in several namespaces
version_added: 0.1.0
description:
  - Keeps a Secret of type C(kubernetes.io/dockerconfigjson) with which pods, and Helm, pull from a registry.
  - The form of the credentials is looked at first, and what cannot be right is refused before anything is changed, for
    example an empty or still encrypted password, a newline at its end, or (NVIDIA's registry) another user than
    C($oauthtoken) and a key that does not begin with C(nvapi-). Whether the registry accepts them is for
    M(mission_control.job_recovery.registry_check) to tell.
  - A secret that gives the kubelet, Helm and Docker these credentials already is left as it is, in whichever form it
    holds them (C(auth), or user name and password, or both).
  - What is wrong with a secret that is there is named in RV(results[].found), for example no level C(auths), a newline
    encoded into C(auth), base64 twice, or a URL in place of the registry's name.
  - Only secrets with the label C(app.kubernetes.io/managed-by=mission-control-job-recovery) are changed, unless
    O(adopt) says otherwise.
options:
  name:
    description: The secret's name, which C(imagePullSecrets) of pods refer to.
    type: str
    required: true
  namespaces:
    description: The namespaces that the secret is kept in. They must exist, and at least one must be named.
    type: list
    elements: str
    required: true
  registry:
    description:
      - The registry as it stands in images, V(nvcr.io) or V(registry.example.org:5000), or a part of one
        (V(registry.example.org/team)). V(docker.io) is written under the key that Docker uses for it.
    type: str
    required: true
  username:
    description: The user. Empty means C($oauthtoken), literally, where the registry is NVIDIA's.
    type: str
    default: ''
  password:
    description: The password, or the key (C(nvapi-...)). Required when O(state=present).
    type: str
  state:
    description:
      - V(present) keeps the credentials in the secret.
      - V(absent) removes them, and the secret with them where it holds nothing else.
    type: str
    choices: [present, absent]
    default: present
  others:
    description:
      - What becomes of other registries' credentials in the same secret.
      - V(keep) leaves them exactly as they are; V(remove) makes the secret hold nothing but this registry.
    type: str
    choices: [keep, remove]
    default: keep
  adopt:
    description: Whether a secret that somebody else made may be changed; it is labelled then, and this module's.
    type: bool
    default: false
  recreate:
    description:
      - Whether a secret that cannot be changed, because it is immutable or of another type, may be deleted and made
        anew. Between the two, for the time of a request, there is none.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
attributes:
  check_mode:
    support: full
    description: Can run in check mode and tell what would be changed.
  diff_mode:
    support: full
    description: Tells what was changed, or would be in check mode, without user names and passwords.
seealso:
  - module: mission_control.job_recovery.registry_check
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Let the pods of two namespaces pull from NVIDIA's registry
  mission_control.job_recovery.registry_secret:
    name: nvcr
    namespaces: [training, inference]
    registry: nvcr.io
    password: "{{ vault_nvcr_key }}"

- name: Add the site's own registry to the same secret
  mission_control.job_recovery.registry_secret:
    name: nvcr
    namespaces: [training]
    registry: registry.example.org:5000
    username: puller
    password: "{{ vault_registry_password }}"

- name: Replace a faulty secret that somebody made by hand, whatever it is
  mission_control.job_recovery.registry_secret:
    name: nvcr
    namespaces: [default]
    registry: nvcr.io
    password: "{{ vault_nvcr_key }}"
    others: remove
    adopt: true
    recreate: true
"""

RETURN = r"""
results:
  description: What became of each namespace, in the order of O(namespaces). A failed module returns it too.
  returned: when the form of the credentials is right
  type: list
  elements: dict
  contains:
    name:
      description: The namespace.
      type: str
      sample: training
    status:
      description: One of V(done), V(refused) and V(failed).
      type: str
      sample: done
    why:
      description: One sentence where it is not simply done.
      type: str
      sample: ""
    before:
      description: >-
        The secret's type, whether it is this module's, the registries in it and whether their credentials are those
        given, what else is in it, and what is wrong. Empty where there was none.
      type: dict
      sample:
        type: kubernetes.io/dockerconfigjson
        owned: true
        registries: {nvcr.io: other credentials}
        other_settings: []
        faults: []
    after:
      description: The same afterwards.
      type: dict
      sample:
        type: kubernetes.io/dockerconfigjson
        owned: true
        registries: {nvcr.io: as given}
        other_settings: []
        faults: []
    found:
      description: What was wrong with the secret as it was, a line each.
      type: list
      elements: str
      sample: ["nvcr.io: the password ends with a newline, which belongs to the file it came from"]
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.secret import SPEC, run


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
