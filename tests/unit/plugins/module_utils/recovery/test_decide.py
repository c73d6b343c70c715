# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which plan for which fault, which way after a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import NodeView
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import Workload
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import decide, plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.gates import Case, History
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import (
    JobLook,
    NodeLook,
    PowerLook,
    ShellLook,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    Limits,
    Settings,
    parse,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Job, Node
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.suspects import End

UUID = "4c4c4544-0042-3010-8058-c7c04f4a4e32"
MACHINE = Machine("n1", "n1", "k1", "10.0.0.1", "https://bmc/n1", UUID, "a" * 32, "boot-1")

DEAD_DAEMON = ShellLook(True, True, "boot-1", "", False, False)
LIVE_DAEMON = ShellLook(True, True, "boot-1", "", True, True)
OTHER_BOOT = ShellLook(True, True, "boot-2", "", True, True)
UNKNOWN_DAEMON = ShellLook(True, True, "boot-1", "", None, None)
SILENT = ShellLook(False)
BANNER_ONLY = ShellLook(True)
REFUSED = ShellLook(None)
BMC = PowerLook("On", UUID)
OFF = PowerLook("Off", UUID)
DEAF = ShellLook(False, connects=False)
SLURM_DOWN = Node("n1", "DOWN", ("NOT_RESPONDING",), reason="Not responding")
SLURM_SILENT = Node("n1", "IDLE", ("NOT_RESPONDING",))
SLURM_FINE = Node("n1", "ALLOCATED", ())
SLURM_BACK = Node("n1", "DOWN", (), reason="Not responding")


def case(
    kind: str,
    shell: Optional[ShellLook] = None,
    slurm: Optional[Node] = SLURM_SILENT,
    power: Optional[PowerLook] = None,
    suggested: str = "",
    history: Optional[dict[str, Any]] = None,
    request: Optional[Request] = None,
    scheduler: str = "slurm",
    machine: Machine = MACHINE,
    dump: float = 0.0,
    opened_at: Optional[float] = None,
    ready: str = "",
) -> Case:
    look = NodeLook(machine, slurm, NodeView("k1", ready=ready) if ready else None, shell, power)
    return Case(
        kind,
        scheduler,
        Target("node", "n1"),
        0.0,
        look,
        History(**(history or {})),
        Settings("lab", limits=Limits(crash_dump_time=dump)),
        100.0,
        suggested or KINDS[kind].remediation,
        request or Request(),
        opened_at=opened_at,
    )


WAIT = ""
ROWS = [
    ("the daemon alone", case("node_not_responding", DEAD_DAEMON), "restart_daemon"),
    (
        "no boot on record",
        case("node_not_responding", DEAD_DAEMON, machine=replace(MACHINE, boot_id="")),
        "restart_daemon",
    ),
    ("restarted too often", case("node_not_responding", DEAD_DAEMON, history={"restarts": 3}), "reboot_over_ssh"),
    ("alive, and Slurm hears nothing for a moment", case("node_not_responding", LIVE_DAEMON), WAIT),
    ("alive, and Slurm gave it up", case("node_not_responding", LIVE_DAEMON, SLURM_DOWN), "reboot_over_ssh"),
    ("rebooted by itself", case("node_not_responding", OTHER_BOOT), "return_node"),
    ("daemon unknown", case("node_not_responding", UNKNOWN_DAEMON), WAIT),
    ("silent, BMC proved", case("node_not_responding", SILENT, power=BMC), "reboot_by_power"),
    ("it may be writing a dump", case("node_not_responding", SILENT, power=BMC, dump=60.0), WAIT),
    ("it may still be", case("node_not_responding", SILENT, power=BMC, dump=60.0, opened_at=41.0), WAIT),
    ("the dump is over", case("node_not_responding", SILENT, power=BMC, dump=60.0, opened_at=40.0), "reboot_by_power"),
    ("no power, no dump", case("node_not_responding", SILENT, power=OFF, dump=60.0), "reboot_by_power"),
    ("silent, no BMC", case("node_not_responding", SILENT), WAIT),
    ("silent, BMC of another", case("node_not_responding", SILENT, power=PowerLook("On", "x")), WAIT),
    (
        "silent, no UUID on record",
        case("node_not_responding", SILENT, power=BMC, machine=replace(MACHINE, smbios_uuid="")),
        WAIT,
    ),
    ("silent, no BMC, Slurm gave it up", case("node_not_responding", SILENT, SLURM_DOWN), "return_node"),
    ("off, and Slurm has not noticed", case("node_not_responding", DEAF, SLURM_FINE, OFF), "reboot_by_power"),
    ("silent for long, Slurm has not noticed", case("node_not_responding", DEAF, SLURM_FINE, BMC), "reboot_by_power"),
    ("silent for long, no BMC", case("node_not_responding", DEAF, SLURM_FINE), WAIT),
    (
        "silent for long, BMC of another",
        case("node_not_responding", DEAF, SLURM_FINE, PowerLook("Off", "x")),
        WAIT,
    ),
    ("sshd only", case("node_not_responding", BANNER_ONLY, power=BMC), WAIT),
    ("sshd only, Slurm gave it up", case("node_not_responding", BANNER_ONLY, SLURM_DOWN, BMC), "reboot_by_power"),
    ("booting or sshd dead", case("node_not_responding", REFUSED, power=BMC), WAIT),
    ("nobody looked", case("node_not_responding"), WAIT),
    ("back meanwhile", case("node_not_responding", BANNER_ONLY, SLURM_BACK, BMC), "return_node"),
    (
        "rebooted in the window",
        case("node_not_responding", SILENT, power=BMC, history={"reboots": 1}),
        "quarantine_node",
    ),
    (
        "rebooted in the window, overridden",
        case(
            "requested",
            SILENT,
            power=BMC,
            suggested="reboot_node",
            history={"reboots": 1},
            request=Request("bob", "x", ("cooldown",)),
        ),
        "reboot_by_power",
    ),
    # Slurm hears the node and runs jobs there: whatever else is wrong, its power is not cut off under them
    ("not Ready, slow SSH, jobs", case("kubernetes_node_not_ready", SILENT, SLURM_FINE, BMC, ready="Unknown"), WAIT),
    ("stuck pods, no SSH, jobs", case("pod_stuck_terminating", DEAF, SLURM_FINE, BMC, ready="True"), WAIT),
    ("no daemon, no SSH, jobs", case("daemon_down", SILENT, SLURM_FINE, BMC), WAIT),
    ("a stuck job, no SSH, other jobs", case("job_stuck_completing", SILENT, SLURM_FINE, BMC), "reboot_over_ssh"),
    ("drained by Slurm, no SSH, jobs", case("node_drained", SILENT, SLURM_FINE, BMC), "reboot_over_ssh"),
    ("drained by Slurm, no SSH, jobs, no BMC", case("node_drained", SILENT, SLURM_FINE), WAIT),
    ("drained by Slurm, off", case("node_drained", DEAF, SLURM_FINE, OFF), "reboot_by_power"),
    ("no Kubernetes, off", case("kubernetes_node_not_ready", DEAF, SLURM_FINE, OFF), "reboot_by_power"),
    ("slurmd", case("daemon_down", DEAD_DAEMON), "restart_daemon"),
    ("slurmd, the node too", case("daemon_down", SILENT, power=BMC), "reboot_by_power"),
    ("node_rebooted", case("node_rebooted", OTHER_BOOT, SLURM_BACK), "return_node"),
    ("node_back", case("node_back", LIVE_DAEMON, SLURM_BACK), "return_node"),
    ("kubelet", case("kubernetes_node_not_ready", DEAD_DAEMON, None, scheduler="kubernetes"), "restart_daemon"),
    (
        "kubernetes, silent",
        case("kubernetes_node_not_ready", SILENT, power=BMC, scheduler="kubernetes"),
        "reboot_by_power",
    ),
    ("kubelet lives", case("kubernetes_node_not_ready", LIVE_DAEMON, scheduler="kubernetes"), WAIT),
    (
        "kubelet lives, and the node stays not Ready",
        replace(case("kubernetes_node_not_ready", LIVE_DAEMON, scheduler="kubernetes"), opened_at=30.0),
        "reboot_over_ssh",
    ),
    ("stuck pods", case("pod_stuck_terminating", SILENT, power=BMC, scheduler="kubernetes"), "reboot_by_power"),
    ("drained by Slurm", case("node_drained", LIVE_DAEMON), "reboot_over_ssh"),
    ("drained by Slurm, site says clean", case("node_drained", LIVE_DAEMON, suggested="clean_spool"), "clean_spool"),
    ("drained by Slurm, silent", case("node_drained", SILENT, power=BMC), "reboot_by_power"),
    ("suspect", case("node_suspect", LIVE_DAEMON), "quarantine_node"),
    ("reboot failed", case("reboot_failed", SILENT, power=BMC), "quarantine_node"),
    ("sick by a condition", case("kubernetes_node_condition", LIVE_DAEMON, scheduler="kubernetes"), ""),
    (
        "sick by a condition, the site reboots",
        case("kubernetes_node_condition", LIVE_DAEMON, suggested="reboot_node", scheduler="kubernetes"),
        "reboot_over_ssh",
    ),
    (
        "sick by a condition, the site quarantines",
        case("kubernetes_node_condition", LIVE_DAEMON, suggested="quarantine_node", scheduler="kubernetes"),
        "quarantine_node",
    ),
    ("no sandboxes", case("pod_stuck_creating", LIVE_DAEMON, scheduler="kubernetes"), ""),
    (
        "no sandboxes, the site reboots",
        case("pod_stuck_creating", LIVE_DAEMON, suggested="reboot_node", scheduler="kubernetes"),
        "reboot_over_ssh",
    ),
    ("misconfigured", case("node_misconfigured", LIVE_DAEMON), ""),
    ("a site that only wants reports", case("node_not_responding", SILENT, power=BMC, suggested="report"), ""),
    ("asked: reboot", case("requested", LIVE_DAEMON, suggested="reboot_node"), "reboot_over_ssh"),
    ("asked: restart", case("requested", LIVE_DAEMON, suggested="restart_daemon"), "restart_daemon"),
    ("asked: quarantine", case("requested", LIVE_DAEMON, suggested="quarantine_node"), "quarantine_node"),
    ("asked: clean", case("requested", LIVE_DAEMON, suggested="clean_spool"), "clean_spool"),
    ("asked: return", case("requested", LIVE_DAEMON, suggested="return_node"), "return_node"),
]


@pytest.mark.parametrize(("made", "plan"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_plan(made: Case, plan: str) -> None:
    decision = decide.decide(made)
    assert decision.plan == plan
    assert decision.why
    if plan:
        assert plan in plans.PLANS
        assert decision.memory["boot_id"] == made.look.machine.boot_id if made.look.machine.boot_id else True


@pytest.mark.parametrize(
    ("made", "by_probes"),
    [
        (case("node_not_responding", DEAF, SLURM_FINE, OFF), True),
        (case("node_not_responding", DEAF, SLURM_FINE, BMC), True),
        (case("node_not_responding", DEAF, SLURM_SILENT, BMC), False),
        (case("kubernetes_node_not_ready", DEAF, SLURM_FINE, BMC, scheduler="kubernetes", ready="Unknown"), False),
    ],
)
def test_a_loss_that_only_we_have_noticed_is_remembered_as_such(made: Case, by_probes: bool) -> None:
    decision = decide.decide(made)
    assert decision.plan == "reboot_by_power"
    assert decision.memory.get(plans.BY_PROBES, False) is by_probes


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (case("node_not_responding", SILENT), waits.NODE_STATE_CHANGED),
        (case("node_not_responding", SILENT, None), waits.TIME),
        (case("node_misconfigured", SILENT), None),
    ],
)
def test_what_is_waited_for(made: Case, kind: Optional[str]) -> None:
    wait = decide.decide(made).wait
    assert (wait.kind if wait else None) == kind
    assert wait is None or wait.until > made.now


@pytest.mark.parametrize(("shell", "same"), [(LIVE_DAEMON, True), (OTHER_BOOT, False)])
def test_a_return_remembers_whether_it_is_the_same_boot(shell: ShellLook, same: bool) -> None:
    assert decide.decide(case("node_back", shell, SLURM_BACK)).memory["same_boot"] is same


@pytest.mark.parametrize(
    ("kind", "scheduler", "suggested", "plan"),
    [
        ("job_failed", "slurm", "requeue_job", "requeue_job"),
        ("stale_spool", "slurm", "requeue_job", "requeue_job"),
        ("job_launch_held", "slurm", "requeue_job", "requeue_job"),
        ("job_failed", "slurm", "report", ""),
        ("kubernetes_job_failed", "kubernetes", "rerun_kubernetes_job", "rerun_kubernetes_job"),
        ("kubernetes_job_unrecovered", "kubernetes", "report", ""),
        ("kubernetes_job_unrecovered", "kubernetes", "rerun_kubernetes_job", ""),
        ("kubernetes_job_stalled", "kubernetes", "report", ""),
        ("requested", "slurm", "requeue_job", "requeue_job"),
        ("requested", "kubernetes", "rerun_kubernetes_job", "rerun_kubernetes_job"),
    ],
)
def test_jobs(kind: str, scheduler: str, suggested: str, plan: str) -> None:
    look = JobLook(job=Job(7, "FAILED"))
    made = Case(kind, scheduler, Target("job", "7"), 0.0, look, History(), Settings("lab"), 0.0, suggested, Request())
    assert decide.decide(made).plan == plan


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (Workload("PyTorchJob", "a", "x", "u", State.WAITING), "the PyTorchJob lost pods and is waiting"),
        (Workload("RayJob", "a", "x", "u", State.FAILED), "the RayJob lost pods and is failed"),
        (Workload("Pod", "a", "x", "u", State.FAILED), "the pod was ended by its infrastructure and has no owner"),
        (Workload("Pod", "a", "x", "u", State.FAILED, owner="New\x1b[2J/y"), "belongs to New\\x1b[2J/y, of which"),
        (None, "what a person should look at"),
    ],
)
@pytest.mark.parametrize("suggested", ["report", "rerun_kubernetes_job"])
def test_work_of_other_owners_is_only_told_of(work: Optional[Workload], why: str, suggested: str) -> None:
    target, look = Target("job", "a/x", "u"), JobLook(workload=work)
    kind = "kubernetes_workload_unrecovered"
    made = Case(kind, "kubernetes", target, 0.0, look, History(), Settings("lab"), 0.0, suggested, Request())
    decision = decide.decide(made)
    assert (decision.plan, why in decision.why) == ("", True), decision.why


@pytest.mark.parametrize(
    ("state", "wish", "plan"),
    [
        ("FAILED", "requeue", "requeue_job"),
        ("FAILED", "report", ""),
        ("TIMEOUT", "report", ""),
        ("TIMEOUT", "requeue", "requeue_job"),
    ],
)
def test_what_follows_the_end_that_is_seen_now(state: str, wish: str, plan: str) -> None:
    """Whatever the event suggested: the job may have run, and ended in another way, since."""
    settings = parse({"cluster": "lab", "scope": {"partitions": ["main"]}, "job_ends": {state: wish}})
    look = JobLook(job=Job(7, state, nodes=("n1", "n2"), restart_count=1, uid=5, user="a", end_time=9, exit_code="1:0"))
    target, asked = Target("job", "7"), Request()
    made = Case("job_failed", "slurm", target, 0.0, look, History(), settings, 0.0, "requeue_job", asked)
    decision = decide.decide(made)
    assert decision.plan == plan
    if plan:
        failed = {"state": state, "exit_code": "1:0", "nodes": "n[1-2]", "user": "a", "at": 9, "started": 0}
        seen = {"restart_count": 1, "uid": 5}
        assert decision.memory == {"job_seen": seen, "failed_run": failed, "attempt": [1, 3]}


@pytest.mark.parametrize(
    ("kind", "nodes", "plan"),
    [
        ("job_failed", ("n2",), "tell_user"),
        ("job_failed", ("n1",), "requeue_job"),
        ("stale_spool", ("n2",), "requeue_job"),
        ("requested", ("n2",), "requeue_job"),  # a person asked for it
    ],
)
def test_a_failure_of_the_application_is_told_and_not_repeated(kind: str, nodes: tuple, plan: str) -> None:
    former = {"failed_run": {"state": "FAILED", "exit_code": "1:0", "nodes": "n1"}}
    look = JobLook(job=Job(7, "FAILED", exit_code="1:0", nodes=nodes, uid=5))
    history, target, asked = History(attempts=1, former=(former,)), Target("job", "7"), Request()
    made = Case(kind, "slurm", target, 0.0, look, history, Settings("lab"), 0.0, "requeue_job", asked)
    decision = decide.decide(made)
    assert decision.plan == plan
    if plan == "tell_user":
        assert decision.memory == {"tell": decision.why}
        assert "FAILED 1:0" in decision.why
    else:
        assert decision.memory["attempt"] == [2, 3]


def test_a_suspect_node_is_quarantined_with_its_evidence() -> None:
    failures = (End("7", "alice", "FAILED", 1), End("8", "b\x1b[2Jb", "NODE_FAIL", 2))
    made = case("node_suspect", LIVE_DAEMON)
    decision = decide.decide(replace(made, look=replace(made.look, failures=failures)))
    assert decision.plan == "quarantine_node"
    assert "7 of alice (FAILED), 8 of b\\x1b[2Jb (NODE_FAIL)" in decision.why
    assert [each["job"] for each in decision.memory["failures"]] == ["7", "8"]


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.target == "node"])
def test_every_kind_has_a_decision(kind: str) -> None:
    decide.decide(case(kind, LIVE_DAEMON, suggested=KINDS[kind].remediation))


@pytest.mark.parametrize(
    ("plan", "step", "has_bmc", "reboots_left", "following"),
    [
        ("restart_daemon", "restart_daemon", True, True, "reboot_over_ssh"),
        ("restart_daemon", "confirm", True, False, "quarantine_node"),
        ("reboot_over_ssh", "reboot", True, True, "reboot_by_power"),
        ("reboot_over_ssh", "await_boot", True, False, "reboot_by_power"),
        ("reboot_over_ssh", "await_boot", False, True, ""),
        ("reboot_over_ssh", "verify", True, True, ""),
        ("reboot_over_ssh", "drain", True, True, ""),
        ("reboot_by_power", "fence", True, True, ""),
        ("reboot_by_power", "await_boot", True, True, ""),
        ("return_node", "await_boot", True, True, ""),
        ("requeue_job", "requeue", False, True, ""),
        ("rerun_kubernetes_job", "rerun", False, True, ""),
    ],
)
def test_after_a_failure(plan: str, step: str, has_bmc: bool, reboots_left: bool, following: str) -> None:
    decision = decide.after_failure(plan, step, "it did not", has_bmc, reboots_left)
    assert decision.plan == following
    assert "it did not" in decision.why
    assert following == "" or following in decide.fallbacks(plan)


@pytest.mark.parametrize(
    ("plan", "step", "gone", "following"),
    [
        ("reboot_over_ssh", "await_drained", True, "return_node"),
        ("reboot_over_ssh", "await_drained", False, ""),
        ("clean_spool", "await_drained", True, ""),
        ("reboot_over_ssh", "verify", True, ""),
    ],
)
def test_a_node_whose_pods_may_not_go_and_whose_fault_is_gone(plan: str, step: str, gone: bool, following: str) -> None:
    assert decide.after_failure(plan, step, "budget web", True, True, None, gone).plan == following


@pytest.mark.parametrize(
    ("plan", "done", "first"),
    [
        ("reboot_by_power", {}, "drain"),
        ("reboot_by_power", {"drain": True, "cordon": True, "await_boot": True}, "fence"),
        ("reboot_by_power", {"cordon": True}, "drain"),
        ("quarantine_node", {"drain": True, "cordon": True}, "save_evidence"),
    ],
)
def test_where_the_next_plan_begins(plan: str, done: dict[str, bool], first: str) -> None:
    assert decide.first_step(plan, done) == first


@pytest.mark.parametrize(
    ("plan", "step", "held", "cordoned"),
    [
        ("reboot_over_ssh", "drain", False, False),
        ("reboot_over_ssh", "cordon", True, False),
        ("reboot_over_ssh", "await_drained", True, True),
        ("reboot_over_ssh", "uncordon", True, False),  # it may have been done by a run that died
        ("reboot_over_ssh", "resume", False, False),
        ("reboot_by_power", "release_pods", True, True),
        ("quarantine_node", "cordon", False, False),
        ("clean_spool", "clean_spool", True, False),
        ("", "", False, False),
    ],
)
def test_what_an_incident_holds(plan: str, step: str, held: bool, cordoned: bool) -> None:
    assert (plans.is_held(plan, step), plans.is_cordoned(plan, step)) == (held, cordoned)


def test_every_step_has_its_time() -> None:
    limits = Limits()
    assert all(decide.step_seconds(step, limits) > 0 for step in plans.ORDER)
    assert decide.step_seconds(plans.AWAIT_BOOT, limits) == limits.boot_timeout
    for step in (plans.RERUN, plans.END_ORPHANS):  # what ran on a lost node ends with its boot
        assert decide.step_seconds(step, limits) > limits.boot_timeout


def test_a_dump_is_waited_for_until_its_time_is_over() -> None:
    decision = decide.decide(case("node_not_responding", SILENT, power=BMC, dump=60.0, opened_at=90.0))
    assert decision.wait is not None
    assert (decision.wait.kind, decision.wait.until) == ("node_state_changed", 150.0)
    assert "crash dump" in decision.why
