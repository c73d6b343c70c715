# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Kubernetes and Slurm know of the machines, in one shape, to be compared with what these say themselves. Pure."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

_BINARY = {"": 1, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5}
_DECIMAL = {"k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4, "P": 1000**5}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)\Z")


def kubernetes_nodes(cluster: Cluster) -> list[dict[str, Any]]:
    """All nodes of the cluster. Raises what reading them raises.

    Returns:
        `name`, `memory_mb` (MiB, None), `threads` (None), `machine_id`, `boot_id`, `smbios_uuid`, `addresses`.
    """
    return [_kubernetes_node(thing) for thing in cluster.things("v1/nodes")]


def slurm_nodes(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Slurm's nodes.

    Returns:
        `name`, `hostname`, `address`, `memory_mb`, `sockets`, `cores_per_socket`, `threads`, `version`; all but the
        name are None where Slurm does not say.
    """
    return [
        {
            "name": node.name,
            "hostname": node.hostname,
            "address": node.address,
            "memory_mb": node.memory_mb,
            "sockets": node.sockets,
            "cores_per_socket": node.cores_per_socket,
            "threads": node.cpus,
            "version": node.version,
        }
        for node in nodes
    ]


def quantity(value: Any) -> Optional[float]:
    """A quantity of the API (`131849320Ki`, `64`, `15G`) as a number; None where it is none."""
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    factor = {**_BINARY, **_DECIMAL}.get(match.group(2))
    return None if factor is None else float(match.group(1)) * factor


def _kubernetes_node(thing: Mapping[str, Any]) -> dict[str, Any]:
    status = reading.part(thing, "status")
    capacity, info = reading.part(status, "capacity"), reading.part(status, "nodeInfo")
    memory, threads = quantity(capacity.get("memory")), quantity(capacity.get("cpu"))
    return {
        "name": reading.text(reading.part(thing, "metadata"), "name"),
        "memory_mb": None if memory is None else memory / 1024**2,
        "threads": None if threads is None else int(threads),
        "machine_id": reading.text(info, "machineID"),
        "boot_id": reading.text(info, "bootID"),
        "smbios_uuid": reading.text(info, "systemUUID"),
        "addresses": [reading.text(address, "address") for address in reading.items(status, "addresses")],
    }
