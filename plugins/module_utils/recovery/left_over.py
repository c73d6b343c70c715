# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that bear the reason of an incident that is closed, or that the ledger does not know: nobody would give them
back.

Slurm takes a drain from whoever sends it. A command of ours that was stopped on its way (SIGSTOP, a paused machine) and
goes on minutes later drains a node whose incident another run has closed meanwhile, and no gate can stop it any more.
What can be done is to notice: the incident is opened again, and gives the node back by the plan `return_node`.

A ledger that was restored from a backup does not know the incidents since. What was wrong with such a node, and how far
its repair was, nobody can tell: it is left to a person, who may release it.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import REQUESTED
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.database import Duplicate
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    Incident,
    Request,
    target_key,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reasons
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

PLAN = "return_node"
WHY = "its node bears the reason of this incident, which was closed"
_QUIET = 60.0  # seconds since it was closed: the look at Slurm may be older than the resume
UNKNOWN = "its node bears the reason of an incident that this ledger does not know; was it restored from a backup?"
_HELD = "quarantine_node"
_OURS = re.compile(r"job-recovery #(\d{1,18}) ([a-z_]{1,64})(?=\Z|[ ,])")


def numbers_on(nodes: Sequence[Node]) -> dict[str, int]:
    """By node the incident whose reason it bears, for nodes that are out of service under it alone. Pure."""
    found = {}
    for node in nodes:
        told = _OURS.match(node.reason or "")
        if told and node.understood and node.out_of_service:
            found[node.name] = int(told.group(1))
    return found


def is_left_over(node: Node, machine: str, incident: Incident, now: float) -> bool:
    """Whether the incident is closed and the node is still held for it. Pure."""
    return (
        incident.state == CLOSED
        and incident.machine == machine
        and reasons.is_ours(node.reason, incident.reason)
        and incident.closed_at is not None
        and now - incident.closed_at > _QUIET
    )


def take_up(store: Store, nodes: Sequence[Node]) -> list[int]:
    """Open such incidents again, or for the first time; their numbers."""
    bearing = numbers_on(nodes)
    if not bearing:
        return []
    by_name: Mapping[str, Node] = {node.name: node for node in nodes}
    machines = store.machines.resolve(SLURM, list(bearing))
    incidents = {incident.id: incident for incident in store.incidents.many(sorted(set(bearing.values())))}
    now = store.now()
    opened = []
    for name, number in bearing.items():
        incident, machine = incidents.get(number), machines.get(name)
        if machine is None:
            continue
        if incident is None or incident.machine != machine.name:
            opened += _adopt(store, by_name[name], machine.name, now)
            continue
        if not is_left_over(by_name[name], machine.name, incident, now):
            continue
        # nothing that it remembered of its repair holds any more
        change = changes.plan(PLAN, decide.first_step(PLAN, {}), WHY, {}, new_round=True)
        try:
            store.incidents.change(number, change)
        except Duplicate:  # the node has another incident by now, which sees to it
            continue
        opened.append(number)
    return opened


def _adopt(store: Store, node: Node, machine: str, now: float) -> list[int]:
    """Write an incident for a node that is held under a number that is not its own here, for a person; its number.

    It gets the very text that the node bears, which is what makes the node ours to give back.
    """
    told = _OURS.match(node.reason or "")
    if told is None or not reasons.is_ours(node.reason, told.group(0)):
        return []
    kind = told.group(2) if told.group(2) in KINDS else REQUESTED
    target = Target(NODE, node.name)
    key = target_key(target, SLURM, machine)
    fault = Fault(kind, SLURM, "", "ledger", (target,), now, PLAN)
    try:
        number = store.incidents.open(fault, target, key, machine, Request()).id
    except Duplicate:  # the node has another incident, which is somebody's already
        return []
    change = {**changes.escalate(UNKNOWN, {}), "acted": 1, "plan": _HELD, "reason": told.group(0)}
    store.incidents.change(number, change)
    return [number]
