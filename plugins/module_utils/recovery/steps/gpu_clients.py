# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The services that have a node's GPUs open are stopped before a reset, and exactly those are started again after it.

What was running is written down on the node itself before anything is stopped, under a name that belongs to this step
of this incident alone; a boot forgets it, and starts what is to run by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Conflict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, reported
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.decide import REPORTED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    done,
    failed,
    identity_words,
    retry,
    trouble,
)

DEADLINE = 20.0  # of the SSH call; the helper goes on, and a next look sees what became of it
RESET_NAME = "gpu_reset"  # in the incident's memory
_RUNNING = "running"


class StopGpuClients(Plain):
    """Failed when a service does not stop; when the node has booted meanwhile, the proof says that the fault is gone.

    Remembers: `gpu_reset`, the name under which the node keeps what it stopped.
    Proof: the services and the GPUs in persistence mode that were stopped, and who still has a GPU open.
    """

    name = plans.STOP_GPU_CLIENTS

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        answers = Answers(works, tools)
        chosen, seconds = answers.guarded()
        names = {work.incident: "%d-%d" % (work.incident, work.first_started_at * 1000) for work in chosen}
        told = ask_nodes(
            chosen,
            tools,
            lambda work: ["gpu-stop", "--name", names[work.incident], *this_boot(work)],
            min(DEADLINE, seconds),
        )
        for work in chosen:
            outcome = _stopped(work, tools, told[work.incident])
            answers.give(replace(outcome, remember={**outcome.remember, RESET_NAME: names[work.incident]}))
        return answers.all()


class StartGpuClients(Plain):
    """Nothing is started on another boot than the one on which it was stopped.

    Failed when a service does not start. Proof: what was started.
    """

    name = plans.START_GPU_CLIENTS

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        answers = Answers(works, tools)
        for work in works:
            if not reset_name(work):
                answers.give(done(work, "nothing was stopped"))
        chosen, seconds = answers.guarded()
        told = ask_nodes(
            chosen,
            tools,
            lambda work: ["gpu-start", "--name", reset_name(work), *this_boot(work)],
            min(DEADLINE, seconds),
        )
        for work in chosen:
            answers.give(_started(work, tools, told[work.incident]))
        return answers.all()


def reset_name(work: Work) -> str:
    """The name under which the node keeps what was stopped; empty where nothing was."""
    return str(work.memory.get(RESET_NAME) or "")


def report_of(work: Work) -> Optional[reported.Report]:
    """The report that the incident is about; None where a person asked."""
    remembered = work.memory.get(REPORTED)
    return reported.parse(remembered) if remembered else None


def this_boot(work: Work) -> list[str]:
    """The helper's options that make it do nothing on another boot than the one that is meant, nor on another node."""
    report = report_of(work)
    boot_id = report.boot_id if report is not None else ""
    return ["--if-boot-id", boot_id] if boot_id else identity_words(work)


def other_boot(work: Work, tools: Tools, answer: NodeAnswer) -> Optional[Outcome]:
    """Failed, with the proof that the fault is gone, where the helper refused as this very node has booted since."""
    if not isinstance(answer.error, Conflict) or this_boot(work) == identity_words(work):
        return None
    probe = ask_nodes([work], tools, lambda each: ["probe", *identity_words(each)])[work.incident]
    if probe.error is not None or this_boot(work)[-1] == probe.data.get("boot_id"):
        return None
    why = "%s has booted since it reported its GPU" % work.target.name
    return failed(work, why, {plans.FAULT_GONE: True, "boot_id": probe.data.get("boot_id")})


def _stopped(work: Work, tools: Tools, answer: NodeAnswer) -> Outcome:
    if answer.error is not None:
        return other_boot(work, tools, answer) or trouble(work, tools, answer.error)
    if answer.data.get("state") == _RUNNING:
        return retry(work, tools, "services of %s are still stopping" % work.target.name)
    return done(work, proof=_named(answer.data, "services", "persistence", "users"))


def _started(work: Work, tools: Tools, answer: NodeAnswer) -> Outcome:
    if isinstance(answer.error, Conflict) and other_boot(work, tools, answer) is not None:
        return done(work, "the node has booted since, and starts them by itself")
    if answer.error is not None:
        return trouble(work, tools, answer.error)
    if answer.data.get("state") == _RUNNING:
        return retry(work, tools, "services of %s are still starting" % work.target.name)
    return done(work, proof=_named(answer.data, "services", "persistence"))


def _named(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data.get(name) for name in names}
