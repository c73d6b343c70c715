# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`scontrol reboot`, where a site wants Slurm to reboot its nodes, and what must be minded of it.

It says yes for a dead node, where nothing happens: the node must answer, and be of the boot that is meant. With ASAP or
nextstate=RESUME it gives a drained node back before anybody has looked: neither is used, and the node must be drained
under our reason. It waits until nothing is left of any job on the node: one whose jobs are to be cut off, or do not end
(COMPLETING), is not for Slurm, whose order would outlive the boot that came another way. Its cancel erases the drain:
nothing is ever cancelled; a boot that does not come has the next way after it.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, valid_boot_id
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    ask_nodes,
    done,
    failed,
    identity_words,
    retry,
    slurm_name,
    slurm_nodes,
    trouble,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

Remembered = Callable[[Work, Tools], Mapping[str, Any]]


def order(works: Sequence[Work], answers: Answers, tools: Tools, remembered: Remembered) -> list[Work]:
    """Have Slurm reboot these nodes, by one call; those are returned that are not for Slurm, as jobs are on them.

    An order that was given already (its run was killed) is not given again: Slurm shows it, or the boot is another one.

    Args:
        remembered: what the incident remembers of a reboot that has begun.

    Raises:
        RecoveryError: Slurm cannot be asked, or does not take the order.
    """
    if not works:
        return []
    nodes = slurm_nodes(works, tools)
    told = ask_nodes(works, tools, lambda work: ["probe", *identity_words(work)])
    busy = [work for work in works if work.incident in nodes and nodes[work.incident].busy]
    wanted = []
    for work in works:
        if work in busy:
            continue
        outcome = _before(work, tools, nodes.get(work.incident), told[work.incident], remembered)
        if outcome is None:
            wanted.append(work)
        else:
            answers.give(outcome)
    _order(wanted, answers, tools, remembered)
    return busy


def _before(
    work: Work, tools: Tools, node: Optional[Node], answer: NodeAnswer, remembered: Remembered
) -> Optional[Outcome]:
    """What is known without an order; None where it may be given. Pure."""
    if node is None:
        return failed(work, "Slurm knows no node %s" % slurm_name(work, tools))
    boot = answer.data.get("boot_id")
    if valid_boot_id(boot) and boot != work.intent["boot_id"]:
        return done(work, "it has another boot already", remembered(work, tools), {"boot_id": boot})
    if node.rebooting:
        return done(work, "Slurm has the order", remembered(work, tools), {"state": node.state})
    if answer.error is not None:
        return trouble(work, tools, answer.error)
    if not node.draining_or_drained or not reasons.is_ours(node.reason, work.reason):
        return failed(work, "node %s is not drained by us, and Slurm would give it back by itself" % node.name)
    if not node.responding:
        return retry(work, tools, "Slurm does not hear %s: its order would not arrive" % node.name)
    return None


def _order(works: Sequence[Work], answers: Answers, tools: Tools, remembered: Remembered) -> None:
    if not works:
        return
    if not tools.slurm.config().get("RebootProgram"):
        for work in works:
            answers.give(failed(work, "slurm.conf names no RebootProgram, so Slurm reboots no node"))
        return
    for work in works:  # again: between the look and the order nobody may have slept
        tools.guard(work)
    tools.slurm.reboot_nodes([slurm_name(work, tools) for work in works])
    after = slurm_nodes(works, tools)
    for work in works:
        node = after.get(work.incident)
        if node is not None and node.rebooting:
            answers.give(done(work, remember=remembered(work, tools), proof={"state": node.state}))
        else:
            answers.give(retry(work, tools, "Slurm took the order for %s and does not show it" % work.target.name))
