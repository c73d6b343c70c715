#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, upgrade and remove charts; the work is in module_utils/helm/chart.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: helm_chart
short_description: Install a chart and wait until it works
version_added: 0.1.0
description:
  - Brings a Helm release to a chart and its values, or removes it. The chart comes from an OCI registry, from an HTTP
    repository, or from an archive or folder on this machine.
  - Nothing is done when the deployed chart (its version, and its digest where it is known) and the values are the
    wanted ones already. With O(digest) and an exact O(version) the registry is not even asked then.
  - The chart is fetched first, its digest or provenance is checked, and the very file that was checked is installed.
  - The account for a registry is given to C(helm) by standard input or by a file that this run alone may read, in a
    folder that is gone afterwards, also when the run fails or is killed. It is gone before the installation begins.
  - A release that cannot be brought up explains itself; RV(troubles) tells which pod, and why.
  - Run by ansible-playbook, it shows how far it is while it waits.
options:
  name:
    description: Name of the release.
    type: str
    required: true
  namespace:
    description: Its namespace.
    type: str
    required: true
  state:
    description:
      - V(present) installs or upgrades.
      - V(absent) removes the release with all its objects. Its namespace stays.
    type: str
    choices: [present, absent]
    default: present
  chart:
    description:
      - The chart as C(oci://HOST/PATH), as a path that begins with C(/), C(./) or C(~), or, with O(repository), as its
        name there.
      - Required for O(state=present).
    type: str
  repository:
    description: URL of the HTTP repository that has the chart.
    type: str
  version:
    description: Version of the chart, or a constraint such as V(^1.2.0). Without it the newest.
    type: str
  digest:
    description:
      - V(sha256:) and 64 hexadecimal digits; the chart is refused when it has another one.
      - For a chart in an OCI registry that is the digest that C(helm push) shows, or that of the archive; otherwise
        that of the archive.
    type: str
  keyring:
    description: A file with public keys. The chart must have a provenance file that one of them has signed.
    type: path
  values:
    description:
      - The values of the chart; all others are the chart's defaults.
      - They are kept in the cluster where many can read them. What is secret belongs into a Secret to which they refer.
        Values that hold the account's password, or evidently a key, are refused.
    type: dict
    default: {}
  username:
    description: User for the registry or repository.
    type: str
  password:
    description: Its password or token.
    type: str
  password_file:
    description: A file with the password or token, which not every user may read.
    type: path
  docker_config:
    description: A Docker C(config.json) that has an account for the registry.
    type: path
  ca_file:
    description: The certificate authority of the registry or repository. Without it those of the system.
    type: path
  plain_http:
    description: Ask the registry without TLS. Refused together with an account, but for a registry on this machine.
    type: bool
    default: false
  create_namespace:
    description: Make the namespace where it is missing.
    type: bool
    default: true
  take_ownership:
    description:
      - Make objects that are there already part of the release, and take over their fields from whoever set them, where
        otherwise it fails.
    type: bool
    default: false
  wait:
    description: Wait until the workloads are ready.
    type: bool
    default: true
  timeout:
    description: Seconds for everything together.
    type: int
    default: 600
  repair:
    description:
      - Whether to go on from a release that an interrupted operation left as C(pending-install), C(pending-upgrade),
        C(pending-rollback) or C(uninstalling). Without it that is told, and nothing is done.
      - The interrupted revision is marked as failed and a new one is made; nothing is deleted for that.
      - It is refused while a C(helm) on this machine names the release.
    type: bool
    default: false
  repair_after:
    description: Seconds that it must have stood so, because a C(helm) on another machine cannot be seen.
    type: int
    default: 600
  only_own:
    description: With O(state=absent), leave a release that this module has not installed.
    type: bool
    default: false
  helm:
    description: The C(helm) command, by its name or path.
    type: str
    default: helm
  work_dir:
    description: Where temporary folders are made. Without it in memory, or where the system wants them.
    type: path
extends_documentation_fragment:
  - mission_control.job_recovery.kubernetes
requirements:
  - Helm 3.13 or newer, or Helm 4
  - PyYAML (Python)
attributes:
  check_mode:
    support: full
    description: Fetches and checks the chart, and tells what would be done.
  diff_mode:
    support: full
    description: Shows chart, version, digests and values before and after.
seealso:
  - module: kubernetes.core.helm
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Install a chart of a registry that wants an account
  mission_control.job_recovery.helm_chart:
    name: exporter
    namespace: monitoring
    chart: oci://registry.example.com/charts/exporter
    version: 1.4.2
    digest: sha256:4f0f7b5cdcbb8ab8f1aeb3d8a4a4fa5a0c9b4c0d6f8b2e1a7c3d5e6f7a8b9c0d
    username: $oauthtoken
    password_file: /root/registry.token
    values:
      existingSecret: exporter-account

- name: Install a chart from an archive, without a network
  mission_control.job_recovery.helm_chart:
    name: exporter
    namespace: monitoring
    chart: /srv/charts/exporter-1.4.2.tgz

- name: Remove it
  mission_control.job_recovery.helm_chart:
    name: exporter
    namespace: monitoring
    state: absent
"""

RETURN = r"""
because:
  description: The differences that decided it; why it stays where nothing was removed.
  returned: success
  type: list
  elements: str
  sample: [version 1.4.1 becomes 1.4.2]
release:
  description: The newest revision as it is now, in check mode as it was. V(null) where there is none.
  returned: always, if the API server answered
  type: dict
  contains:
    name:
      description: Name of the release.
      type: str
      sample: exporter
    namespace:
      description: Its namespace.
      type: str
      sample: monitoring
    revision:
      description: Number of the revision.
      type: int
      sample: 3
    status:
      description: As Helm spells it.
      type: str
      sample: deployed
    chart:
      description: Name of its chart.
      type: str
      sample: exporter
    version:
      description: Version of its chart.
      type: str
      sample: 1.4.2
    digests:
      description: Digests of the deployed chart, where this module has deployed it.
      type: list
      elements: str
      sample: ["sha256:4f0f7b5cdcbb8ab8f1aeb3d8a4a4fa5a0c9b4c0d6f8b2e1a7c3d5e6f7a8b9c0d"]
    own:
      description: Whether this module has installed the release.
      type: bool
      sample: true
troubles:
  description: Why workloads are not ready.
  returned: when they did not become ready
  type: list
  elements: dict
  contains:
    object:
      description: The workload.
      type: str
      sample: Deployment exporter
    pod:
      description: The pod; empty where it could not even be made.
      type: str
      sample: exporter-7c9d-x2x4v
    cause:
      description: >-
        One of V(image), V(quota), V(volume), V(crash), V(settings), V(scheduling), V(admission), V(readiness) and
        V(other).
      type: str
      sample: image
    message:
      description: What the cluster says.
      type: str
      sample: 'Back-off pulling image "registry.example.com/exporter:1.4.2"'
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.chart import SPEC, run, run_and_tell

__all__ = ("SPEC", "main", "run", "run_and_tell")  # the action plugin `direct` takes them from here


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
