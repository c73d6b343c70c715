# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of an instance is up, for people and for scripts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import power, processes, slurm, ssh
from .errors import LabError
from .instance import Instance


@dataclass
class Report:
    """Lines to show; ``healthy`` if nothing in them is wrong."""

    lines: list[str] = field(default_factory=list)
    healthy: bool = True

    def add(self, text: str, good: bool) -> None:
        """One line; ``good`` tells whether it is as it should be."""
        self.lines.append(text if good else f"{text}  <--")
        self.healthy = self.healthy and good


def report(instance: Instance) -> Report:
    """Look at every host and at Slurm, with deadlines."""
    told = Report()
    owner = processes.owner(instance)
    if owner is None:
        told.add(f"Lab instance {instance.number} is not up", good=False)
        return told
    if owner != instance.state:
        told.add(f"Lab instance {instance.number} is up from another checkout: {owner.parents[1]}", good=False)
        return told
    told.add(f"Lab instance {instance.number}, network {instance.subnet}, inventory {instance.inventory}", good=True)
    with ThreadPoolExecutor(max_workers=len(instance.hosts)) as pool:
        hosts = dict(zip(instance.hosts, pool.map(lambda name: _host(instance, name), instance.hosts), strict=True))
    nodes = _slurm_nodes(instance)
    for name, (state, good) in hosts.items():
        node = nodes.get(name)
        text = f"{name:6} {instance.address(name):12} {state:16}"
        if node:
            text += f" Slurm {node.state}{f' ({node.reason})' if node.reason else ''}"
            good = good and node.state in ("idle", "allocated", "mixed")
        told.add(text.rstrip(), good)
    if not nodes:
        told.add("slurmctld does not answer", good=False)
    return told


def _host(instance: Instance, name: str) -> tuple[str, bool]:
    if power.power_state(instance, name) is power.Power.OFF:
        return "off", False
    if power.frozen(instance, name):
        return "frozen", False
    answers = ssh.answers(instance, name)
    return ("on, SSH answers", True) if answers else ("on, no SSH", False)


def _slurm_nodes(instance: Instance) -> dict[str, slurm.Node]:
    try:
        return {node.name: node for node in slurm.nodes(instance)}
    except LabError:
        return {}
