# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of an instance is up, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import bmc, kubernetes, power, processes, slurm, ssh
from .errors import LabError
from .instance import Instance

_IN_SERVICE = ("idle", "allocated", "mixed")


@dataclass
class Report:
    """Lines to show, and those of them that tell of something wrong."""

    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether everything is as it should be."""
        return not self.wrong

    def add(self, text: str, good: bool = True) -> None:
        """One line; ``good`` tells whether it is as it should be."""
        self.lines.append(text if good else f"{text}  <--")
        if not good:
            self.wrong.append(text)


def mark_installed(instance: Instance, parts: Sequence[str]) -> None:
    """Remember which parts (``slurm``, ``kubernetes``) are whole."""
    _installed_file(instance).write_text(json.dumps(sorted(parts)), encoding="utf-8")


def installed(instance: Instance) -> list[str]:
    """Parts of the lab that are whole: ``slurm``, ``kubernetes``."""
    file = _installed_file(instance)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


def _installed_file(instance: Instance) -> Path:
    return instance.state / "installed.json"


def report(instance: Instance) -> Report:
    """Look at every host, at Slurm, Kubernetes and the BMC, with deadlines."""
    told = Report()
    owner = processes.owner(instance)
    if owner is None:
        told.add(f"Lab instance {instance.number} is not up", good=False)
        return told
    if owner != instance.state:
        told.add(f"Lab instance {instance.number} is up from another checkout: {owner.parents[1]}", good=False)
        return told
    told.add(f"Lab instance {instance.number}, network {instance.subnet}, inventory {instance.inventory}")
    with ThreadPoolExecutor() as pool:
        hosts = pool.map(lambda name: _host(instance, name), instance.hosts)
        asked_slurm = pool.submit(_slurm_nodes, instance)
        asked_kubernetes = pool.submit(_kubernetes, instance)
        asked_bmc = pool.submit(bmc.running, instance)
        nodes = asked_slurm.result()
        for name, (state, good) in zip(instance.hosts, hosts, strict=True):
            told.add(f"{name:6} {instance.address(name):12} {state}", good)
    for node in nodes:
        reason = f" ({node.reason})" if node.reason else ""
        told.add(f"Slurm: {node.name} {node.state}{reason}", good=node.state in _IN_SERVICE)
    if not nodes:
        told.add("Slurm: slurmctld does not answer", good=False)
    for text, good in asked_kubernetes.result():
        told.add(text, good)
    answers = asked_bmc.result()
    told.add(f"BMC: {bmc.url(instance)} {'answers' if answers else 'does not answer'}", good=answers)
    return told


def _host(instance: Instance, name: str) -> tuple[str, bool]:
    if power.power_state(instance, name) is power.Power.OFF:
        return "off", False
    if power.frozen(instance, name):
        return "frozen", False
    return ("on", True) if ssh.answers(instance, name) else ("on, SSH does not answer", False)


def _slurm_nodes(instance: Instance) -> list[slurm.Node]:
    try:
        return slurm.nodes(instance)
    except LabError:
        return []


def _kubernetes(instance: Instance) -> list[tuple[str, bool]]:
    if "kubernetes" not in installed(instance):
        return []
    try:
        lacking = [f"node {node}" for node in kubernetes.nodes_not_ready(instance)] + kubernetes.not_ready(instance)
    except LabError:
        return [("Kubernetes: the API server does not answer", False)]
    return [(f"Kubernetes: {item} is not ready", False) for item in lacking] or [("Kubernetes: all ready", True)]
