# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of nodes on the controller: what their helpers collected before a reboot, in files for people.

`STATE_DIR/evidence/incident-7/node7/kernel.log`, readable by the service's account and root alone. Only the newest
incidents and those that are not closed are kept, so that it cannot fill the disk.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import zlib
from typing import Any, Collection, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable

_FOLDER = "evidence"
_INCIDENT = re.compile(r"incident-([1-9][0-9]{0,17})\Z")
_FILE = re.compile(r"[a-z][a-z0-9_-]{0,31}\.(?:log|txt)\Z")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_MAX_FILE = 8 * 1024 * 1024  # bytes; the helper's own bound is less


def unpack(data: Mapping[str, Any]) -> dict[str, bytes]:
    """By file name its bytes, from a helper's answer. Pure.

    Raises:
        Unreadable: the answer is not what the helper gives.
    """
    files = data.get("files")
    if not isinstance(files, Mapping) or not all(_FILE.match(str(name)) for name in files):
        raise Unreadable("the helper's evidence is not understood")
    return {str(name): _inflated(text) for name, text in files.items()}


def save(state_dir: str, incident: int, node: str, files: Mapping[str, bytes]) -> str:
    """Write a node's files, in place of those that are there; their folder.

    Raises:
        Unreadable: they cannot be written.
    """
    if not _NODE.match(node):
        raise Unreadable("%s is no name of a folder" % ascii(node)[:80])
    folder = os.path.join(state_dir, _FOLDER, "incident-%d" % incident, node)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name, content in files.items():
            _write(os.path.join(folder, name), content)
    except OSError as exc:
        raise Unreadable("evidence cannot be kept in %s (%s)" % (folder, exc.strerror), "is the disk full?") from exc
    return folder


def prune(state_dir: str, keep: int, live: Collection[int]) -> int:
    """Remove what is kept of all but the newest `keep` incidents and the live ones; how many. Never fails."""
    root = os.path.join(state_dir, _FOLDER)
    try:
        found = sorted(int(match.group(1)) for match in map(_INCIDENT.match, os.listdir(root)) if match)
    except OSError:
        return 0
    old = [number for number in found[: max(0, len(found) - keep)] if number not in live]
    for number in old:
        shutil.rmtree(os.path.join(root, "incident-%d" % number), ignore_errors=True)
    return len(old)


def _inflated(text: Any) -> bytes:
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(str(text), validate=True), _MAX_FILE)
    except (binascii.Error, ValueError, zlib.error) as exc:
        raise Unreadable("the helper's evidence cannot be unpacked") from exc
    if inflate.unconsumed_tail:
        raise Unreadable("the helper's evidence is larger than %d bytes" % _MAX_FILE)
    return content


def _write(path: str, content: bytes) -> None:
    fresh = "%s.%d" % (path, os.getpid())
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(content)
    os.replace(fresh, path)
