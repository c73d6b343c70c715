# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node's kernel log reported: whether it is still so, what is done about it, and what the ledger remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Unreachable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, plans, reported
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.reported import (
    GpuLook,
    Repair,
    Report,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import FAILED, Outcome
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.recovery.test_engine import (
    Engine,
    gate,
)

from .world import BOOT, NEW_BOOT, World, fault_of, probe, settings_of

GPU, OTHER = "0000:05:00", "0000:06:00"
NOW = 10_000.0
FIT = GpuLook("answers", "None", False, False)
SICK = GpuLook("answers", "Reset", False, False)


def report(code: str = "xid119", action: str = "reset_gpu", device: str = GPU, boot_id: str = BOOT) -> Report:
    return Report(code, action, "fatal", device, boot_id)


def repair(how: str, at: float, code: str = "xid119", device: str = GPU, until: Optional[float] = None) -> Repair:
    return Repair(3, code, device, how, at, until)


# ---- what is read --------------------------------------------------------------------------------------------------

BODY = {"code": "xid79", "action": "reboot", "severity": "fatal", "device": GPU, "boot_id": BOOT, "lines": [[1, "x"]]}


def test_a_report_has_no_text_of_the_log() -> None:
    assert reported.parse({**BODY, "verdict": "hardware"}) == Report("xid79", "reboot", "fatal", GPU, BOOT, "hardware")
    assert reported.parse(reported.parse(BODY).as_memory()) == reported.parse(BODY)


@pytest.mark.parametrize("device", ["", "nvme0n1", "mlx5_0/1", "cpu3 bank1", "mc0 CPU_SrcID#0_MC#0_Chan#0_DIMM#0"])
def test_devices_of_all_kinds(device: str) -> None:
    assert reported.parse({**BODY, "device": device}).device == device
    assert not reported.is_gpu(reported.parse({**BODY, "device": device}))


@pytest.mark.parametrize(
    "change",
    [
        {"code": "Xid 79"},
        {"code": "x" * 40},
        {"code": 79},
        {"device": "{{ lookup('pipe','id') }}"},
        {"device": "0000:05:00\n"},
        {"boot_id": "boot"},
        {"action": ["reboot"]},
    ],
)
def test_what_is_not_understood_is_no_report(change: dict[str, Any]) -> None:
    assert reported.parse({**BODY, **change}) == Report("")


@pytest.mark.parametrize("body", [None, [], "xid79", {}, {"report": BODY}])
def test_what_is_none_is_no_report(body: Any) -> None:
    assert reported.parse(body) == Report("")


SAYS = {"code": "xid119", "device": GPU, "ago": 40}


@pytest.mark.parametrize(
    ("findings", "ago"),
    [
        ([SAYS], 40.0),
        ([SAYS, {**SAYS, "ago": 5.5}], 5.5),
        ([{**SAYS, "device": OTHER}], None),
        ([{**SAYS, "code": "xid79"}], None),
        ([{**SAYS, "ago": None}], None),
        ([], None),
        (None, None),
    ],
)
def test_when_the_log_said_it_last(findings: Any, ago: Optional[float]) -> None:
    assert reported.told_ago({"findings": findings}, report()) == ago


# ---- is it there? --------------------------------------------------------------------------------------------------

GONE: list[tuple[str, Report, Optional[float], Optional[GpuLook], tuple[Repair, ...], str]] = [
    ("it is", report(), 5.0, SICK, (), ""),
    ("nobody knows the GPU's state", report(), 5.0, GpuLook("absent"), (), ""),
    ("its driver does not say", report(), 5.0, GpuLook("answers", "", None, None), (), ""),
    ("it is lost", report("xid79", "reboot"), 5.0, GpuLook("lost"), (), ""),
    ("an earlier boot", report(boot_id=NEW_BOOT), 5.0, SICK, (), "earlier boot"),
    ("the log does not say so", report(), None, SICK, (), "does not say xid119"),
    ("no recovery is needed", report(), 5.0, FIT, (), "no recovery is needed"),
    ("a row waits", report(), 5.0, replace(FIT, pending=True), (), ""),
    ("a row could not be remapped", report(), 5.0, replace(FIT, remap_failed=True), (), ""),
    ("a person must look, whatever the driver says", report("xid54", "drain_and_report"), 5.0, FIT, (), ""),
    ("reset since", report(), 50.0, SICK, (repair("reset", NOW - 40, until=NOW - 20),), "were reset since"),
    ("again after a reset", report(), 5.0, SICK, (repair("reset", NOW - 40, until=NOW - 20),), ""),
    ("a reset of another GPU of the node", report(), 50.0, SICK,
     (repair("reset", NOW - 40, device=OTHER, until=NOW - 20),), "were reset since"),
    ("a reset that failed", report(), 50.0, SICK, (repair("reset", NOW - 40),), ""),
    ("a disk is not reset with a GPU", report("nvme", "reboot", "nvme0n1"), 50.0, None,
     (repair("reset", NOW - 40, until=NOW - 20),), ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "ago", "gpu", "repairs", "why"), GONE, ids=[row[0] for row in GONE])
def test_why_it_is_not_there(
    name: str, what: Report, ago: Optional[float], gpu: Optional[GpuLook], repairs: tuple[Repair, ...], why: str
) -> None:
    told = reported.why_not_there(what, BOOT, ago, gpu, repairs, NOW)
    assert (why in told) if why else told == "", name


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (FIT, ""),
        (GpuLook("answers", "", None, None), ""),
        (GpuLook("lost"), "it is lost"),
        (SICK, "asks for: Reset"),
        (replace(FIT, pending=True), "waits for a reset"),
        (replace(FIT, remap_failed=True), "could not be remapped"),
    ],
)
def test_whether_a_gpu_is_fit_after_its_repair(gpu: GpuLook, why: str) -> None:
    assert (why in reported.why_unfit(gpu)) if why else reported.why_unfit(gpu) == ""


# ---- what is done --------------------------------------------------------------------------------------------------

ECC = {"code": "xid48", "device": GPU}
REMEDIES: list[tuple[str, Report, Optional[GpuLook], tuple[Repair, ...], bool, str, str]] = [
    ("as the catalogue says", report(), SICK, (), True, "reset_gpu", "xid119 of 0000:05:00"),
    ("as the catalogue says", report("xid79", "reboot"), GpuLook("lost"), (), True, "reboot", "xid79"),
    ("as the catalogue says", report("xid54", "drain_and_report"), FIT, (), True, "quarantine", "look at the hardware"),
    ("the application's", report("xid31", "restart_app"), FIT, (), True, "", "nothing is to be done"),
    ("unknown", report("xid999", "report"), SICK, (), True, "", "nothing is to be done"),
    ("unknown, whatever it asks for", replace(report(), verdict="unknown"), SICK, (), True, "",
     "nothing is to be done"),
    ("the application's, whatever it asks for", replace(report(), verdict="application"), SICK, (), True, "",
     "nothing is to be done"),
    ("hardware", replace(report(), verdict="hardware"), SICK, (), True, "reset_gpu", ""),
    ("an action that nobody knows", report("xid999", "explode"), SICK, (), True, "", "nothing is to be done"),
    ("no nvidia-smi", report(), GpuLook("absent"), (), True, "reboot", "cannot be reset"),
    ("nvidia-smi hangs", report(), GpuLook("silent"), (), True, "reboot", "cannot be reset"),
    ("an NVSwitch", report("sxid12028"), None, (), True, "reboot", "is not known"),
    ("its driver wants more", report(), replace(SICK, recovery="Reboot"), (), True, "reboot", "asks for a reboot"),
    ("reset lately", report(), SICK, (repair("reset", NOW - 10),), True, "reboot", "repaired already (reset"),
    ("reset long ago", report(), SICK, (repair("reset", NOW - 9000),), True, "reset_gpu", ""),
    ("another was reset", report(), SICK, (repair("reset", NOW - 10, device=OTHER),), True, "reset_gpu", ""),
    ("jobs are cut off", report(), SICK, (), False, "reboot", "does not wait for the jobs"),
    ("ECC for the first time", report("xid48"), SICK, (), True, "reset_gpu", ""),
    ("ECC again, after years", report("xid95"), SICK, (repair("reset", 1.0, **ECC),), True, "quarantine",
     "replace GPU 0000:05:00: xid95 again after the reset of incident #3"),
    ("ECC again, after a reboot", report("xid64"), SICK, (repair("reboot", 1.0, **ECC),), True, "quarantine",
     "after the reboot"),
    ("ECC of another GPU", report("xid48"), SICK, (repair("reset", 1.0, code="xid48", device=OTHER),), True,
     "reset_gpu", ""),
    ("another fault of the same GPU", report("xid48"), SICK, (repair("reset", 1.0),), True, "reset_gpu", ""),
    ("ECC before, another fault now", report(), SICK, (repair("reset", 1.0, **ECC),), True, "reset_gpu", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "what", "gpu", "repairs", "waits", "plan", "why"), REMEDIES, ids=[row[0] for row in REMEDIES]
)
def test_remedy(
    name: str,
    what: Report,
    gpu: Optional[GpuLook],
    repairs: tuple[Repair, ...],
    waits: bool,
    plan: str,
    why: str,
) -> None:
    found = reported.remedy(what, gpu, repairs, NOW - 3600, waits)
    assert (found.plan, why in found.why) == (plan, True), name


# ---- claim to close, over a real ledger ----------------------------------------------------------------------------


class GpuWorld(World):
    """Nodes whose helper also tells of GPUs and the kernel's log."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Any = [{"code": "xid119", "device": GPU, "ago": 3}]
        self.gpu: Any = {"device": GPU, "state": "answers", "recovery": "Reset", "pending": False}
        self.called: list[str] = []

    def call(self, requests: Any, deadline: float) -> dict[str, NodeAnswer]:
        self.called += [words[0] for words in requests.values()]
        answers = super().call(requests, deadline)
        told = {"kernel-look": {"findings": self.log}, "gpu-look": {"state": "answers", "gpus": [self.gpu]}}
        for address, words in requests.items():
            if words[0] in told and answers[address].error is None:
                answers[address] = NodeAnswer(data=told[words[0]])
                if isinstance(self.log, Exception) and words[0] == "kernel-look":
                    answers[address] = NodeAnswer(error=self.log)
        return answers


@pytest.fixture(name="engine")
def _engine(ledger: LedgerSettings, store: Store, tmp_path: Any) -> Engine:
    world = GpuWorld()
    for name in ("node1", "node2", "node3"):
        store.machines.put(world.add(name))
    return Engine(ledger, settings_of(ledger, str(tmp_path)), world)


def kept(store: Store, body: dict[str, Any], node: str = "node1", kind: str = "gpu_fault", of: str = "") -> Fault:
    """The fault of a report that was kept in the ledger."""
    number = store.records.keep("node:" + (of or node), kind, "node_agent", body)
    return replace(fault_of(node, kind=kind, suggested="reset_gpu"), evidence_ref=number)


def body_of(code: str = "xid119", action: str = "reset_gpu", **more: Any) -> dict[str, Any]:
    return {"code": code, "action": action, "severity": "fatal", "device": GPU, "boot_id": BOOT, "lines": [], **more}


def test_a_reset_from_the_report_to_the_close(engine: Engine, store: Store) -> None:
    claimed = engine.claim(kept(store, body_of()))
    assert [each["plan"] for each in claimed["incidents"]] == ["reset_gpu"]
    assert list(plans.PLANS["reset_gpu"]) == [step for step in claimed["steps"] if step in plans.PLANS["reset_gpu"]]
    steps = engine.run(claimed)
    work = steps["reset_gpu"].acted[0]
    assert work.memory[decide.REPORTED] == reported.parse(body_of()).as_memory()
    closed = store.incidents.get(claimed["incidents"][0]["incident"])
    assert closed is not None
    assert (closed.state, closed.plan) == ("closed", "reset_gpu")
    # the same line, told again: it was answered by this reset
    engine.world.log = [{"code": "xid119", "device": GPU, "ago": 3600}]
    again = engine.claim(kept(store, body_of()))
    assert (gate(again), "were reset since" in again["refused"][0]["why"]) == (["gone"], True)
    # a new line after it: the milder way was tried
    engine.world.log = [{"code": "xid119", "device": GPU, "ago": 0}]
    assert [each["plan"] for each in engine.claim(kept(store, body_of()))["incidents"]] == ["reboot_over_ssh"]


def test_a_second_ecc_incident_of_a_gpu_is_a_persons(engine: Engine, store: Store) -> None:
    engine.world.log = [{"code": "xid48", "device": GPU, "ago": 0}]
    engine.run(engine.claim(kept(store, body_of("xid48"))))
    engine.world.log = [{"code": "xid95", "device": GPU, "ago": 0}]
    claimed = engine.claim(kept(store, body_of("xid95")))
    assert [each["plan"] for each in claimed["incidents"]] == ["quarantine_node"]
    engine.run(claimed)
    left = store.incidents.get(claimed["incidents"][0]["incident"])
    assert left is not None
    assert (left.state, left.why.startswith("replace GPU " + GPU)) == ("escalated", True)


NOT_BELIEVED: list[tuple[str, Callable[[World, Store], Fault], str, str]] = [
    ("an earlier boot", lambda _world, store: kept(store, body_of(boot_id=NEW_BOOT)), "gone", "earlier boot"),
    ("no boot", lambda _world, store: kept(store, body_of(boot_id="")), "gone", "not on record"),
    ("of another node", lambda _world, store: kept(store, body_of(), of="node2"), "gone", "not on record"),
    ("of another kind", lambda _world, store: replace(kept(store, body_of(), kind="kernel_fault"), kind="gpu_fault"),
     "gone", "not on record"),
    ("no evidence", lambda _world, _store: fault_of("node1", kind="gpu_fault", suggested="reset_gpu"), "gone",
     "not on record"),
    ("a log that does not say so", lambda world, store: setattr(world, "log", []) or kept(store, body_of()), "gone",
     "does not say"),
    ("a log that nobody can read", lambda world, store: setattr(world, "log", Absent("no agent"))
     or kept(store, body_of()), "gone", "cannot be looked at"),
    ("a log that is not read in time", lambda world, store: setattr(world, "log", Unreachable("no answer"))
     or kept(store, body_of()), "gone", "cannot be looked at"),
    ("a GPU that is well", lambda world, store: world.gpu.update(recovery="None") or kept(store, body_of()), "gone",
     "no recovery is needed"),
    ("a node that is silent", lambda world, store: world.freeze("node1") or kept(store, body_of()), "gone",
     "helper does not answer"),
    ("another machine", lambda world, store: world.probes.update({"ssh-node1": probe(machine_id="f" * 32)})
     or kept(store, body_of()), "identity", "another machine-id"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "prepare", "refused", "why"), NOT_BELIEVED, ids=[row[0] for row in NOT_BELIEVED])
def test_a_report_alone_is_not_believed(
    engine: Engine, store: Store, name: str, prepare: Callable[[World, Store], Fault], refused: str, why: str
) -> None:
    answer = engine.claim(prepare(engine.world, store))
    assert (gate(answer), why in answer["refused"][0]["why"]) == ([refused], True), (name, answer["refused"])
    assert store.incidents.live() == []


SUGGESTED = [
    ("reset_gpu", "reset_gpu", "reset_gpu"),
    ("reset_gpu", "reboot", "reboot_over_ssh"),  # the rule of all GPU faults names one playbook
    ("reset_gpu", "drain_and_report", "quarantine_node"),
    ("reset_gpu", "report", ""),
    ("reboot_node", "reset_gpu", "reboot_over_ssh"),  # the site prefers it
    ("quarantine_node", "reset_gpu", "quarantine_node"),
    ("quarantine_node", "report", ""),
    ("report", "reboot", ""),
]


@pytest.mark.parametrize(("suggested", "action", "plan"), SUGGESTED)
def test_the_action_decides_and_a_site_may_want_a_person_to_look(
    engine: Engine, store: Store, suggested: str, action: str, plan: str
) -> None:
    fault = replace(kept(store, body_of(action=action)), suggested=suggested)
    claimed = engine.claim(fault)
    assert [each["plan"] for each in claimed["incidents"]] == ([plan] if plan else [])
    assert [each["target"] for each in claimed["ended"]] == ([] if plan else ["node1"])


def test_a_reset_that_fails_is_a_reboot_once_and_then_a_persons(engine: Engine, store: Store) -> None:
    def fails(work: Any, _tools: Any) -> Outcome:
        return Outcome(work.incident, FAILED, "in use")

    first = engine.claim(kept(store, body_of()))
    engine.run(first, {"reset_gpu": fails})
    number = first["incidents"][0]["incident"]
    following = store.incidents.get(number)
    assert following is not None
    assert (following.plan, following.step) == ("reboot_over_ssh", "await_drained")
    engine.world.state("node1", "IDLE", "DRAIN", reason=following.reason)
    engine.run(engine.due(number))
    assert store.steps.get(number, following.round, "reboot") is not None
    engine.world.state("node1", "IDLE")
    second = engine.claim(kept(store, body_of(device=GPU)))
    assert [each["plan"] for each in second["incidents"]] == ["quarantine_node"], "it was rebooted lately"


def test_what_was_stopped_is_started_although_the_node_is_left_to_a_person(engine: Engine, store: Store) -> None:
    store.database.write("DELETE FROM steps")
    first = engine.claim(kept(store, body_of(), "node2", of="node2"))
    engine.world.log = [{"code": "xid119", "device": GPU, "ago": 0}]
    number = first["incidents"][0]["incident"]
    # a reboot of the node for something else, within the window
    store.database.write(
        "INSERT INTO steps (incident, round, step, machine, token, status, tries, intent, proof, started_at, "
        "last_started_at) VALUES (999, 0, 'reboot', 'node2', 't', 'done', 0, '', '', UNIX_TIMESTAMP(), 0)"
    )
    steps = engine.run(first, {"reset_gpu": lambda work, _tools: Outcome(work.incident, FAILED, "in use")})
    assert [work.plan for work in steps["start_gpu_clients"].acted] == ["quarantine_after_reset"]
    left = store.incidents.get(number)
    assert left is not None
    assert (left.state, "no reboot is left" in left.why) == ("escalated", True)
