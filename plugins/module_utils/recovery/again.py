# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands `job-recovery retry` and `job-recovery release`: go on with an incident that was left to a person.

    job-recovery retry 17 [--reason TEXT] [--override GATE] [--wait]     the repair again, through the gates
    job-recovery release node7 [--reason TEXT] [--wait]                  the node is good: clean, verify, give it back

Both become a remediation by hand (`job-recovery run`) of the incident's target, so that there is no second path; the
ledger keeps who gave the command, and why.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import by_hand, plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import KUBERNETES, SLURM
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.incident import caller
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    ESCALATED,
    Incident,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

RETRY, RELEASE = "retry", "release"

# Giving back is never kept from a node by what protects other nodes from repairs.
_GIVE_BACK = ("cooldown", "common_cause", "blast_radius", "breaker", "mode")
# That it was repaired only lately is known to whoever asks for it once more.
_ONCE_MORE = ("cooldown",)
_NODE_REPAIRS = ("restart_daemon", "reboot_node", "reset_gpu", "return_node", "clean_spool")


@dataclass(frozen=True)
class Again:
    """What is asked for: a remediation of a target, and the gates that do not apply."""

    remediation: str
    option: str
    target: str
    override: tuple[str, ...] = ()


def again(command: str, incident: Incident) -> Again:
    """What a command means for an incident. Pure.

    Raises:
        BadInput: the incident is not left to a person, or nothing is held for it.
    """
    if incident.state != ESCALATED:
        raise BadInput("incident #%d is %s, and not left to a person" % (incident.id, incident.state))
    if incident.target.kind == JOB:
        if command == RELEASE:
            raise BadInput("incident #%d is about a job, and holds no node" % incident.id, "use `job-recovery retry`")
        remediation = "requeue_job" if incident.scheduler == SLURM else "rerun_kubernetes_job"
        return Again(remediation, "--jobs", incident.target.name)
    node = incident.machine or incident.target.name
    if command == RETRY:
        return Again(_repair(incident), "--nodes", node, _ONCE_MORE)
    if not incident.acted or plans.DRAIN not in plans.PLANS.get(incident.plan, ()):
        raise BadInput("no node is held for incident #%d" % incident.id, "it ends by itself when the fault is gone")
    return Again("return_node", "--nodes", node, _GIVE_BACK)


def _repair(incident: Incident) -> str:
    usual = KINDS[incident.fault_kind].remediation if incident.fault_kind in KINDS else ""
    chosen = [name for name in (incident.suggested, usual) if name in _NODE_REPAIRS]
    return chosen[0] if chosen else "return_node"


def find(store: Store, text: str) -> Incident:
    """The incident that a person means, by its number or by the node or job that it is about.

    Raises:
        BadInput: there is none, or the number is an incident's and another one's job's.
    """
    number = text[1:] if text.startswith("#") else text
    found = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        found = store.incidents.get(int(number))
    live = [each for each in store.incidents.live() if text in (each.target.name, each.machine)]
    others = [each for each in live if found is None or each.id != found.id]
    if found is not None and others:
        raise BadInput(
            "%s is an incident, and the job of incident #%d" % (ascii(text)[:80], others[0].id),
            "say `#%d` or `#%d`" % (found.id, others[0].id),
        )
    if found is not None:
        return found
    if not live:
        raise BadInput("no incident %s is open" % ascii(text)[:80], "`job-recovery status` tells which are")
    return live[0]


def name_of(store: Store, scheduler: str, incident: Incident) -> str:
    """The name by which a remediation by hand finds the machine of an incident again, and no other one: the ledger's
    own name of one machine may be the scheduler's name of another.

    Raises:
        BadInput: there is no such name.
    """
    machine = store.machines.get([incident.machine]).get(incident.machine)
    if machine is None:
        return incident.machine or incident.target.name
    name = (machine.slurm_name if scheduler == SLURM else machine.kubernetes_name) or machine.name
    found = store.machines.resolve(scheduler, [name]).get(name)
    if found is not None and found.name != machine.name:
        raise BadInput("%s is the name of another machine, too" % ascii(name)[:80])
    return name


def command(argv: Sequence[str]) -> list[str]:
    """The command line of ansible-playbook, once the wish is in the ledger; options not known here are passed on.

    Raises:
        RecoveryError: there is nothing to go on with, or the ledger cannot be asked.
    """
    options, others = _parser().parse_known_args(argv)
    who = caller()
    settings = load(options.settings)
    with open_store(settings.ledger) as store:
        incident = find(store, options.incident)
        wish = again(options.command, incident)
        if wish.option == "--nodes":
            wish = replace(wish, target=name_of(store, SLURM if settings.slurm.enabled else KUBERNETES, incident))
        reason = options.reason.strip() or "%s of #%d" % (options.command, incident.id)
        subject = "#%d %s" % (incident.id, incident.target.name)
        store.commands.note(options.command, who, subject, reason)
    words = [wish.remediation, wish.option, wish.target, "--reason", reason]
    for gate in dict.fromkeys([*wish.override, *(options.override or [])]):
        words += ["--override", gate]
    return by_hand.command([*words, *(["--wait"] if options.wait else []), *others])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Become ansible-playbook; 1 where there is nothing to go on with."""
    try:
        made = command(sys.argv[1:] if argv is None else argv)
    except RecoveryError as exc:
        sys.stderr.write("job-recovery: %s\n" % printable(str(exc)))
        return 1
    return os.execvp(made[0], made)  # noqa: S606 - the point is that no shell sees what was typed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job-recovery",
        description="Go on with an incident that was left to a person. Other options are ansible-playbook's.",
        allow_abbrev=False,
    )
    parser.add_argument("--settings", help="settings file (default: the controller's own)")
    parser.add_argument("command", choices=(RETRY, RELEASE))
    parser.add_argument("incident", help="its number, or the node or job that it is about")
    parser.add_argument("--reason", default="", help="kept in the ledger with who asked")
    parser.add_argument("--override", action="append", help="a gate that shall not stop it")
    parser.add_argument("--wait", action="store_true", help="show every step until all is over")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
