# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small clusters, put together from the shapes that the upstream charts make."""

from __future__ import annotations

import base64
import copy

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import kubernetes

COLLECTIONS = {
    "Deployment": "/apis/apps/v1/namespaces/%s/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/%s/daemonsets",
    "StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets",
    "Service": "/api/v1/namespaces/%s/services",
    "ConfigMap": "/api/v1/namespaces/%s/configmaps",
    "Secret": "/api/v1/namespaces/%s/secrets",
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/%s/ingresses",
    "Prometheus": "/apis/monitoring.coreos.com/v1/namespaces/%s/prometheuses",
    "Node": "/api/v1/nodes",
    "IngressClass": "/apis/networking.k8s.io/v1/ingressclasses",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}


def thing(kind, name, namespace="x", **parts):
    metadata = {"name": name, "creationTimestamp": "2026-11-30T10:00:00Z", **parts.pop("metadata", {})}
    if "%s" in COLLECTIONS[kind]:
        metadata["namespace"] = namespace
    return {"kind": kind, "metadata": metadata, **parts}


def workload(kind, name, image, wanted=1, ready=1, namespace="x", labels=None, pod=None, **container):
    labels = labels or {"run": name}
    spec = {"containers": [{"name": "c", "image": image, **container}], **(pod or {})}
    template = {"metadata": {"labels": labels}, "spec": spec}
    if kind == "DaemonSet":
        counts = {"desiredNumberScheduled": wanted, "numberReady": ready}
        return thing(kind, name, namespace, spec={"template": template}, status=counts)
    return thing(
        kind, name, namespace, spec={"replicas": wanted, "template": template}, status={"readyReplicas": ready}
    )


def service(name, namespace="x", **selector):
    return thing("Service", name, namespace, spec={"selector": selector})


def api_service(name, group, to, available="True"):
    conditions = [{"type": "Available", "status": available, "reason": "FailedDiscoveryCheck"}]
    spec = {"group": group, "service": {"namespace": "x", "name": to}}
    return thing("APIService", name, spec=spec, status={"conditions": conditions})


def secret(name, **files):
    return thing("Secret", name, data={key: base64.b64encode(text.encode()).decode() for key, text in files.items()})


PROMTAIL_CONFIG = """
scrape_configs:
  - job_name: pods
    relabel_configs: [{target_label: __path__, replacement: /var/log/pods/*$1/*.log}]
"""
SCRAPE = "  - static_configs: [{labels: {__path__: '%s'}}]\n"
SOURCES = "datasources: [{name: Logs, type: loki, url: 'http://loki-gateway.x.svc.cluster.local/'}]"
SIDECAR = {
    "name": "sidecar",
    "image": "kiwigrid/k8s-sidecar:2",
    "env": [
        {"name": "LABEL", "value": "grafana_datasource"},
        {"name": "LABEL_VALUE", "value": "1"},
        {"name": "FOLDER", "value": "/etc/grafana/provisioning/datasources"},
    ],
}


def promtail(extra="", mount="/var/log", **pod):
    volumes = [
        {"name": "config", "secret": {"secretName": "promtail"}},
        {"name": "pods", "hostPath": {"path": "/var/log/pods"}},
        {"name": "logs", "hostPath": {"path": "/var/log"}},
    ]
    mounts = [
        {"name": "config", "mountPath": "/etc/promtail"},
        {"name": "pods", "mountPath": "/var/log/pods"},
        {"name": "logs", "mountPath": mount},
    ]
    agent = workload(
        "DaemonSet",
        "logs",
        "mirror:5000/grafana/promtail:3@sha256:1",
        pod={"volumes": volumes, **pod},
        volumeMounts=mounts,
    )
    return [agent, secret("promtail", **{"promtail.yaml": PROMTAIL_CONFIG + extra})]


def grafana(config=SOURCES, labels=None, ready=1):
    """With its own container and the sidecar; the ConfigMap is found by label."""
    one = workload("Deployment", "g", "grafana/grafana:13", ready=ready)
    one["spec"]["template"]["spec"]["containers"].append(SIDECAR)
    metadata = {"labels": {"grafana_datasource": "1"} if labels is None else labels}
    return [one, thing("ConfigMap", "sources", metadata=metadata, data={"s.yaml": config})]


def ingress(annotations=None, class_name="nginx", to="loki", tls=True):
    basic = {"nginx.ingress.kubernetes.io/auth-type": "basic", "nginx.ingress.kubernetes.io/auth-secret": "users"}
    path = {"path": "/loki", "backend": {"service": {"name": to}}}
    spec = {"ingressClassName": class_name, "rules": [{"http": {"paths": [path]}}], "tls": [{}] if tls else []}
    metadata = {"annotations": basic if annotations is None else annotations}
    return thing("Ingress", "loki", metadata=metadata, spec=spec)


LOKI = [workload("StatefulSet", "l", "grafana/loki:3"), service("loki", run="l"), service("loki-gateway", run="gw")]
NGINX = [
    workload("Deployment", "edge", "registry.k8s.io/ingress-nginx/controller:v1"),
    thing("IngressClass", "nginx", spec={"controller": "k8s.io/ingress-nginx"}),
]
USERS = secret("users", auth="loki:x")
LOCAL = [
    workload("Deployment", "lp", "rancher/local-path-provisioner:1"),
    thing("StorageClass", "local-path", provisioner="rancher.io/local-path"),
]
NFS = workload("Deployment", "nfs", "registry.k8s.io/sig-storage/nfs-subdir-external-provisioner:v4")


def storage_class(name, provisioner, default="true", beta=False, second=0):
    key = "storageclass.beta.kubernetes.io/is-default-class" if beta else "storageclass.kubernetes.io/is-default-class"
    made = "2026-11-30T10:00:0%dZ" % second
    metadata = {"annotations": {key: default}, "creationTimestamp": made}
    return thing("StorageClass", name, provisioner=provisioner, metadata=metadata)


def prometheus(available="True"):
    conditions = [{"type": "Available", "status": available}]
    return thing("Prometheus", "p", status={"conditions": conditions})


OPERATOR = workload("Deployment", "op", "quay.io/prometheus-operator/prometheus-operator:v1")
PROMETHEUS_TYPE = thing(
    "CustomResourceDefinition",
    "prometheuses.monitoring.coreos.com",
    status={"conditions": [{"type": "Established", "status": "True"}]},
)
ADAPTER = [workload("Deployment", "a", "mirror/prometheus-adapter:v1"), service("a", run="a")]
METRICS = [workload("Deployment", "ms", "registry.k8s.io/metrics-server/metrics-server:v1"), service("ms", run="ms")]
METRICS_API = api_service("v1beta1.metrics.k8s.io", "metrics.k8s.io", "ms")
METRICS_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
# What Metrics Server answers through the aggregation layer: told, not stored.
METRICS_ANSWER = {"kind": "answer", "path": METRICS_PATH, "body": {"kind": "NodeMetricsList", "items": [{"usage": {}}]}}
HOOK = thing("ValidatingWebhookConfiguration", "kyverno-policy-validating-webhook-cfg")
KYVERNO = workload("Deployment", "kyverno-admission-controller", "reg/kyverno/kyverno:v1")
SHARED = '{"sharedFileSystemPath": "/cm/shared/volumes"}'
LOCAL_SHARED = [
    workload(
        "Deployment",
        "lp",
        "rancher/local-path-provisioner:1",
        pod={"volumes": [{"name": "c", "configMap": {"name": "lp"}}]},
    ),
    thing("ConfigMap", "lp", data={"config.json": SHARED}),
]


def down(one):
    made = copy.deepcopy(one)
    made["status"] = {"readyReplicas": 0, "numberReady": 0, "desiredNumberScheduled": 7}
    return made


def scaled_to_zero(one):
    made = down(one)
    made["spec"]["replicas"] = 0
    return made


def filled(server, things):
    """Store these things in the server, and nothing else."""
    server.clear()
    for one in things:
        if one["kind"] == "answer":
            server.tell("GET", one["path"], one.get("code", 200), one["body"], times=99)
            continue
        path = COLLECTIONS[one["kind"]]
        server.put((path % one["metadata"]["namespace"] if "%s" in path else path) + "/" + one["metadata"]["name"], one)


def checked(server, tmp_path, **params):
    return run(server, tmp_path, **params)["checks"]


def run(server, tmp_path, **params):
    defaults = {name: option["default"] for name, option in kubernetes.SPEC["argument_spec"].items()}
    wanted = {**defaults, "nfs_provisioners": ["site/filer"], "request_timeout": 5}
    return kubernetes.run({**wanted, "kubeconfig": server.kubeconfig(tmp_path), **params}, False)
