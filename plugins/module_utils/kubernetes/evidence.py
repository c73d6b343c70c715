# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of the pods of a Job that are gone: by the cluster's events, which outlive them for an hour.

A pod that was evicted from a lost node is deleted as soon as the node is back. Who looks only then (a source that was
itself restarted) finds a failed Job without any pod, and only its events still tell why.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import JobView, PodView

_CREATED = "Created pod: "  # message of the Job controller's event SuccessfulCreate
_MOST_PODS = 20
# By the reporter: what it says of a pod that was not its own fault.
_DISRUPTIONS = frozenset(
    (
        ("taint-eviction-controller", "TaintManagerEviction"),
        ("node-controller", "TaintManagerEviction"),  # before 1.29
        ("node-controller", "NodeNotReady"),
        ("default-scheduler", "Preempted"),
    )
)


def disrupted_pods(client: KubernetesClient, job: JobView) -> list[PodView]:
    """The pods of this Job that events call disrupted; reads one list, and one for each pod until one is found.

    Raises:
        RecoveryError: events cannot be read.
    """
    for name in _pods_made(client, job):
        for event in _events(client, job.namespace, "involvedObject.kind=Pod,involvedObject.name=%s" % name):
            if (reading.reporter(event), reading.text(event, "reason")) in _DISRUPTIONS:
                seen_at = reading.epoch(event.get("lastTimestamp")) or reading.epoch(event.get("eventTime"))
                return [
                    PodView(
                        job.namespace, name, "event", job_uid=job.uid, cause=Cause.INFRASTRUCTURE, disrupted_at=seen_at
                    )
                ]
    return []


def _pods_made(client: KubernetesClient, job: JobView) -> list[str]:
    events = _events(client, job.namespace, "involvedObject.uid=%s,reason=SuccessfulCreate" % job.uid)
    messages = [reading.text(event, "message") for event in events if reading.reporter(event) == "job-controller"]
    names = [message[len(_CREATED) :] for message in messages if message.startswith(_CREATED)]
    return [name for name in names if name.startswith(job.name)][-_MOST_PODS:]


def _events(client: KubernetesClient, namespace: str, selector: str) -> Iterator[Mapping[str, Any]]:
    return iter(client.list(path_of("v1", "events", namespace), {"fieldSelector": selector}).items)
