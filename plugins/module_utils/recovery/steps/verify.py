# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the node fit? What Slurm promises its users is there, the site's own health command says so, and a step runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, reported, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    FAILED,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    bounded,
    done,
    failed,
    identity_words,
    over,
    retry,
    slurm_name,
    slurm_nodes,
    trouble,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.gpu_clients import report_of
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.save_evidence import collect
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

_GPU_DEADLINE = 20.0
_TEST_STEP_MORE = 8.0  # seconds beyond the task's, for srun and SSH
_GPU_GRACE = 60.0  # seconds that a GPU may take to answer after its reset, or its driver after a boot


class Verify(Plain):
    """Waits for: `node_registered`, should slurmd be gone again.

    Failed when slurmd registered with less than configured, with other numbers than before the repair, when the
    health command says no, when the test step does not run, or when the GPU for which the node was repaired is not fit
    after a short time; evidence of the node is saved then, for the person who gets it. A kubelet that is slow is not
    asked for here but before `uncordon`.
    Proof: Slurm's state and numbers, the exit codes of the health command and of the test step, and the GPUs' state.
    """

    name = plans.VERIFY

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all, health commands on all at once."""
        answers = Answers(works, tools)
        try:
            nodes = slurm_nodes(works, tools)
        except RecoveryError as exc:
            answers.give_error(works, exc)
            return answers.all()
        for work in works:
            outcome = _judge(work, tools, nodes.get(work.incident)) if slurm_name(work, tools) else None
            if outcome is not None:
                answers.give(outcome)
        health = _health(answers, tools)
        gpus = _gpus(answers, tools)
        stepped = _test_steps(answers, tools)
        for work in answers.open:
            node = nodes.get(work.incident)
            shown = {"state": node.state, "cpus": node.cpus, "memory_mb": node.memory_mb} if node is not None else {}
            shown = {**shown, **({"gpus": gpus[work.incident]} if work.incident in gpus else {})}
            shown = {**shown, **({"test_step": stepped[work.incident]} if work.incident in stepped else {})}
            answers.give(done(work, proof={**shown, "health": health.get(work.incident, "no command")}))
        return _with_evidence(works, answers.all(), tools)


def _with_evidence(works: Sequence[Work], outcomes: Sequence[Outcome], tools: Tools) -> list[Outcome]:
    """The outcomes, those that failed with what a person wants to see of the node."""
    failing = {outcome.incident for outcome in outcomes if outcome.status == FAILED}
    answers = Answers([work for work in works if work.incident in failing], tools)
    allowed, seconds = answers.guarded()
    kept = {each.incident: each.remember for each in collect(allowed, tools, seconds)} if allowed else {}
    return [replace(each, remember={**each.remember, **kept.get(each.incident, {})}) for each in outcomes]


def _judge(work: Work, tools: Tools, node: Optional[Node]) -> Optional[Outcome]:
    """What is wrong by Slurm, or None."""
    if node is None:
        return failed(work, "Slurm knows no node %s" % slurm_name(work, tools))
    if node.misconfigured or reasons.CONFIGURATION in reasons.classify_reason(node.reason):
        why = reasons.clean_text(node.reason or "")
        return failed(work, "%s registers with less than configured (%s)" % (node.name, why))
    if not node.registered:
        why = "%s is %s, its registration is awaited" % (node.name, node.state)
        return (
            failed(work, why) if over(work, tools) else waiting(work, why, waits.NODE_REGISTERED, {"node": node.name})
        )
    before = work.memory.get("slurm_before") or {}
    for key in ("cpus", "memory_mb"):
        now = getattr(node, key)
        if before.get(key) is not None and now is not None and now < before[key]:
            return failed(work, "%s has %s %s, it had %s" % (node.name, key, now, before[key]))
    return None


def _health(answers: Answers, tools: Tools) -> dict[int, int]:
    """Run the health command on the nodes of all open works; by incident its exit code, where it is 0."""
    if not tools.settings.nodes.health_command:
        return {}
    works, seconds = answers.guarded()
    told = ask_nodes(
        works,
        tools,
        lambda work: ["health", *identity_words(work)],
        min(tools.settings.limits.health_timeout, bounded(seconds)),
    )
    codes = {}
    for work in works:
        answer = told[work.incident]
        if answer.error is not None:
            answers.give(trouble(work, tools, answer.error))
        elif answer.data.get("fit") is not True:
            said = printable(str(answer.data.get("output", "")).strip().replace("\n", "; "))
            answers.give(failed(work, "the health command of %s says no: %s" % (work.target.name, said)))
        else:
            codes[work.incident] = answer.data.get("rc", 0)
    return codes


def _test_steps(answers: Answers, tools: Tools) -> dict[int, int]:
    """Have Slurm run a step on the nodes of all open works that are Slurm's; by incident its exit code, where it ran.

    Last: a node that looks fit so far may still start no step. All plans drain the node before they come here.
    """
    if not tools.settings.nodes.test_step:
        return {}
    works, seconds = answers.guarded()
    told = ask_nodes(
        works,
        tools,
        lambda work: ["test-step", *identity_words(work)] if slurm_name(work, tools) else None,
        min(tools.settings.limits.test_step_timeout + _TEST_STEP_MORE, bounded(seconds)),
    )
    codes = {}
    for work in works:
        answer = told.get(work.incident)
        if answer is None:
            continue
        if answer.error is not None:
            answers.give(trouble(work, tools, answer.error))
        elif answer.data.get("passed") is not True:
            said = printable(str(answer.data.get("output", "")).strip().replace("\n", "; "))
            answers.give(failed(work, "the test step on %s did not run well: %s" % (work.target.name, said)))
        else:
            codes[work.incident] = answer.data.get("rc", 0)
    return codes


def _gpus(answers: Answers, tools: Tools) -> dict[int, dict[str, str]]:
    """Look at the GPUs that were repaired; by incident the state of each by its address, where nothing is wrong.

    A node without nvidia-smi tells nothing of them, and did not before.
    """
    works, seconds = answers.guarded()
    wanted = {work.incident: words for work in works for words in [_gpu_words(work)] if words}
    asked = [work for work in works if work.incident in wanted]
    told = ask_nodes(asked, tools, lambda work: wanted[work.incident], min(_GPU_DEADLINE, bounded(seconds)))
    states = {}
    for work in asked:
        answer = told[work.incident]
        if answer.error is not None:
            answers.give(trouble(work, tools, answer.error))
            continue
        found = reported.gpus_of(answer.data)
        wrong = _unfit(answer.data, found)
        if wrong:
            why = "GPUs of %s are not fit: %s" % (work.target.name, printable(wrong))
            late = tools.now() - work.first_started_at >= _GPU_GRACE
            answers.give(failed(work, why) if late else retry(work, tools, why))
        else:
            states[work.incident] = {device: gpu.state for device, gpu in found.items()}
    return states


def _gpu_words(work: Work) -> list[str]:
    """What is asked of the node; nothing where it was not repaired for a GPU."""
    report = report_of(work)
    if report is not None and reported.is_gpu(report):
        return ["gpu-look", "--device", reported.word(report.device), *identity_words(work)]
    return ["gpu-look", *identity_words(work)] if work.plan == "reset_gpu" else []


def _unfit(data: Mapping[str, Any], found: Mapping[str, reported.GpuLook]) -> str:
    if data.get("state") == reported.ABSENT:
        return ""
    if not found:
        return str(data.get("trouble") or "nothing is known of them")
    wrong = {name: reported.why_unfit(gpu) for name, gpu in found.items()}
    return "; ".join("%s: %s" % (name, why) for name, why in wrong.items() if why)
