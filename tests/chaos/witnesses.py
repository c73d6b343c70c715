# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts from what a real cluster leaves behind: slurmctld's log (Slurm 24.11), and the journals that jobs write.

Pure: text in, facts out.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Iterable, Mapping, Optional, Sequence

from .facts import COMPLETED, FAILED, KILLED, Hold, Life, Requeue

#: Seconds between two beats of a run, and how late one may be.
BEAT = 1.0
_LATE = 1.5

_LINE = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (?:debug\d?: +)?(.*)")
_REASON = re.compile(r"update_node: node (\S+) reason set to: (.*)")
_STATE = re.compile(r"update_node: node (\S+) state set to (\S+)")
_REQUEUES = (  # what was asked for, and what Slurm did by itself
    (True, re.compile(r"_job_requeue_op: JobId=(\d+) ")),
    (False, re.compile(r"requeue job JobId=(\d+) due to failure of node ")),
)
_OUT = ("DRAIN", "DOWN")

#: A job that writes a journal of each of its runs into a folder, for so many seconds: `script(folder, seconds)`.
_SCRIPT = """journal=%(folder)s/$SLURM_JOB_ID.$(cat /proc/sys/kernel/random/uuid)
echo "$EPOCHREALTIME begin $(scontrol show hostnames | paste -sd,)" >> "$journal"
export journal
if srun --kill-on-bad-exit=1 bash -c '
    for beat in $(seq %(seconds)d); do echo "$EPOCHREALTIME beat $SLURMD_NODENAME" >> "$journal"; sleep 1; done'
then echo "$EPOCHREALTIME completed" >> "$journal"
else echo "$EPOCHREALTIME failed" >> "$journal"; exit 1
fi
"""


def script(folder: str, seconds: int) -> str:
    """A batch script whose runs live for so many seconds and write a journal each, `FOLDER/JOB.RUN`."""
    return _SCRIPT % {"folder": folder, "seconds": seconds}


def _lines(log: str, since: float) -> Iterable[tuple[float, str]]:
    for match in filter(None, map(_LINE.match, log.splitlines())):
        at = datetime.fromisoformat(match.group(1)).replace(tzinfo=timezone.utc).timestamp()
        if at >= since:
            yield at, match.group(2)


def requeues(log: str, since: float, forgotten: Sequence[tuple[float, float]] = ()) -> list[Requeue]:
    """Every restart that slurmctld made, by its own log.

    Args:
        forgotten: from when to when; what slurmctld did then was lost with it, before it wrote it down.
    """
    found = []
    for at, text in _lines(log, since):
        for asked, pattern in _REQUEUES:
            match = pattern.match(text)
            if match and not any(begin <= at <= end for begin, end in forgotten):
                found.append(Requeue(at, int(match.group(1)), asked))
    return found


def holds(log: str, since: float) -> list[Hold]:
    """Every time that somebody took a node out of service with a reason, by slurmctld's log."""
    found: list[Hold] = []
    reasons: dict[str, str] = {}
    held: dict[str, Hold] = {}
    for at, text in _lines(log, since):
        reason, state = _REASON.match(text), _STATE.match(text)
        if reason:
            reasons[reason.group(1)] = reason.group(2)
        elif state:
            node = state.group(1)
            out = state.group(2).startswith(_OUT)
            before = held.get(node)
            if before and not (out and before.reason == reasons.get(node, "")):
                found.append(Hold(before.at, node, before.reason, at))
                del held[node]
            if out and node not in held:
                held[node] = Hold(at, node, reasons.get(node, ""))
    return sorted([*found, *held.values()], key=lambda hold: hold.at)


def lives(journals: Mapping[str, str], now: float, restarts: Sequence[Requeue] = ()) -> list[Life]:
    """The runs of jobs, by the journals that they wrote (by file name, `JOB.RUN`).

    A run without an end was killed, or it lives if its last beat is fresh. When it was killed is known to a beat: not
    before the last one, and not after the job was restarted.
    """
    found = []
    for name, text in journals.items():
        job = int(name.split(".")[0])
        rows = [line.split() for line in text.splitlines()]
        times = [float(row[0]) for row in rows]
        told = {row[1]: (float(row[0]), row[2:]) for row in rows}
        if "begin" not in told:
            continue
        at, nodes = told["begin"]
        last, end = max(times), ""
        until: Optional[float] = None
        if "completed" in told:
            until, end = told["completed"][0], COMPLETED
        elif "failed" in told:
            until, end = told["failed"][0], FAILED
        elif last + BEAT + _LATE < now:
            after = [restart.at for restart in restarts if restart.job == job and restart.at > last]
            until, end = min([last + BEAT + _LATE, *after]), KILLED
        if until is not None and last > until:  # processes that outlived the script
            until = last
        found.append(Life(job, tuple(nodes[0].split(",")), at, until, end))
    return sorted(found, key=lambda life: life.at)
