# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of each of a module's targets, and the module's result made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError

DONE = "done"  # it is as asked for
REFUSED = "refused"  # it may not be done, and trying again does not change that
WAITING = "waiting"  # under way, or held up by something that can end; asking again is right
FAILED = "failed"  # it could not be done or looked at

Shown = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """One target.

    Attributes:
        name: the target's.
        status: `done`, `refused`, `waiting` or `failed`.
        why: one sentence where it is not simply done.
        before, after: what decides of it, as plain data; equal where nothing was changed.
        more: further plain data of the target, by key.
    """

    name: str
    status: str
    why: str = ""
    before: Shown = field(default_factory=dict)
    after: Shown = field(default_factory=dict)
    more: Shown = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether something was written (in check mode: would be)."""
        return dict(self.before) != dict(self.after)

    def as_dict(self) -> dict[str, Any]:
        """The target's entry in `results`."""
        made = {"name": self.name, "status": self.status, "why": self.why}
        return dict(made, before=dict(self.before), after=dict(self.after), **self.more)


def module_result(results: Sequence[Result], tolerate: bool) -> dict[str, Any]:
    """`{changed, diff, results}`.

    Raises:
        RecoveryError: not all targets are done and `tolerate` is false; the same data is in its fields.
    """
    changed = [result for result in results if result.changed]
    made = {
        "changed": bool(changed),
        "diff": {
            "before": {result.name: dict(result.before) for result in changed},
            "after": {result.name: dict(result.after) for result in changed},
        },
        "results": [result.as_dict() for result in results],
    }
    undone = [result for result in results if result.status != DONE]
    if undone and not tolerate:
        raise RecoveryError("; ".join("%s %s: %s" % (one.name, one.status, one.why) for one in undone), **made)
    return made
