# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components that the system wants in a Kubernetes cluster, found by what they are and not by what they are called.

Each judgement gives one `Verdict`: present, broken (there, not working), absent, or warning (works, worth a look).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.workloads import (
    Software,
    Workload,
    image_pattern,
    named,
    running,
    services_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

PRESENT = "present"
BROKEN = "broken"
ABSENT = "absent"
WARNING = "warning"

OPERATOR = Software(
    image_pattern("prometheus-operator"),
    frozenset(("prometheus-operator", "kube-prometheus-stack-operator", "kube-prometheus-stack-prometheus-operator")),
)
ADAPTER = Software(
    image_pattern("prometheus-adapter", r"k8s-prometheus-adapter(?:-\w+)?"), frozenset(("prometheus-adapter",))
)
PROMTAIL = Software(image_pattern("promtail"), frozenset(("promtail",)))
ALLOY = Software(image_pattern("alloy"), frozenset(("alloy",)))
METRICS_SERVER = Software(image_pattern(r"metrics-server(?:-\w+)?"), frozenset(("metrics-server",)))
STATE_METRICS = Software(image_pattern(r"kube-state-metrics(?:-\w+)?"), frozenset(("kube-state-metrics",)))
INGRESS_NGINX = Software(
    image_pattern("ingress-nginx/controller", r"nginx-ingress-controller(?:-\w+)?"),
    arguments="--controller-class=k8s.io/ingress-nginx",
)
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

_INGRESS_NGINX_CLASS = "k8s.io/ingress-nginx"
_METRICS_GROUP = "metrics.k8s.io"
_ADAPTER_GROUPS = ("custom.metrics.k8s.io", "external.metrics.k8s.io")


@dataclass(frozen=True)
class Verdict:
    """What was found: one of the words above, and by what."""

    word: str
    why: str = ""

    def __str__(self) -> str:
        return "%s: %s" % (self.word, self.why) if self.why else self.word


@dataclass(frozen=True)
class ServedApi:
    """One APIService: its group, the Service behind it, and whether it answers."""

    name: str
    group: str
    service: tuple[str, str]
    available: bool
    reason: str


def prometheus_operator(cluster: Cluster) -> Verdict:
    """Prometheus Operator, and a Prometheus that it keeps."""
    operators = running(cluster, OPERATOR)
    known = "prometheuses.monitoring.coreos.com" in cluster.crd_names()
    if not operators:
        left = "; its resource types are still there" if known else ""
        return Verdict(ABSENT, "no workload runs Prometheus Operator" + left)
    if not any(one.works for one in operators):
        return Verdict(BROKEN, "no pod of the operator is ready (%s)" % named(operators))
    if not known:
        return Verdict(BROKEN, "the resource type prometheuses.monitoring.coreos.com is missing")
    servers = [_prometheus(thing) for thing in cluster.all("prometheuses")]
    if not servers:
        return Verdict(BROKEN, "there is no Prometheus, so nothing is collected (%s)" % named(operators))
    names = ", ".join(name for name, _available in servers)
    if not any(available for _name, available in servers):
        return Verdict(BROKEN, "no Prometheus is available (%s)" % names)
    return Verdict(PRESENT, "%s, Prometheus %s" % (named(operators), names))


def prometheus_adapter(cluster: Cluster) -> Verdict:
    """Prometheus Adapter, serving metrics to the API server."""
    adapters = running(cluster, ADAPTER)
    if not adapters:
        return Verdict(ABSENT, "no workload runs Prometheus Adapter")
    if not any(one.works for one in adapters):
        return Verdict(BROKEN, "none of its pods is ready (%s)" % named(adapters))
    behind = services_of(cluster, adapters)
    served = [api for api in served_apis(cluster) if api.service in behind]
    custom = [api for api in served if api.group in _ADAPTER_GROUPS]
    if not custom:
        return Verdict(BROKEN, "no APIService of custom or external metrics leads to %s" % named(adapters))
    return _answering(custom, adapters)


def metrics_server(cluster: Cluster) -> Verdict:
    """Metrics Server, answering for metrics.k8s.io."""
    servers = running(cluster, METRICS_SERVER)
    apis = [api for api in served_apis(cluster) if api.group == _METRICS_GROUP]
    if not servers:
        if any(api.available for api in apis):
            return Verdict(
                WARNING, "another program answers for %s: Service %s/%s" % (_METRICS_GROUP, *apis[0].service)
            )
        left = "; the APIService %s leads nowhere" % apis[0].name if apis else ""
        return Verdict(ABSENT, "no workload runs Metrics Server" + left)
    if not any(one.works for one in servers):
        return Verdict(BROKEN, "none of its pods is ready (%s)" % named(servers))
    if not apis:
        return Verdict(BROKEN, "there is no APIService for %s" % _METRICS_GROUP)
    return _answering(apis, servers)


def kube_state_metrics(cluster: Cluster) -> Verdict:
    """kube-state-metrics, as whatever kind of workload."""
    return _plain(running(cluster, STATE_METRICS), "kube-state-metrics")


def promtail(cluster: Cluster) -> Verdict:
    """Promtail on the nodes: a DaemonSet."""
    agents = running(cluster, PROMTAIL, ("DaemonSet",))
    if not agents:
        other = running(cluster, ALLOY)
        instead = "; Grafana Alloy is there (%s)" % named(other) if other else ""
        return Verdict(ABSENT, "no DaemonSet runs Promtail" + instead)
    if all(one.wanted == 0 for one in agents):
        return Verdict(BROKEN, "it matches no node (%s)" % named(agents))
    if all(one.control_plane_only for one in agents):
        return Verdict(BROKEN, "it runs on control-plane nodes only (%s)" % named(agents))
    return _plain(agents, "Promtail")


def ingress_nginx(cluster: Cluster) -> Verdict:
    """The ingress-nginx controller of the Kubernetes project, with a class of its own."""
    controllers = ingress_controllers(cluster)
    if not controllers:
        others = sorted(
            {reading.text(reading.part(one, "spec"), "controller") for one in cluster.all("ingressclasses")}
        )
        instead = "; classes are of %s" % reading.printable(", ".join(others)) if others else ""
        return Verdict(ABSENT, "no workload runs ingress-nginx" + instead)
    if not any(one.works for one in controllers):
        return Verdict(BROKEN, "no controller is ready (%s)" % named(controllers))
    classes = [name for name, serving in served_classes(cluster).items() if any(one.works for one in serving)]
    if not classes:
        return Verdict(BROKEN, "no IngressClass is served by %s" % named(controllers))
    found = "%s, class %s" % (named(controllers), ", ".join(classes))
    return Verdict(PRESENT if all(one.complete for one in controllers) else WARNING, found)


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


def served_apis(cluster: Cluster) -> list[ServedApi]:
    """The APIServices that lead to a Service, in whatever namespace."""
    found = []
    for thing in cluster.all("apiservices"):
        spec = reading.part(thing, "spec")
        service = reading.part(spec, "service")
        if service:
            available = reading.condition(reading.part(thing, "status"), "Available")
            found.append(
                ServedApi(
                    name=reading.text(reading.part(thing, "metadata"), "name"),
                    group=reading.text(spec, "group"),
                    service=(reading.text(service, "namespace"), reading.text(service, "name")),
                    available=available.get("status") == "True",
                    reason=reading.text(available, "reason"),
                )
            )
    return found


def ingress_controllers(cluster: Cluster) -> list[Workload]:
    """The ingress-nginx controllers, also by labels (with the component: jobs and default backends share the name)."""
    return [
        one
        for one in running(cluster, INGRESS_NGINX) + _labelled_controllers(cluster)
        if one.kind in ("Deployment", "DaemonSet")
    ]


def served_classes(cluster: Cluster) -> Mapping[str, Sequence[Workload]]:
    """By IngressClass, the ingress-nginx controllers that serve it (an entry only where there is one)."""
    controllers = ingress_controllers(cluster)
    served: dict[str, list[Workload]] = {}
    for thing in cluster.all("ingressclasses"):
        value = reading.text(reading.part(thing, "spec"), "controller")
        mine = [one for one in controllers if controller_class(one) == value]
        if mine:
            served[reading.text(reading.part(thing, "metadata"), "name")] = mine
    return served


def controller_class(controller: Workload) -> str:
    """The value of IngressClass.spec.controller that an ingress-nginx controller answers to."""
    option = "--controller-class="
    return next((word[len(option) :] for word in controller.arguments if word.startswith(option)), _INGRESS_NGINX_CLASS)


def _labelled_controllers(cluster: Cluster) -> list[Workload]:
    return [
        one
        for one in running(cluster, Software(re.compile("$^"), frozenset(("ingress-nginx",))))
        if one.labels.get("app.kubernetes.io/component") == "controller" and not one.runs(INGRESS_NGINX)
    ]


def _plain(found: Sequence[Workload], what: str) -> Verdict:
    if not found:
        return Verdict(ABSENT, "no workload runs %s" % what)
    if not any(one.works for one in found):
        return Verdict(BROKEN, "none of its pods is ready (%s)" % named(found))
    return Verdict(PRESENT if all(one.complete for one in found) else WARNING, named(found))


def _answering(apis: Sequence[ServedApi], behind: Sequence[Workload]) -> Verdict:
    silent = [api for api in apis if not api.available]
    if silent:
        named_apis = ", ".join("%s (%s)" % (api.name, api.reason or "no answer") for api in silent)
        return Verdict(BROKEN, "the API server gets no answer from APIService %s" % named_apis)
    found = "%s, APIService %s" % (named(behind), ", ".join(api.name for api in apis))
    return Verdict(PRESENT if all(one.complete for one in behind) else WARNING, found)


def _prometheus(thing: Mapping[str, object]) -> tuple[str, bool]:
    metadata, status = reading.part(thing, "metadata"), reading.part(thing, "status")
    state = reading.condition(status, "Available").get("status")
    available = status.get("availableReplicas")
    works = state in ("True", "Degraded") or (state is None and isinstance(available, int) and available > 0)
    return "%s/%s" % (reading.text(metadata, "namespace"), reading.text(metadata, "name")), works


def _of_kyverno(metadata: Mapping[str, object]) -> bool:
    labels = reading.part(metadata, "labels")
    return labels.get("webhook.kyverno.io/managed-by") == "kyverno" or reading.text(metadata, "name").startswith(
        "kyverno-"
    )


def _repositories(one: Workload) -> list[str]:
    return [reading.text(container, "image") for container in one.containers]
