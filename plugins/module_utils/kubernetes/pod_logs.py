# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The logs of the containers that failed in a Job's pods, read from their kubelets by way of the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    epoch,
    items,
    part,
    text,
)

# The API gives the first bytes of the last so many lines, never the last bytes: where these lines are larger than what
# is read, fewer are asked for. A kubelet counts every piece of a long line, of 16 KiB at most, as one.
_LINES = (5000, 200)
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class FailedContainer:
    """One end of a container that was none of success; `previous`: it was started again since."""

    namespace: str
    pod: str
    name: str
    previous: bool
    ended_at: Optional[float]


def failed_containers(pods: Iterable[Mapping[str, Any]]) -> list[FailedContainer]:
    """Of these pods, as the server has them; the first to end first, as the others often fail because of it. Pure."""
    found = [one for pod in pods for one in _of_pod(pod)]
    return sorted(found, key=lambda one: (one.ended_at is None, one.ended_at or 0.0, one.pod, one.name))


def read(client: KubernetesClient, container: FailedContainer, kib: int, seconds: float) -> tuple[bytes, int]:
    """The last `kib` KiB of a container's log, and the size of what they are the end of, within `seconds`.

    Raises:
        RecoveryError: it is not there, may not be read, or its kubelet does not answer.
    """
    path = path_of("v1", "pods", container.namespace, container.pod, "log")
    content = b""
    for lines in _LINES:
        query = {"container": container.name, "tailLines": lines, "limitBytes": _MOST_BYTES}
        if container.previous:
            query["previous"] = "true"
        content = client.text(path, query, seconds / len(_LINES), _MOST_BYTES)
        if len(content) < _MOST_BYTES:
            break
    return content[-kib * 1024 :], len(content)


def _of_pod(pod: Mapping[str, Any]) -> Iterator[FailedContainer]:
    metadata, status = part(pod, "metadata"), part(pod, "status")
    for entry in (*items(status, "initContainerStatuses"), *items(status, "containerStatuses")):
        for key, previous in (("state", False), ("lastState", True)):
            end = part(entry, key, "terminated")
            code = end.get("exitCode")
            if isinstance(code, int) and code:
                yield FailedContainer(
                    text(metadata, "namespace"),
                    text(metadata, "name"),
                    text(entry, "name"),
                    previous,
                    epoch(end.get("finishedAt")),
                )
                break
