# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands on a host of the lab, by SSH as root."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence

from . import command
from .errors import LabError
from .instance import Instance

CONNECT_SECONDS = 5
_SHOWN_CHARACTERS = 100


def arguments(instance: Instance) -> list[str]:
    """Options for ssh and scp: our key, our known_hosts, no configuration of the person who runs the lab."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_SECONDS),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "LogLevel": "ERROR",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(instance.known_hosts),
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return ["-F", "none", "-i", str(instance.ssh_key), *flags]


def argv(instance: Instance, host: str, remote: Sequence[str] | str = ()) -> list[str]:
    """The ssh command line that runs ``remote`` (an argv, or a script for the remote shell) on ``host``."""
    text = remote if isinstance(remote, str) else shlex.join(remote)
    return ["ssh", *arguments(instance), f"root@{instance.address(host)}", *([text] if text else [])]


def run(
    instance: Instance,
    host: str,
    remote: Sequence[str] | str,
    *,
    stdin: str | bytes | None = None,
    timeout: float = 30,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run ``remote`` (argv list, or script text for the remote shell) on ``host``, output captured as text.

    Raises LabError if it fails (``check``), if the host cannot be reached, or after ``timeout`` s.
    """
    try:
        done = command.run(argv(instance, host, remote), stdin=stdin, timeout=timeout, check=False)
    except LabError as exc:
        raise LabError(f"{host} did not finish within {timeout:g} s: {_shown(remote)}") from exc
    if check and done.returncode != 0:
        output = done.stderr.strip() or done.stdout.strip()
        raise LabError(f"{host}: {_shown(remote)} failed with status {done.returncode}: {output}")
    return done


def _shown(remote: Sequence[str] | str) -> str:
    text = remote if isinstance(remote, str) else shlex.join(remote)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def answers(instance: Instance, host: str, timeout: float = 15) -> bool:
    """Whether a command can be run on the host right now."""
    try:
        return run(instance, host, ["true"], timeout=timeout, check=False).returncode == 0
    except LabError:
        return False
