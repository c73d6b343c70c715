# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots by Slurm, and what its settings make of a node that comes back."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Tools, Work
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    NEW_BOOT,
    OLD_BOOT,
    REASON,
    Site,
    late,
    probe,
    work_of,
)

ORDERED = [("node1", "reboot")]


@pytest.fixture(name="site")
def _site() -> Site:
    site = Site()
    site.add("node1", "IDLE", "DRAIN", reason=REASON)
    site.conf = {"RebootProgram": "/usr/sbin/reboot"}
    site.helper["ssh-node1", "probe"] = probe()
    return site


def tools(site: Site) -> Tools:
    return site.tools(nodes={"reboot_by": "slurm"})


def reboot(site: Site, **fields: Any) -> Work:
    return work_of("reboot", site.machines["node1"], "reboot_over_ssh", **fields)


def test_slurm_reboots_a_node_that_is_drained_and_alive(site: Site) -> None:
    outcome = site.act_one(reboot(site), tools(site))
    assert outcome.status == "done"
    assert site.writes == ORDERED
    assert (outcome.remember["boot_id"], outcome.remember["slurmd_start_before"]) == (OLD_BOOT, 1010)
    assert all(call[1] == "probe" for call in site.asked)


@pytest.mark.parametrize(
    ("base", "flags", "reason", "boot", "status"),
    [
        ("IDLE", (), REASON, OLD_BOOT, "failed"),  # Slurm would give it back by itself
        ("IDLE", ("DRAIN",), "bob: mine", OLD_BOOT, "failed"),
        ("IDLE", ("DRAIN",), REASON + ", Kill task failed", OLD_BOOT, "failed"),
        ("DOWN", ("DRAIN", "NOT_RESPONDING"), REASON, OLD_BOOT, "waiting"),  # the order would not arrive
        ("IDLE", ("DRAIN", "REBOOT_REQUESTED"), REASON, OLD_BOOT, "done"),  # it was given
        ("IDLE", ("DRAIN", "REBOOT_ISSUED"), REASON + " : reboot issued", OLD_BOOT, "done"),
        ("IDLE", ("DRAIN",), REASON, NEW_BOOT, "done"),  # and has happened
    ],
)
def test_what_stands_in_the_way_of_slurms_reboot(
    site: Site, base: str, flags: tuple, reason: str, boot: str, status: str
) -> None:
    site.node("node1", base, *flags, reason=reason)
    site.helper["ssh-node1", "probe"] = probe(boot)
    assert site.act_one(reboot(site), tools(site)).status == status
    assert site.writes == []


def test_a_node_that_is_dead_is_not_left_to_slurm(site: Site) -> None:
    """It says yes, and nothing happens."""
    del site.helper["ssh-node1", "probe"]
    assert site.act_one(reboot(site), tools(site)).status == "waiting"
    assert site.act_one(late(reboot(site)), tools(site)).status == "failed"  # its BMC is next
    assert site.writes == []


def test_without_a_reboot_program_slurm_reboots_nothing(site: Site) -> None:
    site.conf = {}
    outcome = site.act_one(reboot(site), tools(site))
    assert (outcome.status, "RebootProgram" in outcome.why) == ("failed", True)
    assert site.writes == []


def test_an_order_that_slurm_does_not_show_is_looked_for_again(site: Site) -> None:
    site.slurm_obeys = False
    assert site.act_one(reboot(site), tools(site)).status == "waiting"


@pytest.mark.parametrize(("base", "flags"), [("MIXED", ("DRAIN",)), ("IDLE", ("COMPLETING", "DRAIN"))])
def test_jobs_that_are_cut_off_are_not_for_slurm_which_would_wait(site: Site, base: str, flags: tuple) -> None:
    """Nor what does not end of a job that has ended; and once the node has booted, the order would still stand."""
    site.node("node1", base, *flags, reason=REASON)
    site.helper["ssh-node1", "reboot"] = {"rebooting": True, "boot_id": OLD_BOOT}
    assert site.act_one(reboot(site), tools(site)).status == "done"
    assert site.writes == []
    assert site.asked[-1][1] == "reboot"


def test_slurm_that_does_not_answer_is_asked_again(site: Site) -> None:
    work = reboot(site, intent={"boot_id": OLD_BOOT})
    site.trouble = Unreachable("no answer")
    assert site.act_one(work, tools(site)).status == "waiting"
    assert site.writes == []


def test_who_lost_his_claim_orders_nothing(site: Site) -> None:
    site.sleeps_in_look = {7}
    outcome = site.act_one(reboot(site, intent={"boot_id": OLD_BOOT}), tools(site))
    assert (outcome.status, site.writes) == ("waiting", [])


def test_one_call_for_all(site: Site) -> None:
    site.add("node2", "IDLE", "DRAIN", reason="other")
    site.helper["ssh-node2", "probe"] = RecoveryError("no helper")
    works = [reboot(site), work_of("reboot", site.machines["node2"], "reboot_over_ssh", incident=8, reason="other")]
    assert [outcome.status for outcome in site.act(*works, tools=tools(site))] == ["done", "failed"]
    assert site.writes == ORDERED


# ---- a node that comes back ----


@pytest.mark.parametrize(
    ("return_to_service", "base"),
    [
        (0, "DOWN"),  # stays as we set it
        (1, "DOWN"),  # the same: it was not DOWN for silence
        (2, "IDLE"),  # any node that registers well; the drain stays
    ],
)
@pytest.mark.parametrize("added", ["", " : Not responding", " : reboot complete"])
def test_whatever_return_to_service_says_a_node_is_verified_before_it_is_given_back(
    site: Site, return_to_service: int, base: str, added: str
) -> None:
    site.node("node1", base, "DRAIN", reason=REASON + added)
    assert site.act_one(work_of("verify", site.machines["node1"])).status == "done"
    assert site.writes == []
    assert site.act_one(work_of("resume", site.machines["node1"])).status == "done"
    assert site.writes == [("node1", "RESUME", None)]
    assert site.nodes_now["node1"].in_service
