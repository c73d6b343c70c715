# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How logs get to Loki and out of it: Promtail's sources, Grafana's data sources, Loki's Ingress.

Configuration is read from what the pods really mount, whatever it is called. Secrets are read by name, only where a pod
or an Ingress names them; nothing of their content gets into a result.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from typing import Any, Iterator, Mapping, Optional, Sequence
from urllib.parse import urlsplit

try:
    import yaml
except ImportError:  # said clearly at use
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.components import (
    GRAFANA,
    LOKI,
    PROMTAIL,
    served_classes,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.verdict import (
    ABSENT,
    BROKEN,
    PRESENT,
    WARNING,
    Verdict,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.workloads import (
    Workload,
    named,
    running,
    services_of,
    workloads,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

_POD_LOGS = ("/var/log/pods", "/var/log/containers")
_JOURNAL = "/var/log/journal"
_GRAFANA_SOURCES = "/etc/grafana/provisioning/datasources"
_NGINX = "nginx.ingress.kubernetes.io/"
_OTHER_AUTH = (
    "haproxy.org/auth-type",
    "traefik.ingress.kubernetes.io/router.middlewares",
    "nginx.org/basic-auth-secret",
)
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
_LOKI_CHART = re.compile(r"loki(?:-stack|-distributed|-simple-scalable)?-\d")
_AUTH_BASIC = re.compile(r"^\s*auth_basic\s+(?!off\b)\S", re.M)


# ---- Promtail ----


def promtail_no_var_log(cluster: Cluster) -> Verdict:
    """Promtail does not collect the workers' /var/log, apart from the pods' logs in it."""
    agents = [one for one in running(cluster, PROMTAIL, ("DaemonSet",)) if one.wanted and not one.control_plane_only]
    if not agents:
        return Verdict(PRESENT, "no Promtail runs on the workers")
    read = sorted({path for one in agents for path in _host_paths(cluster, one)})
    wrong = [path for path in read if _in_var_log(path)]
    if wrong:
        return Verdict(ABSENT, "Promtail collects %s on the workers" % reading.printable(", ".join(wrong)))
    if any(path == _JOURNAL or path.startswith(_JOURNAL + "/") for path in read):
        return Verdict(WARNING, "Promtail collects the workers' journal (%s)" % _JOURNAL)
    return Verdict(PRESENT, "Promtail collects %s" % reading.printable(", ".join(read) or "no files"))


def _in_var_log(path: str) -> bool:
    inside = path == "/var/log" or path.startswith(("/var/log/", "/var/log*"))
    return inside and not any(path == safe or path.startswith(safe + "/") for safe in (*_POD_LOGS, _JOURNAL))


def _host_paths(cluster: Cluster, agent: Workload) -> Iterator[str]:
    """The paths on the node that one agent's configuration makes it read; what it cannot reach it does not read."""
    for container in agent.containers:
        mounts = _host_mounts(agent.pod, container)
        for config in _promtail_configs(cluster, agent, container):
            for path in _scraped(config):
                yield from _on_host(path, mounts)


def _promtail_configs(cluster: Cluster, agent: Workload, container: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found = False
    for _path, text in _mounted_files(cluster, agent, container):
        config = _yaml(text)
        if isinstance(config, dict) and ("scrape_configs" in config or "clients" in config):
            found = True
            yield config
    if not found and agent.runs(PROMTAIL) and len(agent.containers) == 1:
        raise Unreadable("Promtail's configuration was not found in what %s mounts" % agent)


def _scraped(config: Mapping[str, Any]) -> Iterator[str]:
    for scrape in reading.items(config, "scrape_configs"):
        for static in reading.items(scrape, "static_configs"):
            yield from filter(None, [reading.text(reading.part(static, "labels"), "__path__")])
        for rule in reading.items(scrape, "relabel_configs"):
            if rule.get("target_label") == "__path__":
                yield from filter(None, [reading.text(rule, "replacement")])
        if "journal" in scrape:
            yield reading.text(reading.part(scrape, "journal"), "path") or _JOURNAL


def _host_mounts(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
    """By path in the container, the path on the node."""
    volumes = {
        reading.text(volume, "name"): reading.text(reading.part(volume, "hostPath"), "path")
        for volume in reading.items(pod, "volumes")
        if reading.part(volume, "hostPath")
    }
    return {
        posixpath.normpath(reading.text(mount, "mountPath")): posixpath.normpath(
            posixpath.join(volumes[reading.text(mount, "name")], reading.text(mount, "subPath"))
        )
        for mount in reading.items(container, "volumeMounts")
        if reading.text(mount, "name") in volumes
    }


def _on_host(path: str, mounts: Mapping[str, str]) -> Iterator[str]:
    """Where a path (maybe with wildcards) in the container lies on the node: by the deepest mount over it."""
    plain = posixpath.normpath(path)
    over = [point for point in mounts if plain == point or plain.startswith(point.rstrip("/") + "/")]
    if over:
        point = max(over, key=len)
        yield posixpath.normpath(mounts[point] + "/" + plain[len(point.rstrip("/")) :].lstrip("/"))


# ---- Grafana ----


def loki_datasource(cluster: Cluster) -> Verdict:
    """A data source of type loki in what a Grafana loads from the cluster."""
    grafanas = running(cluster, GRAFANA, ("Deployment", "StatefulSet"))
    if not grafanas:
        return Verdict(ABSENT, "no workload runs Grafana")
    sources = [source for one in grafanas for source in _sources(cluster, one) if source.get("type") == "loki"]
    if not sources:
        return Verdict(ABSENT, "no data source of type loki is in what Grafana loads (%s)" % named(grafanas))
    lost = [source for source in sources if not _leads_somewhere(cluster, reading.text(source, "url"), grafanas)]
    if len(lost) == len(sources):
        return Verdict(BROKEN, "the data source leads to a Service that does not exist")
    if not any(one.works for one in grafanas):
        return Verdict(BROKEN, "no pod of Grafana is ready (%s)" % named(grafanas))
    return Verdict(
        PRESENT, "data source %s" % reading.printable(reading.text(sources[0], "name") or "of type loki", 80)
    )


def _sources(cluster: Cluster, grafana: Workload) -> Iterator[Mapping[str, Any]]:
    for text in (*_provisioned(cluster, grafana), *_by_sidecar(cluster, grafana)):
        config = _yaml(text)
        if isinstance(config, dict):
            yield from reading.items(config, "datasources")


def _provisioned(cluster: Cluster, grafana: Workload) -> Iterator[str]:
    """Files that Grafana's own container mounts among its provisioned data sources."""
    for container in grafana.containers:
        for path, text in _mounted_files(cluster, grafana, container):
            if path.startswith(_GRAFANA_SOURCES):
                yield text


def _by_sidecar(cluster: Cluster, grafana: Workload) -> Iterator[str]:
    """ConfigMaps and Secrets that a sidecar copies among the data sources, by the label that it watches."""
    for container in [*grafana.containers, *reading.items(grafana.pod, "initContainers")]:
        settings = {
            reading.text(entry, "name"): reading.text(entry, "value") for entry in reading.items(container, "env")
        }
        label = settings.get("LABEL", "")
        if not label or "datasources" not in settings.get("FOLDER", ""):
            continue
        value = settings.get("LABEL_VALUE", "")
        selector = "%s=%s" % (label, value) if value else label
        wanted = settings.get("RESOURCE", "both") or "both"
        kinds = [
            kind for kind, word in (("configmaps", "configmap"), ("secrets", "secret")) if wanted in ("both", word)
        ]
        namespaces = settings.get("NAMESPACE", "") or grafana.namespace
        for namespace in [""] if namespaces == "ALL" else namespaces.split(","):
            for kind in kinds:
                for thing in cluster.labelled(kind, selector, namespace.strip()):
                    yield from _files(kind, thing).values()


def _leads_somewhere(cluster: Cluster, url: str, grafanas: Sequence[Workload]) -> bool:
    """Whether a URL leads out of the cluster, or to a Service that exists."""
    host = (urlsplit(url if "//" in url else "//" + url).hostname or "").rstrip(".")
    parts = host.split(".")
    if not host or "$" in url:  # made of a variable
        return True
    names = {(reading.text(one, "namespace"), reading.text(one, "name")) for one in _metadata(cluster, "services")}
    if len(parts) == 1:
        return any((grafana.namespace, host) in names for grafana in grafanas) or host == "localhost"
    if len(parts) == 2 or (len(parts) > 2 and parts[2] == "svc"):
        inside = any(parts[1] == namespace for namespace, _name in names)
        return (parts[1], parts[0]) in names or (len(parts) == 2 and not inside)
    return True


# ---- Loki's Ingress ----


def loki_ingress_auth(cluster: Cluster) -> Verdict:
    """An Ingress leads to Loki, is served, and wants credentials."""
    lokis = [*running(cluster, LOKI), *_of_lokis_chart(cluster)]
    behind = set(services_of(cluster, lokis))
    leading = [thing for thing in cluster.all("ingresses") if behind & set(_backends(thing))]
    if not leading:
        return Verdict(
            ABSENT, "no Ingress leads to Loki" if lokis else "there is no Loki, and no Ingress that leads to it"
        )
    verdicts = [_judged(cluster, thing, lokis, behind) for thing in leading]
    for word in (BROKEN, WARNING):
        for verdict in verdicts:
            if verdict.word == word:
                return verdict
    return verdicts[0]


def _judged(
    cluster: Cluster, thing: Mapping[str, Any], lokis: Sequence[Workload], behind: set[tuple[str, str]]
) -> Verdict:
    metadata, spec = reading.part(thing, "metadata"), reading.part(thing, "spec")
    name = "Ingress %s/%s" % (reading.text(metadata, "namespace"), reading.text(metadata, "name"))
    annotations = reading.part(metadata, "annotations")
    class_name = _class_of(cluster, annotations, spec)
    if class_name is None:
        return Verdict(BROKEN, "%s names no class, and none is the default" % name)
    served = served_classes(cluster)
    if class_name not in served:
        if class_name not in _class_names(cluster):
            return Verdict(BROKEN, "%s names class %s, which does not exist" % (name, class_name))
        if any(key in annotations for key in _OTHER_AUTH):
            return Verdict(
                WARNING, "%s is served by another controller (class %s), by its own rules" % (name, class_name)
            )
        return Verdict(BROKEN, "%s has no credentials that class %s knows" % (name, class_name))
    if not any(one.works for one in served[class_name]):
        return Verdict(BROKEN, "%s: no controller of class %s is ready" % (name, class_name))
    wrong = _nginx_auth(cluster, metadata, annotations)
    if wrong and not _gateway_wants_credentials(cluster, lokis, set(_backends(thing)) & behind):
        return Verdict(BROKEN, "%s %s" % (name, wrong))
    if not reading.items(spec, "tls"):
        return Verdict(WARNING, "%s wants credentials and takes them without TLS" % name)
    return Verdict(PRESENT, "%s, class %s" % (name, class_name))


def _nginx_auth(cluster: Cluster, metadata: Mapping[str, Any], annotations: Mapping[str, Any]) -> str:
    """What is wrong with an Ingress' authentication; the empty text where nothing is."""
    if annotations.get(_NGINX + "auth-url") or annotations.get(_NGINX + "auth-tls-secret"):
        return ""
    kind = annotations.get(_NGINX + "auth-type")
    secret = reading.text(annotations, _NGINX + "auth-secret")
    if kind not in ("basic", "digest"):
        return "is open to everybody" if not kind else "has an unknown auth-type"
    if not secret:
        return "wants credentials and names no Secret with them"
    namespace, slash, name = secret.partition("/")
    if not slash:
        namespace, name = reading.text(metadata, "namespace"), secret
    thing = cluster.one("secrets", namespace, name)
    if thing is None:
        return "names the Secret %s/%s, which does not exist" % (namespace, name)
    data = reading.part(thing, "data")
    by_user = annotations.get(_NGINX + "auth-secret-type") == "auth-map"
    if not data or not (by_user or data.get("auth")):
        return "names the Secret %s/%s, which holds no credentials" % (namespace, name)
    return ""


def _gateway_wants_credentials(cluster: Cluster, lokis: Sequence[Workload], used: set[tuple[str, str]]) -> bool:
    """Whether every Service used leads to a gateway (nginx) whose own configuration wants a password."""
    for service in used:
        gateways = [one for one in lokis if service in services_of(cluster, [one])]
        texts = [
            text
            for one in gateways
            for container in one.containers
            for path, text in _mounted_files(cluster, one, container)
            if path.endswith("nginx.conf")
        ]
        if not texts or not all(_AUTH_BASIC.search(text) for text in texts):
            return False
    return bool(used)


def _of_lokis_chart(cluster: Cluster) -> list[Workload]:
    """Other workloads of Loki's chart, such as its gateway, under whatever name."""
    return [
        one
        for one in workloads(cluster)
        if _LOKI_CHART.match(one.labels.get("helm.sh/chart", "")) and not one.runs(LOKI)
    ]


def _class_of(cluster: Cluster, annotations: Mapping[str, Any], spec: Mapping[str, Any]) -> Optional[str]:
    named_class = reading.text(spec, "ingressClassName") or reading.text(annotations, _CLASS_ANNOTATION)
    if named_class:
        return named_class
    for metadata in _metadata(cluster, "ingressclasses"):
        if reading.part(metadata, "annotations").get(_DEFAULT_CLASS) == "true":
            return reading.text(metadata, "name")
    return None


def _class_names(cluster: Cluster) -> list[str]:
    return [reading.text(metadata, "name") for metadata in _metadata(cluster, "ingressclasses")]


def _metadata(cluster: Cluster, kind: str) -> list[Mapping[str, Any]]:
    return [reading.part(thing, "metadata") for thing in cluster.all(kind)]


def _backends(thing: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(namespace, name) of the Services that an Ingress leads to."""
    namespace = reading.text(reading.part(thing, "metadata"), "namespace")
    spec = reading.part(thing, "spec")
    backends = [reading.part(spec, "defaultBackend")]
    for rule in reading.items(spec, "rules"):
        backends += [reading.part(path, "backend") for path in reading.items(reading.part(rule, "http"), "paths")]
    for backend in backends:
        name = reading.text(reading.part(backend, "service"), "name")
        if name:
            yield namespace, name


# ---- files ----


def _mounted_files(cluster: Cluster, one: Workload, container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path in the container, text) of the files that come from ConfigMaps and Secrets."""
    volumes = {reading.text(volume, "name"): volume for volume in reading.items(one.pod, "volumes")}
    for mount in reading.items(container, "volumeMounts"):
        for name, text in _volume_files(cluster, one.namespace, volumes.get(reading.text(mount, "name"), {})):
            sub = reading.text(mount, "subPath")
            if not sub:
                yield posixpath.join(reading.text(mount, "mountPath"), name), text
            elif sub == name:
                yield reading.text(mount, "mountPath"), text


def _volume_files(cluster: Cluster, namespace: str, volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for source in [volume, *reading.items(reading.part(volume, "projected"), "sources")]:
        for field, kind, key in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            wanted = reading.part(source, field)
            name = reading.text(wanted, key) or reading.text(wanted, "name")
            thing = cluster.one(kind, namespace, name) if name else None
            if thing is not None:
                renamed = {
                    reading.text(item, "key"): reading.text(item, "path") for item in reading.items(wanted, "items")
                }
                for file_name, text in _files(kind, thing).items():
                    if not renamed or file_name in renamed:
                        yield renamed.get(file_name, file_name), text


def _files(kind: str, thing: Mapping[str, Any]) -> dict[str, str]:
    data = reading.part(thing, "data")
    if kind == "configmaps":
        return {str(name): text for name, text in data.items() if isinstance(text, str)}
    return {str(name): _decoded(text) for name, text in data.items()}


def _decoded(text: Any) -> str:
    try:
        return base64.b64decode(text or "").decode("utf-8", "replace")
    except (binascii.Error, ValueError, TypeError):
        return ""


def _yaml(text: str) -> Any:
    """What a YAML file says, None where it is none. Variables (`${HOSTNAME}`) are plain text."""
    if yaml is None:
        raise Unreadable("the Python library PyYAML is missing", "install it for this Python")
    try:
        return yaml_text.loads(text)
    except ValueError:
        return None
