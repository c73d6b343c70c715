# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The adapters that steps, looks and sources use, made from the settings."""

from __future__ import annotations

import time
from typing import Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeShell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.drivers import Power
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli


def make_tools(
    settings: Settings,
    guard: Optional[Callable[[Work], float]] = None,
    machines: Optional[Callable[[Sequence[str]], Mapping[str, Machine]]] = None,
    all_machines: Callable[[], Sequence[Machine]] = tuple,
) -> Tools:
    """Adapters are cheap to make: each connects, or reads its credentials, at its first use.

    Args:
        guard: see `step.Tools`; without one nothing can be done with these tools but looking.
        machines, all_machines: see `step.Tools`; without them no machine is known.
    """
    slurm, kubernetes = settings.slurm, settings.kubernetes
    return Tools(
        settings=settings,
        slurm=SlurmCli(slurm.bin_dir or None, slurm.timeout) if slurm.enabled else None,
        kubernetes=(
            KubernetesClient(kubernetes.kubeconfig, timeout=kubernetes.timeout) if kubernetes.kubeconfig else None
        ),
        nodes=NodeShell(settings.nodes),
        power=Power(settings.power),
        guard=guard or _only_looking,
        now=time.time,
        machines=machines or (lambda _names: {}),
        all_machines=all_machines,
    )


def _only_looking(work: Work) -> float:
    raise AssertionError("tools for looking were used to act (incident %d)" % work.incident)
