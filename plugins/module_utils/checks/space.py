# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is free where volumes really lie, from the file systems that hosts mount. Pure.

A claim's size says nothing, and neither does a StorageClass: the share of an NFS server, a shared path or the nodes'
own disks are full or not. Where a path does not exist yet, it will be on the deepest file system above it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

KB = 1024 / 1e9  # of df -k, in decimal gigabytes
_NETWORK = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "fuse.", "9p", "wekafs", "vast")


@dataclass(frozen=True)
class Mount:
    """One file system of a host; `free_kb` in KiB."""

    kind: str
    free_kb: int
    point: str
    source: str


@dataclass(frozen=True)
class Host:
    """One host: its own name, its addresses, its file systems."""

    hostname: str
    addresses: Sequence[str]
    mounts: Sequence[Mount]


def parse(line: str) -> list[Mount]:
    """`KIND FREE_KB POINT SOURCE`, as the look prints it; nothing for another line."""
    words = line.split()
    if len(words) != 4 or not (words[1].isascii() and words[1].isdigit()) or not words[2].startswith("/"):
        return []
    return [Mount(words[0], int(words[1]), words[2], words[3])]


def over(mounts: Sequence[Mount], path: str) -> Optional[Mount]:
    """The file system that a path is on, or will be; None where none is known."""
    return max(
        (mount for mount in mounts if _is_over(mount.point, path)), key=lambda mount: len(mount.point), default=None
    )


def measure(
    back_end: Mapping[str, Any], hosts: Mapping[str, Host], nodes: Sequence[str]
) -> tuple[str, dict[str, float]]:
    """Where a back end is, in words, and what is free there by host; no host where nobody can tell.

    Args:
        back_end: as `storage.back_ends` gives it.
        hosts: all that told their file systems.
        nodes: names of those that pods run on.
    """
    kind, path = back_end.get("kind"), str(back_end.get("path") or "")
    if kind == "node" and path:
        free = {name: over(hosts[name].mounts, path) for name in nodes if name in hosts}
        return "%s on each node" % path, _sizes(free)
    if kind == "shared" and path:
        free = {name: over(host.mounts, path) for name, host in hosts.items()}
        on_network = {name: mount for name, mount in free.items() if mount and mount.kind.startswith(_NETWORK)}
        return "the shared path %s" % path, _smallest(on_network or free)
    if kind == "nfs":
        server = str(back_end.get("server"))
        return "NFS %s:%s" % (server, path), _smallest(_mounted(hosts, server, path) or _served(hosts, server, path))
    return "what %s provides" % (back_end.get("provisioner") or "the provisioner"), {}


def _mounted(hosts: Mapping[str, Host], server: str, path: str) -> dict[str, Optional[Mount]]:
    """On hosts that mount the export, or a folder above it."""
    found: dict[str, Optional[Mount]] = {}
    for name, host in hosts.items():
        for mount in host.mounts:
            from_server, colon, share = mount.source.rpartition(":")
            if colon and from_server.strip("[]") == server.strip("[]") and _is_over(share, path):
                found[name] = mount
    return found


def _served(hosts: Mapping[str, Host], server: str, path: str) -> dict[str, Optional[Mount]]:
    """On the server itself, where it is one of our hosts."""
    mine = {name: host for name, host in hosts.items() if server in (name, host.hostname, *host.addresses)}
    return {name: over(host.mounts, path) for name, host in mine.items()}


def _is_over(point: str, path: str) -> bool:
    plain = posixpath.normpath(path)
    return plain == point or plain.startswith(point.rstrip("/") + "/")


def _sizes(found: Mapping[str, Optional[Mount]]) -> dict[str, float]:
    return {name: round(mount.free_kb * KB, 1) for name, mount in found.items() if mount is not None}


def _smallest(found: Mapping[str, Optional[Mount]]) -> dict[str, float]:
    """All see the same file system; a host with quotas may see less of it."""
    sizes = _sizes(found)
    return dict([min(sizes.items(), key=lambda item: item[1])]) if sizes else {}
