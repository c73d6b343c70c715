# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images of one layer, put together without a container engine (OCI image format 1.1).

The same input always gives the same bytes, so that digests can be compared.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Imported into containerd from a file; no registry serves them.
PAUSE_REPOSITORY = "lab.local/pause"
METRICS_STAND_IN_REPOSITORY = "lab.local/metrics-stand-in"
TAG = "1"
PAUSE = f"{PAUSE_REPOSITORY}:{TAG}"
METRICS_STAND_IN = f"{METRICS_STAND_IN_REPOSITORY}:{TAG}"

#: Name of the archive with the images above.
NODE_ARCHIVE = "lab-images.tar"

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


def digest(blob: bytes) -> str:
    """``sha256:...`` of a blob, as registries and archives name it."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


@dataclass(frozen=True)
class Image:
    """An image of one uncompressed layer for this machine's kind of processor (linux/amd64)."""

    reference: str
    layer: bytes
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Sequence[str] = ()

    @property
    def config(self) -> bytes:
        """The configuration blob."""
        settings: dict[str, object] = {}
        for name, value in (("Entrypoint", self.entrypoint), ("Cmd", self.command), ("Env", self.environment)):
            if value:
                settings[name] = list(value)
        return _json({
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [digest(self.layer)]},
        })

    @property
    def manifest(self) -> bytes:
        """The manifest blob."""
        return _json({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": _descriptor(CONFIG_TYPE, self.config),
            "layers": [_descriptor(LAYER_TYPE, self.layer)],
        })


def layer(files: Iterable[tuple[str, bytes | Path, int]], links: Iterable[tuple[str, str]] = (),
          folders: Iterable[tuple[str, int]] = ()) -> bytes:
    """A layer's tar.

    ``files``: path, content (or the file that holds it), mode; ``links``: path, target; ``folders``: path, mode.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, mode in folders:
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        for path, content, mode in files:
            data = content.read_bytes() if isinstance(content, Path) else content
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
        for path, target in links:
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def busybox(reference: str, program: Path, applets: Iterable[str]) -> Image:
    """A shell and its tools from one static binary."""
    return Image(
        reference,
        layer(
            [("bin/busybox", program, 0o755), ("etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644)],
            links=[(f"bin/{applet}", "busybox") for applet in applets if applet != "busybox"],
            folders=[("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)],
        ),
        command=["/bin/sh"],
        environment=["PATH=/bin"],
    )


def write_node_archive(target: Path, pause: Path, metrics_stand_in: Path) -> None:
    """The archive that every node imports into containerd before its kubelet can start a pod."""
    write_archive(target, [
        Image(PAUSE, layer([("pause", pause, 0o755)]), entrypoint=["/pause"]),
        Image(METRICS_STAND_IN, layer([("metrics-stand-in", metrics_stand_in, 0o755)]),
              entrypoint=["/metrics-stand-in"]),
    ])


def write_archive(target: Path, images: Sequence[Image]) -> None:
    """An OCI archive that ``ctr images import`` takes, each image under its own reference."""
    manifests = []
    blobs: dict[str, bytes] = {}
    for image in images:
        for blob in (image.layer, image.config, image.manifest):
            blobs["blobs/sha256/" + digest(blob).removeprefix("sha256:")] = blob
        annotations = {
            "io.containerd.image.name": image.reference,
            "org.opencontainers.image.ref.name": image.reference.rsplit(":", 1)[-1],
        }
        manifests.append({**_descriptor(MANIFEST_TYPE, image.manifest), "annotations": annotations})
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    target.write_bytes(layer((path, content, 0o644) for path, content in files.items()))


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
