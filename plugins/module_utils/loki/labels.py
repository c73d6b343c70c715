# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose line it is: a stream's labels as the node, pod or job that the line is about. Pure.

Labels are written by whoever runs the cluster's collectors, some of them from what users write. So nothing is taken
that is no valid identifier, and a node counts only if the ledger knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    KUBERNETES,
    SLURM,
    Target,
    valid_job_name,
    valid_node_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LokiLabels
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine


@dataclass(frozen=True)
class Subject:
    """What a line is about.

    Attributes:
        scheduler: whose name the target has.
        key: of the target in the ledger.
    """

    scheduler: str
    target: Target
    key: str


def node_of(
    labels: Mapping[str, str], names: Sequence[str], machines: Mapping[str, Machine]
) -> Optional[Subject]:
    """The node of a line; None where no label names one that the ledger knows.

    Args:
        names: of the labels that may name it; the first that is there counts.
        machines: by each of their names.
    """
    name = next((labels[label] for label in names if labels.get(label)), "")
    if not valid_node_name(name):
        return None
    machine = machines.get(name) or machines.get(name.partition(".")[0])
    if machine is None:
        return None
    scheduler, called = (SLURM, machine.slurm_name) if machine.slurm_name else (KUBERNETES, machine.kubernetes_name)
    return Subject(scheduler, Target(NODE, called), "node:%s" % machine.name) if valid_node_name(called) else None


def job_of(labels: Mapping[str, str], names: LokiLabels) -> Optional[Subject]:
    """The job of a line, of Slurm or of Kubernetes; None where no label names one."""
    slurm = next((labels[label] for label in names.slurm_job if labels.get(label)), "")
    if valid_job_name(slurm, SLURM):
        return Subject(SLURM, Target(JOB, slurm), "job:%s:%s" % (SLURM, slurm))
    namespace = next((labels[label] for label in names.namespace if labels.get(label)), "")
    job = next((labels[label] for label in names.kubernetes_job if labels.get(label)), "")
    full = "%s/%s" % (namespace, job)
    if valid_job_name(full, KUBERNETES):
        return Subject(KUBERNETES, Target(JOB, full), "job:%s:%s" % (KUBERNETES, full))
    return None


def by_name(machines: Sequence[Machine]) -> dict[str, Machine]:
    """Machines by each of their names; a name that two of them have is nobody's."""
    found: dict[str, Machine] = {}
    twice: set[str] = set()
    for machine in machines:
        for name in {machine.name, machine.slurm_name, machine.kubernetes_name} - {""}:
            if name in found:
                twice.add(name)
            found[name] = machine
    return {name: machine for name, machine in found.items() if name not in twice}
