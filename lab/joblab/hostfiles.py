# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that Kubernetes and the registry add to a host's seed, and files that only root may read.

A host gets its seed at its first boot, before systemd starts (lab-init copies it, owned by root).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import LabError
from .instance import Instance

UNITS = "/etc/systemd/system"


def put(instance: Instance, host: str, path: str, content: str | bytes, mode: int = 0o644) -> None:
    """Place a file at ``path`` of the host."""
    write_private(_target(instance, host, path), content, mode)


def link(instance: Instance, host: str, path: str, to: str | Path) -> None:
    """Place a symbolic link at ``path`` of the host."""
    target = _target(instance, host, path)
    target.unlink(missing_ok=True)
    target.symlink_to(to)


def enable(instance: Instance, host: str, unit: str, folder: str = UNITS) -> None:
    """Have a unit started at every boot, as ``systemctl enable`` does for one wanted by multi-user.target."""
    link(instance, host, f"{UNITS}/multi-user.target.wants/{unit}", f"{folder}/{unit}")


def write_private(target: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file in one step: no reader sees half of it, and nobody but root sees it before its mode is set."""
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)
        os.fchmod(handle.fileno(), mode)
    Path(handle.name).replace(target)


def fill(template: str, values: dict[str, str]) -> str:
    """Replace every ``@NAME@`` of a template. Raises LabError if one has no value."""
    text = template
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    left = [word for word in text.split("@")[1::2] if word.isupper()]
    if left:
        raise LabError(f"No value for {left[0]} in a template of the lab")
    return text


def _target(instance: Instance, host: str, path: str) -> Path:
    target = instance.seed(host) / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
