# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault event: the only thing that travels from an event source to a remediation.

ansible-rulebook hands a whole event to the playbook as extra variables, and Ansible trusts extra variables as
templates. So an event carries validated identifiers only: never a job's name, a comment, a reason or a log line.
`build_event` refuses to make any other event, `parse_event` refuses to read one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import (
    JOB,
    KINDS,
    NODE,
    REMEDIATIONS,
)

SLURM = "slurm"
KUBERNETES = "kubernetes"

_NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_SLURM_JOB = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9}|\+[0-9]{1,9})?\Z")
_KUBERNETES_JOB = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}\Z")
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62})\Z")
_MAX_TARGETS = 20000


@dataclass(frozen=True)
class Target:
    """What a fault is about.

    Attributes:
        kind: `node` or `job`.
        name: a node's name in its scheduler; a Slurm job id (`123`, `123_4`, `123+1`); `namespace/name` of a Job.
        uid: the Kubernetes uid of a Job; for a Slurm job its submission as epoch seconds where known (ids are used
            again after a wrap-around), else the empty text.
    """

    kind: str
    name: str
    uid: str = ""

    def as_event(self) -> dict[str, str]:
        """As it stands in an event: `{"node": name}` or `{"job": id, "uid": uid}`."""
        if self.kind == NODE:
            return {NODE: self.name}
        return {JOB: self.name, "uid": self.uid}


@dataclass(frozen=True)
class Fault:
    """One observation that something is wrong with each of `targets`. It decides nothing.

    Attributes:
        kind: a name of `catalogue.KINDS`.
        scheduler: `slurm` or `kubernetes`.
        cluster: the cluster's name.
        source: the event source, or `person`.
        targets: at least one, no two alike.
        seen_at: epoch seconds of the look that produced it.
        suggested: a name of `catalogue.REMEDIATIONS`.
        evidence_ref: a row of the ledger's evidence, 0 for none.
    """

    kind: str
    scheduler: str
    cluster: str
    source: str
    targets: tuple[Target, ...]
    seen_at: float
    suggested: str
    evidence_ref: int = 0


def build_event(
    kind: str,
    scheduler: str,
    cluster: str,
    source: str,
    targets: Sequence[Target],
    seen_at: float,
    suggested: Optional[str] = None,
    evidence_ref: int = 0,
) -> dict[str, Any]:
    """Make the event of a fault, `{"fault": {...}}`; the suggestion defaults to the catalogue's.

    Raises:
        BadInput: a name that is no valid identifier, an unknown kind, no targets.
    """
    catalogued = KINDS.get(kind)
    event = {
        "fault": {
            "kind": kind,
            "scheduler": scheduler,
            "cluster": cluster,
            "source": source,
            "targets": [target.as_event() for target in targets],
            "seen_at": datetime.fromtimestamp(seen_at, tz=timezone.utc).isoformat(timespec="milliseconds"),
            "suggested": suggested or (catalogued.remediation if catalogued else ""),
            "evidence_ref": evidence_ref,
        }
    }
    parse_event(event)
    return event


def parse_event(event: Mapping[str, Any]) -> Fault:
    """Read the event of a fault, strictly.

    Raises:
        BadInput: naming the field and, by `repr`, its value.
    """
    fault = event.get("fault")
    if not isinstance(fault, Mapping):
        raise BadInput("fault event: no mapping under `fault`")
    targets = fault.get("targets")
    if not isinstance(targets, (list, tuple)) or not 0 < len(targets) <= _MAX_TARGETS:
        raise BadInput("fault event: targets must be a list of 1 to %d" % _MAX_TARGETS)
    scheduler = _choice("scheduler", fault.get("scheduler"), (SLURM, KUBERNETES))
    kind = _choice("kind", fault.get("kind"), KINDS)
    parsed = tuple(_target(target, scheduler) for target in targets)
    if len(set(parsed)) != len(parsed):
        raise BadInput("fault event: a target is named twice")
    evidence = fault.get("evidence_ref", 0)
    if isinstance(evidence, bool) or not isinstance(evidence, int) or evidence < 0:
        raise BadInput("fault event: evidence_ref is %r, not a row number" % (evidence,))
    return Fault(
        kind=kind,
        scheduler=scheduler,
        cluster=_word("cluster", fault.get("cluster")),
        source=_word("source", fault.get("source")),
        targets=parsed,
        seen_at=_epoch(fault.get("seen_at")),
        suggested=_choice("suggested", fault.get("suggested"), REMEDIATIONS),
        evidence_ref=evidence,
    )


def valid_node_name(name: object) -> bool:
    """Whether `name` can be a node's name and nothing else (no blank, bracket, quote, brace or control character)."""
    return isinstance(name, str) and _NODE_NAME.match(name) is not None


def valid_job_name(name: object, scheduler: str) -> bool:
    """Whether `name` is a job's identifier in `scheduler`."""
    pattern = _SLURM_JOB if scheduler == SLURM else _KUBERNETES_JOB
    return isinstance(name, str) and pattern.match(name) is not None


def _target(target: object, scheduler: str) -> Target:
    if isinstance(target, Mapping) and set(target) == {NODE} and valid_node_name(target[NODE]):
        return Target(NODE, target[NODE])
    if isinstance(target, Mapping) and set(target) <= {JOB, "uid"} and valid_job_name(target.get(JOB), scheduler):
        uid = target.get("uid", "")
        if uid == "" or (isinstance(uid, str) and _UID.match(uid)):
            return Target(JOB, target[JOB], uid)
    raise BadInput("fault event: %r is no target of %s" % (target, scheduler))


def _choice(field: str, value: object, choices: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise BadInput("fault event: %s is %r, not one of %s" % (field, value, ", ".join(choices)))
    return value


def _word(field: str, value: object) -> str:
    if not isinstance(value, str) or not _WORD.match(value):
        raise BadInput("fault event: %s is %r, not a plain name" % (field, value))
    return value


def _epoch(value: object) -> float:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return moment.timestamp()
    raise BadInput("fault event: seen_at is %r, not an RFC 3339 time with its zone" % (value,))
