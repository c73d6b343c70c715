# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack a folder so that the same content always gives the same bytes.

`tar` and `ansible-galaxy collection build` write times and owners into what they make, so that nobody can tell whether
two of their archives hold the same. Here names, modes and contents are all that counts.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import tarfile
from typing import Any, Iterator, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, BadInput, Unreadable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "path": {"type": "path", "required": True},
        "include": {"type": "list", "elements": "str", "default": ["*"]},
        "exclude": {"type": "list", "elements": "str", "default": ["__pycache__", "*.pyc"]},
        "dest": {"type": "path"},
    },
    "supports_check_mode": True,
}

_TIME = 315532800  # 1980-01-01, the oldest time that every archive format can hold


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Digest a folder, and pack it where `dest` is given.

    Returns:
        `{"changed", "digest" (SHA-256, hexadecimal), "files" (number)}`; changed when `dest` held other bytes before.

    Raises:
        Absent: no such folder. BadInput: nothing in it is included. Unreadable: a file cannot be read or written.
    """
    folder = params["path"]
    if not os.path.isdir(folder):
        raise Absent("%s is no folder" % folder, "give the path of a folder on this machine")
    names = list(select(folder, params["include"], params["exclude"]))
    if not names:
        raise BadInput("%s: nothing is like %s" % (folder, ", ".join(params["include"])))
    try:
        changed = bool(params["dest"]) and _write(params["dest"], pack(folder, names), check_mode)
        return {"changed": changed, "digest": digest(folder, names), "files": len(names)}
    except OSError as exc:
        raise Unreadable("%s: %s" % (exc.filename, exc.strerror)) from exc


def select(folder: str, include: Sequence[str], exclude: Sequence[str]) -> Iterator[str]:
    """Relative paths of the regular files, sorted.

    Args:
        include: patterns for the start of a relative path (`plugins`, `extensions/eda`, `*.whl`).
        exclude: patterns for any single part of it.
    """
    for name in sorted(_walk(folder)):
        parts = name.split("/")
        starts = ["/".join(parts[: length + 1]) for length in range(len(parts))]
        if not _like(starts, include) or _like(parts, exclude):
            continue
        yield name


def digest(folder: str, names: Sequence[str]) -> str:
    """SHA-256 over names, modes and contents."""
    whole = hashlib.sha256()
    for name in names:
        with open(os.path.join(folder, name), "rb") as handle:
            content = hashlib.sha256(handle.read()).hexdigest()
        whole.update(("%s %o %s\n" % (name, _mode(folder, name), content)).encode())
    return whole.hexdigest()


def pack(folder: str, names: Sequence[str]) -> bytes:
    """A gzipped tar archive of these files, owned by root."""
    buffer = io.BytesIO()
    compressed = gzip.GzipFile(filename="", fileobj=buffer, mode="wb", compresslevel=1, mtime=0)
    with compressed, tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            _add(archive, folder, name)
    return buffer.getvalue()


def _walk(folder: str) -> Iterator[str]:
    """Regular files only: a link that leads out of the folder must not bring in what it points to."""
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            path = os.path.join(base, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder)


def _like(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _mode(folder: str, name: str) -> int:
    return 0o755 if os.stat(os.path.join(folder, name)).st_mode & 0o100 else 0o644


def _add(archive: tarfile.TarFile, folder: str, name: str) -> None:
    with open(os.path.join(folder, name), "rb") as handle:
        content = handle.read()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), _mode(folder, name), _TIME
    entry.uname = entry.gname = "root"
    archive.addfile(entry, io.BytesIO(content))


def _write(path: str, content: bytes, check_mode: bool) -> bool:
    try:
        with open(path, "rb") as handle:
            if handle.read() == content:
                return False
    except FileNotFoundError:
        pass
    if not check_mode:
        with open(path + ".new", "wb") as handle:
            handle.write(content)
        os.replace(path + ".new", path)
    return True
