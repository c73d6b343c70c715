# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the hardware is enough: pure numbers in, checks out.

Gigabytes are decimal and compared with what the operating system (or the scheduler) reports: a machine with modules of
16 GiB reports about 15.5 GiB, which are 16.6 GB. Cores are sockets times cores for each socket; threads are told too,
and only warn where cores do not reach the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

GB = 1000**3
_NAMED = 5

SPEC: dict[str, Any] = {
    "argument_spec": {
        "nodes": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                "memory_mb": {"type": "float"},
                "sockets": {"type": "int"},
                "cores_per_socket": {"type": "int"},
                "threads": {"type": "int"},
                "head": {"type": "bool", "default": False},
            },
        },
        "storage_gb": {"type": "float"},
        "min_node_memory_gb": {"type": "float", "default": 16.0},
        "min_cluster_cores": {"type": "int", "default": 30},
        "min_head_memory_gb": {"type": "float", "default": 64.0},
        "min_storage_gb": {"type": "float", "default": 20.0},
    },
    "supports_check_mode": True,
}


@dataclass(frozen=True)
class Hardware:
    """One machine.

    Attributes:
        memory_mb: MiB, as the operating system (or Slurm, or the kubelet) reports them; None = not known.
        sockets, cores_per_socket, threads: None = not known; threads are all of the machine's.
        head: whether it is the head node (a second head node is one too). It counts for the cores only where it also
            is a node of the cluster, so it is given once for each role.
    """

    name: str
    memory_mb: Optional[float] = None
    sockets: Optional[int] = None
    cores_per_socket: Optional[int] = None
    threads: Optional[int] = None
    head: bool = False

    @property
    def memory_gb(self) -> Optional[float]:
        """Decimal gigabytes."""
        return None if self.memory_mb is None else self.memory_mb * 1024**2 / GB

    @property
    def cores(self) -> Optional[int]:
        """Physical cores."""
        return self.sockets * self.cores_per_socket if self.sockets and self.cores_per_socket else None


@dataclass(frozen=True)
class Thresholds:
    """What is required."""

    node_memory_gb: float = 16.0
    cluster_cores: int = 30
    head_memory_gb: float = 64.0
    storage_gb: float = 20.0


def node_memory(nodes: Sequence[Hardware], wanted: Thresholds) -> Check:
    """Every node that is no head node has memory enough."""
    return _memory(
        "node_memory",
        "Memory of every node",
        [node for node in nodes if not node.head],
        wanted.node_memory_gb,
        "give these nodes more memory, or leave them out of the partitions that recovery looks after",
    )


def head_node_memory(nodes: Sequence[Hardware], wanted: Thresholds) -> Check:
    """Every head node has memory enough."""
    return _memory(
        "head_node_memory",
        "Memory of the head node",
        [node for node in nodes if node.head],
        wanted.head_memory_gb,
        "give the head node more memory, or run the recovery on a larger one",
    )


def cluster_cpus(nodes: Sequence[Hardware], wanted: Thresholds) -> Check:
    """All nodes that are no head nodes together have cores enough."""
    workers = [node for node in nodes if not node.head]
    unknown = [node.name for node in workers if node.cores is None]
    cores = sum(node.cores or 0 for node in workers)
    threads = sum(node.threads or node.cores or 0 for node in workers)
    found = "%d cores, %d threads on %d nodes" % (cores, threads, len(workers))
    required = "at least %d CPU cores in the cluster" % wanted.cluster_cores
    if unknown:
        found += "; cores of %s are not known" % _names(unknown)
    if cores >= wanted.cluster_cores:
        return Check("cluster_cpus", "CPU cores of the cluster", required, found, PASSED)
    if not workers or unknown:
        return _unknown_cpus(required, found)
    status = WARNING if threads >= wanted.cluster_cores else FAILED
    hint = "only threads reach the number: add nodes if it gets tight" if status == WARNING else "add nodes or cores"
    return Check("cluster_cpus", "CPU cores of the cluster", required, found, status, hint)


def persistent_storage(storage_gb: Optional[float], wanted: Thresholds) -> Check:
    """There is room enough that outlives pods."""
    required = "at least %g GB of persistent storage" % wanted.storage_gb
    title = "Persistent storage"
    if storage_gb is None:
        hint = "tell its size (storage_gb), or let the check read the file system that persistent volumes are made on"
        return Check("persistent_storage", title, required, "not known", UNKNOWN, hint)
    status = PASSED if storage_gb >= wanted.storage_gb else FAILED
    hint = "" if status == PASSED else "free or add space where persistent volumes are made"
    return Check("persistent_storage", title, required, "%.1f GB" % storage_gb, status, hint)


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module `hardware_check`: `{changed: false, checks: [...]}`."""
    for name in ("min_node_memory_gb", "min_cluster_cores", "min_head_memory_gb", "min_storage_gb"):
        if params[name] < 0:
            raise BadInput("hardware_check: %s is negative" % name)
    wanted = Thresholds(
        params["min_node_memory_gb"],
        params["min_cluster_cores"],
        params["min_head_memory_gb"],
        params["min_storage_gb"],
    )
    nodes = [_hardware(node) for node in params["nodes"]]
    checks = [
        node_memory(nodes, wanted),
        cluster_cpus(nodes, wanted),
        head_node_memory(nodes, wanted),
        persistent_storage(params["storage_gb"], wanted),
    ]
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def _hardware(node: Mapping[str, Any]) -> Hardware:
    known = {key: node.get(key) for key in ("memory_mb", "sockets", "cores_per_socket", "threads")}
    return Hardware(name=node["name"], head=bool(node.get("head")), **known)


def _memory(check_id: str, title: str, nodes: Sequence[Hardware], least: float, hint: str) -> Check:
    required = "at least %g GB of RAM" % least
    if not nodes:
        return Check(check_id, title, required, "no such node was given", UNKNOWN, "name the nodes")
    unknown = [node.name for node in nodes if node.memory_gb is None]
    known = [node for node in nodes if node.memory_gb is not None]
    short = [node for node in known if (node.memory_gb or 0.0) < least]
    smallest = min((node.memory_gb or 0.0 for node in known), default=None)
    parts = [] if smallest is None else ["smallest %.1f GB of %d nodes" % (smallest, len(known))]
    if short:
        parts.append("too little on %s" % _names(["%s (%.1f GB)" % (node.name, node.memory_gb or 0) for node in short]))
    if unknown:
        parts.append("not known of %s" % _names(unknown))
    status = FAILED if short else UNKNOWN if unknown else PASSED
    return Check(check_id, title, required, "; ".join(parts), status, "" if status == PASSED else hint)


def _unknown_cpus(required: str, found: str) -> Check:
    return Check(
        "cluster_cpus", "CPU cores of the cluster", required, found, UNKNOWN, "name all nodes with their cores"
    )


def _names(names: Sequence[str]) -> str:
    more = " and %d more" % (len(names) - _NAMED) if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
