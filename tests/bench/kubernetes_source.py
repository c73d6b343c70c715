# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source `kubernetes` on 10,000 nodes and 50,000 pods: what it costs, and how late it sees faults.

The API server and its etcd are real, the objects are put there; no kubelet and no controller runs. What those would
write all the time (a node's status every five minutes, pods that come, run and go) is written while it is measured.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import path_of
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import OPT_IN_ANNOTATION
from ansible_collections.mission_control.job_recovery.tests.bare_api import ControlPlane
from measuring import Benchmark, Figure, Wrong
from slurmctld import used
from watching import Source, percentile, share_of

NODES, PODS = 10000, 50000
JOBS = 2000  # of ten pods each; the other pods are of services
POD_CHANGES, NODE_CHANGES = 20.0, NODES / 300.0  # changes in a second: pods that come or go, statuses of nodes
FAULTS = 20  # of each kind
WINDOW = 120.0  # seconds
SEED = 5
_LIST_SECONDS = 600.0
_WORKERS = 6
_OPT_IN = '{"APS":{"auto_resume_mode":"requeue"}}'
_IMAGES = 20  # that a kubelet lists of its node
_OF_JOBS = JOBS * 10


class Cluster:
    """The API server, filled."""

    def __init__(self, folder: Path) -> None:
        self.server = ControlPlane(folder)
        self.uids: dict[str, str] = {}  # of Jobs

    def fill(self) -> None:
        """All objects, by several connections at once."""
        for name in ("work", "services"):
            self.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self._each(self._add_node, range(NODES))
        self._each(self._add_job, range(JOBS))
        self._each(self._add_pod, range(PODS))

    def _each(self, add: Callable[[int], None], numbers: Iterable[int]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            for _done in pool.map(add, numbers):
                pass

    def _add_node(self, number: int) -> None:
        self.server.admin.create(path_of("v1", "nodes"), node(number))  # a kubelet brings the status with it

    def _add_job(self, number: int) -> None:
        made = self.server.admin.create(path_of("batch/v1", "jobs", "work"), job("job%05d" % number))
        self.uids[made["metadata"]["name"]] = made["metadata"]["uid"]

    def _add_pod(self, number: int) -> None:
        if number < _OF_JOBS:
            name = "job%05d" % (number // 10)
            thing = pod("%s-%d" % (name, number % 10), "work", number % NODES, ("Job", name, self.uids[name]))
        else:
            thing = pod("service%05d" % number, "services", number % NODES, ("ReplicaSet", "r", "u"))
        self.server.admin.create(path_of("v1", "pods", thing["metadata"]["namespace"]), thing)

    def report_node(self, number: int, ready: str = "True") -> None:
        """What a kubelet, or the node controller for it, writes."""
        status = {"conditions": node(number, ready)["status"]["conditions"]}
        self.server.admin.patch(path_of("v1", "nodes", "", name_of(number), "status"), {"status": status})

    def add_pod_of_job(self, number: int) -> str:
        """Another pod of a Job comes, and runs; its path."""
        name = "job%05d" % (number % JOBS)
        thing = pod("%s-later%06d" % (name, number), "work", number % NODES, ("Job", name, self.uids[name]))
        self.server.admin.create(path_of("v1", "pods", "work"), thing)
        path = path_of("v1", "pods", "work", thing["metadata"]["name"])
        self.server.admin.patch(path + "/status", {"status": {"phase": "Running", "startTime": _now()}})
        return path

    def fail_job(self, number: int) -> str:
        """A Job loses a pod by its node, and fails; its name."""
        name = "job%05d" % number
        disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        status = {"phase": "Failed", "conditions": [disrupted]}
        self.server.admin.patch(path_of("v1", "pods", "work", name + "-0", "status"), {"status": status})
        failed = {"status": "True", "reason": "BackoffLimitExceeded", "message": "x", "lastTransitionTime": _now()}
        conditions = [{"type": kind, **failed} for kind in ("FailureTarget", "Failed")]
        status = {"startTime": "2026-01-01T00:00:00Z", "failed": 1, "conditions": conditions}
        self.server.admin.patch(path_of("batch/v1", "jobs", "work", name, "status"), {"status": status})
        return "work/" + name


class Churn:
    """Changes that go on until `end`, at the rates above; `made` counts them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self.made = 0
        self._threads = [
            threading.Thread(target=self._go_on, args=(one, rate), daemon=True)
            for one, rate in ((self._node, NODE_CHANGES), (self._pods, POD_CHANGES / 2))
        ]
        self._going: list[str] = []
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until the last change is made."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _go_on(self, change: Callable[[int], None], rate: float) -> None:
        begun, number = time.monotonic(), 0
        while not self._over.wait(max(0.0, begun + number / rate - time.monotonic())):
            change(number)
            number += 1
            self.made += 1

    def _node(self, number: int) -> None:
        self._cluster.report_node(NODES // 2 + number % (NODES // 2))  # those that break are in the other half

    def _pods(self, number: int) -> None:
        self._going.append(self._cluster.add_pod_of_job(number))
        if len(self._going) > 50:
            self._cluster.server.admin.delete(self._going.pop(0), {"gracePeriodSeconds": 0})


def source(folder: Path) -> list[Figure]:
    """Fill the cluster, let the source look at it, and break nodes and Jobs at times that nobody chose."""
    chance = random.Random(SEED)
    cluster = Cluster(folder)
    try:
        began = time.monotonic()
        cluster.fill()
        print("filled in %.0f s" % (time.monotonic() - began), flush=True)
        return _measure(cluster, folder, chance)
    finally:
        cluster.server.close()


def _measure(cluster: Cluster, folder: Path, chance: random.Random) -> list[Figure]:
    settings = {
        "slurm": {"enabled": False},
        "scope": {"namespaces": ["work"]},
        "kubernetes": {"kubeconfig": str(folder / "admin.conf")},
    }
    began = time.monotonic()
    watching = Source(folder, "kubernetes", settings)
    first = name_of(0)
    cluster.report_node(0, "Unknown")
    while first not in watching.told:  # everything is listed by then
        if time.monotonic() > began + _LIST_SECONDS or watching.process.poll() is not None:
            raise Wrong("the source does not tell what it sees")
        time.sleep(0.5)
    listed, cost = time.monotonic() - began, watching.seconds
    still = share_of(lambda: watching.seconds, WINDOW / 4)
    churn = Churn(cluster)
    before = time.monotonic(), watching.seconds, used(cluster.server.pid("kube-apiserver"))
    shown = _break(cluster, chance)
    time.sleep(max(0.0, before[0] + WINDOW - time.monotonic()))
    elapsed, made = time.monotonic() - before[0], churn.made
    share = (watching.seconds - before[1]) / elapsed
    server = (used(cluster.server.pid("kube-apiserver")) - before[2]) / elapsed
    churn.end()
    time.sleep(10)
    watching.end()
    lost = sorted(set(shown) - set(watching.told))
    if lost:
        raise Wrong("never told: %s" % ", ".join(lost))
    strange = sorted(set(watching.told) - set(shown) - {first})
    if strange:
        raise Wrong("told, and no fault: %s" % ", ".join(strange[:5]))
    late = {name: watching.told[name] - at for name, at in shown.items()}
    return [
        Figure("source, of one core", 100 * share, "%", 10),
        Figure("source, of one core, while nothing changes", 100 * still, "%"),
        Figure("source, all of it", watching.megabytes, "MB", 500),
        Figure("changes that were made, in a second", made / elapsed, ""),
        Figure("first look", listed),
        Figure("first look, of one core", cost),
        Figure("kube-apiserver with all this, of one core", 100 * server, "%"),
        Figure("a node's fault is told, 95 of 100", percentile(_of(late, "node"), 95), "s", 3),
        Figure("a Job's fault is told, 95 of 100", percentile(_of(late, "work/"), 95), "s", 3),
    ]


def _of(late: dict[str, float], prefix: str) -> list[float]:
    return [seconds for name, seconds in late.items() if name.startswith(prefix)]


def _break(cluster: Cluster, chance: random.Random) -> dict[str, float]:
    """When the server showed which fault."""
    shown: dict[str, float] = {}
    for number in chance.sample(range(1, NODES // 2), FAULTS):
        cluster.report_node(number, "Unknown")
        shown[name_of(number)] = time.time()
        name = cluster.fail_job(number % JOBS)
        shown[name] = time.time()
        time.sleep(chance.uniform(0, 1.5 * WINDOW / FAULTS))
    return shown


def node(number: int, ready: str = "True") -> dict[str, Any]:
    """A Node as a kubelet makes it, with all that a kubelet tells of it."""
    moment = _now()
    words = {"lastHeartbeatTime": moment, "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "x" * 60}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [{"type": kind, "status": "False", "reason": "KubeletHas" + kind, **words} for kind in pressures]
    conditions.append({"type": "Ready", "status": ready, "reason": "KubeletReady", **words})
    capacity = {"cpu": "112", "memory": "2113409048Ki", "nvidia.com/gpu": "8", "pods": "110"}
    image = {"names": ["registry.example.org/team/image@sha256:" + "0" * 64], "sizeBytes": 12345678900}
    labels = {"kubernetes.io/hostname": name_of(number), "topology.kubernetes.io/zone": "a"}
    address = "10.%d.%d.%d" % (number >> 16, number >> 8 & 255, number & 255)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name_of(number), "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address}],
            "images": [image] * _IMAGES,
            "nodeInfo": {
                "bootID": "1b4e28ba-2fa1-11d2-883f-%012d" % number, "machineID": "%032d" % number,
                "systemUUID": "4c4c4544-0039-5910-804e-%012d" % number, "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.0.0", "kernelVersion": "6.1.0", "kubeProxyVersion": "",
                "kubeletVersion": "v1.36.3", "operatingSystem": "linux", "osImage": "Debian GNU/Linux 12",
            },
        },
    }  # fmt: skip


def pod(name: str, namespace: str, number: int, owner: tuple[str, str, str]) -> dict[str, Any]:
    """A pod that is bound to a node."""
    kind, owner_name, uid = owner
    of_job = kind == "Job"
    labels = {"controller-uid": uid, "batch.kubernetes.io/controller-uid": uid} if of_job else {"app": "x"}
    references = [{
        "apiVersion": "batch/v1" if of_job else "apps/v1", "kind": kind, "name": owner_name, "uid": uid,
        "controller": True,
    }]  # fmt: skip
    environment = [{"name": "VARIABLE_%d" % each, "value": "x" * 40} for each in range(20)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": references},
        "spec": {
            "nodeName": name_of(number),
            "restartPolicy": "Never" if of_job else "Always",
            "containers": [{"name": "c", "image": "registry.example.org/team/image:1", "env": environment}],
        },
    }


def job(name: str) -> dict[str, Any]:
    """A Job that opted in."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {OPT_IN_ANNOTATION: _OPT_IN}},
        "spec": {"backoffLimit": 0, "parallelism": 10, "completions": 10, "template": template},
    }


def name_of(number: int) -> str:
    """A node's name."""
    return "node%05d" % number


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _run(folder: Path) -> list[Figure]:
    try:
        return source(folder)
    except (RecoveryError, RuntimeError) as exc:
        raise Wrong(str(exc)) from exc


BENCHMARKS = (Benchmark("kubernetes-source", "event source kubernetes, %d nodes and %d pods" % (NODES, PODS), _run),)
