#!/usr/bin/python
# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_check
short_description: Check that a Kubernetes cluster has what recovery needs
version_added: 0.1.0
description:
  - Looks for components and settings by what they are (images, labels, APIs, configuration that pods really mount), not
    by what they are called. Reads only.
  - The ids are V(prometheus_operator), V(prometheus_adapter), V(promtail), V(metrics_server), V(kube_state_metrics),
    V(ingress_nginx), V(kyverno), V(storage_local_path), V(storage_nfs_default), V(loki_datasource),
    V(loki_ingress_auth) and V(promtail_no_var_log).
  - RV(checks[].found) begins with V(present), V(broken) (there, but not working), V(absent), V(warning) or V(unknown).
    What may not be read is unknown, which is never passed.
  - Fails only on wrong use, never because of what it finds.
options:
  only:
    description: Ids to check. Empty checks all.
    type: list
    elements: str
    default: []
  recommended:
    description: Ids that are recommended only, so that they warn where they would fail.
    type: list
    elements: str
    default: []
  nfs_provisioners:
    description: Names of StorageClass provisioners that are known to serve NFS although their names do not say so.
    type: list
    elements: str
    default: []
  hardened:
    description:
      - Whether recovery is installed and proved, and C(harden.yml) has been run since. V(kyverno) may then be there.
    type: bool
    default: false
  requirements:
    description:
      - More components that this cluster must have, in the form in which the collection's own are written
        (C(plugins/module_utils/checks/catalogue.py)). One with the id of a requirement of ours takes its place.
      - Expressions are JMESPath, as the filter P(community.general.json_query#filter) takes them.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Its id in RV(checks), small letters, digits and underscores.
        type: str
        required: true
      title:
        description: What is looked at.
        type: str
        required: true
      required:
        description: What should be there.
        type: str
        required: true
      hint:
        description: What a person can do where it is not.
        type: str
        required: true
      workloads:
        description:
          - How to recognise the program, in whatever namespace and under whatever name. At least one of C(images)
            (regular expressions for the end of an image's repository), C(names) (values of the labels
            C(app.kubernetes.io/name), C(app) and C(k8s-app); all of C(labels), where given, must be there too) and
            C(argument) (the beginning of an argument that only this program gets).
          - C(kinds) are those of V(Deployment), V(StatefulSet) and V(DaemonSet) that count, all where not given.
            C(on_workers) demands pods elsewhere than on control-plane nodes.
          - It works when pods are ready, and is broken when none is.
        type: dict
      evidence:
        description:
          - What else must hold, each a dictionary. C(resource) (C(GROUP/VERSION/PLURAL)) lists objects, of which
            C(select) (an expression on the list) chooses some; C(path) gets one object or answer. With C(belongs)
            only those objects count for which the expression C(object) gives a value that the expression C(workload)
            gives for one of the workloads (with C(name), C(namespace), C(labels), C(arguments), C(images),
            C(services), C(pod)).
          - C(good) is an expression that is true for an object as it should be; one is enough, with C(every) all
            must be so. C(title) names the kind of object, C(lacking) says what is wrong when there is none, C(broken)
            when it is not good, and the expression C(reason) why. With C(warns) it only warns.
        type: list
        elements: dict
      when_absent:
        description:
          - What may be there in the program's place, the first that is there is told (C(text)). C(workloads), or
            C(resource) or C(path) with C(select) and C(good), as above; the expression C(show) gives names for the
            text. With C(warns) the requirement is then met with a warning.
        type: list
        elements: dict
  components:
    description: Whether components and settings are looked at; without it only O(rights) and O(facts) are.
    type: bool
    default: true
  rights:
    description:
      - Purposes for which the kubeconfig's account is asked whether it may do every single thing (one
        SelfSubjectAccessReview for each verb). Each adds a check V(kubernetes_rights_PURPOSE).
      - V(observe) and V(act) are the service's, V(check) is what this module reads, V(install) is what makes the
        service's account.
    type: list
    elements: str
    choices: [observe, act, check, install]
    default: []
  namespaces:
    description: The namespaces that recovery may make Jobs in, for O(rights). Empty asks for all.
    type: list
    elements: str
    default: []
  facts:
    description: Whether RV(nodes) and RV(storage) are read too.
    type: bool
    default: false
extends_documentation_fragment:
  - mission_control.job_recovery.read_only
  - mission_control.job_recovery.kubernetes
author:
  - mission_control.job_recovery contributors (@mission-control)
"""

EXAMPLES = r"""
- name: Look whether the cluster is fit
  mission_control.job_recovery.kubernetes_check:
    kubeconfig: /etc/job-recovery/kubeconfig
  register: kubernetes

- name: Require a program of this site, too
  mission_control.job_recovery.kubernetes_check:
    only: [gpu_operator]
    requirements:
      - id: gpu_operator
        title: GPU Operator
        required: the GPU Operator runs and its ClusterPolicy is ready
        hint: install the chart gpu-operator; kubectl describe clusterpolicy tells what it waits for
        workloads:
          images: [gpu-operator]
          names: [gpu-operator]
        evidence:
          - title: ClusterPolicy
            resource: nvidia.com/v1/clusterpolicies
            good: status.state == 'ready'
            reason: status.state
            lacking: there is no ClusterPolicy
            broken: no ClusterPolicy is ready

- name: Stop where it is not
  ansible.builtin.assert:
    that: kubernetes.checks | rejectattr('status', 'in', ['passed', 'warning']) | length == 0
"""

RETURN = r"""
nodes:
  description: What Kubernetes knows of the machines; empty where it may not be read.
  returned: when O(facts=true)
  type: list
  elements: dict
  sample:
    - name: node1
      memory_mb: 515633.2
      threads: 112
      machine_id: 4b2d6a3c9f4f4bd0a3a1d0c2b3a4e5f6
      boot_id: 1b4e28ba-2fa1-11d2-883f-0016d3cca427
      smbios_uuid: 4c4c4544-0042-3010-8058-c7c04f4a4e32
      addresses: [10.141.0.1, node1]
storage:
  description: Where the volumes of each StorageClass really lie; empty where it may not be read.
  returned: when O(facts=true)
  type: list
  elements: dict
  sample:
    - {class: nfs-client, default: true, kind: nfs, server: 10.141.255.254, path: /cm/shared/volumes}
    - {class: local-path, default: false, kind: node, path: /opt/local-path-provisioner}
checks:
  description: One entry for each requirement.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: A word that scripts can rely on.
      type: str
      sample: metrics_server
    title:
      description: What is looked at.
      type: str
      sample: Metrics Server
    required:
      description: What should be there.
      type: str
      sample: Metrics Server answers for metrics.k8s.io
    found:
      description: What is there.
      type: str
      sample: "present: Deployment kube-system/metrics-server 1/1, APIService v1beta1.metrics.k8s.io"
    status:
      description: One of V(passed), V(failed), V(warning) and V(unknown).
      type: str
      sample: passed
    hint:
      description: What a person can do about it; empty where it passed.
      type: str
      sample: ""
"""

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.kubernetes import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.entry import run_module


def main() -> None:
    """Run the module."""
    run_module(SPEC, run)


if __name__ == "__main__":
    main()
