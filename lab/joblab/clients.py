# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands lab/kubectl and lab/helm: the lab's own clients, set up for one instance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from . import binaries, helm, instance, pki
from .errors import LabError


def run_kubectl(arguments: Sequence[str]) -> NoReturn:
    """lab/kubectl ARGUMENTS: kubectl as the administrator of the instance."""
    _replace_by("kubectl", arguments)


def run_helm(arguments: Sequence[str]) -> NoReturn:
    """lab/helm ARGUMENTS: helm likewise; what it keeps of logins and repositories goes with the instance."""
    _replace_by("helm", arguments)


def _replace_by(program: str, arguments: Sequence[str]) -> NoReturn:
    lab = instance.from_environment()
    kubeconfig = pki.administrator_kubeconfig(lab)
    if not kubeconfig.exists():
        raise LabError(f"Lab instance {lab.number} is not up (lab/up brings it up)")
    home = lab.state / "helm"
    home.mkdir(mode=0o700, exist_ok=True)
    kept = {**os.environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(lab.state / "kubectl-cache")}
    if program == "helm":
        kept.update(helm.home_environment(home), HOME=os.environ.get("HOME", "/root"))
    os.execve(binaries.find(program), [program, *arguments], kept)
