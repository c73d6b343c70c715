# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from joblab import binaries
from joblab.errors import LabError


@pytest.mark.parametrize(("text", "version"), [
    ("go version go1.26.8 linux/amd64", (1, 26, 8)),
    ("go1.26", (1, 26, 0)),
    ("go version go1.27rc1 linux/amd64", (1, 27, 0)),
])
def test_go_version(text: str, version: tuple[int, int, int]) -> None:
    assert binaries.parse_go_version(text) == version


def test_go_version_of_something_else() -> None:
    with pytest.raises(LabError, match="Cannot read the version"):
        binaries.parse_go_version("command not found")


def fake_go(folder: Path, version: str) -> Path:
    folder.mkdir()
    program = folder / "go"
    program.write_text(f'#!/bin/sh\n[ "$*" = version ] || exit 9\necho go version {version} linux/amd64\n')
    program.chmod(0o755)
    return program


def test_go_from_path(tmp_path: Path) -> None:
    program = fake_go(tmp_path / "bin", "go1.30.0")
    assert binaries.go_command({"PATH": str(program.parent)}) == program


def test_chosen_go_comes_before_path(tmp_path: Path) -> None:
    on_path = fake_go(tmp_path / "bin", "go1.30.0")
    chosen = fake_go(tmp_path / "own", "go1.26.0")
    assert binaries.go_command({"PATH": str(on_path.parent), "LAB_GO": str(chosen)}) == chosen


@pytest.mark.parametrize("version", ["go1.19.8", "go1.25.9"])
def test_chosen_go_that_is_too_old_is_an_error(tmp_path: Path, version: str) -> None:
    chosen = fake_go(tmp_path / "bin", version)
    with pytest.raises(LabError, match=r"LAB_GO=.* 1\.26\.0 or later"):
        binaries.go_command({"LAB_GO": str(chosen)})


def test_staging_modules() -> None:
    go_mod = (
        "require (\n\tgithub.com/x/y v1.0.0\n\tk8s.io/api v0.0.0\n\tk8s.io/klog/v2 v2.1.0\n"
        "\tk8s.io/kubelet v0.0.0 // indirect\n)\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n"
    )
    assert binaries.staging_modules(go_mod) == ["k8s.io/api", "k8s.io/kubelet"]


def test_kubernetes_tells_its_version() -> None:
    flags = binaries.kubernetes_link_flags("1.36.3")
    for stamp in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{stamp}" in flags


def test_every_command_has_one_program() -> None:
    commands = [name for program in binaries.PROGRAMS for name in program.commands]
    assert len(commands) == len(set(commands))


def test_unknown_extra_program() -> None:
    with pytest.raises(LabError, match=r"No such program.*cri-o"):
        binaries.ensure(["cri-o"])
