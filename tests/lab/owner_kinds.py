# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of owners whose objects recovery reads, as small CRDs on a bare API server, and work of each in trouble.

No operator runs: their words stand in the objects' status as they would write them.
"""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import OPT_IN_ANNOTATION
from ansible_collections.mission_control.job_recovery.tests.bare_api import ControlPlane

LONG_AGO = "2026-01-01T00:00:00Z"
VERSION = "v1"
_SERVED_SECONDS = 60.0
_FAILED = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": LONG_AGO}]}
_STATUS: dict[str, dict[str, Any]] = {
    "JobSet": {"replicatedJobsStatus": [{"name": "w", "ready": 1, "active": 2}]},
    "PyTorchJob": {
        "conditions": [{"type": "Running", "status": "True"}], "replicaStatuses": {"Worker": {"active": 1}},
    },
    "Job.batch.volcano.sh": {"state": {"phase": "Restarting", "lastTransitionTime": LONG_AGO}},
    "RayJob": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "endTime": LONG_AGO},
    "RayCluster": {
        "conditions": [{"type": "HeadPodReady", "status": "True"}], "desiredWorkerReplicas": 2,
        "readyWorkerReplicas": 1,
    },
}  # fmt: skip
_SPEC: dict[str, dict[str, Any]] = {"PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}


def serve(server: ControlPlane) -> None:
    """Have the server serve all these kinds."""
    for row in owners.watched():
        kind = row.kind.partition(".")[0]
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        }  # fmt: skip
        names = {"kind": kind, "plural": row.resource, "singular": kind.lower()}
        server.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "%s.%s" % (row.resource, row.group)},
                "spec": {"group": row.group, "scope": "Namespaced", "names": names, "versions": [version]},
            }
        )
    until = time.monotonic() + _SERVED_SECONDS
    for row in owners.watched():
        while not _is_served(server, row):
            if time.monotonic() > until:
                raise RuntimeError("%s is not served" % row.kind)
            time.sleep(0.2)


def _is_served(server: ControlPlane, row: owners.Owner) -> bool:
    try:
        there = server.admin.get("/apis/%s/%s" % (row.group, VERSION))
        server.admin.get("/apis/%s/%s/%s" % (row.group, VERSION, row.resource))
    except RecoveryError:
        return False
    return row.resource in {one["name"] for one in there["resources"]}


def add_work(server: ControlPlane, row: owners.Owner, namespace: str, name: str) -> dict[str, Any]:
    """Work of this kind that has lost a pod long ago and is not whole; returns the reference to it as an owner."""
    kind, version = row.kind.partition(".")[0], "%s/%s" % (row.group, VERSION)
    metadata = {"name": name, "namespace": namespace, "annotations": {OPT_IN_ANNOTATION: "{}"}}
    thing = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": _SPEC.get(row.kind, {})}
    made = server.apply(thing, _STATUS.get(row.kind, _FAILED))
    return {"apiVersion": version, "kind": kind, "name": name, "uid": made["metadata"]["uid"], "controller": True}


def add_lost_pod(server: ControlPlane, namespace: str, name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that was lost with its node, long ago; one that restarts for ever is not watched, as RayCluster's are."""
    owned = metadata.get("ownerReferences", [{}])
    policy = "Always" if owned[0].get("kind") == "RayCluster" else "Never"
    disrupted = {
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "lastTransitionTime": LONG_AGO,
    }  # fmt: skip
    return server.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": {"nodeName": "k2", "restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
        },
        {"phase": "Running", "conditions": [disrupted]},
    )


def add_all(server: ControlPlane, namespace: str) -> dict[str, str]:
    """Work of every kind, and a pod of nobody; by `namespace/name` of what a person should know of its uid."""
    told = {}
    for row in owners.watched():
        name = "work-" + row.resource + "-" + row.group.partition(".")[0]
        owner = add_work(server, row, namespace, name)
        told["%s/%s" % (namespace, name)] = owner["uid"]
        labels = {row.label: name} if row.label else {}
        add_lost_pod(server, namespace, name + "-0", ownerReferences=[owner], labels=labels)
    pod = add_lost_pod(server, namespace, "alone", annotations={OPT_IN_ANNOTATION: "{}"})
    told["%s/alone" % namespace] = pod["metadata"]["uid"]
    return told
