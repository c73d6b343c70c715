# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spool as real jobs leave it, cleaned on a live node: one table of what goes and what stays, and why."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import spool

NODE = "node1"
LIVE, DEAD = 41, 42  # jobs: the step 41.0 has its slurmstepd, of 42 nothing lives

# name (of the spool, or of /tmp), kind, what becomes of it
ROWS = (
    # of the dead step
    ("stepd.slurm.pmix.42.0", "socket", "removed"),
    ("pmix.42.0", "directory", "removed"),
    ("node1_42.0", "socket", "removed"),
    ("hwloc_topo_42.0.xml", "file", "removed"),
    ("job00042", "directory", "removed"),
    ("tmp/spmix_appdir_UID_42.0", "directory", "removed"),
    # of the live step
    ("stepd.slurm.pmix.41.0", "socket", "live"),
    ("pmix.41.0", "directory", "live"),
    ("node1_41.0", "socket", "live"),
    ("hwloc_topo_41.0.xml", "file", "live"),
    ("job00041", "directory", "live"),
    ("tmp/spmix_appdir_UID_41.0", "directory", "live"),
    # slurmd's own
    ("cred_state", "file", "slurmd"),
    ("cred_state.old", "file", "slurmd"),
    ("conf-cache", "directory", "slurmd"),
    ("hwloc_topo_whole.xml", "file", "slurmd"),
    # not on the list
    ("ca_cert.pem", "file", "unlisted"),
    ("pmix.42", "directory", "unlisted"),
    ("stepd.slurm.pmix.42.0.keep", "file", "unlisted"),
    ("node10_42.0", "socket", "unlisted"),  # of another node that shares the folder
    ("notes of bob 42.0", "file", "unlisted"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("spool", "tmp", "proc/100", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "outside/precious").touch()
    (tmp_path / "proc/100/cmdline").write_bytes(b"slurmstepd: [%d.0]\0" % LIVE)
    status = "Name:\tslurmstepd\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n"
    (tmp_path / "proc/100/status").write_text(status, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "spool")  # a socket's path may have 107 bytes
    for name, kind, _becomes in ROWS:
        make(tmp_path / "tmp" / real(name) if name.startswith("tmp/") else tmp_path / "spool" / name, kind)
    return tmp_path


def real(name: str) -> str:
    return name.replace("tmp/", "").replace("UID", str(os.getuid()))


def make(path: Path, kind: str) -> None:
    if kind == "directory":
        (path / "deep").mkdir(parents=True)
        (path / "deep/link").symlink_to(path.parents[1] / "outside")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))
    else:
        path.touch()
    old = time.time() - 3600
    os.utime(path, (old, old))


def called(place: Path, act: Any) -> dict[str, str]:
    found = act(str(place / "spool"), NODE, proc=str(place / "proc"), tmp=str(place / "tmp"))
    assert found["failed"] == []
    told = {os.path.basename(path): "removed" for path in found["removed"]}
    told.update({os.path.basename(each["path"]): each["why"] for each in found["kept"]})
    return told


def wanted() -> dict[str, str]:
    return {real(name): becomes for name, _kind, becomes in ROWS}


def test_the_look_tells_what_would_go_and_why_and_touches_nothing(place: Path) -> None:
    assert called(place, spool.look) == wanted()
    assert all((place / ("tmp" if name.startswith("tmp/") else "spool") / real(name)).exists() for name, *_x in ROWS)


def test_what_the_look_tells_is_what_the_cleaning_does(place: Path) -> None:
    assert called(place, spool.clean) == wanted()
    for name, _kind, becomes in ROWS:
        path = place / ("tmp" if name.startswith("tmp/") else "spool") / real(name)
        assert path.exists() is (becomes != "removed"), name
    assert (place / "outside/precious").exists()
    again = called(place, spool.clean)
    assert "removed" not in again.values()


def test_what_is_clean_once_the_last_step_has_ended(place: Path) -> None:
    (place / "proc/100/cmdline").unlink()
    (place / "proc/100/status").unlink()
    (place / "proc/100").rmdir()
    told = called(place, spool.clean)
    assert "live" not in told.values()
    assert {name for name, becomes in told.items() if becomes == "slurmd"} == {
        name for name, _kind, becomes in ROWS if becomes == "slurmd"
    }
