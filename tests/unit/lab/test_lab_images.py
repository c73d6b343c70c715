# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from joblab import images


def test_same_input_gives_same_bytes() -> None:
    made = [images.Image("x/y:1", images.layer([("a", b"1", 0o755)])).manifest for _ in range(2)]
    assert made[0] == made[1]


def test_config_names_the_layer() -> None:
    image = images.Image("x/y:1", images.layer([("pause", b"#!", 0o755)]), entrypoint=["/pause"])
    config = json.loads(image.config)
    assert config["rootfs"]["diff_ids"] == [images.digest(image.layer)]
    assert config["config"] == {"Entrypoint": ["/pause"]}
    manifest = json.loads(image.manifest)
    assert manifest["config"]["digest"] == images.digest(image.config)
    assert manifest["layers"][0]["size"] == len(image.layer)


def test_busybox_has_its_tools(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_bytes(b"ELF")
    image = images.busybox("lab/busybox:1", program, ["sh", "busybox", "sleep"])
    with tarfile.open(fileobj=io.BytesIO(image.layer)) as archive:
        assert archive.getmember("bin/sleep").linkname == "busybox"
        assert archive.getmember("bin/busybox").isreg()
        assert archive.getmember("tmp").mode == 0o1777


def test_node_archive(tmp_path: Path) -> None:
    for name in ("pause", "stand-in"):
        (tmp_path / name).write_bytes(name.encode())
    images.write_node_archive(tmp_path / "a.tar", tmp_path / "pause", tmp_path / "stand-in")
    with tarfile.open(tmp_path / "a.tar") as archive:
        index = json.load(archive.extractfile("index.json"))
        names = set(archive.getnames())
    references = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert references == [images.PAUSE, images.METRICS_STAND_IN]
    assert all("blobs/sha256/" + entry["digest"].removeprefix("sha256:") in names for entry in index["manifests"])
