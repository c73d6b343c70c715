# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from joblab import cache
from joblab.errors import LabError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of each test is its own."""
    monkeypatch.setenv("JOB_RECOVERY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(target: Path) -> None:
    (target / "bin").mkdir()
    (target / "bin" / "tool").write_bytes(b"content")


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"JOB_RECOVERY_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/mission-control-job-recovery"),
        ({"HOME": "/c"}, "/c/.cache/mission-control-job-recovery"),
    ],
)
def test_place(environ: dict[str, str], path: str) -> None:
    assert cache.root(environ) == Path(path)


def test_key_depends_on_content_and_not_on_order_or_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "script").write_text("text")
    assert cache.key_of({"a": 1, "b": [2]}) == cache.key_of({"b": [2], "a": 1})
    assert cache.key_of(tmp_path / "one") == cache.key_of(tmp_path / "two")
    assert cache.key_of(["a", "b"]) != cache.key_of(["ab"])
    (tmp_path / "two" / "script").write_text("other")
    assert cache.key_of(tmp_path / "one") != cache.key_of(tmp_path / "two")


def test_key_depends_on_being_executable(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("text")
    before = cache.key_of(script)
    script.chmod(0o755)
    assert cache.key_of(script) != before


def test_key_of_something_unordered_is_refused() -> None:
    with pytest.raises(TypeError):
        cache.key_of({"a", "b"})


def test_built_once() -> None:
    builds: list[Path] = []

    def counted(target: Path) -> None:
        builds.append(target)
        build(target)

    first = cache.ensure("tool", "v1", counted)
    second = cache.ensure("tool", "v1", counted)
    assert first == second
    assert len(builds) == 1
    assert (first.path / "bin" / "tool").read_bytes() == b"content"
    assert first.in_hosts == Path("/opt/lab/cache") / first.path.name


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    def fails(target: Path) -> None:
        build(target)
        raise LabError("no network")

    with pytest.raises(LabError, match="no network"):
        cache.ensure("tool", "v1", fails)
    assert cache.find("tool", "v1") is None
    assert [path.name for path in folder.iterdir()] == [".tool.lock"]


def test_remains_of_a_killed_build_are_cleared(folder: Path) -> None:
    remains = folder / ".tool-0123456789abcdef.partial"
    remains.mkdir(parents=True)
    (remains / "half").touch()
    cache.ensure("tool", "v1", build)
    assert not remains.exists()


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest"])
def test_damage_is_noticed_and_mended(damage: str) -> None:
    artifact = cache.ensure("tool", "v1", build)
    file = artifact.path / ("artifact.json" if damage == "manifest" else "bin/tool")
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(b"{")
    assert cache.find("tool", "v1") is None
    cache.verify(cache.ensure("tool", "v1", build))


def test_changed_content_of_the_same_size_is_found_by_checksum() -> None:
    artifact = cache.ensure("tool", "v1", build)
    (artifact.path / "bin" / "tool").write_bytes(b"CONTENT")
    assert cache.find("tool", "v1") == artifact
    with pytest.raises(LabError, match="SHA-256"):
        cache.verify_all()


def test_manifest_lists_files_with_size_and_checksum() -> None:
    artifact = cache.ensure("tool", "v1", build)
    manifest = json.loads((artifact.path / "artifact.json").read_text())
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert manifest["files"] == {"bin/tool": [7, digest]}
