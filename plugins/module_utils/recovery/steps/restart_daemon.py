# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmd or the kubelet, dead on a node that is alive, is started."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    ask_nodes,
    bounded,
    done,
    failed,
    identity_words,
    kubernetes_name,
    over,
    poll,
    recorded_boot_id,
    retry,
    slurm_name,
    slurm_nodes,
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
        try:
            nodes = slurm_nodes(works, tools)
        except RecoveryError:
            nodes = {}
        return {
            work.incident: {
                "slurmd_start_time": nodes[work.incident].slurmd_start_time if work.incident in nodes else None
            }
            for work in works
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """Probe all, start what is dead, look at Slurm's registrations."""
        answers = Answers(works, tools)
        dead = _dead_units(answers, tools)
        for unit in (SLURMD, KUBELET):
            _start(unit, dead, answers, tools)
        _await_registrations(dead, answers, tools)
        return answers.all()


def _dead_units(answers: Answers, tools: Tools) -> dict[int, list[str]]:
    """By incident the units that must be started; works whose node cannot be asked get their outcome."""
    dead: dict[int, list[str]] = {}
    works = {work.incident: work for work in answers.open}
    probes = ask_nodes(answers.open, tools, lambda work: ["probe", *_same_boot(work)])
    for incident, probe in probes.items():
        work = works[incident]
        if probe.error is not None:
            answers.give(trouble(work, tools, probe.error))
            continue
        units = probe.data.get("units") or {}
        wanted = [SLURMD] * bool(slurm_name(work, tools)) + [KUBELET] * bool(kubernetes_name(work, tools))
        unknown = [unit for unit in wanted if not isinstance(units.get(unit), Mapping)]
        if unknown:
            answers.give(retry(work, tools, "systemd of %s does not tell about %s" % (work.target.name, unknown[0])))
        dead[incident] = [unit for unit in wanted if unit not in unknown and units[unit].get("active") != "active"]
    return dead


def _start(unit: str, dead: Mapping[int, list[str]], answers: Answers, tools: Tools) -> None:
    works, seconds = answers.guarded()
    chosen = {work.incident: work for work in works if unit in dead[work.incident]}
    started = ask_nodes(
        list(chosen.values()),
        tools,
        lambda work: ["restart", unit, *_same_boot(work)],
        min(_START_DEADLINE, bounded(seconds)),
    )
    for incident, answer in started.items():
        if answer.error is not None:
            answers.give(trouble(chosen[incident], tools, answer.error))


def _await_registrations(dead: Mapping[int, list[str]], answers: Answers, tools: Tools) -> None:
    awaited = [work for work in answers.open if SLURMD in dead[work.incident] or _was_started(work)]
    awaited = [work for work in awaited if slurm_name(work, tools)]
    for work in answers.open:
        if work not in awaited:
            answers.give(done(work, proof={"started": dead[work.incident]}))
    try:
        poll(lambda: _registered(awaited, dead, answers, tools))
    except RecoveryError as exc:
        answers.give_error(answers.open, exc)
    for work in answers.open:
        if over(work, tools):
            answers.give(failed(work, "slurmd of %s runs and does not register" % work.target.name))
            continue
        args = {"node": slurm_name(work, tools), "slurmd_start_time": work.intent.get("slurmd_start_time")}
        why = "slurmd was started, its registration is awaited"
        answers.give(waiting(work, why, waits.NODE_REGISTERED, args, remember={"started_units": [SLURMD]}))


def _registered(awaited: Sequence[Work], dead: Mapping[int, list[str]], answers: Answers, tools: Tools) -> bool:
    nodes = slurm_nodes([work for work in awaited if work in answers.open], tools)
    for work in [work for work in awaited if work.incident in nodes]:
        node = nodes[work.incident]
        before, after = work.intent.get("slurmd_start_time"), node.slurmd_start_time
        if node.registered and after is not None and (before is None or after > before):
            proof = {"started": dead[work.incident], "slurmd_start_time": after, "state": node.state}
            answers.give(done(work, proof=proof))
    return not answers.open


def _was_started(work: Work) -> bool:
    """An earlier pass of this step started slurmd; if it was killed before it said so, `confirm` still looks."""
    return SLURMD in (work.memory.get("started_units") or ())


def _same_boot(work: Work) -> list[str]:
    """Another boot than the one on record is another trouble: the helper then does nothing."""
    boot_id = recorded_boot_id(work)
    return identity_words(work) + (["--if-boot-id", boot_id] if boot_id else [])
