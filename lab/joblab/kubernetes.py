# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes on the lab: a real control plane on the head, real kubelets on the nodes that also run slurmd.

Everything is in the hosts' seeds and starts with them, at the first boot and after every reboot. What a container on
this kind of machine lacks, and how each lack is met, stands in the files under lab/files/kubernetes. What remains:
limits are accepted but not enforced, nothing is killed for lack of memory, and memory metrics are 0. There is no DNS
in the cluster (pods say ``dnsPolicy: Default``).
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import os
import secrets
import ssl
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import binaries, command, hostfiles, images, pki, progress, registry, ssh
from .errors import LabError
from .instance import HEAD, HOSTS, NODES, Instance

POD_NETWORK = ipaddress.IPv4Network("10.244.0.0/16")
SERVICE_NETWORK = ipaddress.IPv4Network("10.96.0.0/16")
#: Where the hosts find the commands: links into the cache.
BIN = "/opt/kube/bin"
#: Secret in the namespace default that lets a pod pull from the lab's registry.
PULL_SECRET = "ngc"
#: User of Loki's Ingress; the password is in secret/loki.
LOKI_USER = "loki"
#: Components of pre-flight: a wait for these says that all of them work.
WORKLOADS = (
    ("prometheus", "deployment/kube-prometheus-stack-operator"),
    ("prometheus", "statefulset/prometheus-kube-prometheus-stack-prometheus"),
    ("prometheus", "deployment/kube-prometheus-stack-grafana"),
    ("prometheus", "deployment/prometheus-adapter"),
    ("kube-system", "deployment/metrics-server"),
    ("kube-system", "deployment/kube-state-metrics"),
    ("ingress-nginx", "deployment/ingress-nginx-controller"),
    ("loki", "daemonset/promtail"),
    ("loki", "statefulset/loki"),
    ("local-path-storage", "deployment/local-path-provisioner"),
    ("nfs-provisioner", "deployment/nfs-subdir-external-provisioner"),
)
API_SERVICES = ("v1beta1.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io")

_FILES = binaries.FILES
_KUBERNETES_FOLDER = "/etc/kubernetes"
_HEAD_UNITS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_HEAD_PAIRS = ("apiserver", "apiserver-kubelet-client", "front-proxy-client")
_NODE_UNITS = ("kubelet", "kube-proxy")
_PROMETHEUS_FILE = "90-prometheus.yaml"
_CALL_SECONDS = 30
_POLL_SECONDS = 5
_DONE = (http.client.OK, http.client.CREATED)
_READY_SECONDS = 180
_FIELD_MANAGER = "lab"


# Before the hosts' first boot


def seed(instance: Instance) -> None:
    """Put Kubernetes and the registry into every host's seed. Before the first boot, they then start with the hosts."""
    registry.seed(instance)
    seed_hosts(instance, binaries.ensure(), pki.ensure(instance))


def seed_hosts(instance: Instance, programs: binaries.Binaries, keys: Path) -> None:
    """Put Kubernetes alone into every host's seed; ``keys`` is the folder that pki.ensure made."""
    _seed_head(instance, programs, keys)
    for node in NODES:
        _seed_node(instance, node, programs, keys)


def _seed_head(instance: Instance, programs: binaries.Binaries, keys: Path) -> None:
    values = {"HEAD_IP": instance.address(HEAD), "SERVICE_CIDR": str(SERVICE_NETWORK), "POD_CIDR": str(POD_NETWORK)}
    _seed_commands(instance, HEAD, programs, _HEAD_UNITS)
    _seed_routes(instance, HEAD)
    for name in ("ca.crt", "ca.key", "front-proxy-ca.crt", "sa.key", "sa.pub"):
        _seed_key(instance, HEAD, keys / name, name)
    for pair in _HEAD_PAIRS:
        for suffix in ("crt", "key"):
            _seed_key(instance, HEAD, keys / f"{pair}.{suffix}", f"{pair}.{suffix}")
    for component in ("controller-manager", "scheduler"):
        _seed_kubeconfig(instance, HEAD, keys, component, f"{component}.conf")
    for unit in _HEAD_UNITS:
        _seed_unit(instance, HEAD, f"head/{unit}.service", values)
    # an administrator of a real head node finds these there
    hostfiles.put(instance, HEAD, "/root/.kube/config", (keys / "kubeconfigs" / "admin.conf").read_bytes(), 0o600)
    for name in ("kubectl", "helm"):
        hostfiles.link(instance, HEAD, f"/usr/local/bin/{name}", programs.in_hosts(name))


def _seed_node(instance: Instance, node: str, programs: binaries.Binaries, keys: Path) -> None:
    values = {
        "PAUSE_IMAGE": images.PAUSE,
        "PAUSE_REPOSITORY": images.PAUSE_REPOSITORY,
        "STAND_IN_REPOSITORY": images.METRICS_STAND_IN_REPOSITORY,
        "POD_CIDR": str(POD_NETWORK),
        "POD_SUBNET": str(pod_subnet(node)),
        "REGISTRY": registry.NAME,
        "IMAGES": str(programs.in_hosts(images.NODE_ARCHIVE)),
    }

    def put(source: str, path: str, mode: int = 0o644) -> None:
        text = hostfiles.fill((_FILES / source).read_text(encoding="utf-8"), values)
        hostfiles.put(instance, node, path, text, mode)

    _seed_commands(instance, node, programs, _NODE_UNITS)
    _seed_routes(instance, node)
    _seed_key(instance, node, keys / "ca.crt", "ca.crt")
    _seed_key(instance, node, keys / f"{node}-serving.crt", "serving.crt")
    _seed_key(instance, node, keys / f"{node}-serving.key", "serving.key")
    _seed_kubeconfig(instance, node, keys, node, "kubelet.conf")
    _seed_kubeconfig(instance, node, keys, "kube-proxy", "kube-proxy.conf")
    put("node/kubelet.yaml", f"{_KUBERNETES_FOLDER}/kubelet.yaml")
    put("node/containerd.toml", "/etc/containerd/config.toml")
    put("node/hosts.toml", f"/etc/containerd/certs.d/{registry.NAME}/hosts.toml")
    put("node/cni.conflist", "/etc/cni/net.d/10-lab.conflist")
    put("node/containerd-images.conf", f"{hostfiles.UNITS}/containerd.service.d/lab-images.conf")
    put("node/lab-import-images", "/usr/local/sbin/lab-import-images", 0o755)
    put("node/lab-kubelet-prepare", "/usr/local/sbin/lab-kubelet-prepare", 0o755)
    hostfiles.enable(instance, node, "containerd.service", "/usr/lib/systemd/system")
    for unit in _NODE_UNITS:
        _seed_unit(instance, node, f"node/{unit}.service", values)


def pod_subnet(node: str) -> ipaddress.IPv4Network:
    """Addresses of the pods on a node: 10.244.1.0/24 for node1 and so on."""
    return list(POD_NETWORK.subnets(new_prefix=24))[NODES.index(node) + 1]


def routes(instance: Instance, host: str) -> str:
    """Shell lines that let a host reach the pods of the (other) nodes."""
    others = [node for node in NODES if node != host]
    return "\n".join(f"ip route replace {pod_subnet(node)} via {instance.address(node)}" for node in others)


def _seed_routes(instance: Instance, host: str) -> None:
    text = hostfiles.fill((_FILES / "lab-pod-routes").read_text(encoding="utf-8"), {"ROUTES": routes(instance, host)})
    hostfiles.put(instance, host, "/usr/local/sbin/lab-pod-routes", text, 0o755)


def _seed_commands(instance: Instance, host: str, programs: binaries.Binaries, names: Iterable[str]) -> None:
    for name in names:
        hostfiles.link(instance, host, f"{BIN}/{name}", programs.in_hosts(name))


def _seed_key(instance: Instance, host: str, source: Path, name: str) -> None:
    mode = 0o600 if name.endswith(".key") else 0o644
    hostfiles.put(instance, host, f"{_KUBERNETES_FOLDER}/pki/{name}", source.read_bytes(), mode)


def _seed_kubeconfig(instance: Instance, host: str, keys: Path, component: str, name: str) -> None:
    content = (keys / "kubeconfigs" / f"{component}.conf").read_bytes()
    hostfiles.put(instance, host, f"{_KUBERNETES_FOLDER}/{name}", content, 0o600)


def _seed_unit(instance: Instance, host: str, source: str, values: dict[str, str]) -> None:
    unit = Path(source).name
    text = hostfiles.fill((_FILES / source).read_text(encoding="utf-8"), values)
    hostfiles.put(instance, host, f"{hostfiles.UNITS}/{unit}", text)
    hostfiles.enable(instance, host, unit)


# Once the hosts run


def kubectl(
    instance: Instance,
    args: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout: float = _CALL_SECONDS,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run kubectl as the administrator of this instance; see command.run."""
    argv = [str(binaries.find("kubectl")), "--kubeconfig", str(pki.administrator_kubeconfig(instance)), *args]
    cache_folder = instance.state / "kubectl-cache"
    return command.run(argv, stdin=stdin, timeout=timeout, check=check,
                       env={**os.environ, "KUBECACHEDIR": str(cache_folder)})


def install(instance: Instance) -> None:
    """Complete Kubernetes and the registry on running hosts, and wait until all of it works. Safe to run again."""
    seed(instance)
    with ThreadPoolExecutor(max_workers=len(HOSTS) + 2) as pool:
        started = [pool.submit(_start_on, instance, host) for host in HOSTS]
        pushing = pool.submit(_fill_registry, instance)
        wait_for_api(instance)
        objects = pool.submit(apply_components, instance)
        wait_for_controllers(instance)
        with progress.step("Kubernetes: all nodes Ready"):
            wait_for_nodes(instance)
        for work in (*started, pushing, objects):
            work.result()
    with progress.step("Kubernetes: all components ready"):
        wait_for_components(instance)


#: Folders of a seed that Kubernetes and the registry fill.
_SEEDED = ("opt/kube", "etc/kubernetes", "etc/containerd", "etc/cni", "etc/docker", "root/.kube", "usr/local/bin",
           "usr/local/sbin", "etc/systemd/system")

#: A host that had its first boot before its seed was whole takes the rest of it now.
_START_SCRIPT = """
set -e
if ! systemctl --quiet is-enabled {marker} 2>/dev/null; then
    cd /opt/lab/seed
    tar --owner=0 --group=0 --create {folders} | tar --directory=/ --extract --no-overwrite-dir --preserve-permissions
    systemctl daemon-reload
fi
systemctl --no-block start {units}
"""


def _start_on(instance: Instance, host: str) -> None:
    services = (*_HEAD_UNITS, *registry.UNITS) if host == HEAD else (*_NODE_UNITS, "containerd")
    folders = [folder for folder in _SEEDED if (instance.seed(host) / folder).exists()]
    script = _START_SCRIPT.format(marker=services[0], units=" ".join(services), folders=" ".join(folders))
    ssh.run(instance, host, script)


def _fill_registry(instance: Instance) -> None:
    registry.wait_ready(instance)
    registry.push_busybox(instance)


def wait_for_api(instance: Instance, timeout: float = _READY_SECONDS) -> None:
    """Wait until the API server is ready."""
    with progress.step("Kubernetes: API ready"):
        command.wait_for("the Kubernetes API is ready (on the head: journalctl -u kube-apiserver)",
                         lambda: _is_there(instance, "/readyz"), timeout=timeout)


def wait_for_controllers(instance: Instance, timeout: float = _READY_SECONDS) -> None:
    """Wait until the controllers work: the default service account, which every pod needs, is there."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    with progress.step("Kubernetes: controllers at work"):
        command.wait_for("the Kubernetes controllers work (on the head: journalctl -u kube-controller-manager)",
                         lambda: _is_there(instance, account), timeout=timeout)


def _is_there(instance: Instance, path: str) -> bool:
    return _call(instance, "GET", path)[0] == http.client.OK


def _call(
    instance: Instance, method: str, path: str, body: bytes | None = None, content_type: str = ""
) -> tuple[int, bytes]:
    """Ask the API server as the administrator: status and body, or (0, b"") if it does not answer.

    Waiting asks often: starting kubectl each time would cost the booting hosts more than the question is worth.
    """
    keys = pki.path(instance)
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
    address = (instance.address(HEAD), pki.API_PORT)
    connection = http.client.HTTPSConnection(*address, timeout=_POLL_SECONDS, context=context)
    try:
        connection.request(method, path, body, {"Content-Type": content_type} if content_type else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def _items(instance: Instance, path: str) -> list[dict]:
    """Objects of a list of the API. Raises LabError if it is not answered."""
    status, body = _call(instance, "GET", path)
    if status != http.client.OK:
        raise LabError(f"The Kubernetes API does not answer GET {path} (status {status})")
    kind = json.loads(body)
    return [{"kind": kind["kind"].removesuffix("List"), **item} for item in kind["items"]]


def wait_for_nodes(instance: Instance, nodes: Sequence[str] = NODES, timeout: float = _READY_SECONDS) -> None:
    """Wait until nodes are Ready. Raises LabError that names those that are not."""

    waiting: list[str] = []

    def ready() -> bool:
        waiting[:] = nodes_not_ready(instance, nodes)
        return not waiting

    try:
        command.wait_for("Kubernetes nodes are Ready", ready, timeout=timeout)
    except LabError as exc:
        names = ", ".join(waiting)
        raise LabError(f"Kubernetes nodes are not Ready: {names} (there: journalctl -u kubelet)\n{exc}") from exc


def nodes_not_ready(instance: Instance, nodes: Sequence[str] = NODES) -> list[str]:
    """Those of the nodes that are not Ready now."""
    working = {node["metadata"]["name"] for node in _items(instance, "/api/v1/nodes") if is_ready(node)}
    return [node for node in nodes if node not in working]


def is_ready(node: dict) -> bool:
    """Whether a Node object (as the API server's JSON) is Ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


# What lives in the cluster


def install_components(instance: Instance) -> None:
    """Make the components that pre-flight looks for, and wait for them. Safe to run again."""
    apply_components(instance)
    wait_for_components(instance)


def apply_components(instance: Instance) -> None:
    """Make the objects of the components, and the pull secret."""
    folder = _FILES / "components"
    files = sorted(file for file in folder.glob("*.yaml") if file.name != _PROMETHEUS_FILE)
    objects = [*(file.read_text(encoding="utf-8") for file in files), json.dumps(secret_objects(instance))]
    # Checking our own files against the server's schemas costs kubectl more than everything else it does here.
    argv = ["apply", "--server-side", "--force-conflicts", f"--field-manager={_FIELD_MANAGER}", "--validate=ignore"]
    kubectl(instance, [*argv, "--filename=-"], stdin="\n---\n".join(objects), timeout=60)
    _apply_prometheus(instance, (folder / _PROMETHEUS_FILE).read_bytes())


def _apply_prometheus(instance: Instance, manifest: bytes) -> None:
    """Make the Prometheus object, and say of it what its operator would say once it runs."""
    path = "/apis/monitoring.coreos.com/v1/namespaces/prometheus/prometheuses/kube-prometheus-stack-prometheus"
    query = f"?fieldManager={_FIELD_MANAGER}&force=true"

    def applied() -> bool:  # not before the API server has established the type
        return _call(instance, "PATCH", path + query, manifest, "application/apply-patch+yaml")[0] in _DONE

    command.wait_for("the API takes a Prometheus object", applied, timeout=_CALL_SECONDS)
    status, body = _call(instance, "PATCH", f"{path}/status", _prometheus_status(), "application/merge-patch+json")
    if status not in _DONE:
        answer = body.decode(errors="replace")
        raise LabError(f"The API refused the status of the Prometheus object ({status}): {answer}")


def _prometheus_status() -> bytes:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
        for kind in ("Available", "Reconciled")
    ]
    counts = {"replicas": 1, "availableReplicas": 1, "updatedReplicas": 1, "unavailableReplicas": 0}
    return json.dumps({"status": {"conditions": conditions, "paused": False, **counts}}).encode()


def secret_objects(instance: Instance) -> dict:
    """The Secrets of the cluster as one List: the pull secret, and account and certificate of Loki's Ingress."""
    config = registry.docker_config(instance, registry.NAME, registry.address(instance))
    keys = pki.ensure(instance)
    certificate = {f"tls.{suffix}": (keys / f"loki.{suffix}").read_text(encoding="ascii") for suffix in ("crt", "key")}
    return {"apiVersion": "v1", "kind": "List", "items": [
        _secret("default", PULL_SECRET, "kubernetes.io/dockerconfigjson", {".dockerconfigjson": config}),
        _secret("loki", "loki-basic-auth", "Opaque", {"auth": _htpasswd(instance)}),
        _secret("loki", "loki-tls", "kubernetes.io/tls", certificate),
    ]}


def _secret(namespace: str, name: str, kind: str, values: dict[str, str]) -> dict:
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"namespace": namespace, "name": name},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


def _htpasswd(instance: Instance) -> str:
    """Account of Loki's Ingress in Apache's format; the password (secret/loki) is made up at its first use."""
    file = instance.secret("loki")
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hostfiles.write_private(file, secrets.token_urlsafe(24))
    hashed = command.run(["openssl", "passwd", "-apr1", "-stdin"], stdin=file.read_text(encoding="ascii"))
    return f"{LOKI_USER}:{hashed.stdout.strip()}\n"


def wait_for_components(instance: Instance, timeout: float = _READY_SECONDS) -> None:
    """Wait until every workload is ready and both metrics APIs answer. Raises LabError naming what is not."""
    missing: list[str] = []

    def ready() -> bool:
        missing[:] = not_ready(instance)
        return not missing

    try:
        command.wait_for("components", ready, timeout=timeout, interval=0.5)
    except LabError as exc:
        raise LabError(f"Components of the cluster are not ready after {timeout:g} s: {', '.join(missing)}\n"
                       f"See: lab/kubectl get pods --all-namespaces") from exc


def not_ready(instance: Instance) -> list[str]:
    """Names of the components that do not work now."""
    kinds = ("deployments", "statefulsets", "daemonsets")
    workloads = [item for kind in kinds for item in _items(instance, f"/apis/apps/v1/{kind}")]
    working = {
        (item["metadata"]["namespace"], f"{item['kind'].lower()}/{item['metadata']['name']}")
        for item in workloads
        if workload_is_ready(item)
    }
    answering = {
        item["metadata"]["name"]
        for item in _items(instance, "/apis/apiregistration.k8s.io/v1/apiservices")
        if is_available(item)
    }
    lacking = [f"{namespace}/{name}" for namespace, name in WORKLOADS if (namespace, name) not in working]
    return lacking + [name for name in API_SERVICES if name not in answering]


def is_available(item: dict) -> bool:
    """Whether an APIService is Available: the server behind it answers."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Available" and entry["status"] == "True" for entry in conditions)


def workload_is_ready(item: dict) -> bool:
    """Whether a Deployment, StatefulSet or DaemonSet has all the pods that it wants, of its present generation."""
    status = item.get("status", {})
    if status.get("observedGeneration", 0) < item["metadata"]["generation"]:
        return False
    if item["kind"] == "DaemonSet":
        return 0 < status.get("desiredNumberScheduled", 0) == status.get("numberReady", 0)
    return status.get("readyReplicas", 0) == item["spec"].get("replicas", 1)
