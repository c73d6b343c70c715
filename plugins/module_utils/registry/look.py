# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is an image or a chart there, whole, and of the kind and for the machines that it is wanted for?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.client import (
    INDEXES,
    MANIFESTS,
    Manifest,
    RegistryClient,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import (
    Reference,
    is_version,
)

HELM_CONFIG = "application/vnd.cncf.helm.config.v1+json"
HELM_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


@dataclass(frozen=True)
class Seen:
    """An image or a chart that is there, and what its tag stands for now (empty where the registry does not tell)."""

    digest: str


def image(client: RegistryClient, reference: Reference, platforms: Sequence[str]) -> Seen:
    """Look at an image.

    Args:
        platforms: `os/architecture`, optionally `/variant`, that it must be for; empty = any.

    Raises:
        Absent: it, or a part of it for a platform, is not there.
        Unreadable: it is no image (a chart), or its content is not what its digest says.
        The errors of `RegistryClient`.
    """
    if not platforms:
        seen = client.head(reference.repository, reference.wanted)
        _require_known(reference, seen)
        return Seen(reference.digest or seen.digest)
    seen = client.get(reference.repository, reference.wanted)
    _require_known(reference, seen)
    if seen.media_type in INDEXES:
        for platform in platforms:
            _require_in_index(client, reference, seen, platform)
    else:
        _require_single(client, reference, seen, platforms)
    return Seen(reference.digest or seen.digest)


def chart(client: RegistryClient, reference: Reference) -> Seen:
    """Look at a chart. Without a version and a digest, the newest version is meant: there must be one.

    Raises:
        Absent: it is not there, or has no version.
        Unreadable: it is no chart, or not the one that the site pinned.
        The errors of `RegistryClient`.
    """
    if not reference.wanted:
        if not any(is_version(tag) for tag in client.tags(reference.repository)):
            raise Absent("%s: the repository is there, but none of its tags is a chart's version" % reference)
        return Seen("")
    seen = client.get(reference.repository, reference.tag or reference.digest)
    kind = reading.text(reading.part(seen.content, "config"), "mediaType")
    layers = [reading.text(layer, "mediaType") for layer in reading.items(seen.content, "layers")]
    if kind != HELM_CONFIG or HELM_CONTENT not in layers:
        raise Unreadable("%s: it is there, but it is no Helm chart" % reference)
    if reference.digest and seen.digest != reference.digest:
        raise Unreadable("%s: the version is there, but its digest is %s" % (reference, seen.digest))
    return Seen(seen.digest)


def _require_known(reference: Reference, seen: Manifest) -> None:
    if seen.media_type not in (*MANIFESTS, *INDEXES):
        raise Unreadable(
            "%s: it is there in a form that containerd does not take (%s)"
            % (reference, reading.printable(seen.media_type or "none", 80)),
            "push it again with a present client",
        )
    kind = reading.text(reading.part(seen.content, "config"), "mediaType")
    if kind == HELM_CONFIG:
        raise Unreadable("%s: it is a Helm chart and no image" % reference)


def _require_in_index(client: RegistryClient, reference: Reference, index: Manifest, platform: str) -> None:
    entries = reading.items(index.content, "manifests")
    fitting = [entry for entry in entries if _fits(reading.part(entry, "platform"), platform)]
    if not fitting:
        raise Absent("%s: it is not there for %s, only for %s" % (reference, platform, _platforms(entries) or "none"))
    digest = reading.text(fitting[0], "digest")
    if ":" not in digest:
        raise Unreadable("%s: its index names no digest for %s" % (reference, platform))
    try:
        client.head(reference.repository, digest)
    except Absent:
        raise Absent(
            "%s: its index names a part for %s that the registry does not have" % (reference, platform)
        ) from None


def _require_single(client: RegistryClient, reference: Reference, manifest: Manifest, platforms: Sequence[str]) -> None:
    digest = reading.text(reading.part(manifest.content, "config"), "digest")
    if ":" not in digest:
        raise Unreadable("%s: its manifest names no configuration" % reference)
    config = client.config(reference.repository, digest)
    for platform in platforms:
        if not _fits(config, platform):
            raise Absent("%s: it is not there for %s, only for %s" % (reference, platform, _platform(config)))


def _fits(described: Mapping[str, Any], platform: str) -> bool:
    system, _dummy, rest = platform.partition("/")
    architecture, _dummy, variant = rest.partition("/")
    return (
        reading.text(described, "os") == system
        and reading.text(described, "architecture") == architecture
        and (not variant or reading.text(described, "variant") == variant)
    )


def _platforms(entries: Sequence[Mapping[str, Any]]) -> str:
    named = {_platform(reading.part(entry, "platform")) for entry in entries}
    return ", ".join(sorted(name for name in named if "unknown" not in name))  # attestations are `unknown/unknown`


def _platform(described: Mapping[str, Any]) -> str:
    parts = [reading.text(described, key) for key in ("os", "architecture", "variant")]
    return reading.printable("/".join(part for part in parts if part) or "unknown", 60)
