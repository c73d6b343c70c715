# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm against the lab: charts in and out of its registry, without a trace of the credentials.

Helm keeps a login in files: they go to a folder in memory that root alone may enter and that is removed afterwards. The
password goes in by stdin only.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import binaries, command, pki, registry
from .errors import LabError
from .instance import Instance

_CALL_SECONDS = 60


def home_environment(folder: Path) -> dict[str, str]:
    """Variables that keep everything helm writes below one folder."""
    return {
        "HOME": str(folder),
        "HELM_CACHE_HOME": str(folder / "cache"),
        "HELM_CONFIG_HOME": str(folder / "config"),
        "HELM_DATA_HOME": str(folder / "data"),
        "DOCKER_CONFIG": str(folder / "docker"),
    }


class Helm:
    """Helm as the administrator of an instance, logged in to its registry (see ``logged_in``)."""

    def __init__(self, instance: Instance, home: Path) -> None:
        self._instance = instance
        self._program = str(binaries.find("helm"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "DOCKER_"))}
        self._environment = {
            **kept, **home_environment(home), "KUBECONFIG": str(pki.administrator_kubeconfig(instance)),
        }
        self._authority = ["--ca-file", str(pki.path(instance) / "ca.crt")]

    def run(self, args: Sequence[str], *, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm with ``args``; see command.run."""
        return command.run([self._program, *args], stdin=stdin, timeout=_CALL_SECONDS, env=self._environment)

    def login(self) -> None:
        """Log in to the lab's registry."""
        self.run(["registry", "login", registry.address(self._instance), *self._authority,
                  "--username", registry.USER, "--password-stdin"], stdin=registry.password(self._instance))

    def push(self, chart: Path, folder: str = "charts") -> str:
        """Push a packed chart (.tgz); return the folder's oci:// address."""
        target = f"oci://{registry.address(self._instance)}/{folder}"
        self.run(["push", str(chart), target, *self._authority])
        return target

    def pull(self, name: str, version: str, target: Path, folder: str = "charts") -> Path:
        """Pull a chart of the registry as a .tgz into a folder. Raises LabError if it is not there."""
        source = f"oci://{registry.address(self._instance)}/{folder}/{name}"
        self.run(["pull", source, "--version", version, "--destination", str(target), *self._authority])
        file = target / f"{name}-{version}.tgz"
        if not file.exists():
            raise LabError(f"helm pull {source} left no {file.name}")
        return file


@contextlib.contextmanager
def logged_in(instance: Instance) -> Iterator[Helm]:
    """Helm with a login that ends, files and all, with the block."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lab-helm-") as home:  # made 0700
        client = Helm(instance, Path(home))
        client.login()
        yield client
