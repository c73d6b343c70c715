# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small files of state: replaced as a whole, so that nobody reads half of one; each process writes its own new one."""

from __future__ import annotations

import os


def replace(path: str, text: str) -> None:
    """Put `text` in place of what the file holds.

    Raises:
        OSError: it cannot be written.
    """
    fresh = "%s.%d" % (path, os.getpid())
    with open(fresh, "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(fresh, path)
