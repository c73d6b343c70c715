# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every driver of power does alike with a single look: it looks until a level is there."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable


def await_level(
    look: Callable[[float], Any], levels: Sequence[str], seconds: float, pause: float, longest: float
) -> Any:
    """Look until the state is one of `levels`, or the time is over; the last state is returned either way.

    A device that does not answer in between (many are busy while they switch) is asked again; if it did not answer once
    in the whole time, its error is raised.

    Args:
        look: reads the state within so many seconds and makes sure of the machine; what it raises other than
            `Unreachable` ends the wait.
        pause, longest: seconds between two looks, doubled each time up to `longest`.
    """
    until = time.monotonic() + seconds
    last: Any = None
    trouble: Optional[Unreachable] = None
    while True:
        try:
            last = look(max(0.5, until - time.monotonic()))
        except Unreachable as exc:
            trouble = exc
        over = time.monotonic() + pause >= until
        if last is not None and (last.state in levels or over):
            return last
        if trouble is not None and over:
            raise trouble
        time.sleep(pause)
        pause = min(longest, pause * 2)
