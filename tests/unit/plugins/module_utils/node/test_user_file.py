# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's file is read as that user, within a deadline, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import user_file
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node.answer import Refusal

NOBODY = pwd.getpwnam("nobody").pw_uid
ROOT = os.geteuid() == 0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that everybody may enter."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.owner() == pwd.getpwuid(os.geteuid()).pw_name and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path


def _tail(path: Path, uid: int = os.geteuid(), limit: int = 1000, deadline: float = 5.0) -> user_file.Tail:
    return user_file.tail(os.fsencode(path), uid, limit, deadline)


@pytest.mark.parametrize(
    ("content", "limit", "kept"),
    [(b"", 10, b""), (b"abc", 10, b"abc"), (b"0123456789", 4, b"6789"), (b"\xff\0\xfe", 10, b"\xff\0\xfe")],
)
def test_the_end_of_a_file(place: Path, content: bytes, limit: int, kept: bytes) -> None:
    (place / "log").write_bytes(content)
    end = _tail(place / "log", limit=limit)
    assert (end.content, end.size) == (kept, len(content))
    assert abs(end.modified - time.time()) < 60


def test_no_more_than_two_mebibytes(place: Path) -> None:
    (place / "log").write_bytes(b"x" * (user_file.MAX_BYTES + 10))
    assert len(_tail(place / "log", limit=user_file.MAX_BYTES * 9).content) == user_file.MAX_BYTES


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    (path.parent / "real").write_text("x", encoding="ascii")
    path.symlink_to(path.parent / "real")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (_fifo, "unreadable"),
        (_link, "unreadable"),
        (_socket, "unreadable"),
        (Path.mkdir, "unreadable"),
        (lambda path: None, "absent"),
    ],
    ids=["fifo", "link", "socket", "folder", "nothing"],
)
def test_what_is_no_regular_file(place: Path, make: Callable[[Path], Any], kind: str) -> None:
    make(place / "log")
    before = time.monotonic()
    with pytest.raises(Refusal) as caught:
        _tail(place / "log")
    assert caught.value.kind == kind
    assert time.monotonic() - before < 4


@pytest.mark.parametrize("path", [b"relative", b"/a\0b", b"/" + b"x" * 5000, b""])
def test_a_path_that_is_none(path: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        user_file.tail(path, os.geteuid(), 10, 1.0)
    assert caught.value.kind == "bad_input"


def test_a_device_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        user_file.tail(b"/dev/zero", os.geteuid(), 10, 5.0)
    assert caught.value.kind == "unreadable"


@pytest.mark.skipif(not ROOT, reason="only root becomes another user")
@pytest.mark.parametrize(
    ("mode", "owner", "readable"), [(0o600, 0, False), (0o640, 0, False), (0o644, 0, True), (0o600, NOBODY, True)]
)
def test_root_reads_only_what_the_user_may(place: Path, mode: int, owner: int, readable: bool) -> None:
    log = place / "log"
    log.write_bytes(b"secret")
    log.chmod(mode)
    os.chown(log, owner, 0)
    if readable:
        assert _tail(log, NOBODY).content == b"secret"
        return
    with pytest.raises(Refusal) as caught:
        _tail(log, NOBODY)
    assert caught.value.kind == "unreadable"


@pytest.mark.skipif(not ROOT, reason="only root becomes another user")
def test_shadow_is_not_told_to_a_user_who_names_it_as_his_log() -> None:
    with pytest.raises(Refusal) as caught:
        user_file.tail(b"/etc/shadow", NOBODY, 100, 5.0)
    assert caught.value.kind == "unreadable"


@pytest.mark.skipif(not ROOT, reason="only root may name a user without an entry")
def test_a_user_without_an_entry_reads_nothing(place: Path) -> None:
    (place / "log").write_bytes(b"x")
    with pytest.raises(Refusal) as caught:
        _tail(place / "log", 3999999999)
    assert caught.value.kind == "absent"


def test_a_file_that_cannot_be_read_in_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file server that does not answer: the process that reads hangs, and is ended."""
    (place / "log").write_bytes(b"x")
    monkeypatch.setattr(user_file, "_become", lambda uid: time.sleep(60))
    before, children = time.monotonic(), _children()
    with pytest.raises(Refusal) as caught:
        _tail(place / "log", deadline=0.1)
    assert caught.value.kind == "timed_out"
    assert time.monotonic() - before < 30
    assert _children() == children


def test_no_child_and_no_descriptor_is_left(place: Path) -> None:
    (place / "log").write_bytes(b"x")
    before = (len(os.listdir("/proc/self/fd")), _children())
    for _round in range(5):
        _tail(place / "log")
    assert (len(os.listdir("/proc/self/fd")), _children()) == before


def _children() -> set[str]:
    """This process' children, dead ones too; other tests' servers are among them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if path.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(path.parent.name)
    return found
