# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboot a node that is alive, once: over SSH, where the node itself compares its boot with the one that is meant, or
by Slurm where the site wants that."""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, valid_boot_id
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import SLURM
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import slurm_reboot
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    ask_nodes,
    boot_to_end,
    done,
    failed,
    identity_words,
    retry,
    slurm_name,
    slurmd_starts,
    trouble,
)

_ORDER_DEADLINE = 15.0


class Reboot:
    """Done when the reboot has begun, or when the node has another boot than the one that was to end.

    A request whose answer is lost is repeated with the same boot ID, and a node that took the first one refuses it.
    Proof: the node's own word, with its boot ID.
    """

    name = plans.REBOOT

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """The boot to be ended (the one on record, else the one that the node tells now), and its last registration."""
        unknown = [work for work in works if not boot_to_end(work)]
        told = ask_nodes(unknown, tools, lambda work: ["probe", *identity_words(work)])
        boots = {work.incident: boot_to_end(work) for work in works}
        boots.update({incident: answer.data.get("boot_id") for incident, answer in told.items()})
        starts = slurmd_starts(works, tools)
        return {
            incident: {"boot_id": boot_id, "slurmd_start_time": starts[incident]} if valid_boot_id(boot_id) else {}
            for incident, boot_id in boots.items()
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once; each compares for itself."""
        answers = Answers(works, tools)
        for work in works:
            if not valid_boot_id(work.intent.get("boot_id")):
                answers.give(failed(work, "the boot ID of %s is not known, so no reboot is proved" % work.target.name))
        chosen, seconds = answers.guarded()
        slurms = [work for work in chosen if tools.settings.nodes.reboot_by == SLURM and slurm_name(work, tools)]
        helpers = [work for work in chosen if work not in slurms]
        try:
            helpers += slurm_reboot.order(slurms, answers, tools, _remembered)
        except RecoveryError as exc:
            answers.give_error([work for work in slurms if work in answers.open], exc)
        _by_helper(helpers, answers, tools, min(_ORDER_DEADLINE, seconds))
        return answers.all()


def _by_helper(works: Sequence[Work], answers: Answers, tools: Tools, seconds: float) -> None:
    told = ask_nodes(
        works, tools, lambda work: ["reboot", "--if-boot-id", work.intent["boot_id"], *identity_words(work)], seconds
    )
    for work in works:
        answers.give(_outcome(work, tools, told[work.incident]))


def _remembered(work: Work, tools: Tools) -> dict[str, Any]:
    return {
        "boot_id": work.intent["boot_id"],
        "slurmd_start_before": work.intent.get("slurmd_start_time"),
        "reboot_at": tools.now(),
        "new_boot_id": "",
    }


def _outcome(work: Work, tools: Tools, answer: NodeAnswer) -> Outcome:
    wanted, remember = work.intent["boot_id"], _remembered(work, tools)
    if answer.error is not None:
        return trouble(work, tools, answer.error)
    told = answer.data.get("boot_id")
    proof = {"boot_id": told, "rebooting": answer.data.get("rebooting")}
    if answer.data.get("rebooting") is True:
        return done(work, remember=remember, proof=proof)
    if valid_boot_id(told) and told != wanted:
        return done(work, "it has another boot already", remember, proof)
    return retry(work, tools, "%s does not say whether it reboots" % work.target.name)
