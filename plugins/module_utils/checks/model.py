# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every check module returns: one requirement, what was found, and whether that will do."""

from __future__ import annotations

from dataclasses import asdict, dataclass

PASSED = "passed"
FAILED = "failed"
WARNING = "warning"
UNKNOWN = "unknown"  # cannot tell, for example forbidden; never taken for passed


@dataclass(frozen=True)
class Check:
    """One requirement.

    Attributes:
        id: its name, which outside programs rely on.
        title: what is checked, in a few words.
        required: what is required.
        found: what was found.
        status: `passed`, `failed`, `warning` or `unknown`.
        hint: what to do when it is not passed.
    """

    id: str
    title: str
    required: str
    found: str
    status: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        """As it stands in the result of a module."""
        return asdict(self)
