# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many things read at once, each with its own answer or its own error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError


def read_each(names: Sequence[str], read: Callable[[str], Any], workers: int) -> dict[str, Any]:
    """By name what `read` gives, or the `RecoveryError` that it raises; a name that comes twice is read once.

    Args:
        workers: how many are read at the same time at most.
    """

    def safely(name: str) -> Any:
        try:
            return read(name)
        except RecoveryError as exc:
            return exc

    unique = list(dict.fromkeys(names))
    if not unique:
        return {}
    with ThreadPoolExecutor(min(workers, len(unique))) as pool:
        return dict(zip(unique, pool.map(safely, unique)))
