# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running commands of this machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from .errors import LabError

_SHOWN_OUTPUT = 2000


def run(
    argv: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout: float = 60,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, output captured as text. Raises LabError if it fails (``check``) or takes over ``timeout`` s."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            list(argv),
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout,
            env=env,
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as exc:
        raise LabError(f"Command not found: {argv[0]}") from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"No answer within {timeout:g} s from: {' '.join(argv)}") from exc
    result = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    if check and result.returncode != 0:
        output = (result.stderr.strip() or result.stdout.strip())[-_SHOWN_OUTPUT:]
        raise LabError(f"Failed with status {result.returncode}: {' '.join(argv)}\n{output}")
    return result


def wait_for(what: str, ready: Callable[[], bool], *, timeout: float, interval: float = 0.2) -> None:
    """Ask ``ready`` until it says True. Raises LabError naming ``what`` after ``timeout`` s."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise LabError(f"Not within {timeout:g} s: {what}")
        time.sleep(interval)
