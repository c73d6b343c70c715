# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU that was reported is reset, once; where a person asked, all GPUs of the node."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, reported
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    done,
    failed,
    retry,
    trouble,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.gpu_clients import (
    DEADLINE,
    other_boot,
    report_of,
    reset_name,
    this_boot,
)

_BUSY_GRACE = 60.0  # seconds that processes may still have the GPU open; a look by a monitor is over in one
_NAMED = 5


class ResetGpu(Plain):
    """The node itself keeps that it began, and never begins twice under one name: a request is simply repeated.

    Nobody's process is ended for it. Processes that keep a GPU open make the step fail, by name, and the node is
    rebooted then, which ends them.
    Waits for: a short time, while the reset runs or the GPU is still open.
    Proof: what was reset, as nvidia-smi says.
    """

    name = plans.RESET_GPU

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        answers = Answers(works, tools)
        for work in works:
            if not reset_name(work):
                answers.give(failed(work, "what has the GPUs of %s open was not stopped before" % work.target.name))
        chosen, seconds = answers.guarded()
        told = ask_nodes(chosen, tools, _words, min(DEADLINE, seconds))
        for work in chosen:
            answers.give(_outcome(work, tools, told[work.incident]))
        return answers.all()


def _words(work: Work) -> list[str]:
    report = report_of(work)
    device = ["--device", reported.word(report.device)] if report is not None and reported.is_gpu(report) else []
    return ["gpu-reset", "--name", reset_name(work), *device, *this_boot(work)]


def _outcome(work: Work, tools: Tools, answer: NodeAnswer) -> Outcome:
    if answer.error is not None:
        return other_boot(work, tools, answer) or trouble(work, tools, answer.error)
    state, why = answer.data.get("state"), printable(str(answer.data.get("why") or ""))
    if state == "done":
        return done(work, why, proof={"devices": answer.data.get("devices")})
    if state == "running":
        return retry(work, tools, "the reset is under way")
    if state == "busy":
        users = answer.data.get("users") or ()
        named = ", ".join("%s (%s)" % (user.get("name"), user.get("pid")) for user in users[:_NAMED])
        why = "processes have GPUs of %s open: %s" % (work.target.name, printable(named))
        late = tools.now() - work.first_started_at >= _BUSY_GRACE
        return failed(work, why) if late else retry(work, tools, why)
    return failed(work, why or "the node does not say what became of the reset")
