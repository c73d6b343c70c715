# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import tarfile

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.archive import run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, BadInput


@pytest.fixture
def folder(tmp_path):
    for name, content in {
        "galaxy.yml": "a",
        "plugins/modules/x.py": "b",
        "plugins/modules/__pycache__/x.pyc": "c",
        "tests/unit/test_x.py": "d",
        "extensions/eda/rulebooks/r.yml": "e",
        "extensions/molecule/config.yml": "f",
        ".git/config": "g",
    }.items():
        path = tmp_path / "collection" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "collection" / "plugins" / "link").symlink_to("/etc/passwd")
    return tmp_path / "collection"


def archive(path, dest=None, include=("*",), check_mode=False):
    params = {"path": str(path), "include": list(include), "exclude": ["__pycache__", "*.pyc"]}
    return run({**params, "dest": None if dest is None else str(dest)}, check_mode)


@pytest.mark.parametrize(
    ("include", "names"),
    [
        (["*"], ["extensions/eda/rulebooks/r.yml", "extensions/molecule/config.yml", "galaxy.yml"]
            + ["plugins/modules/x.py", "tests/unit/test_x.py"]),
        (["plugins", "galaxy.yml"], ["galaxy.yml", "plugins/modules/x.py"]),
        (["extensions/eda"], ["extensions/eda/rulebooks/r.yml"]),
        (["*.yml"], ["extensions/eda/rulebooks/r.yml", "extensions/molecule/config.yml", "galaxy.yml"]),
    ],
)
def test_what_is_included(folder, tmp_path, include, names):
    result = archive(folder, tmp_path / "out.tar.gz", include)
    with tarfile.open(tmp_path / "out.tar.gz") as packed:
        assert packed.getnames() == names
    assert result["files"] == len(names)


def test_times_and_owners_do_not_count(folder, tmp_path):
    first = archive(folder, tmp_path / "out.tar.gz")
    before = (tmp_path / "out.tar.gz").read_bytes()
    os.utime(folder / "galaxy.yml", (1, 1))
    second = archive(folder, tmp_path / "out.tar.gz")
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["digest"] == second["digest"]
    assert (tmp_path / "out.tar.gz").read_bytes() == before


@pytest.mark.parametrize("change", ["content", "name", "mode"])
def test_a_change_changes_the_digest(folder, change):
    before = archive(folder)["digest"]
    if change == "content":
        (folder / "galaxy.yml").write_text("other")
    elif change == "name":
        (folder / "galaxy.yml").rename(folder / "galaxy.yaml")
    else:
        (folder / "galaxy.yml").chmod(0o755)
    assert archive(folder)["digest"] != before


def test_check_mode_writes_nothing(folder, tmp_path):
    assert archive(folder, tmp_path / "out.tar.gz", check_mode=True)["changed"] is True
    assert not (tmp_path / "out.tar.gz").exists()


def test_no_folder_and_nothing_included(folder, tmp_path):
    with pytest.raises(Absent, match="no folder"):
        archive(tmp_path / "none")
    with pytest.raises(BadInput, match="nothing is like"):
        archive(folder, include=["*.rpm"])
