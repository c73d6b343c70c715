# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMC switches the node off, and says itself that it is off."""

from __future__ import annotations

from typing import Any, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import parse_uuid
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import OFF
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    boot_to_end,
    bounded,
    done,
    each,
    failed,
    retry,
    slurmd_starts,
)

_LOOK_AGAIN = 2.0


class Fence:
    """Off as a level: a repeated fence of a node that is off asks for nothing.

    Waits for: a short time, while the BMC does not say Off yet; failed after `power.off_timeout`.
    Proof: the BMC of the machine's own UUID says Off after it was asked.
    """

    name = plans.FENCE

    def intend(self, works: Sequence[Work], tools: Tools) -> dict[int, dict[str, Any]]:
        """The boot that ends by this, and its last registration."""
        starts = slurmd_starts(works, tools)
        return {
            work.incident: {"boot_id": boot_to_end(work), "slurmd_start_time": starts[work.incident]} for work in works
        }

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once, each with its own BMC."""
        return each(works, tools, _fence)


def _fence(work: Work, tools: Tools) -> Outcome:
    machine = work.machine
    if machine is None or not machine.bmc_url:
        return failed(work, "no BMC of %s is known" % work.target.name)
    if parse_uuid(machine.smbios_uuid) is None:
        return failed(work, "identity: no SMBIOS UUID of %s is on record, so its BMC cannot be proved" % machine.name)
    seconds = bounded(tools.guard(work))
    before = tools.power.request_level(
        machine.bmc_url, OFF, machine.smbios_uuid, seconds, before_write=lambda: tools.guard(work)
    )
    seconds = min(bounded(tools.guard(work)), tools.settings.power.off_timeout)
    state = tools.power.await_level(machine.bmc_url, (OFF,), machine.smbios_uuid, seconds)
    if state.state == OFF:
        proved_at = tools.now()
        return done(
            work,
            remember={
                "power_off_proved": True,
                "power_off_at": proved_at,
                "boot_id": work.intent.get("boot_id") or boot_to_end(work),
                "slurmd_start_before": work.intent.get("slurmd_start_time"),
                "new_boot_id": "",
            },
            proof={"bmc": machine.bmc_url, "uuid": state.uuid, "before": before.state, "state": state.state},
        )
    why = "the BMC of %s says %s after ForceOff" % (machine.name, state.state)
    if work.first_started_at and tools.now() >= work.first_started_at + tools.settings.power.off_timeout:
        return failed(work, "%s for %g s" % (why, tools.settings.power.off_timeout))
    return retry(work, tools, why, _LOOK_AGAIN)
