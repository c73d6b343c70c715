# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm's own records of a release: one Secret a revision, `sh.helm.release.v1.NAME.vN` in the release's namespace.

They are read from the API server and not asked of the `helm` command, because what is absent, forbidden and out of
reach are different answers there, and because a record tells what an operation that still goes on is about to make.
Format (Helm 3 and 4, pkg/storage/driver): data.release is base64 of base64 of gzip of JSON. Pure but for `newest` and
`find`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
import zlib
from dataclasses import dataclass, replace
from typing import Any, Iterable, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)

DEPLOYED = "deployed"
FAILED = "failed"
UNINSTALLED = "uninstalled"
UNINSTALLING = "uninstalling"
PENDING = ("pending-install", "pending-upgrade", "pending-rollback")

# Helm keeps labels through upgrades that others make, and forgets a description with the next of them. So whose release
# it is stands in a label, and what exactly was deployed in the description.
OWNER_LABEL = "mission-control/managed-by"
OWNER = "job-recovery"
_MARK = "mission_control.job_recovery:"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}(?![0-9a-f])")
_ATTEMPTS = 3
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Release:
    """One revision of a release.

    Attributes:
        status: as Helm spells it (`deployed`, `failed`, `pending-upgrade`, ...).
        chart, version: name and version of its chart.
        values: what the user gave; the chart's defaults are not in it.
        manifest: the YAML of all objects but hooks.
        hooks: the YAML of each hook.
        description: what Helm or we wrote of it.
        since: when the record was made, seconds since the epoch by the API server's clock; None if it does not say.
        own: whether this collection installed it.
        secret, resource_version: the record itself.
        record: all that Helm wrote, for `marked_failed`.
        deployed: the newest revision that is deployed, 0 where none is.
    """

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    version: str
    values: Mapping[str, Any]
    manifest: str
    hooks: tuple[str, ...]
    description: str
    since: Optional[float]
    own: bool
    secret: str
    resource_version: str
    record: Mapping[str, Any]
    deployed: int = 0

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the deployed chart; empty where this collection did not deploy it."""
        return frozenset(_DIGEST.findall(self.description)) if self.description.startswith(_MARK) else frozenset()


def description(digests: Iterable[str]) -> str:
    """The description of a revision that this collection deploys."""
    return " ".join([_MARK, *sorted(digests)])


def newest(client: KubernetesClient, namespace: str, name: str) -> Optional[Release]:
    """The newest revision, None where there is none. Raises as `client` does, and `Unreadable`.

    The records are large and there are ten of them: only the newest is read whole.
    """
    for attempt in range(_ATTEMPTS):
        revisions = _revisions(client, namespace, {"owner": "helm", "name": name})
        if not revisions:
            return None
        deployed = [revision for revision, _secret, status in revisions if status == DEPLOYED]
        try:
            secret = client.get(path_of("v1", "secrets", namespace, revisions[-1][1]))
        except Absent:  # somebody's helm has just removed it
            if attempt + 1 < _ATTEMPTS:
                continue
            raise
        return replace(parse(secret), deployed=max(deployed, default=0))
    raise AssertionError("not reached")


def find(client: KubernetesClient, namespace: str, name: str, revision: int) -> Optional[Release]:
    """One revision, or None. Raises as `newest`."""
    for found, secret, _status in _revisions(client, namespace, {"owner": "helm", "name": name}):
        if found == revision:
            return parse(client.get(path_of("v1", "secrets", namespace, secret)))
    return None


def _revisions(client: KubernetesClient, namespace: str, labels: Mapping[str, str]) -> list[tuple[int, str, str]]:
    """Revision, Secret and status of each record by its labels, the newest last."""
    selector = ",".join("%s=%s" % pair for pair in labels.items())
    listed = client.list(path_of("v1", "secrets", namespace), {"labelSelector": selector}, metadata_only=True)
    found = []
    for item in listed.items:
        metadata = reading.part(item, "metadata")
        its = reading.part(metadata, "labels")
        if reading.text(its, "version").isdigit():
            found.append((int(its["version"]), reading.text(metadata, "name"), reading.text(its, "status")))
    return sorted(found)


def parse(secret: Mapping[str, Any]) -> Release:
    """A record from its Secret. Raises `Unreadable`, naming the Secret and no content."""
    metadata = reading.part(secret, "metadata")
    where = "%s/%s" % (reading.text(metadata, "namespace"), reading.text(metadata, "name"))
    record = _decoded(reading.text(reading.part(secret, "data"), "release"), where)
    info, chart = reading.part(record, "info"), reading.part(record, "chart", "metadata")
    revision = record.get("version")
    if not isinstance(revision, int) or not reading.text(info, "status"):
        raise Unreadable("Helm's record %s has no revision or no status" % where, "look at it with `helm history`")
    labels = reading.part(metadata, "labels")
    return Release(
        name=reading.text(record, "name"),
        namespace=reading.text(metadata, "namespace"),
        revision=revision,
        status=reading.text(info, "status"),
        chart=reading.text(chart, "name"),
        version=reading.text(chart, "version"),
        values=reading.part(record, "config"),
        manifest=reading.text(record, "manifest"),
        hooks=tuple(reading.text(hook, "manifest") for hook in reading.items(record, "hooks")),
        description=reading.text(info, "description"),
        since=reading.epoch(metadata.get("creationTimestamp")),
        own=labels.get(OWNER_LABEL) == OWNER,
        secret=reading.text(metadata, "name"),
        resource_version=reading.text(metadata, "resourceVersion"),
        record=record,
    )


def marked_failed(release: Release, why: str, now: float) -> dict[str, Any]:
    """A merge patch for the record's Secret that makes the revision a failed one, if it is still that version of it.

    Helm goes on from a failed revision as from any other, and nothing that the revision made is deleted for it.
    """
    record = dict(release.record)
    record["info"] = {**reading.part(release.record, "info"), "status": FAILED, "description": why}
    return {
        "metadata": {
            "resourceVersion": release.resource_version,
            "labels": {"status": FAILED, "modifiedAt": str(int(now))},
        },
        "data": {"release": encoded(record)},
    }


def encoded(record: Mapping[str, Any]) -> str:
    """The text of data.release."""
    packed = base64.b64encode(gzip.compress(json.dumps(record).encode(), mtime=0))
    return base64.b64encode(packed).decode()


def _decoded(text: str, where: str) -> dict[str, Any]:
    try:
        packed = base64.b64decode(base64.b64decode(text, validate=True), validate=True)
        record = json_text.loads(gzip.decompress(packed) if packed.startswith(_GZIP) else packed)
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error):
        record = None
    if not isinstance(record, dict):
        raise Unreadable("Helm's record %s cannot be read" % where, "look at it with `helm history`")
    return record
