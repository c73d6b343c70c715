# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The storage classes that the system wants: local-path enabled, and a default class on NFS.

With two default classes the API server takes the newest (since 1.26), and of two made in the same second the first by
name; the old beta annotation still counts; only the text `true` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.cluster import Cluster
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.components import LOCAL_PATH, NFS
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
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_LOCAL_PATH_CONFIG = "config.json"


@dataclass(frozen=True)
class StorageClass:
    """One StorageClass."""

    name: str
    provisioner: str
    default: bool
    created_at: float
    parameters: Mapping[str, Any]

    @property
    def local_path(self) -> bool:
        """Whether local-path-provisioner serves it."""
        return "local-path" in self.provisioner

    def on_nfs(self, provisioners: Collection[str]) -> bool:
        """Whether it is served over NFS, by its provisioner's name or by those that the site names."""
        return "nfs" in self.provisioner.lower() or self.provisioner in provisioners


def storage_local_path(cluster: Cluster) -> Verdict:
    """A class of local-path-provisioner, and the provisioner."""
    classes = [one for one in storage_classes(cluster) if one.local_path]
    provisioners = running(cluster, LOCAL_PATH)
    if not classes:
        there = "; its provisioner is there (%s)" % named(provisioners) if provisioners else ""
        return Verdict(ABSENT, "no StorageClass of local-path-provisioner" + there)
    names = ", ".join(one.name for one in classes)
    if not any(one.works for one in provisioners):
        state = named(provisioners) or "there is no workload"
        return Verdict(BROKEN, "nobody serves class %s (%s)" % (names, state))
    return Verdict(PRESENT, "class %s, %s" % (names, named(provisioners)))


def storage_nfs_default(cluster: Cluster, nfs_provisioners: Collection[str] = ()) -> Verdict:
    """The class of claims that name none is on NFS.

    Args:
        nfs_provisioners: names of provisioners that a site knows to be NFS.
    """
    classes = storage_classes(cluster)
    defaults = sorted((one for one in classes if one.default), key=lambda one: (-one.created_at, one.name))
    if not defaults:
        there = ", ".join(one.name for one in classes if one.on_nfs(nfs_provisioners))
        return Verdict(ABSENT, "no StorageClass is the default" + ("; %s could be" % there if there else ""))
    chosen = defaults[0]
    verdict = _served_over_nfs(cluster, chosen, nfs_provisioners)
    if len(defaults) == 1:
        return verdict
    names = ", ".join(one.name for one in defaults)
    ambiguous = "%d default classes (%s), of which the server takes %s" % (len(defaults), names, chosen.name)
    if verdict.word == PRESENT:
        return Verdict(WARNING, ambiguous)
    return Verdict(BROKEN, "%s; %s" % (ambiguous, verdict.why))


def storage_classes(cluster: Cluster) -> list[StorageClass]:
    """All storage classes."""
    found = []
    for thing in cluster.all("storageclasses"):
        metadata = reading.part(thing, "metadata")
        annotations = reading.part(metadata, "annotations")
        found.append(
            StorageClass(
                name=reading.text(metadata, "name"),
                provisioner=reading.text(thing, "provisioner"),
                default=any(annotations.get(key) == "true" for key in _DEFAULT),
                created_at=reading.epoch(metadata.get("creationTimestamp")) or 0.0,
                parameters=reading.part(thing, "parameters"),
            )
        )
    return found


def back_ends(cluster: Cluster) -> list[dict[str, Any]]:
    """Where the volumes of each class really lie. Raises what reading raises.

    Returns:
        `class`, `default` (whether claims that name no class get it), `kind`: `nfs` (with `server` and `path`),
        `shared` (a `path` that all nodes have in common), `node` (a `path` on each node's own disk) or `other`
        (with `provisioner`).
    """
    classes = storage_classes(cluster)
    defaults = sorted((one for one in classes if one.default), key=lambda one: (-one.created_at, one.name))
    return [
        {"class": one.name, "default": one in defaults[:1], **_back_end(cluster, one, path)}
        for one in classes
        for path in _paths(cluster, one)
    ]


def _back_end(cluster: Cluster, one: StorageClass, path: str) -> dict[str, str]:
    if one.local_path:
        shared = any(_shared_path(cluster, server) for server in running(cluster, LOCAL_PATH))
        return {"kind": "shared" if shared else "node", "path": path}
    server, _colon, share = path.partition(":")
    if share:
        return {"kind": "nfs", "server": server, "path": share}
    return {"kind": "other", "provisioner": one.provisioner}


def _paths(cluster: Cluster, one: StorageClass) -> list[str]:
    """The folders, or `server:share`, that a class writes to; one empty text where nobody can tell."""
    if one.local_path:
        found = [path for server in running(cluster, LOCAL_PATH) for path in _local_paths(cluster, server)]
    else:
        server, share = reading.text(one.parameters, "server"), reading.text(one.parameters, "share")
        found = ["%s:%s" % (server, share)] if server and share else _nfs_exports(cluster, one.provisioner)
    return list(dict.fromkeys(found)) or [""]


def _local_paths(cluster: Cluster, provisioner: Workload) -> list[str]:
    config = _local_path_config(cluster, provisioner)
    shared = reading.text(config, "sharedFileSystemPath")
    if shared:
        return [shared]
    return [
        path
        for entry in reading.items(config, "nodePathMap")
        for path in entry.get("paths") or []
        if isinstance(path, str)
    ]


def _nfs_exports(cluster: Cluster, provisioner: str) -> list[str]:
    """What the provisioner of this name mounts: nfs-subdir-external-provisioner is told it in its environment."""
    exports = []
    for one in running(cluster, NFS):
        for container in one.containers:
            told = {
                reading.text(entry, "name"): reading.text(entry, "value") for entry in reading.items(container, "env")
            }
            if told.get("PROVISIONER_NAME") == provisioner and told.get("NFS_SERVER") and told.get("NFS_PATH"):
                exports.append("%s:%s" % (told["NFS_SERVER"], told["NFS_PATH"]))
    return exports


def _served_over_nfs(cluster: Cluster, chosen: StorageClass, nfs_provisioners: Collection[str]) -> Verdict:
    if chosen.local_path:
        return _shared_local_path(cluster, chosen)
    if not chosen.on_nfs(nfs_provisioners):
        return Verdict(ABSENT, "the default class %s is of %s, no NFS" % (chosen.name, chosen.provisioner))
    if chosen.provisioner in nfs_provisioners:
        return Verdict(PRESENT, "default class %s of %s" % (chosen.name, chosen.provisioner))
    servers = running(cluster, NFS)
    idle = [one for one in servers if not one.works]
    if not servers or idle:
        state = named(idle) or "there is no workload"
        return Verdict(BROKEN, "nobody serves the default class %s (%s)" % (chosen.name, state))
    return Verdict(PRESENT, "default class %s, %s" % (chosen.name, named(servers)))


def _shared_local_path(cluster: Cluster, chosen: StorageClass) -> Verdict:
    """As Base Command Manager sets it up: the local-path class, whose provisioner writes to a shared path on NFS."""
    provisioners = running(cluster, LOCAL_PATH)
    shared = next((path for path in (_shared_path(cluster, one) for one in provisioners) if path), None)
    if shared is None:
        return Verdict(ABSENT, "the default class %s writes to each node's own disk, not to NFS" % chosen.name)
    if not any(one.works for one in provisioners):
        return Verdict(BROKEN, "nobody serves the default class %s (%s)" % (chosen.name, named(provisioners)))
    return Verdict(PRESENT, "default class %s on the shared path %s" % (chosen.name, reading.printable(shared)))


def _shared_path(cluster: Cluster, provisioner: Workload) -> Optional[str]:
    """sharedFileSystemPath of a provisioner's configuration, None where it writes to the nodes' own disks."""
    return reading.text(_local_path_config(cluster, provisioner), "sharedFileSystemPath") or None


def _local_path_config(cluster: Cluster, provisioner: Workload) -> Mapping[str, Any]:
    for name in _config_maps(provisioner.pod):
        thing = cluster.one("configmaps", provisioner.namespace, name) or {}
        try:
            config = json_text.loads(reading.text(reading.part(thing, "data"), _LOCAL_PATH_CONFIG))
        except ValueError:
            continue
        if isinstance(config, dict):
            return config
    return {}


def _config_maps(pod: Mapping[str, Any]) -> Sequence[str]:
    return [
        reading.text(reading.part(volume, "configMap"), "name")
        for volume in reading.items(pod, "volumes")
        if reading.part(volume, "configMap")
    ]
