# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Save what a reboot wipes out: the kernel's log and the processes that hang, as files on the controller."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import evidence, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    done,
    identity_words,
)

_DEADLINE = 10.0
EVIDENCE = "evidence"  # in the incident's memory: the folder


class SaveEvidence(Plain):
    """Never waits and never fails: a repair does not hang on it. What could not be saved is told.

    Proof: the folder, and how large each file is.
    Remembers: `evidence`, the folder.
    """

    name = plans.SAVE_EVIDENCE

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once."""
        answers = Answers(works, tools)
        allowed, seconds = answers.guarded()
        for outcome in collect(allowed, tools, seconds):
            answers.give(outcome)
        return answers.all()


def collect(works: Sequence[Work], tools: Tools, seconds: float) -> list[Outcome]:
    """Ask the helpers and write their answers, within so many seconds; every outcome is `done`."""
    kib = tools.settings.nodes.evidence_kib
    if not kib:
        return [done(work, "the site keeps no evidence") for work in works]
    told = ask_nodes(
        works,
        tools,
        lambda work: ["evidence", "--kib", str(kib), *identity_words(work)],
        min(_DEADLINE, seconds),
    )
    made = []
    for work in works:
        answer = told[work.incident]
        try:
            if answer.error is not None:
                raise answer.error
            files = evidence.unpack(answer.data)
            folder = evidence.save(tools.settings.state_dir, work.incident, work.target.name, files)
        except RecoveryError as exc:
            made.append(done(work, "no evidence was saved: %s" % exc))
            continue
        sizes = {name: len(content) for name, content in files.items()}
        made.append(done(work, remember={EVIDENCE: folder}, proof={"folder": folder, "bytes": sizes}))
    return made
