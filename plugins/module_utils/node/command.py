# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One command with a deadline: an argv list, its own process group, output bounded.

Nothing in the helper uses dataclasses: importing them takes longer than all the rest of a probe.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import NamedTuple

from .answer import Refusal

_KILL_GRACE = 2.0  # seconds
_KEEP = 4096  # bytes of output, unless more is asked for


class Ran(NamedTuple):
    """What a command that ended gave: its exit code, and the last bytes of stdout and stderr together."""

    rc: int
    output: str


def run(argv: list, deadline: float, keep: int = _KEEP) -> Ran:
    """Run `argv` for at most `deadline` seconds, in the environment that `cli.main` has cleared.

    Args:
        keep: the last bytes of output that are returned.

    Raises:
        Refusal: `absent` when there is no such command, `timed_out` when it did not end; all of its group is killed
            then, but what it asked others to do (systemd) may still happen.
    """
    # memory, not a pipe: a grandchild that keeps a pipe open would keep us beyond the deadline
    with open(os.memfd_create("output"), "w+b") as output:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        except OSError as exc:
            raise Refusal("absent", "%s cannot be run: %s" % (argv[0], exc.strerror)) from exc
        try:
            rc = child.wait(deadline)
        except subprocess.TimeoutExpired as exc:
            _kill_group(child)
            raise Refusal("timed_out", "%s did not end in %g s" % (" ".join(argv[:2]), deadline)) from exc
        output.seek(max(0, output.seek(0, os.SEEK_END) - keep))
        return Ran(rc, output.read(keep).decode("utf-8", "replace"))


def _kill_group(child: subprocess.Popen) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        child.wait(_KILL_GRACE)
    except subprocess.TimeoutExpired:  # it hangs in the kernel (a GPU that is lost), and ends some other day
        pass
