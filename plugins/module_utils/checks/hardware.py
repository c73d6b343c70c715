# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the hardware is enough: pure numbers in, checks out.

The numbers are the machines' own, Slurm's and Kubernetes'; a machine's own count, and where it did not tell them those
of Slurm, then of Kubernetes. Where they disagree that is said: Slurm drains a node that has less than slurm.conf
promises.

Gigabytes are decimal and compared with what the operating system (or the scheduler) reports: a machine with modules of
16 GiB reports about 15.5 GiB, which are 16.6 GB. Cores are sockets times cores for each socket; threads are told too,
and only warn where cores do not reach the number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hosts import grouped, listed
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

GB = 1000**3
# How far two numbers for one machine's memory may differ (firmware, crash kernel); slurm.conf is lower on purpose.
_MEMORY_CLOSE = 0.05
_SLURM_MEMORY_LOW = 0.5

_NUMBERS = {
    "memory_mb": {"type": "float"},
    "sockets": {"type": "int"},
    "cores_per_socket": {"type": "int"},
    "threads": {"type": "int"},
}
_KNOWN_TO = {"type": "list", "elements": "dict", "default": []}

SPEC: dict[str, Any] = {
    "argument_spec": {
        "nodes": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "name": {"type": "str", "required": True},
                **_NUMBERS,
                "head": {"type": "bool", "default": False},
                "slurm_name": {"type": "str"},
                "kubernetes_name": {"type": "str"},
            },
        },
        "slurm_nodes": _KNOWN_TO,
        "kubernetes_nodes": _KNOWN_TO,
        "storage_gb": {"type": "float"},
        "back_ends": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "class": {"type": "str", "required": True},
                "default": {"type": "bool", "default": False},
                "where": {"type": "str", "required": True},
                "free": {"type": "dict", "default": {}},
            },
        },
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
    source: str = ""  # whose numbers these are, where not the machine's own

    @property
    def memory_gb(self) -> Optional[float]:
        """Decimal gigabytes."""
        return None if self.memory_mb is None else self.memory_mb * 1024**2 / GB

    @property
    def cores(self) -> Optional[int]:
        """Physical cores."""
        return self.sockets * self.cores_per_socket if self.sockets and self.cores_per_socket else None


@dataclass(frozen=True)
class BackEnd:
    """Where the volumes of a StorageClass lie; `free` is decimal gigabytes by host, empty where nobody can tell."""

    name: str
    default: bool
    where: str
    free: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """One machine by all that know it; None where one does not."""

    name: str
    head: bool
    own: Hardware
    slurm: Optional[Hardware] = None
    kubernetes: Optional[Hardware] = None

    @property
    def best(self) -> Hardware:
        """The machine's own numbers; what it did not tell, by Slurm, then by Kubernetes."""
        memory = _first("memory_mb", self.own, self.slurm, self.kubernetes)
        cores = next((one for one in (self.own, self.slurm) if one is not None and one.cores is not None), self.own)
        threads = _first("threads", self.own, self.slurm, self.kubernetes)
        borrowed = {
            one.source for one in (memory, cores, threads) if one is not None and one is not self.own and one.source
        }
        return Hardware(
            self.name,
            None if memory is None else memory.memory_mb,
            cores.sockets,
            cores.cores_per_socket,
            None if threads is None else threads.threads,
            self.head,
            " and ".join(sorted(borrowed)),
        )


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
    found += _borrowed(workers)
    required = "at least %d CPU cores in the cluster" % wanted.cluster_cores
    if unknown:
        found += "; cores of %s are not known" % listed(unknown)
    if cores >= wanted.cluster_cores:
        return Check("cluster_cpus", "CPU cores of the cluster", required, found, PASSED)
    if not workers or unknown:
        return _unknown_cpus(required, found)
    status = WARNING if threads >= wanted.cluster_cores else FAILED
    hint = "only threads reach the number: add nodes if it gets tight" if status == WARNING else "add nodes or cores"
    return Check("cluster_cpus", "CPU cores of the cluster", required, found, status, hint)


def persistent_storage(storage_gb: Optional[float], wanted: Thresholds, back_ends: Sequence[BackEnd] = ()) -> Check:
    """There is room enough that outlives pods: on the head node, and where claims that name no class get their volumes.

    Args:
        storage_gb: free on the head node; None = not known.
        back_ends: of the cluster's classes; those of the default class decide.
    """
    required = "at least %g GB of persistent storage" % wanted.storage_gb
    deciding = [one for one in back_ends if one.default]
    parts = [] if storage_gb is None else ["head node %.1f GB" % storage_gb if back_ends else "%.1f GB" % storage_gb]
    parts += [_free(one, wanted.storage_gb) for one in sorted(back_ends, key=lambda one: (not one.default, one.name))]
    found = "; ".join(parts) or "not known"
    statuses = [_enough(one, wanted.storage_gb) for one in deciding]
    if storage_gb is not None or not deciding:
        statuses.append(UNKNOWN if storage_gb is None else PASSED if storage_gb >= wanted.storage_gb else FAILED)
    status = next(one for one in (FAILED, UNKNOWN, WARNING, PASSED) if one in statuses)
    hints = {
        PASSED: "",
        FAILED: "free or add space where persistent volumes are made",
        WARNING: "volumes are made on the node of their pod: free or add space on the nodes that have too little",
        UNKNOWN: "tell its size (storage_gb), or let the check read the file system that volumes are made on",
    }
    if status == UNKNOWN and deciding:
        hints[UNKNOWN] = "look how much is free there; mount it on a node, and the check reads it"
    return Check("persistent_storage", "Persistent storage", required, found, status, hints[status])


def hardware_sources(machines: Sequence[Machine]) -> Check:
    """Slurm and Kubernetes know the hardware that is there."""
    title, required = "Slurm and Kubernetes know the hardware", "they say of each node what it says itself"
    compared = [one for one in machines if not one.head and (one.slurm or one.kubernetes)]
    faults = {one.name: "; ".join(disagreements(one)) for one in compared}
    wrong = grouped(faults)
    if not compared:
        hint = "correct the nodes' names (job_recovery_slurm_name, job_recovery_kubernetes_name)"
        return Check("hardware_sources", title, required, "neither knows one of these nodes", WARNING, hint)
    if wrong:
        hint = (
            "correct CPUs, Sockets, CoresPerSocket, ThreadsPerCore and RealMemory of these nodes in slurm.conf "
            "(`slurmd -C` there prints them); restart a kubelet that sees other hardware"
        )
        return Check("hardware_sources", title, required, wrong, WARNING, hint)
    return Check("hardware_sources", title, required, "agreed on %d nodes" % len(compared), PASSED)


def disagreements(machine: Machine) -> list[str]:
    """What Slurm and Kubernetes say otherwise than the machine itself; nothing about what one of them does not say."""
    own, slurm, kubernetes = machine.own, machine.slurm, machine.kubernetes
    said = []
    if slurm is not None:
        if own.cores and slurm.cores and own.cores != slurm.cores:
            said.append("Slurm says %d cores, it has %d" % (slurm.cores, own.cores))
        if own.memory_mb and slurm.memory_mb and slurm.memory_mb > own.memory_mb:
            said.append("Slurm promises %.0f GB, it has %.0f" % (slurm.memory_gb or 0, own.memory_gb or 0))
        elif own.memory_mb and slurm.memory_mb and slurm.memory_mb < own.memory_mb * _SLURM_MEMORY_LOW:
            said.append("Slurm uses only %.0f GB of its %.0f" % (slurm.memory_gb or 0, own.memory_gb or 0))
    if kubernetes is not None:
        if own.threads and kubernetes.threads and own.threads != kubernetes.threads:
            said.append("Kubernetes sees %d threads, it has %d" % (kubernetes.threads, own.threads))
        if own.memory_mb and kubernetes.memory_mb and not _close(own.memory_mb, kubernetes.memory_mb):
            said.append("Kubernetes sees %.0f GB, it has %.0f" % (kubernetes.memory_gb or 0, own.memory_gb or 0))
    return said


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
    machines = joined(params["nodes"], params.get("slurm_nodes") or (), params.get("kubernetes_nodes") or ())
    nodes = [machine.best for machine in machines]
    back_ends = [
        BackEnd(one["class"], one["default"], one["where"], {host: float(gb) for host, gb in one["free"].items()})
        for one in params.get("back_ends") or ()
    ]
    checks = [
        node_memory(nodes, wanted),
        cluster_cpus(nodes, wanted),
        head_node_memory(nodes, wanted),
        persistent_storage(params["storage_gb"], wanted, back_ends),
    ]
    if params.get("slurm_nodes") or params.get("kubernetes_nodes"):
        checks.append(hardware_sources(machines))
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def joined(
    nodes: Iterable[Mapping[str, Any]], slurm: Iterable[Mapping[str, Any]], kubernetes: Iterable[Mapping[str, Any]]
) -> list[Machine]:
    """Each machine with what Slurm and Kubernetes say of it, by its names there (its own name where none is given)."""
    in_slurm = {str(one.get("name")): _hardware(one, "Slurm") for one in slurm}
    in_kubernetes = {str(one.get("name")): _hardware(one, "Kubernetes") for one in kubernetes}
    return [
        Machine(
            node["name"],
            bool(node.get("head")),
            _hardware(node, ""),
            in_slurm.get(_name(node, "slurm_name")),
            in_kubernetes.get(_name(node, "kubernetes_name")),
        )
        for node in nodes
    ]


def _name(node: Mapping[str, Any], key: str) -> str:
    return str(node["name"] if node.get(key) is None else node[key])


def _hardware(node: Mapping[str, Any], source: str) -> Hardware:
    known = {key: node.get(key) for key in _NUMBERS}
    return Hardware(name=str(node.get("name")), head=bool(node.get("head")), source=source, **known)


def _first(number: str, *sources: Optional[Hardware]) -> Optional[Hardware]:
    return next((one for one in sources if one is not None and getattr(one, number) is not None), None)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _MEMORY_CLOSE * max(one, other)


def _free(one: BackEnd, least: float) -> str:
    what = "%sclass %s, %s" % ("default " if one.default else "", one.name, one.where)
    if not one.free:
        return "%s: not known" % what
    if len(one.free) == 1:
        ((host, size),) = one.free.items()
        return "%s: %.1f GB free (seen on %s)" % (what, size, host)
    short = [host for host, size in one.free.items() if size < least]
    text = "%s: from %.1f to %.1f GB free" % (what, min(one.free.values()), max(one.free.values()))
    return "%s, too little on %s" % (text, listed(short)) if short else text


def _enough(one: BackEnd, least: float) -> str:
    if not one.free:
        return UNKNOWN
    if max(one.free.values()) < least:
        return FAILED
    return PASSED if min(one.free.values()) >= least else WARNING


def _memory(check_id: str, title: str, nodes: Sequence[Hardware], least: float, hint: str) -> Check:
    required = "at least %g GB of RAM" % least
    if not nodes:
        return Check(check_id, title, required, "no such node was given", UNKNOWN, "name the nodes")
    unknown = [node.name for node in nodes if node.memory_gb is None]
    known = [node for node in nodes if node.memory_gb is not None]
    short = [node for node in known if (node.memory_gb or 0.0) < least]
    smallest = min((node.memory_gb or 0.0 for node in known), default=None)
    parts = [] if smallest is None else ["smallest %.1f GB of %d nodes" % (smallest, len(known)) + _borrowed(known)]
    if short:
        parts.append("too little: %s" % grouped({node.name: "%.1f GB" % (node.memory_gb or 0) for node in short}))
    if unknown:
        parts.append("not known of %s" % listed(unknown))
    status = FAILED if short else UNKNOWN if unknown else PASSED
    return Check(check_id, title, required, "; ".join(parts), status, "" if status == PASSED else hint)


def _borrowed(nodes: Sequence[Hardware]) -> str:
    """Of whom the numbers are not the machines' own."""
    sources = grouped({node.name: "as told by %s" % node.source if node.source else "" for node in nodes})
    return " (%s)" % sources if sources else ""


def _unknown_cpus(required: str, found: str) -> Check:
    return Check(
        "cluster_cpus", "CPU cores of the cluster", required, found, UNKNOWN, "name all nodes with their cores"
    )
