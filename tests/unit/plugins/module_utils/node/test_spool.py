# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import spool

OLD = time.time() - 3600
NONE = spool.Live(frozenset())


def entry(name: str, kind: str, changed: float = OLD, uid: int = 0) -> spool.Entry:
    return spool.Entry("/var/spool/slurmd", name, kind, uid, changed, (1, 2, 3))


def why(name: str, kind: str, live: spool.Live = NONE, jobs: Any = None, changed: float = OLD) -> str:
    (decision,) = spool.plan([entry(name, kind, changed)], "node1", live, jobs, time.time())
    return ("-" if decision.remove else "") + decision.why


STALE = [
    ("stepd.slurm.pmix.7.0", "socket"), ("stepd.slurm.pmix.7.0", "file"), ("pmix.7.0", "directory"),
    ("node1_7.0", "socket"), ("node1_7.0.1", "socket"), ("node1_7.4294967291", "socket"),
    ("hwloc_topo_7.0.xml", "file"), ("job00007", "directory"),
]


@pytest.mark.parametrize(("name", "kind"), STALE)
def test_what_dead_steps_leave(name: str, kind: str) -> None:
    assert why(name, kind) == "-stale"
    assert why(name, kind, jobs=frozenset(("7",))) == "-stale"
    assert why(name, kind, jobs=frozenset(("70",))) == "other_job"
    assert why(name, kind, spool.Live(frozenset((("70", "0"),)))) == "-stale"
    assert why(name, kind, spool.Live(frozenset(), unknown=True)) == "step_starts"


@pytest.mark.parametrize(("name", "kind"), STALE)
def test_what_lives(name: str, kind: str) -> None:
    live = spool.Live(frozenset((("7", "0"), ("7", "4294967291"))))
    assert why(name, kind, live) == "live"
    assert why(name, kind, live, frozenset(("7",))) == "live"


@pytest.mark.parametrize(("name", "kind", "reason"), [
    ("cred_state", "file", "slurmd"), ("cred_state.old", "file", "slurmd"), ("conf-cache", "directory", "slurmd"),
    ("hwloc_topo_whole.xml", "file", "slurmd"), ("cert.pem", "file", "unlisted"), ("slurmd.pid", "file", "unlisted"),
    ("node2_7.0", "socket", "unlisted"), ("pmix.7", "directory", "unlisted"), ("pmix.7.0.bak", "directory", "unlisted"),
    ("pmix.7.0\n", "directory", "unlisted"), ("job7", "directory", "unlisted"),
    ("job00007.old", "directory", "unlisted"),
    ("stepd.slurm.pmix.7.0", "link", "link"), ("pmix.7.0", "link", "link"), ("pmix.7.0", "file", "file"),
    ("hwloc_topo_7.0.xml", "directory", "directory"), ("job00007", "link", "unlisted"),
    ("xpmix.7.0", "file", "unlisted"),
    ("stepd.slurm.pmix.7.0", "directory", "directory"),
])
def test_what_is_kept(name: str, kind: str, reason: str) -> None:
    assert why(name, kind) == reason


def test_young_directory_of_a_job() -> None:
    assert why("job00007", "directory", changed=time.time() - 5) == "young"


def test_node_name_is_no_pattern() -> None:
    (decision,) = spool.plan([entry("nodeX1_7.0", "socket")], "node.1", NONE, None, time.time())
    assert not decision.remove


@pytest.mark.parametrize(("name", "kind", "uid", "reason"), [
    ("spmix_appdir_1000_7.0", "directory", 1000, "-stale"), ("spmix_appdir_1000_7.0", "directory", 1001, "forged"),
    ("spmix_appdir_1000_7.0", "link", 1000, "forged"), ("spmix_appdir_1000_8.0", "directory", 1000, "live"),
    ("spmix_appdir_0_7.0", "file", 0, "forged"),
])
def test_application_directories(name: str, kind: str, uid: int, reason: str) -> None:
    live = spool.Live(frozenset((("8", "0"),)))
    (decision,) = spool.plan_app_dirs([entry(name, kind, uid=uid), entry("other", "directory")], live, None)
    assert ("-" if decision.remove else "") + decision.why == reason


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A spool with slurmd's own files, an empty /tmp and an empty /proc."""
    for folder in ("spool", "tmp", "proc", "outside"):
        (tmp_path / folder).mkdir()
    for name in ("cred_state", "hwloc_topo_whole.xml"):
        (tmp_path / "spool" / name).touch()
    (tmp_path / "outside" / "precious").touch()
    return tmp_path


def clean(place: pathlib.Path, **more: Any) -> dict[str, Any]:
    found = spool.clean(str(place / "spool"), "node1", proc=str(place / "proc"), tmp=str(place / "tmp"), **more)
    return {key: value if key == "spool" else sorted(map(short, value)) for key, value in found.items()}


def short(item: Any) -> Any:
    return os.path.basename(item) if isinstance(item, str) else (os.path.basename(item["path"]), item["why"])


def leave(place: pathlib.Path, job: int) -> None:
    """What srun --mpi=pmix leaves behind."""
    folder = place / "spool"
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(folder)
        bound.bind("stepd.slurm.pmix.%d.0" % job)
    (folder / ("pmix.%d.0" % job) / "deep" / "er").mkdir(parents=True)
    (folder / ("pmix.%d.0" % job) / "deep" / "file").touch()
    (folder / ("pmix.%d.0" % job) / "link").symlink_to(place / "outside")
    (folder / ("hwloc_topo_%d.0.xml" % job)).touch()
    app_dir = place / "tmp" / ("spmix_appdir_%d_%d.0" % (os.getuid(), job))
    app_dir.mkdir()


def stepd(place: pathlib.Path, pid: int, command: str, uid: int = 0, state: str = "S (sleeping)") -> None:
    folder = place / "proc" / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(command.encode() + b"\0")
    (folder / "status").write_text("Name:\tx\nState:\t%s\nUid:\t%d\t%d\t%d\t%d\n" % (state, uid, uid, uid, uid),
                                   encoding="utf-8")


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.getcwd())


def test_clean(place: pathlib.Path) -> None:
    leave(place, 7)
    leave(place, 8)
    stepd(place, 100, "slurmstepd: [8.0]")
    found = clean(place)
    assert found["removed"] == ["hwloc_topo_7.0.xml", "pmix.7.0", "spmix_appdir_%d_7.0" % os.getuid(),
                                "stepd.slurm.pmix.7.0"]
    assert found["failed"] == []
    assert ("pmix.8.0", "live") in found["kept"]
    assert ("cred_state", "slurmd") in found["kept"]
    assert (place / "outside" / "precious").exists()
    assert (place / "spool" / "pmix.8.0" / "deep" / "file").exists()
    assert clean(place)["removed"] == []


def test_look_touches_nothing_and_says_the_same(place: pathlib.Path) -> None:
    leave(place, 7)
    before = sorted(os.listdir(place / "spool"))
    seen = spool.look(str(place / "spool"), "node1", proc=str(place / "proc"), tmp=str(place / "tmp"))
    assert sorted(os.listdir(place / "spool")) == before
    assert sorted(map(short, seen["removed"])) == clean(place)["removed"]


def test_limited_to_some_jobs(place: pathlib.Path) -> None:
    leave(place, 7)
    leave(place, 8)
    found = clean(place, jobs=[7])
    assert all(".7." in name or "_7." in name for name in found["removed"])
    assert len(found["removed"]) == 4
    assert clean(place, jobs=[])["removed"] == []


@pytest.mark.parametrize(("command", "uid", "state", "protects"), [
    ("slurmstepd: [7.0]", 0, "S (sleeping)", True),
    ("slurmstepd: [7.0]", 0, "Z (zombie)", False),
    ("slurmstepd: [7.0]", 1000, "S (sleeping)", False),  # a title that a user gave to his own process
    ("slurmstepd: [7.batch]", 0, "S (sleeping)", False),
    ("slurmstepd: [7+1.0]", 0, "S (sleeping)", True),
    ("slurmstepd: [70.0]", 0, "S (sleeping)", False),
    ("/usr/sbin/slurmstepd", 0, "S (sleeping)", True),  # has not said yet which step it runs
    ("/usr/sbin/slurmstepd\0infinity", 0, "S (sleeping)", False),
    ("grep\0slurmstepd: [7.0]", 0, "S (sleeping)", False),
])
def test_whose_slurmstepd_protects(place: pathlib.Path, command: str, uid: int, state: str, protects: bool) -> None:
    leave(place, 7)
    stepd(place, 100, command, uid, state)
    assert (clean(place)["removed"] == []) is protects


def test_links_are_never_followed(place: pathlib.Path) -> None:
    for name in ("pmix.7.0", "stepd.slurm.pmix.7.0", "hwloc_topo_7.0.xml"):
        (place / "spool" / name).symlink_to(place / "outside")
    (place / "tmp" / ("spmix_appdir_%d_7.0" % os.getuid())).symlink_to(place / "outside")
    found = clean(place)
    assert found["removed"] == []
    assert (place / "outside" / "precious").exists()


def test_entry_that_was_replaced_after_the_look_stays(place: pathlib.Path) -> None:
    leave(place, 7)
    (found,) = [each for each in spool.list_folder(str(place / "spool")) if each.name == "pmix.7.0"]
    (place / "spool" / "pmix.7.0").rename(place / "spool" / "away")
    (place / "spool" / "pmix.7.0").symlink_to(place / "outside")
    assert spool._remove(found) == "changed"
    assert (place / "outside" / "precious").exists()


@pytest.mark.parametrize("levels", [63, 64, 65, 66, 200, 700])
def test_a_tree_is_removed_however_deep_it_is(place: pathlib.Path, levels: int) -> None:
    top = place / "spool" / "pmix.7.0"
    path = top
    for _level in range(levels):
        path = path / "d"
    path.mkdir(parents=True)
    (path / "file").touch()
    (top / ".deep-0").mkdir()
    assert clean(place)["failed"] == []
    assert not top.exists()


@pytest.mark.parametrize(("path", "cause"), [
    ("", "empty"), ("spool", "relative"), ("./spool", "relative"), ("/", "never"), ("//", "not_normal"),
    ("/tmp", "never"),
    ("/tmp/", "never"), ("/var", "never"), ("/var/spool", "never"), ("/var/spool/", "never"), ("/var/lib", "never"),
    ("/var/spool/slurm/%n", "unresolved"), ("/var/spool/slurmd/..", "not_normal"), ("/var//spool", "not_normal"),
    ("/var/spool/../spool", "not_normal"), ("/var/spool/is-not-there", "absent"),
])
def test_paths_that_are_never_cleaned(path: str, cause: str) -> None:
    with pytest.raises(spool.SpoolRefused) as caught:
        spool.clean(path, "node1")
    assert caught.value.cause == cause
    with pytest.raises(spool.SpoolRefused):
        spool.look(path, "node1")


def test_directories_that_are_no_spool(place: pathlib.Path) -> None:
    cases = {
        "not_a_spool": lambda: clean_of(place / "outside"),
        "state_save_location": lambda: clean_of(place / "spool", state_save_location=str(place / "spool")),
        "absent": lambda: clean_of(place / "outside" / "precious"),
    }
    for cause, case in cases.items():
        with pytest.raises(spool.SpoolRefused) as caught:
            case()
        assert caught.value.cause == cause
    (place / "spool" / "job_state").touch()
    with pytest.raises(spool.SpoolRefused, match="slurmctld's own files"):
        clean_of(place / "spool")


def test_link_to_a_directory_that_is_never_cleaned(place: pathlib.Path) -> None:
    (place / "link").symlink_to("/tmp")
    with pytest.raises(spool.SpoolRefused) as caught:
        clean_of(place / "link")
    assert caught.value.cause == "never"


def test_spool_behind_a_link_is_cleaned_by_its_real_path(place: pathlib.Path) -> None:
    leave(place, 7)
    (place / "link").symlink_to(place / "spool")
    assert len(clean_of(place / "link")["removed"]) == 3


def clean_of(path: pathlib.Path, **more: Any) -> dict[str, Any]:
    return spool.clean(str(path), "node1", proc=str(path), tmp="", **more)


@pytest.mark.parametrize("jobs", [["x"], ["0"], ["-1"], ["7.0"], ["7", "*"]])
def test_jobs_that_are_none(place: pathlib.Path, jobs: list[str]) -> None:
    with pytest.raises(spool.SpoolRefused) as caught:
        clean(place, jobs=jobs)
    assert caught.value.cause == "bad_job"


def test_it_needs_nothing_of_the_collection() -> None:
    done = subprocess.run([sys.executable, "-ISc", "exec(open(%r).read())" % spool.__file__], check=False,
                          capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")
