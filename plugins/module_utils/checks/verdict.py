# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on one requirement in a Kubernetes cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PRESENT = "present"
BROKEN = "broken"
ABSENT = "absent"
WARNING = "warning"


@dataclass(frozen=True)
class Verdict:
    """What was found: there; there, and not working; not there; it works, and is worth a look. And why."""

    word: str
    why: str = ""

    def __str__(self) -> str:
        return "%s: %s" % (self.word, self.why) if self.why else self.word
