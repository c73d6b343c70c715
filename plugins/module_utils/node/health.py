# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's own health command: it decides what "fit" means, the helper only bounds it."""

from __future__ import annotations

import os

from .answer import Refusal
from .command import run
from .config import Config


def check(config: Config) -> dict:
    """Run the health command.

    Returns:
        `{"fit": bool, "rc": int, "output": text}`; the output's last 4 KiB, for people.

    Raises:
        Refusal: `absent` when no command is configured or it cannot be run, `timed_out` when it did not end.
    """
    if not config.health_command:
        raise Refusal("absent", "no health command is configured on this node")
    if not os.access(config.health_command, os.X_OK):
        raise Refusal("absent", "%s is no program on this node" % config.health_command)
    ran = run([config.health_command], config.health_timeout)
    return {"fit": ran.rc == 0, "rc": ran.rc, "output": ran.output}
