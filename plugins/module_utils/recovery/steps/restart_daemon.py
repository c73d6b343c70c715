# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmd or the kubelet, dead on a node that is alive, is started."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    ask_nodes,
    done,
    failed,
    identity_words,
    kubernetes_name,
    over,
    poll,
    recorded_boot_id,
    slurm_name,
    slurm_nodes,
    slurmd_starts,
    trouble,
    waiting,
)

SLURMD = "slurmd.service"
KUBELET = "kubelet.service"
_START_DEADLINE = 20.0  # of the SSH call; the helper gives systemd longer, and a next look sees what became of it


class RestartDaemon:
    """Only units of schedulers that the machine belongs to, only such as are not active, and never another boot.

    Waits for: `node_registered` with a later start of slurmd, where slurmd was started.
    Proof: systemd says active, and for slurmd Slurm's registration with a later start.
    """

    name = plans.RESTART_DAEMON

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """When slurmd was started last, as Slurm knows it."""
        return {incident: {"slurmd_start_time": start} for incident, start in slurmd_starts(works, tools).items()}

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of each node, which looks for itself before it starts anything; then Slurm's registrations."""
        answers = Answers(works, tools)
        started: dict[int, list[str]] = {}
        chosen, seconds = answers.guarded()
        told = ask_nodes(chosen, tools, lambda work: _words(work, tools), min(_START_DEADLINE, seconds))
        for work in chosen:
            answer = told.get(work.incident)
            if answer is None:
                answers.give(done(work, "the node has no daemon of a scheduler here"))
            elif answer.error is not None:
                answers.give(trouble(work, tools, answer.error))
            else:
                started[work.incident] = [str(unit) for unit in answer.data.get("changed") or ()]
        _await_registrations(started, answers, tools)
        return answers.all()


def _words(work: Work, tools: Tools) -> Optional[list[str]]:
    """On another boot than the one on record it is another trouble: the helper then does nothing."""
    units = [SLURMD] * bool(slurm_name(work, tools)) + [KUBELET] * bool(kubernetes_name(work, tools))
    boot_id = recorded_boot_id(work)
    same_boot = ["--if-boot-id", boot_id] if boot_id else []
    return ["restart", *units, *identity_words(work), *same_boot] if units else None


def _await_registrations(started: Mapping[int, list[str]], answers: Answers, tools: Tools) -> None:
    awaited = [work for work in answers.open if SLURMD in started[work.incident] or _was_started(work)]
    awaited = [work for work in awaited if slurm_name(work, tools)]
    for work in answers.open:
        if work not in awaited:
            answers.give(done(work, proof={"started": started[work.incident]}))
    try:
        poll(lambda: _registered(awaited, started, answers, tools))
    except RecoveryError as exc:
        answers.give_error(answers.open, exc)
    for work in answers.open:
        if over(work, tools):
            answers.give(failed(work, "slurmd of %s runs and does not register" % work.target.name))
            continue
        args = {"node": slurm_name(work, tools), "slurmd_start_time": work.intent.get("slurmd_start_time")}
        why = "slurmd was started, its registration is awaited"
        answers.give(waiting(work, why, waits.NODE_REGISTERED, args, remember={"started_units": [SLURMD]}))


def _registered(awaited: Sequence[Work], started: Mapping[int, list[str]], answers: Answers, tools: Tools) -> bool:
    nodes = slurm_nodes([work for work in awaited if work in answers.open], tools)
    for work in [work for work in awaited if work.incident in nodes]:
        node = nodes[work.incident]
        before, after = work.intent.get("slurmd_start_time"), node.slurmd_start_time
        if node.registered and after is not None and (before is None or after > before):
            proof = {"started": started[work.incident], "slurmd_start_time": after, "state": node.state}
            answers.give(done(work, proof=proof))
    return not answers.open


def _was_started(work: Work) -> bool:
    """An earlier pass of this step started slurmd; if it was killed before it said so, `confirm` still looks."""
    return SLURMD in (work.memory.get("started_units") or ())
