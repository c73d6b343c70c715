# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain nodes, set them down and give them back, against nobody's wish (module `slurm_node`).

Slurm has no compare-and-swap. So everything is read right before a write and again right after it, a reason that is
not ours is never overwritten, and only a node that bears our reason is given back. slurmdbd keeps every drain, also
one that a resume wiped out a moment later: a person's drain that slipped in is found there and put back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist, reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import DEFAULT_TIMEOUT, SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node, NodeEvent
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.outcome import (
    DONE,
    FAILED,
    REFUSED,
    WAITING,
    Outcome,
    result_of,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "state": {"type": "str", "required": True, "choices": ["drained", "down", "resumed"]},
        "reason": {"type": "str"},
        "ours": {"type": "str"},
        "ours_by_name": {"type": "dict"},
        "booted_after": {"type": "int"},
        "tolerate": {"type": "bool", "default": False},
        "bin_dir": {"type": "path"},
        "timeout": {"type": "int", "default": int(DEFAULT_TIMEOUT)},
    },
    "required_if": [
        ("state", "drained", ("reason",)),
        ("state", "down", ("reason",)),
        ("state", "resumed", ("ours", "ours_by_name"), True),
    ],
    "supports_check_mode": True,
}

# Slurm's word for each state.
_WORDS = {"drained": "DRAIN", "down": "DOWN", "resumed": "RESUME"}
# BootTime moves by seconds within one boot, and clocks differ.
_BOOT_SLACK = 60
# slurmdbd need not be there, and a resume does not wait long for it.
_EVENTS_TIMEOUT = 3.0
# Slurm's accounting counts whole seconds.
_EVENTS_SLACK = 1


@dataclasses.dataclass(frozen=True)
class Request:
    """What is wanted of every node.

    Args:
        state: drained, down or resumed.
        reason: the text to set, cleaned; None for resumed.
        ours: by node, the text that we recorded for it.
        booted_after: epoch seconds; only a later boot counts as registration.
    """

    state: str
    reason: str | None = None
    ours: Mapping[str, str] = dataclasses.field(default_factory=dict)
    booted_after: int | None = None

    def owner(self, node: Node) -> str:
        """Who wrote the node's present reason; the text to be set counts as ours too."""
        if reasons.is_ours(node.reason, self.reason):
            return reasons.OURS
        return reasons.reason_owner(node.reason, self.ours.get(node.name))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether to write, and if not, what stands instead."""

    write: bool
    status: str = DONE
    why: str = ""


def judge(request: Request, node: Node | None) -> Verdict:
    """Decide about one node from what was just read. Pure."""
    if node is None:
        return Verdict(False, FAILED, "absent")
    if not node.understood:
        return Verdict(False, REFUSED, "not_understood")
    if request.state == "resumed":
        return _judge_resume(request, node)
    return _judge_withdrawal(request, node)


def _judge_withdrawal(request: Request, node: Node) -> Verdict:
    """Drain or down."""
    owner = request.owner(node)
    if owner == reasons.OURS and reasons.is_ours(node.reason, request.reason) and _is_there(request.state, node):
        return _reached(request, node)
    if node.rebooting:
        return Verdict(False, REFUSED, "rebooting")
    if owner in (reasons.PERSON, reasons.TOOL):
        return Verdict(False, REFUSED, "owner_%s" % owner)
    if owner == reasons.NOBODY and node.draining_or_drained:
        return Verdict(False, REFUSED, "owner_unknown")
    return Verdict(True)


def _judge_resume(request: Request, node: Node) -> Verdict:
    owner = request.owner(node)
    if not node.out_of_service:
        return Verdict(False)
    if owner != reasons.OURS:
        return Verdict(False, REFUSED, "owner_%s" % ("unknown" if owner == reasons.NOBODY else owner))
    if node.misconfigured:
        return Verdict(False, REFUSED, "misconfigured")
    if node.rebooting:
        return Verdict(False, WAITING, "rebooting")
    if node.powering:
        return Verdict(False, WAITING, "powering")
    if not node.registered:
        return Verdict(False, WAITING, "not_registered")
    if request.booted_after is not None and (node.boot_time or 0) < request.booted_after - _BOOT_SLACK:
        return Verdict(False, WAITING, "not_booted")
    return Verdict(True)


def _is_there(state: str, node: Node) -> bool:
    return node.draining_or_drained if state == "drained" else node.down


def _reached(request: Request, node: Node) -> Verdict:
    """A drain has ended when nothing runs there any more."""
    if request.state == "drained" and not node.is_drained:
        return Verdict(False, WAITING, "draining")
    return Verdict(False)


def judge_after(request: Request, node: Node | None) -> Verdict:
    """Decide from what was read after a write whether it is what was wanted. Pure."""
    if node is None:
        return Verdict(False, FAILED, "absent")
    if request.state == "resumed":
        return _judge_after_resume(request, node)
    if request.owner(node) != reasons.OURS:
        return Verdict(False, REFUSED, "owner_%s" % request.owner(node))
    if not _is_there(request.state, node):
        return Verdict(False, FAILED, "not_applied")
    return _reached(request, node)


def _judge_after_resume(request: Request, node: Node) -> Verdict:
    """A node in service that still has a reason of somebody was drained at the same moment: `write` puts that back."""
    owner = request.owner(node)
    if owner in (reasons.PERSON, reasons.TOOL):
        return Verdict(not node.draining_or_drained, REFUSED, "owner_%s" % owner)
    if node.out_of_service:
        return Verdict(False, FAILED, "not_applied" if owner == reasons.OURS else "out_of_service_again")
    return Verdict(False)


def slipped_in(request: Request, events: Iterable[NodeEvent], since: int) -> dict[str, str]:
    """Return, by node, the reason of somebody else's drain that slurmdbd recorded since a time. Pure."""
    found = {}
    for event in events:
        node = Node(name=event.name, base_state="IDLE", reason=event.reason)
        if event.reason and (event.time or 0) >= since and request.owner(node) in (reasons.PERSON, reasons.TOOL):
            found[event.name] = event.reason
    return found


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Bring the nodes to the wanted state.

    Returns:
        `changed`, `diff` and `results`, one for every node: `name`, `status` (done, refused, waiting, failed), `why`,
        `changed`, `before`, `after`.

    Raises:
        RecoveryError: a node was refused or failed, unless `tolerate`; Slurm could not be read.
    """
    names = hostlist.expand_all(params["names"])
    if not names:
        raise BadInput("names is empty: no node is named")
    slurm = SlurmCli(params.get("bin_dir"), params.get("timeout") or DEFAULT_TIMEOUT)
    change = Change(slurm, _request(params, names), time.time)
    outcomes = change.foresee(names) if check_mode else change.make(names)
    what = "set nodes to %s" % params["state"]
    return result_of(outcomes, bool(params.get("tolerate")), what, change.error)


def _request(params: Mapping[str, Any], names: Sequence[str]) -> Request:
    ours = dict.fromkeys(names, params["ours"]) if params.get("ours") else {}
    ours.update({str(name): str(text) for name, text in (params.get("ours_by_name") or {}).items()})
    reason = None
    if params["state"] != "resumed":
        reason = reasons.clean_text(params.get("reason") or "")
        if not reason:
            raise BadInput("a reason is always given to %s a node" % _WORDS[params["state"]].lower())
    return Request(params["state"], reason, ours, params.get("booted_after"))


class Change:
    """One change of several nodes: read, judge, write by one call, read again.

    Args:
        clock: the time in epoch seconds.
        before_write: called with the nodes between the read that decides and the write; raises when that may not be.
    """

    def __init__(
        self,
        slurm: SlurmCli,
        request: Request,
        clock: Callable[[], float],
        before_write: Callable[[Sequence[str]], Any] = lambda _names: None,
    ) -> None:
        self._slurm = slurm
        self._request = request
        self._clock = clock
        self._before_write = before_write
        self.error: RecoveryError | None = None

    def foresee(self, names: Sequence[str]) -> list[Outcome]:
        """What `make` would do, without doing it."""
        before = self._read(names)
        outcomes = []
        for name in names:
            node, verdict = before.get(name), judge(self._request, before.get(name))
            if not verdict.write or node is None:
                outcomes.append(Outcome(name, verdict.status, verdict.why, _show(node)))
                continue
            after = _foreseen(self._request, node)
            verdict = judge_after(self._request, after)
            outcomes.append(Outcome(name, verdict.status, verdict.why, _show(node), _show(after), True))
        return outcomes

    def make(self, names: Sequence[str]) -> list[Outcome]:
        """Write where `judge` says so, and prove it."""
        started = int(self._clock())
        before = self._read(names)
        verdicts = {name: judge(self._request, before.get(name)) for name in names}
        written = [name for name in names if verdicts[name].write]
        proved = self._write(written, before, started) if written else {}
        return [
            proved[name] if name in proved
            else Outcome(name, verdicts[name].status, verdicts[name].why, _show(before.get(name)))
            for name in names
        ]

    def _read(self, names: Sequence[str]) -> dict[str, Node]:
        return {node.name: node for node in self._slurm.nodes(names, missing_ok=True)}

    def _write(self, names: Sequence[str], before: Mapping[str, Node], started: int) -> dict[str, Outcome]:
        self._before_write(names)
        try:
            self._slurm.update_node(names, _WORDS[self._request.state], self._request.reason)
        except RecoveryError as exc:
            self.error = exc
        after = self._read_after(names)
        put_back = self._put_back(names, after, started) if self._request.state == "resumed" else {}
        if put_back:
            after = self._read_after(names)
        return {name: self._outcome(name, before[name], after.get(name), put_back.get(name)) for name in names}

    def _read_after(self, names: Sequence[str]) -> dict[str, Node]:
        """What is there now; nothing if Slurm does not answer any more, which leaves the write's outcome unknown."""
        try:
            return self._read(names)
        except Unreachable as exc:
            self.error = self.error or exc
            return {}

    def _outcome(self, name: str, before: Node, after: Node | None, owner: str | None) -> Outcome:
        if after is None:
            return Outcome(name, FAILED, "unknown", _show(before), None, True)
        changed = _show(after) != _show(before)
        if owner is not None:
            return Outcome(name, REFUSED, "owner_%s" % owner, _show(before), _show(after), changed)
        verdict = judge_after(self._request, after)
        why = verdict.why
        status = verdict.status
        if self.error is not None and (status == FAILED or (status == REFUSED and not changed)):
            # a write that failed, or is still on its way: nobody else has touched the node
            status, why = FAILED, self.error.fields.get("cause") or why
        return Outcome(name, status, why, _show(before), _show(after), changed)

    def _put_back(self, names: Sequence[str], after: Mapping[str, Node], started: int) -> dict[str, str]:
        """Drain again, with their own reasons, nodes that somebody drained while we gave them back.

        Returns:
            by node, whose drain it was.
        """
        wishes = slipped_in(self._request, self._events(names, started), started - _EVENTS_SLACK)
        for name, node in after.items():
            if node.reason and judge_after(self._request, node).write:
                wishes[name] = node.reason
        wishes = {name: reason for name, reason in wishes.items() if name in after and not _bears(after[name], reason)}
        for name, reason in wishes.items():
            self._slurm.update_node([name], "DRAIN", reason)
        return {name: "tool" if reasons.tool_of(reason) else "person" for name, reason in wishes.items()}

    def _events(self, names: Sequence[str], since: int) -> list[NodeEvent]:
        """A cluster without slurmdbd has no events; giving back does not depend on them."""
        try:
            return self._slurm.within(_EVENTS_TIMEOUT).node_events(names, since - _EVENTS_SLACK)
        except RecoveryError:
            return []


def _bears(node: Node, reason: str) -> bool:
    return node.draining_or_drained and (node.reason or "").startswith(reason)


def _foreseen(request: Request, node: Node) -> Node:
    """The node as it should be after the write; base and other flags are Slurm's to change."""
    if request.state == "resumed":
        kept = tuple(flag for flag in node.flags if flag not in ("DRAIN", "FAIL"))
        base = "IDLE" if node.base_state in ("DOWN", "ERROR") else node.base_state
        return dataclasses.replace(
            node, base_state=base, flags=kept, reason=None, reason_user=None, reason_time=None
        )
    if request.state == "drained":
        flags = tuple(sorted({*node.flags, "DRAIN"}))
        return dataclasses.replace(node, flags=flags, reason=request.reason)
    return dataclasses.replace(node, base_state="DOWN", reason=request.reason)


def _show(node: Node | None) -> dict[str, Any] | None:
    """What of a node is kept in results and diffs."""
    if node is None:
        return None
    return {
        "base_state": node.base_state,
        "flags": list(node.flags),
        "reason": node.reason,
        "reason_user": node.reason_user,
        "reason_time": node.reason_time,
        "boot_time": node.boot_time,
        "slurmd_start_time": node.slurmd_start_time,
    }
