# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of Slurm's node states for all works of a step, by one call."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    done,
    failed,
    over,
    retry,
    slurm_name,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import node_state, outcome

# `why` of slurm.node_state in words, with what helps
_WORDS = {
    "absent": "Slurm knows no such node",
    "not_understood": "its state in Slurm has parts that are not known here",
    "rebooting": "Slurm reboots it",
    "owner_person": "its reason is a person's",
    "owner_tool": "its reason is another tool's",
    "owner_slurm": "Slurm has drained or downed it anew",
    "owner_unknown": "it is drained without a reason, by somebody",
    "misconfigured": "it registers with less than slurm.conf promises",
    "powering": "Slurm's power saving has it",
    "not_registered": "its slurmd has not registered",
    "not_booted": "its slurmd has not registered since the boot",
    "out_of_service_again": "Slurm took it out of service again at once",
    "not_applied": "Slurm took the change and does not show it",
    "unknown": "Slurm did not answer after the change",
}
# a change that may yet have happened, or that Slurm may take when it is asked again; a slurmctld that was just started
# says UNKNOWN of a node until the node answers or is given up
_RETRY = ("unknown", "not_applied", "unreachable", "timeout", "not_understood")


def set_state(
    state: str, answers: Answers, tools: Tools, remember: Callable[[Work], Mapping[str, Any]] = lambda _work: {}
) -> None:
    """Bring the nodes of all open works to `state` (drained, down, resumed) under each work's reason.

    Nodes that are not in Slurm are done. Each reason is one call: incidents have reasons of their own.
    """
    for work in answers.open:
        if not slurm_name(work, tools):
            answers.give(done(work, "the node is not in Slurm"))
    by_reason: dict[str, list[Work]] = {}
    works, _seconds = answers.guarded()
    for work in works:
        by_reason.setdefault("" if state == "resumed" else work.reason, []).append(work)
    for reason, group in by_reason.items():
        try:
            _set_group(state, reason, group, answers, tools, remember)
        except RecoveryError as exc:
            answers.give_error(group, exc)


def _set_group(
    state: str,
    reason: str,
    works: list[Work],
    answers: Answers,
    tools: Tools,
    remember: Callable[[Work], Mapping[str, Any]],
) -> None:
    names = {slurm_name(work, tools): work for work in works}
    ours = {name: _may_be_replaced(state, work) for name, work in names.items()}
    request = node_state.Request(state, reason or None, ours)

    def guard(written: Sequence[str]) -> None:
        for name in written:  # again: between the read that decides and the write nobody may have slept
            tools.guard(names[name])

    for result in node_state.Change(tools.slurm, request, tools.now, guard).make(list(names)):
        answers.give(_outcome(state, names[result.name], result, tools, remember))


def _may_be_replaced(state: str, work: Work) -> str:
    """The text that counts as ours: our own, or that of somebody whom a person's request overrode, word for word."""
    before = work.intent.get("slurm_before") or {}
    if state == "drained" and "owner" in work.overridden and before.get("reason"):
        return str(before["reason"])
    return work.reason


def _outcome(
    state: str,
    work: Work,
    result: outcome.Outcome,
    tools: Tools,
    remember: Callable[[Work], Mapping[str, Any]],
) -> Outcome:
    draining = state == "drained" and result.status == outcome.WAITING
    if result.status == outcome.DONE or draining:
        return done(work, remember=remember(work), proof={"before": result.before, "after": result.after})
    why = "node %s is not %s: %s" % (result.name, state, _WORDS.get(result.why, result.why or "Slurm refuses"))
    if result.status == outcome.WAITING:
        if over(work, tools):
            return failed(work, why)
        return waiting(work, why, waits.NODE_REGISTERED, {"node": result.name})
    if result.why in _RETRY:
        return retry(work, tools, why)
    return failed(work, why, {"before": result.before, "after": result.after})
