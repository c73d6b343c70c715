# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ledger says of a case: one line per step, in seconds since Slurm or Kubernetes showed the fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .cluster import Cluster, wait

_LABELS = {
    "restart_daemon": "daemon restarted",
    "drain": "drained in Slurm",
    "cordon": "cordoned in Kubernetes",
    "await_drained": "nothing runs on it",
    "reboot": "reboot begun",
    "fence": "fenced: the BMC says Off",
    "down": "Slurm told: down, its jobs requeued",
    "release_pods": "pods released",
    "free_jobs": "jobs freed to run elsewhere",
    "power_on": "powered on",
    "await_boot": "new boot proved, registered",
    "await_job_end": "job is off its nodes",
    "diagnose": "its log is read",
    "end_orphans": "no process of the job is left",
    "clean_spool": "spool clean",
    "verify": "verified",
    "uncordon": "uncordoned",
    "resume": "returned to service",
    "requeue": "job requeued",
    "rerun": "Job created again",
    "release_successor": "successor released",
    "tell": "user told",
    "confirm": "proved well, closed",
}
#: Steps whose time is the machine's, or the job's, and not the recovery's.
_WAITING = ("await_boot", "await_drained", "await_job_end", "confirm")


class _Story(Protocol):
    incidents_of: list[str]


def show(cluster: Cluster, story: _Story, since: float) -> None:
    """Print the incidents and refusals of the story's machines and jobs, once they are settled."""

    def settled() -> dict[str, Any] | None:
        ledger = cluster.ledger(since)
        own = of(ledger["incidents"], story.incidents_of)
        return ledger if own and all(row["state"] not in ("open", "waiting") for row in own) else None

    ledger = wait(settled, 30, 1.0) or cluster.ledger(since)
    for incident in reversed(of(ledger["incidents"], story.incidents_of)):
        print("\n".join(lines(incident)), flush=True)
    for refusal in of(ledger["refusals"], story.incidents_of):
        print(f"  refused {refusal['target']}: gate {refusal['gate']}: {refusal['why']}", flush=True)


def of(rows: Iterable[dict[str, Any]], targets: Sequence[str]) -> list[dict[str, Any]]:
    """Those about one of the targets."""
    return [row for row in rows if row["target"] in targets or row.get("machine") in targets]


def lines(incident: dict[str, Any]) -> list[str]:
    """The timeline of one incident."""
    seen = incident["seen_at"]
    what = f"incident #{incident['id']} {incident['target']}: {incident['fault_kind']}"
    why = f": {incident['why']}" if incident["why"] else ""
    became = f"{incident['plan'] or 'no plan'}, {incident['state']}{why}"
    told = [
        f"  {what}, {became}",
        _line(0.0, "fault visible"),
        _line(incident["opened_at"] - seen, "claimed"),
    ]
    for step in incident["steps"]:
        label = _LABELS.get(step["step"], step["step"])
        ended = step["finished_at"]
        took = f" (took {ended - step['started_at']:.1f} s)" if ended and step["step"] in _WAITING else ""
        at = (ended or step["started_at"]) - seen
        told.append(_line(at, label + took if ended else f"{label}: {step['status']}"))
    own = own_seconds(incident)
    if own is not None:
        told.append(f"            first step after {first_step(incident):.1f} s; recovery's own steps took {own:.1f} s")
    return told


def first_step(incident: dict[str, Any]) -> float:
    """Seconds from the look that showed the fault to the first step."""
    return incident["steps"][0]["started_at"] - incident["seen_at"]


def own_seconds(incident: dict[str, Any]) -> float | None:
    """Seconds that the steps other than waiting took; None for an incident without steps."""
    if not incident["steps"]:
        return None
    own = [step for step in incident["steps"] if step["step"] not in _WAITING and step["finished_at"]]
    return sum(step["finished_at"] - step["started_at"] for step in own)


def _line(seconds: float, text: str) -> str:
    return f"  {seconds:+9.1f} s  {text}"
