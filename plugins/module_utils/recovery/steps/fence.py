# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMC switches the node off, and says itself that it is off."""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.probe import ANSWERS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import UNKNOWN
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import parse_uuid
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import OFF
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import loss, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import (
    FAILED,
    Outcome,
    Tools,
    Work,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    ask_nodes,
    boot_to_end,
    bounded,
    done,
    each,
    failed,
    identity_words,
    power_off_proved,
    proved_off,
    retry,
    slurm_nodes,
    slurmd_starts,
)

_LOOK_AGAIN = 2.0
_PROBE_DEADLINE = 4.0
_KNOCK_DEADLINE = 1.5  # the kernel repeats an unanswered SYN after one second
_WITNESSES = 64  # other nodes that are asked, at most
# The gate that a person overrides who wants nodes off although most of the others are silent, too.
_OVERRIDE = "common_cause"


class Fence:
    """Off as a level: a repeated fence of a node that is off asks for nothing.

    Waits for: a short time, while the BMC does not say Off yet; failed after `power.off_timeout`.
    Proof: the BMC of the machine's own UUID says Off after it was asked.
    """

    name = plans.FENCE

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """The boot that ends by this, and its last registration."""
        starts = slurmd_starts(works, tools)
        return {
            work.incident: {"boot_id": boot_to_end(work), "slurmd_start_time": starts[work.incident]} for work in works
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once, each with its own BMC.

        Not a node that answers by now (it was waited for since), and none that is on while most others are silent.
        """
        answers = Answers(works, tools)
        for work, heard in _answering(works, answers, tools):
            why = "node %s answers again" % work.target.name
            proof = {plans.ANSWERS_AGAIN: heard}
            answers.give(Outcome(work.incident, FAILED, why, remember={plans.ANSWERS_AGAIN: True}, proof=proof))
        for work in _perhaps_ours(answers.open, tools):
            answers.give(retry(work, tools, "%s is not powered off: %s" % (work.target.name, loss.CUT_OFF)))
        for outcome in each(answers.open, tools, _fence):
            answers.give(outcome)
        return answers.all()


def _answering(works: Sequence[Work], answers: Answers, tools: Tools) -> list[tuple[Work, bool]]:
    """Those that were taken for silent and answer now, with whether Slurm hears them (or does not know them). Not one
    that this incident told to reboot: it was alive then, and would not go.

    The helper's answer is what counts; of a node that Slurm does not miss yet, any answer of its SSH port. That a
    helper could not be asked, or was not understood, is no silence of its node, which gets its outcome here: to be
    asked again.

    Raises:
        RecoveryError: Slurm cannot be asked about one that answers, or we cannot ask; nobody is powered off meanwhile.
    """
    silent = [work for work in works if "reboot_at" not in work.memory and not power_off_proved(work)]
    by_probes = [work for work in silent if work.memory.get(plans.BY_PROBES)]
    others = [work for work in silent if work not in by_probes]
    told = ask_nodes(others, tools, lambda work: ["probe", *identity_words(work)], _PROBE_DEADLINE)
    alive = [work for work in others if told[work.incident].error is None and told[work.incident].data.get("boot_id")]
    for work in others:
        error = told[work.incident].error
        if error is not None and not isinstance(error, Unreachable):
            answers.give(retry(work, tools, "whether %s is silent is not known: %s" % (work.target.name, error)))
    _asked_at_all([work for work in others if isinstance(told[work.incident].error, Unreachable)], tools)
    alive += _connecting(by_probes, tools)
    nodes = slurm_nodes(alive, tools) if alive else {}
    return [(work, work.incident not in nodes or nodes[work.incident].responding) for work in alive]


def _perhaps_ours(works: Sequence[Work], tools: Tools) -> list[Work]:
    """Those whose silence may be our own: most other nodes do not answer either, and their BMCs do not say Off.

    Whatever brought the fault, Slurm's or Kubernetes' verdict too: they lose the nodes by the same cut, one by one,
    so that the first comes before there are enough of them for a common cause.
    """
    asked = [work for work in works if not power_off_proved(work) and _OVERRIDE not in work.overridden]
    witnesses = [machine for machine in tools.all_machines() if machine.ssh_address] if asked else []
    witnesses = witnesses[:: len(witnesses) // _WITNESSES + 1]
    if not witnesses:
        return []
    words = tools.nodes.banner([machine.ssh_address for machine in witnesses], _KNOCK_DEADLINE)
    answering = {machine.name for machine in witnesses if words.get(machine.ssh_address) in ANSWERS}
    alone = [work for work in asked if _is_cut_off(work, {machine.name for machine in witnesses}, answering)]
    off = proved_off([work.machine for work in alone if work.machine is not None], tools)
    return [work for work in alone if work.machine is None or work.machine.name not in off]


def _is_cut_off(work: Work, witnesses: set[str], answering: set[str]) -> bool:
    own = {work.machine.name} if work.machine is not None else set()
    return loss.cut_off(len(answering - own), len(witnesses - own))


def _connecting(works: Sequence[Work], tools: Tools) -> list[Work]:
    words = _asked_at_all(works, tools)
    return [work for work in works if words[work.incident] in ANSWERS]


def _asked_at_all(works: Sequence[Work], tools: Tools) -> dict[int, str]:
    """By incident what the SSH port says.

    Raises:
        Unreachable: one of them cannot be asked from here: that is our own trouble, and nobody's silence.
    """
    addresses = {work.incident: work.machine.ssh_address if work.machine is not None else "" for work in works}
    words = tools.nodes.banner([address for address in addresses.values() if address], _KNOCK_DEADLINE) if works else {}
    if any(words.get(address, UNKNOWN) == UNKNOWN for address in addresses.values()):
        raise Unreachable("the SSH port of a node cannot be asked from here", "look at the controller's network")
    return {incident: words[address] for incident, address in addresses.items()}


def _fence(work: Work, tools: Tools) -> Outcome:
    machine = work.machine
    if machine is None or not machine.bmc_url:
        return failed(work, "no BMC of %s is known" % work.target.name)
    if parse_uuid(machine.smbios_uuid) is None:
        return failed(work, "identity: no SMBIOS UUID of %s is on record, so its BMC cannot be proved" % machine.name)
    seconds = bounded(tools.guard(work))
    before = tools.power.request_level(
        machine.bmc_url, OFF, machine.smbios_uuid, seconds, before_write=lambda: tools.guard(work)
    )
    seconds = min(bounded(tools.guard(work)), tools.settings.power.off_timeout)
    state = tools.power.await_level(machine.bmc_url, (OFF,), machine.smbios_uuid, seconds)
    if state.state == OFF:
        proved_at = tools.now()
        return done(
            work,
            remember={
                "power_off_proved": True,
                "power_off_at": proved_at,
                "boot_id": work.intent.get("boot_id") or boot_to_end(work),
                "slurmd_start_before": work.intent.get("slurmd_start_time"),
                "new_boot_id": "",
            },
            proof={"bmc": machine.bmc_url, "uuid": state.uuid, "before": before.state, "state": state.state},
        )
    why = "the BMC of %s says %s after ForceOff" % (machine.name, state.state)
    if work.first_started_at and tools.now() >= work.first_started_at + tools.settings.power.off_timeout:
        return failed(work, "%s for %g s" % (why, tools.settings.power.off_timeout))
    return retry(work, tools, why, _LOOK_AGAIN)
