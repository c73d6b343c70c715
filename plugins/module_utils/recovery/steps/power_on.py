# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMC switches the node on."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import ON, POWERING_ON
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    BRIEF,
    Plain,
    bounded,
    done,
    each,
    failed,
    retry,
)

_LOOK_AGAIN = 3.0


class PowerOn(Plain):
    """On as a level; the plan has it only after the node was proved off and its work was given up.

    Waits for: a short time, while the BMC does not say On or PoweringOn yet; failed at the step's deadline.
    Proof: the BMC of the machine's own UUID says On or PoweringOn. What the fence proved holds no longer.
    """

    name = plans.POWER_ON

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """All nodes at once, each with its own BMC."""
        return each(works, tools, _power_on)


def _power_on(work: Work, tools: Tools) -> Outcome:
    machine = work.machine
    if machine is None or not machine.bmc_url:
        return failed(work, "no BMC of %s is known" % work.target.name)
    before = tools.power.read(machine.bmc_url)
    if before.state != POWERING_ON:
        before = tools.power.request_level(
            machine.bmc_url,
            ON,
            machine.smbios_uuid,
            bounded(tools.guard(work)),
            before_write=lambda: tools.guard(work),
        )
    state = tools.power.await_level(machine.bmc_url, (ON, POWERING_ON), machine.smbios_uuid, BRIEF)
    if state.state in (ON, POWERING_ON):
        return done(
            work,
            remember={"power_on_at": tools.now(), "power_off_proved": False},
            proof={"bmc": machine.bmc_url, "uuid": state.uuid, "before": before.state, "state": state.state},
        )
    return retry(work, tools, "the BMC of %s says %s after On" % (machine.name, state.state), _LOOK_AGAIN)
