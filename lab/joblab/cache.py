# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is costly to make is made once and kept outside the checkout, under a name that tells its content.

The cache is ``JOB_RECOVERY_CACHE``, else ``$XDG_CACHE_HOME/mission-control-job-recovery``, else
``~/.cache/mission-control-job-recovery``. An artifact is a folder NAME-KEY; KEY is a hash over everything that decides
its content (versions, scripts). It is built under a temporary name, its files are listed with size and SHA-256 in
``artifact.json``, and it is renamed into place: nothing that an interrupted build leaves can be taken for a whole one.
All hosts of the lab see the cache read only as /opt/lab/cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import progress
from .errors import LabError

APPLICATION = "mission-control-job-recovery"
#: Where the hosts of the lab see the cache.
IN_HOSTS = Path("/opt/lab/cache")
_MANIFEST = "artifact.json"
_KEY_DIGITS = 16
#: Not compared: organisations have hooks that add their own authority to certifi's bundle wherever Python installs it.
_CHANGED_BY_OTHERS = ("certifi/cacert.pem",)


@dataclass(frozen=True)
class Artifact:
    """A whole, checked folder in the cache."""

    name: str
    key: str
    path: Path

    @property
    def in_hosts(self) -> Path:
        """The same folder as the hosts of the lab see it."""
        return IN_HOSTS / self.path.name


def root(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of the cache; see the head of this file."""
    if chosen := environ.get("JOB_RECOVERY_CACHE"):
        return Path(chosen).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/root")) / ".cache"
    return Path(base).absolute() / APPLICATION


def key_of(material: Any) -> str:
    """Hash of whatever decides an artifact's content: strings, numbers, bytes, paths (their content), lists, dicts."""
    return hashlib.sha256(_canonical(material)).hexdigest()[:_KEY_DIGITS]


def _canonical(material: Any) -> bytes:
    if isinstance(material, bytes):
        return b"bytes:" + hashlib.sha256(material).hexdigest().encode()
    if isinstance(material, Path):
        return _canonical_path(material)
    if isinstance(material, Mapping):
        return b"{" + b",".join(_canonical(k) + b"=" + _canonical(material[k]) for k in sorted(material)) + b"}"
    if isinstance(material, (list, tuple)):
        return b"[" + b",".join(_canonical(item) for item in material) + b"]"
    if material is None or isinstance(material, (str, int, float)):
        return json.dumps(material).encode()
    raise TypeError(f"Cannot be part of a cache key: {material!r}")


def _canonical_path(path: Path) -> bytes:
    """A file counts by mode and content, a folder by the names and content of all files in it; never by its place."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return _canonical([[str(file.relative_to(path)), file] for file in files])
    executable = bool(path.stat().st_mode & 0o100)
    return _canonical([executable, path.read_bytes()])


def ensure(name: str, key_material: Any, build: Callable[[Path], None], *, doing: str = "") -> Artifact:
    """The artifact, from the cache or built now by ``build(folder)`` into the folder that it gets.

    ``doing`` is what to tell while it is built. Raises what ``build`` raises; nothing is kept then.
    """
    artifact = find(name, key_material)
    if artifact:
        return artifact
    key = key_of(key_material)
    path = root() / f"{name}-{key}"
    with _build_lock(name):
        if artifact := find(name, key_material):  # another command built it while this one waited
            return artifact
        _clear_remains(name)
        partial = path.with_name(f".{path.name}.partial")
        partial.mkdir(parents=True)
        try:
            with progress.step(doing or f"Building {name}"):
                build(partial)
            _write_manifest(partial, name, key)
            if path.exists():  # incomplete: find() refused it
                shutil.rmtree(path)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Artifact(name, key, path)


def find(name: str, key_material: Any) -> Artifact | None:
    """The artifact if the cache has it whole (every file there, with its recorded size)."""
    key = key_of(key_material)
    path = root() / f"{name}-{key}"
    if not (path / _MANIFEST).is_file():
        return None
    if problem := _first_problem(path, deep=False):
        progress.note(f"Cached {name} is damaged ({problem}) and will be made again")
        return None
    return Artifact(name, key, path)


def verify(artifact: Artifact) -> None:
    """Read every file again and compare its SHA-256. Raises LabError naming the first that differs."""
    if problem := _first_problem(artifact.path, deep=True):
        raise LabError(f"Cache {artifact.path} is damaged ({problem}). Remove that folder and run lab/up again.")


def verify_all() -> None:
    """verify() for every artifact in the cache."""
    for manifest in sorted(root().glob(f"[!.]*/{_MANIFEST}")):
        told = json.loads(manifest.read_text(encoding="utf-8"))
        verify(Artifact(told["name"], told["key"], manifest.parent))


def _write_manifest(folder: Path, name: str, key: str) -> None:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink()]
    files = [file for file in files if not str(file).endswith(_CHANGED_BY_OTHERS)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        digests = list(pool.map(_sha256, files))
    listed = {str(f.relative_to(folder)): [f.stat().st_size, digest] for f, digest in zip(files, digests, strict=True)}
    manifest = {"name": name, "key": key, "made": int(time.time()), "files": listed}
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _first_problem(folder: Path, *, deep: bool) -> str:
    try:
        files = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError) as exc:
        return f"{_MANIFEST}: {exc}"
    for relative, (size, digest) in files.items():
        file = folder / relative
        try:
            if file.lstat().st_size != size:
                return f"{relative} has {file.lstat().st_size} bytes instead of {size}"
            if deep and _sha256(file) != digest:
                return f"{relative} has another SHA-256"
        except OSError as exc:
            return f"{relative}: {exc.strerror}"
    return ""


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _build_lock(name: str) -> Iterator[None]:
    """One build of a name at a time on this machine; two instances may come up together."""
    root().mkdir(parents=True, exist_ok=True)
    with (root() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _clear_remains(name: str) -> None:
    """Remove what an interrupted build of this name left (the lock is held: nobody else is building it)."""
    for remains in root().glob(f".{name}-*.partial"):
        shutil.rmtree(remains)
