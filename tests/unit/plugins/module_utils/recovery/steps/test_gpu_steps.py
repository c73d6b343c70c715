# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a GPU's reset: what they ask of the node, and what they make of its answers."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    RecoveryError,
    TimedOut,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import cli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Work
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.steps.site import (
    MACHINE_ID,
    NEW_BOOT,
    OLD_BOOT,
    Site,
    late,
    probe,
    work_of,
)

NAME = "7-1700000000000"
REPORT = {"code": "xid119", "action": "reset_gpu", "severity": "fatal", "device": "0000:05:00", "boot_id": OLD_BOOT}
MEMORY = {"report": REPORT, "gpu_reset": NAME}
GPU_STEPS = ("stop_gpu_clients", "reset_gpu", "start_gpu_clients")
STOPPED = {"state": "done", "services": ["nvidia-dcgm.service"], "persistence": [], "users": []}
VERBS = {"stop_gpu_clients": "gpu-stop", "reset_gpu": "gpu-reset", "start_gpu_clients": "gpu-start"}


@pytest.fixture(name="site")
def _site() -> Site:
    site = Site()
    site.add("node1", "IDLE", "DRAIN")
    return site


def at(site: Site, step: str, **fields: Any) -> Work:
    facts: dict[str, Any] = {"memory": MEMORY, "first_started_at": 1_700_000_000.0, "plan": "reset_gpu", **fields}
    return work_of(step, site.machines["node1"], **facts)


def fresh(site: Site, step: str, **fields: Any) -> Work:
    return at(site, step, first_started_at=time.time(), **fields)


ASKED = [
    ("stop_gpu_clients", {"report": REPORT}, ["gpu-stop", "--name", NAME, "--if-boot-id", OLD_BOOT]),
    ("stop_gpu_clients", {}, ["gpu-stop", "--name", NAME, "--if-machine-id", MACHINE_ID]),
    ("reset_gpu", MEMORY,
     ["gpu-reset", "--name", NAME, "--device", "0000-05-00", "--if-boot-id", OLD_BOOT]),
    ("reset_gpu", {"gpu_reset": NAME}, ["gpu-reset", "--name", NAME, "--if-machine-id", MACHINE_ID]),
    ("start_gpu_clients", MEMORY, ["gpu-start", "--name", NAME, "--if-boot-id", OLD_BOOT]),
]  # fmt: skip


@pytest.mark.parametrize(("step", "memory", "words"), ASKED)
def test_what_the_node_is_asked(site: Site, step: str, memory: dict[str, Any], words: list[str]) -> None:
    site.helper["ssh-node1", words[0]] = STOPPED
    outcome = site.act_one(at(site, step, memory=memory))
    assert site.asked == [("ssh-node1", *words)]
    assert cli.parse(words).verb == words[0], "the helper takes it"
    assert outcome.status == "done"
    if step == "stop_gpu_clients":
        assert outcome.remember["gpu_reset"] == NAME


@pytest.mark.parametrize("step", GPU_STEPS)
def test_a_run_that_lost_its_claim_asks_nothing(site: Site, step: str) -> None:
    site.lost.add(7)
    assert (site.act_one(at(site, step)).status, site.asked) == ("waiting", [])


@pytest.mark.parametrize("step", GPU_STEPS)
@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"state": "running"}, "waiting"),
        (TimedOut("no answer"), "waiting"),
        (RecoveryError("nvidia-dcgm.service does not stop"), "failed"),
        (BadInput("unknown verb"), "failed"),
        (Absent("no helper"), "failed"),
    ],
)
def test_answers(site: Site, step: str, told: Any, status: str) -> None:
    site.helper["ssh-node1", VERBS[step]] = told
    assert site.act_one(at(site, step)).status == status
    assert site.act_one(late(at(site, step))).status == "failed"


def test_what_was_stopped_in_part_is_known_under_its_name(site: Site) -> None:
    site.helper["ssh-node1", "gpu-stop"] = RecoveryError("it does not stop")
    assert site.act_one(at(site, "stop_gpu_clients")).remember == {"gpu_reset": NAME}


BUSY = {"state": "busy", "why": "x", "users": [{"pid": 77, "name": "evil\x1b[2J"}]}
RESETS: list[tuple[str, dict[str, Any], Callable[..., Work], str, str]] = [
    ("done", {"state": "done", "devices": ["0000:05:00"]}, fresh, "done", ""),
    ("open a moment ago", BUSY, fresh, "waiting", "evil [2J (77)"),
    ("open for long", BUSY, at, "failed", "have GPUs of node1 open"),
    ("refused", {"state": "failed", "why": "rc 255"}, fresh, "failed", "rc 255"),
    ("not understood", {"state": "splendid"}, fresh, "failed", "does not say"),
]


@pytest.mark.parametrize(("name", "told", "work", "status", "why"), RESETS, ids=[row[0] for row in RESETS])
def test_a_reset(
    site: Site, name: str, told: dict[str, Any], work: Callable[..., Work], status: str, why: str
) -> None:
    site.helper["ssh-node1", "gpu-reset"] = told
    outcome = site.act_one(work(site, "reset_gpu"))
    assert (outcome.status, why in outcome.why) == (status, True), name
    assert "\x1b" not in outcome.why


def test_nothing_is_reset_where_nothing_was_stopped_before(site: Site) -> None:
    assert site.act_one(at(site, "reset_gpu", memory={"report": REPORT})).status == "failed"
    assert site.act_one(at(site, "start_gpu_clients", memory={"report": REPORT})).status == "done"
    assert site.asked == []


@pytest.mark.parametrize("step", ["stop_gpu_clients", "reset_gpu"])
def test_a_node_that_has_booted_since_has_no_fault(site: Site, step: str) -> None:
    site.helper["ssh-node1", VERBS[step]] = Conflict("another boot")
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    outcome = site.act_one(at(site, step))
    assert (outcome.status, outcome.proof[plans.FAULT_GONE]) == ("failed", True)
    site.helper["ssh-node1", "probe"] = Conflict("another machine")
    assert plans.FAULT_GONE not in site.act_one(at(site, step)).proof


def test_a_node_that_has_booted_since_starts_its_services_itself(site: Site) -> None:
    site.helper["ssh-node1", "gpu-start"] = Conflict("another boot")
    assert site.act_one(at(site, "start_gpu_clients")).status == "failed"
    site.helper["ssh-node1", "probe"] = probe(NEW_BOOT)
    assert site.act_one(at(site, "start_gpu_clients")).status == "done"


def gpu(state: str = "answers", **fields: Any) -> dict[str, Any]:
    return {"state": state, "trouble": "", "gpus": [{"device": "0000:05:00", "state": state, **fields}]}


VERIFIED: list[tuple[Any, str, str]] = [
    (gpu(recovery="None", pending=False), "done", "done"),
    (gpu(recovery=""), "done", "done"),
    (gpu(recovery="Reset"), "waiting", "failed"),
    (gpu(pending=True), "waiting", "failed"),
    (gpu(remap_failed=True), "waiting", "failed"),
    (gpu("lost"), "waiting", "failed"),
    (gpu("silent"), "waiting", "failed"),
    ({"state": "unknown", "trouble": "rc 9", "gpus": []}, "waiting", "failed"),
    (gpu("absent"), "done", "done"),
    (TimedOut("no answer"), "waiting", "waiting"),
]


@pytest.mark.parametrize(("told", "first", "later"), VERIFIED)
@pytest.mark.parametrize("plan", ["reset_gpu", "reboot_over_ssh"])
def test_a_gpu_is_verified_after_its_repair(site: Site, told: Any, first: str, later: str, plan: str) -> None:
    site.helper["ssh-node1", "gpu-look"] = told
    work = fresh(site, "verify", plan=plan, memory={"report": REPORT})
    assert site.act_one(work).status == first
    assert site.act_one(replace(work, first_started_at=time.time() - 90)).status == later
    assert site.asked[0] == ("ssh-node1", "gpu-look", "--device", "0000-05-00", "--if-machine-id", MACHINE_ID)


def test_gpus_are_looked_at_only_after_a_repair_of_theirs(site: Site) -> None:
    assert site.act_one(fresh(site, "verify", plan="reboot_over_ssh", memory={})).status == "done"
    disk = {**REPORT, "code": "nvme", "device": "nvme0n1"}
    assert site.act_one(fresh(site, "verify", plan="reboot_over_ssh", memory={"report": disk})).status == "done"
    assert [call for call in site.asked if "gpu-look" in call] == []
    site.helper["ssh-node1", "gpu-look"] = gpu()
    site.act_one(fresh(site, "verify", memory={}))
    assert site.asked[-1][1:2] == ("gpu-look",), "all of them, after a reset that a person asked for"
