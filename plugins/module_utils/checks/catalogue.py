# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components that recovery wants in a Kubernetes cluster, as data. A site adds entries of the same form.

An entry says how to recognise the program (`workloads`), and by which evidence it is told that it works (`evidence`).
Expressions are JMESPath. The keys of each part are described in the module `kubernetes_check`, which takes more entries
as `requirements`; `evidence.py` judges them.
"""

from __future__ import annotations

from typing import Any, Mapping

# The Service that an APIService leads to, and those that lead to a workload's pods, are written namespace/name.
_API_SERVICES = "apiregistration.k8s.io/v1/apiservices"
_AVAILABLE = "status.conditions[?type=='Available' && status=='True']"
_WHY_NOT = "status.conditions[?type=='Available'].reason | [0]"
_SERVICE = "join('/', [spec.service.namespace, spec.service.name])"

COMPONENTS: tuple[Mapping[str, Any], ...] = (
    {
        "id": "prometheus_operator",
        "title": "Prometheus Operator stack",
        "required": "Prometheus Operator runs and keeps a Prometheus",
        "hint": "install the chart kube-prometheus-stack (in Base Command Manager: cm-kubernetes-setup)",
        "workloads": {
            "images": ["prometheus-operator"],
            "names": [
                "prometheus-operator",
                "kube-prometheus-stack-operator",
                "kube-prometheus-stack-prometheus-operator",
            ],
        },
        "evidence": [
            {
                "title": "resource type",
                "path": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/prometheuses.monitoring.coreos.com",
                "good": "status.conditions[?type=='Established' && status=='True']",
                "lacking": "the resource type prometheuses.monitoring.coreos.com is missing",
                "broken": "the API server does not serve the resource type",
            },
            {
                "title": "Prometheus",
                "resource": "monitoring.coreos.com/v1/prometheuses",
                # before 0.58 the operator wrote no conditions
                "good": "status.conditions[?type=='Available' && (status=='True' || status=='Degraded')]"
                " || (!status.conditions[?type=='Available'] && status.availableReplicas > `0`)",
                "reason": _WHY_NOT,
                "lacking": "there is no Prometheus, so nothing is collected",
                "broken": "no Prometheus is available",
            },
        ],
        "when_absent": [
            {
                "path": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/prometheuses.monitoring.coreos.com",
                "text": "its resource types are still there",
            }
        ],
    },
    {
        "id": "prometheus_adapter",
        "title": "Prometheus Adapter",
        "required": "Prometheus Adapter serves custom or external metrics",
        "hint": "install the chart prometheus-adapter; kubectl describe apiservice tells why one does not answer",
        "workloads": {
            "images": ["prometheus-adapter", r"k8s-prometheus-adapter(?:-\w+)?"],
            "names": ["prometheus-adapter"],
        },
        "evidence": [
            {
                "title": "APIService",
                "resource": _API_SERVICES,
                "select": "[?spec.service && (spec.group=='custom.metrics.k8s.io' "
                "|| spec.group=='external.metrics.k8s.io')]",
                "belongs": {"object": _SERVICE, "workload": "services"},
                "good": _AVAILABLE,
                "every": True,
                "reason": _WHY_NOT,
                "lacking": "no APIService of custom or external metrics leads to it",
                "broken": "the API server gets no answer",
            }
        ],
    },
    {
        "id": "promtail",
        "title": "Grafana Promtail",
        "required": "Promtail runs on the worker nodes",
        "hint": "install the chart promtail",
        "workloads": {"kinds": ["DaemonSet"], "images": ["promtail"], "names": ["promtail"], "on_workers": True},
        "when_absent": [{"workloads": {"images": ["alloy"], "names": ["alloy"]}, "text": "Grafana Alloy is there"}],
    },
    {
        "id": "metrics_server",
        "title": "Metrics Server",
        "required": "Metrics Server answers for metrics.k8s.io",
        "hint": "install the chart metrics-server; kubectl describe apiservice v1beta1.metrics.k8s.io tells why it is "
        "silent, kubectl top nodes whether it knows the nodes",
        "workloads": {"images": [r"metrics-server(?:-\w+)?"], "names": ["metrics-server"]},
        "evidence": [
            {
                "title": "APIService",
                "resource": _API_SERVICES,
                "select": "[?spec.service && spec.group=='metrics.k8s.io']",
                "good": _AVAILABLE,
                "every": True,
                "reason": _WHY_NOT,
                "lacking": "there is no APIService for metrics.k8s.io",
                "broken": "the API server gets no answer",
            },
            {
                "title": "APIService",
                "resource": _API_SERVICES,
                "select": "[?spec.service && spec.group=='metrics.k8s.io']",
                "belongs": {"object": _SERVICE, "workload": "services"},
                "good": "spec",
                "lacking": "another program answers for metrics.k8s.io",
                "warns": True,
            },
            {
                "title": "answer",
                "path": "/apis/metrics.k8s.io/v1beta1/nodes",
                "good": "kind=='NodeMetricsList'",
                "lacking": "it does not answer for nodes",
                "broken": "it answers something else for nodes",
            },
            {
                "title": "answer",
                "path": "/apis/metrics.k8s.io/v1beta1/nodes",
                "good": "items",
                "lacking": "it does not answer for nodes",
                "broken": "it answers, and knows no node yet",
                "warns": True,
            },
        ],
        "when_absent": [
            {
                "resource": _API_SERVICES,
                "select": "[?spec.service && spec.group=='metrics.k8s.io']",
                "good": _AVAILABLE,
                "show": _SERVICE,
                "text": "another program answers for metrics.k8s.io: Service",
                "warns": True,
            },
            {
                "resource": _API_SERVICES,
                "select": "[?spec.service && spec.group=='metrics.k8s.io']",
                "show": "metadata.name",
                "text": "an APIService leads nowhere:",
            },
        ],
    },
    {
        "id": "kube_state_metrics",
        "title": "kube-state-metrics",
        "required": "kube-state-metrics runs",
        "hint": "install the chart kube-state-metrics",
        "workloads": {"images": [r"kube-state-metrics(?:-\w+)?"], "names": ["kube-state-metrics"]},
    },
    {
        "id": "ingress_nginx",
        "title": "ingress-nginx",
        "required": "an ingress-nginx controller runs and serves an IngressClass",
        "hint": "install the chart ingress-nginx",
        "workloads": {
            "kinds": ["Deployment", "DaemonSet"],
            "images": ["ingress-nginx/controller", r"nginx-ingress-controller(?:-\w+)?"],
            "names": ["ingress-nginx"],
            # its jobs and its default backend bear the same name
            "labels": {"app.kubernetes.io/component": "controller"},
            "argument": "--controller-class=k8s.io/ingress-nginx",
        },
        "evidence": [
            {
                "title": "class",
                "resource": "networking.k8s.io/v1/ingressclasses",
                "belongs": {
                    "object": "join('', ['--controller-class=', spec.controller])",
                    "workload": "arguments[?starts_with(@, '--controller-class=')] "
                    "|| ['--controller-class=k8s.io/ingress-nginx']",
                },
                "good": "metadata.name",
                "lacking": "no IngressClass is served by it",
            }
        ],
        "when_absent": [
            {
                "resource": "networking.k8s.io/v1/ingressclasses",
                "show": "spec.controller",
                "text": "classes are of",
            }
        ],
    },
)


def entry(component: str) -> Mapping[str, Any]:
    """The entry with this id."""
    return next(one for one in COMPONENTS if one["id"] == component)
