# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of every target of a module that changes several at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Conflict, RecoveryError

DONE = "done"
REFUSED = "refused"
WAITING = "waiting"
FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One target's result.

    Args:
        name: the node, or the job's id.
        status: DONE, REFUSED (a rule forbids it; nothing was written), WAITING (not yet) or FAILED.
        why: one word for it; empty where nothing needs saying.
        before: what was seen right before, as plain data; None if the target is not there.
        after: what was seen afterwards (check mode: what would be); None where nothing was written.
        changed: whether this run changed the target, or in check mode would.
    """

    name: str
    status: str
    why: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    changed: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """As it stands in a module's result."""
        return {
            "name": self.name,
            "status": self.status,
            "why": self.why,
            "changed": self.changed,
            "before": self.before,
            "after": self.after if self.after is not None else self.before,
        }


def result_of(
    outcomes: Sequence[Outcome], tolerate: bool, what: str, error: RecoveryError | None = None
) -> dict[str, Any]:
    """Return a module's result of several outcomes.

    Raises:
        RecoveryError: a target was refused or failed and `tolerate` is false. `error` itself, if Slurm complained, else
            `Conflict`; either carries the whole result in its fields, because other targets may have been changed.
    """
    touched = [outcome for outcome in outcomes if outcome.changed]
    result = {
        "changed": bool(touched),
        "results": [outcome.plain for outcome in outcomes],
        "diff": {
            "before": {outcome.name: outcome.before for outcome in touched},
            "after": {outcome.name: outcome.after for outcome in touched},
        },
    }
    bad = [outcome for outcome in outcomes if outcome.status in (REFUSED, FAILED)]
    if not bad or tolerate:
        return result
    if error is not None:
        error.fields.update(result)
        raise error
    named = ", ".join("%s (%s: %s)" % (outcome.name, outcome.status, outcome.why) for outcome in bad[:10])
    more = "" if len(bad) <= 10 else " and %d more" % (len(bad) - 10)
    raise Conflict("%s: not for %s%s" % (what, named, more), **result)
