# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that users of the cluster wrote, made fit to be shown."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text that does nothing to a terminal: control and format characters as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in str(text)
    )
