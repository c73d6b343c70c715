# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one limit of this machine that five systemds and four kubelets run into, and its way back.

inotify instances are counted for all containers together (they are all this machine's root). The first lab of any
checkout raises the limit, the last one to go puts the former value back.
"""

from __future__ import annotations

from pathlib import Path

from . import cache, host
from .errors import LabError

_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
#: One lab with Kubernetes uses about 80; there may be ten.
_NEEDED = 1024


def _former() -> Path:
    """Where the former value is kept while a lab is up: with the cache, which all checkouts share."""
    return cache.root() / ".former_max_user_instances"


def raise_limits() -> None:
    """Make room for a lab; nothing happens if there is. Raises LabError if the machine does not let us."""
    present = int(_LIMIT.read_text(encoding="ascii"))
    if present >= _NEEDED:
        return
    if not _former().exists():
        _former().parent.mkdir(parents=True, exist_ok=True)
        _former().write_text(str(present), encoding="ascii")
    try:
        _LIMIT.write_text(str(_NEEDED), encoding="ascii")
    except OSError as exc:
        raise LabError(
            f"sysctl fs.inotify.max_user_instances is {present}, {_NEEDED} are needed: {exc.strerror}"
        ) from exc


def restore_limits() -> None:
    """Put the former value back, unless a lab is still up on this machine."""
    mount = host.cgroup2_mount()
    if mount is None or any(mount.glob("jrlab-*")) or not _former().exists():
        return
    _LIMIT.write_text(_former().read_text(encoding="ascii"), encoding="ascii")
    _former().unlink()
