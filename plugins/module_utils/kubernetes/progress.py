# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that make no progress, where their users say what progress is. Pure.

A user annotates a Job with the seconds in which something of it must change: its status (pods that start, get ready,
succeed or fail), or any field that the application writes itself, such as an annotation that it sets with each
checkpoint. When the last change was, the API server dates (managedFields); so neither a restart of ours nor a clock of
the application's node matters. Whether a Job that stands still hangs, or thinks, only its user knows: it is reported.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading

ANNOTATION = "mission-control/progress-deadline"
_SECONDS = re.compile(r"[0-9]{1,7}\Z")
_LEAST = 60.0  # controllers may be as late as that


def deadline(annotations: Mapping[str, Any]) -> Optional[float]:
    """Seconds in which something of a Job must change; None where its user says nothing, or nothing readable."""
    said = reading.text(annotations, ANNOTATION)
    return max(_LEAST, float(said)) if _SECONDS.match(said) and int(said) > 0 else None


def changed_at(job: Mapping[str, Any]) -> Optional[float]:
    """When something of a Job changed last, by the server's clock (epoch seconds); None where it does not say."""
    metadata = reading.part(job, "metadata")
    told = [reading.epoch(entry.get("time")) for entry in reading.items(metadata, "managedFields")]
    # resumed after a suspension, it begins anew
    told.append(reading.epoch(reading.part(job, "status").get("startTime")))
    return max((moment for moment in told if moment is not None), default=None)


def is_stalled(wanted: Optional[float], changed: Optional[float], now: float) -> bool:
    """Whether so many seconds are over. Nobody asked, or nobody knows since when: no."""
    return wanted is not None and changed is not None and now - changed >= wanted
