# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of images, charts and registries, as the clients that pull them read them. Pure.

Grammar of the distribution project's `reference` package: a first part with a dot, a colon or `localhost` is the
registry, all else is Docker Hub's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

DOCKER_HUB = "docker.io"
#: Under this key Docker, helm and the kubelet look for Docker Hub's credentials.
DOCKER_HUB_KEY = "https://index.docker.io/v1/"
_DOCKER_HUB_NAMES = (DOCKER_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_DOCKER_HUB_HOST = "registry-1.docker.io"

_HOST = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(?::\d{1,5})?\Z"
)
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(r"%s(?:/%s)*\Z" % (_PATH_PART, _PATH_PART))
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
_VERSION = re.compile(r"v?(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?\Z")
_OCI = "oci://"


@dataclass(frozen=True)
class Reference:
    """One image or chart.

    Attributes:
        registry: host, or host and port, in lower case; `docker.io` for all names of Docker Hub.
        repository: its path there.
        tag: empty where only the digest is given, or (charts) where the newest version is meant.
        digest: `sha256:...`, or empty. Where it is given, it alone decides what is pulled.
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def wanted(self) -> str:
        """What a client asks the registry for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        name = "%s/%s" % (self.registry, self.repository)
        name += ":" + self.tag if self.tag else ""
        return name + ("@" + self.digest if self.digest else "")


def parse_image(text: str) -> Reference:
    """An image as it stands in a pod. Without tag and digest its tag is `latest`.

    Raises:
        BadInput: it is no image's name.
    """
    if "://" in text:
        raise BadInput("image %s: a URL is no image's name" % _quoted(text), "give REGISTRY/REPOSITORY:TAG")
    first, slash, rest = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        registry, path = first, rest
    else:
        registry, path = DOCKER_HUB, text if slash else "library/" + text
    parsed = _parse("image", text, registry, path)
    return parsed if parsed.wanted else Reference(parsed.registry, parsed.repository, "latest")


def parse_chart(text: str, version: str = "", digest: str = "") -> Reference:
    """A chart of an OCI registry, `oci://REGISTRY/REPOSITORY`, as `helm pull` takes it.

    Args:
        version: exactly one version; empty = that of `text` if it has one, else the newest.
        digest: of the chart's manifest, where the site pins it.

    Raises:
        BadInput: it is no chart's address, or the version is none (ranges are helm's to resolve).
    """
    if not text.startswith(_OCI):
        raise BadInput("chart %s: not in an OCI registry" % _quoted(text), "give oci://REGISTRY/REPOSITORY")
    registry, _dummy, path = text[len(_OCI) :].partition("/")
    parsed = _parse("chart", text, registry, path)
    if version and not _VERSION.match(version):
        raise BadInput("chart %s: version %r is no version" % (text, version[:80]), "give exactly one, such as 1.2.3")
    # a plus is not allowed in a tag, and helm writes it so
    tag = version.replace("+", "_") or parsed.tag
    if digest and not _DIGEST.match(digest):
        raise BadInput("chart %s: the digest is none" % text, "give sha256: and 64 hexadecimal digits")
    return Reference(parsed.registry, parsed.repository, tag, digest or parsed.digest)


def _parse(kind: str, text: str, registry: str, path: str) -> Reference:
    path, at, digest = path.partition("@")
    path, colon, tag = path.partition(":")
    registry = registry_name(registry.lower())
    for wrong, what in (
        (not _HOST.match(registry), "the registry's name"),
        (not _PATH.match(path), "the repository's path (lower-case letters, digits and . _ - between them)"),
        (bool(colon) and not _TAG.match(tag), "the tag"),
        (bool(at) and not _DIGEST.match(digest), "the digest (sha256: and 64 hexadecimal digits)"),
    ):
        if wrong:
            raise BadInput("%s %s: %s is malformed" % (kind, _quoted(text), what), "correct it")
    return Reference(registry, path, tag, digest)


def _quoted(text: str) -> str:
    """For a message: not endless, no control characters, and without the credentials of a URL."""
    return repr(re.sub(r"//.*@", "//...@", text[:200]))


def is_version(tag: str) -> bool:
    """Whether helm takes a tag for a chart's version."""
    return _VERSION.match(tag.replace("_", "+")) is not None


def registry_name(host: str) -> str:
    """One name for Docker Hub, all others as they are."""
    return DOCKER_HUB if host in _DOCKER_HUB_NAMES else host


def endpoint(registry: str) -> str:
    """The host (and port) that answers for a registry."""
    return _DOCKER_HUB_HOST if registry == DOCKER_HUB else registry


def parse_place(text: str) -> str:
    """What credentials are for: a registry, or a part of one: `nvcr.io`, `harbor.example.org:8443/team`.

    Raises:
        BadInput: it is a URL, or no registry's name; the message says what to write.
    """
    place, changes = normalise(text)
    if changes:
        raise BadInput(
            "registry %s: %s" % (_quoted(text), " and ".join(changes)), "write %s" % (place or "its host name")
        )
    return place


def normalise(key: str) -> tuple[str, tuple[str, ...]]:
    """What a key of a Docker configuration stands for, and in which ways it is not written as it should be.

    Docker Hub's own URL is right as it is. The place is empty where nothing can be made of the key.
    """
    if key in (DOCKER_HUB_KEY, *_DOCKER_HUB_NAMES):
        return DOCKER_HUB, ()
    changes = []
    place = key.strip()
    if place != key:
        changes.append("it has blanks around it")
    scheme, separator, rest = place.partition("://")
    if separator:
        changes.append("it is a URL (%s://) and not a registry's name" % scheme[:10])
        place = rest
    host, _dummy, path = place.partition("/")
    if host != host.lower():
        changes.append("it has capital letters")
    path = path.strip("/")
    if path in ("v1", "v2") or path.startswith(("v1/", "v2/")):
        changes.append("it holds the API's path /%s/" % path[:2])
        path = path[3:]
    elif place.endswith("/"):
        changes.append("it ends with a slash")
    host = registry_name(host.lower())
    if not (_HOST.match(host) or _is_pattern(host)) or (path and not _PATH.match(path)):
        return "", (*changes, "it is no registry's name")
    return host + ("/" + path if path else ""), tuple(changes)


def _is_pattern(host: str) -> bool:
    """The kubelet knows `*` for a part of a host's name."""
    return "*" in host and _HOST.match(host.replace("*", "x")) is not None


def covers(place: str, name: str) -> bool:
    """Whether credentials for a place are those for an image's `REGISTRY/REPOSITORY` (as the kubelet matches)."""
    host, _dummy, path = place.partition("/")
    other, _dummy, other_path = name.partition("/")
    if "*" in host:
        pattern = re.escape(host).replace(r"\*", "[^.]*") + r"\Z"
        if not re.match(pattern, other):
            return False
    elif host != other:
        return False
    return not path or other_path == path or other_path.startswith(path + "/")
