# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that several checks look for, Kyverno, and which ingress-nginx serves which class.

The components that only have to be there and to work are data: `catalogue.py`.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import catalogue, evidence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.verdict import (
    ABSENT,
    BROKEN,
    PRESENT,
    WARNING,
    Verdict,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.workloads import (
    Software,
    Workload,
    image_pattern,
    named,
    running,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

PROMTAIL = evidence.software(catalogue.entry("promtail")["workloads"])
INGRESS_NGINX = evidence.software(catalogue.entry("ingress_nginx")["workloads"])
GRAFANA = Software(image_pattern("grafana", "grafana-enterprise", "grafana-oss"), frozenset(("grafana",)))
LOKI = Software(image_pattern("loki", "enterprise-logs"), frozenset(("loki",)))
KYVERNO = Software(
    re.compile(r"(?:^|/)(?:kyverno|kyvernopre|(?:background|cleanup|reports)-controller)$"),
    frozenset(("kyverno",)),
)
LOCAL_PATH = Software(image_pattern("local-path-provisioner"), frozenset(("local-path-provisioner",)))
NFS = Software(
    image_pattern("nfs-subdir-external-provisioner", "nfs-client-provisioner", "nfs-provisioner", "nfsplugin"),
    frozenset(("nfs-subdir-external-provisioner", "csi-driver-nfs", "nfs-client-provisioner")),
)


def kyverno(cluster: Cluster) -> Verdict:
    """Kyverno: controllers, webhooks that it left, or only its resource types."""
    controllers = [
        one
        for one in running(cluster, KYVERNO)
        if "kyverno" in " ".join([one.labels.get("app.kubernetes.io/part-of", ""), one.name, *_repositories(one)])
    ]
    webhooks = [
        reading.text(reading.part(hook, "metadata"), "name")
        for kind in ("validatingwebhooks", "mutatingwebhooks")
        for hook in cluster.all(kind)
        if _of_kyverno(reading.part(hook, "metadata"))
    ]
    if any(one.wanted for one in controllers):
        return Verdict(PRESENT, named(controllers))
    if webhooks:
        down = "its controllers are scaled to zero" if controllers else "it is gone"
        return Verdict(BROKEN, "%s and its webhooks hold up admission: %s" % (down, ", ".join(sorted(set(webhooks)))))
    if controllers:
        return Verdict(PRESENT, "scaled to zero: %s" % named(controllers))
    types = [name for name in cluster.crd_names() if name.endswith(("kyverno.io", ".policies.kyverno.io"))]
    if types:
        return Verdict(WARNING, "only its resource types are left (%d)" % len(types))
    return Verdict(ABSENT)


def served_classes(cluster: Cluster) -> Mapping[str, Sequence[Workload]]:
    """By IngressClass, the ingress-nginx controllers that serve it (an entry only where there is one)."""
    entry = catalogue.entry("ingress_nginx")
    controllers = running(cluster, INGRESS_NGINX, entry["workloads"]["kinds"])
    return {
        reading.text(reading.part(thing, "metadata"), "name"): mine
        for thing, mine in evidence.belonging(cluster, entry["evidence"][0], controllers)
    }


def _of_kyverno(metadata: Mapping[str, object]) -> bool:
    labels = reading.part(metadata, "labels")
    return labels.get("webhook.kyverno.io/managed-by") == "kyverno" or reading.text(metadata, "name").startswith(
        "kyverno-"
    )


def _repositories(one: Workload) -> list[str]:
    return [reading.text(container, "image") for container in one.containers]
