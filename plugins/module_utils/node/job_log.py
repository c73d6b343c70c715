# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ends of a job's logs, read as its user: what the controller cannot see, and a requeue overwrites."""

from __future__ import annotations

from . import user_file
from .answer import Refusal
from .evidence import packed

_DEADLINE = 4.0  # for each file


def read(paths: list, uid: int, kib: int, deadline: float = _DEADLINE) -> dict:
    """The last `kib` KiB of each file.

    Args:
        paths: hexadecimal texts of absolute paths: a path may hold any character, a command line may not.

    Returns:
        `{"files": {"log-0.txt": ...}, "sizes": {"log-0.txt": bytes}, "modified": {"log-0.txt": seconds since the
        epoch}, "missing": {"log-1.txt": why}}`, the files packed as those of `evidence`.
    """
    texts, sizes, modified, missing = {}, {}, {}, {}
    for number, path in enumerate(paths):
        name = "log-%d.txt" % number
        try:
            end = user_file.tail(bytes.fromhex(path), uid, kib * 1024, deadline)
        except Refusal as refusal:
            missing[name] = "%s: %s" % (refusal.kind, str(refusal)[:200])
            continue
        texts[name], sizes[name], modified[name] = end.content, end.size, end.modified
    return {"files": packed(texts), "sizes": sizes, "modified": modified, "missing": missing}
