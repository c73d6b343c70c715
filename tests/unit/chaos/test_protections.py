# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The chaos suite's own checks are proved: with a protection taken out, the invariant that it serves is broken.

Each row is a story in which the protection is needed. It is told twice: as the engine is, when all invariants hold, and
without the protection, when the named one must not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import (
    detect as kubernetes_detect,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import (
    jobs as kubernetes_jobs,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power import redfish
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    dispatch,
    frame,
    gates,
    holds,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.frame import Frame, Guard
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Claims,
    Incidents,
    Steps,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps import (
    await_drained,
    common,
    end_orphans,
    fence,
    free_jobs,
    gpu_clients,
    release_pods,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import job_state, node_state, reasons
from ansible_collections.mission_control.job_recovery.tests.chaos import invariants
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation import adapters
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.blows import Blow
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.gangs import Gang
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.stories import JobPlan, Story, tell
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.strikes import KILL, PAUSE, Strike

Patch = pytest.MonkeyPatch
BEGUN = "sql INSERT INTO steps"  # the step was written down, its act comes
FREEZE = Blow(10, "freeze", "node1")
JOBS = (JobPlan(7, 2, 60.0), JobPlan(8, 1, 60.0))


def _no_look_at_the_lease(patch: Patch) -> None:
    """And nobody notices what is done too late."""
    patch.setattr(Guard, "__call__", lambda self, _work: self._settings.limits.lease)
    patch.setattr(dispatch.left_over, "take_up", lambda _store, _nodes: [])


def _no_lease_before_writing(patch: Patch) -> None:
    """What a run writes is taken whoever holds the claim by now."""

    def write(self: Any, incident: Any, _token: str, sets: str, values: Any) -> None:
        sets = sets.rpartition(", c.")[0]
        self._db.write(
            "UPDATE incidents i LEFT JOIN steps s ON s.incident = i.id AND s.round = %%s AND s.step = %%s SET %s "
            "WHERE i.id = %%s" % sets,
            [incident.round, incident.step, *values, incident.id],
        )

    patch.setattr(Claims, "_write_held", write)


def _two_may_claim(patch: Patch) -> None:
    """Neither the claim nor the unique key of a target's open incident keeps anybody out."""
    take, begin = Claims.take, Incidents.open

    def take_away(self: Any, key: str, token: str, lease: float, incident: int = 0) -> bool:
        self._db.write("DELETE FROM claims WHERE target_key = %s", (key,))
        return take(self, key, token, lease, incident)

    def open_another(self: Any, *args: Any) -> Any:
        self._db.write("UPDATE incidents SET open_key = CONCAT(open_key, '#', id) WHERE open_key = %s", (args[2],))
        return begin(self, *args)

    patch.setattr(Claims, "take", take_away)
    patch.setattr(Incidents, "open", open_another)


def _every_start_is_the_first(patch: Patch) -> None:
    """A step that was begun is begun anew, with what is seen now."""
    start = Steps.start

    def start_anew(self: Any, incident: Any, token: str, intent: Any) -> Any:
        self._db.write(
            "DELETE FROM steps WHERE incident = %s AND round = %s AND step = %s",
            (incident.id, incident.round, incident.step),
        )
        return start(self, incident, token, intent)

    patch.setattr(Steps, "start", start_anew)
    patch.setattr(Frame, "_step_rows", lambda _self, _incidents: [])


def _restart_counts_are_not_compared(patch: Patch) -> None:
    judge = job_state.judge
    patch.setattr(job_state, "judge", lambda state, job, _recorded, *others: judge(state, job, None, *others))


def _no_wait_and_no_look_at_users(patch: Patch) -> None:
    patch.setattr(await_drained, "_drained", lambda work, _tools, _node: common.done(work))
    patch.setattr(adapters, "users_of", lambda _machine: [])


def _reports_are_believed(patch: Patch) -> None:
    """Whatever a node once reported is still so."""
    patch.setattr(gates, "_report_is_old", lambda _case, _look: "")


def _ended_leases_stay(patch: Patch) -> None:
    take = Claims.take

    def take_if_never_taken(self: Any, key: str, *args: Any) -> bool:
        return not self._db.row("SELECT 1 FROM claims WHERE target_key = %s", (key,)) and take(self, key, *args)

    patch.setattr(Claims, "take", take_if_never_taken)


def _stop_is_not_seen_by_the_guard(patch: Patch) -> None:
    renew = Claims.renew
    patch.setattr(Claims, "renew", lambda self, key, token, lease, unless="": renew(self, key, token, lease))
    patch.setattr(frame.stop, "stopped_by_file", lambda _path: "")


def _stop_is_not_seen(patch: Patch) -> None:
    _stop_is_not_seen_by_the_guard(patch)
    patch.setattr(stop, "stopped", lambda _settings, _store: "")


def _off_is_believed(patch: Patch) -> None:
    """The BMC took the request, so the node is off."""
    read = redfish.PowerState("Off", "")
    patch.setattr(redfish.Power, "await_level", lambda *_args: read)


def _nobody_asks_who_cordoned(patch: Patch) -> None:
    """Our annotation is still there, so the cordon is ours."""
    real = nodes.standing

    def standing(node: Any) -> nodes.Standing:
        return real(replace(node, cordon_managers=()))

    for module in (nodes, gates, kubernetes_detect):
        patch.setattr(module, "standing", standing)


@dataclass(frozen=True)
class Protection:
    """What keeps something from happening, how it is taken out, when it is needed, and what is broken without it."""

    name: str
    take_out: Callable[[Patch], None]
    breaks: str
    story: Story

    def __str__(self) -> str:
        return self.name


def _without(module: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(module, name, value)


def _story(*happens: Blow, strikes: tuple[Strike, ...] = (), **more: Any) -> Story:
    return Story("a story", jobs=more.pop("jobs", JOBS), blows=happens, strikes=strikes, **more)


PROTECTIONS = (
    Protection(
        "the lease is looked at before each act",
        _no_look_at_the_lease,
        "no_node_held_without_incident",
        _story(FREEZE, strikes=(Strike(PAUSE, 1, 90.0, "look slurm nodes", "drain", BEGUN),), quiet=150.0),
    ),
    Protection(
        "only the holder of the claim writes",
        _no_lease_before_writing,
        "no_incident_without_owner",
        _story(
            FREEZE,
            strikes=(Strike(KILL, 1, 0, "acted slurm", "drain"), Strike(PAUSE, 2, 90.0, "look slurm nodes", "claim")),
            longest=600.0,
        ),
    ),
    Protection(
        "one run, and one incident, has a target",
        _two_may_claim,
        "no_target_with_two_incidents",
        _story(
            FREEZE,
            Blow(1, "second_controller"),
            strikes=(Strike(PAUSE, 1, 10.0, "look ssh banner", "claim"),),
            longest=400.0,
        ),
    ),
    Protection(
        "the first intent of a step stays",
        _every_start_is_the_first,
        "no_job_requeued_twice",
        _story(jobs=(JobPlan(7, 2, 60.0, 1),), strikes=(Strike(KILL, 1, 0, "acted slurm start", "requeue"),)),
    ),
    Protection(
        "restart counts are compared before a requeue",
        _restart_counts_are_not_compared,
        "no_job_requeued_twice",
        _story(jobs=(JobPlan(7, 2, 60.0, 1),), strikes=(Strike(KILL, 1, 0, "acted slurm start", "requeue"),)),
    ),
    Protection(
        "a node compares its boot ID before it reboots",
        _without(adapters, "is_this_boot", lambda _machine, _request: True),
        "no_node_rebooted_twice",
        _story(Blow(70, "drained", "node1"), strikes=(Strike(KILL, 1, 0, "acted ssh reboot", "reboot"),)),
    ),
    Protection(
        "a node keeps that it has reset its GPU",
        _without(adapters, "was_reset", lambda _record: False),
        "no_gpu_reset_twice",
        _story(Blow(70, "gpu_fault", "node1"), strikes=(Strike(KILL, 1, 0, "acted ssh gpu-reset", "reset_gpu"),)),
    ),
    Protection(
        "a GPU that a job has open is not reset",
        _no_wait_and_no_look_at_users,
        "no_healthy_job_killed",
        _story(Blow(10, "gpu_fault", "node1"), jobs=(JobPlan(7, 1, 60.0),)),
    ),
    Protection(
        "the GPU's own state is looked at before a reset",
        _reports_are_believed,
        "no_node_rebooted_twice",
        _story(Blow(70, "gpu_fault", "node1"), longest=1500.0),
    ),
    Protection(
        "what was stopped for a reset is started again",
        _without(gpu_clients.StartGpuClients, "act", lambda _self, works, _tools: list(map(common.done, works))),
        "no_service_left_stopped",
        _story(Blow(70, "gpu_fault", "node1")),
    ),
    Protection(
        "a node that answers again is not switched off",
        _without(fence, "_answering", lambda _works, _answers, _tools: []),
        "no_node_rebooted_twice",
        _story(
            Blow(10, "cut", "node1", 25.0), strikes=(Strike(KILL, 1, 0, "sql", "cordon"),), deaths_are_seen=False
        ),
    ),
    Protection(
        "no node is switched off while most others are silent",
        _without(fence, "_perhaps_ours", lambda _works, _tools: []),
        "no_healthy_node_switched_off",
        _story(
            Blow(10, "switch_gone", seconds=300.0),
            jobs=(),
            limits={"blast_radius_percent": 100.0, "blast_radius_nodes": 4, "common_cause_nodes": 9},
        ),
    ),
    Protection(
        "a BMC is asked whose it is before each change",
        _without(redfish, "check_identity", lambda _url, _state, _uuid: None),
        "no_healthy_node_switched_off",
        _story(FREEZE, Blow(20, "bmc_foreign", "node1"), strikes=(Strike(PAUSE, 1, 10.0, "sql", "cordon"),)),
    ),
    Protection(
        "off is what the BMC says, not what it was asked for",
        _off_is_believed,
        "no_job_runs_twice_at_once",
        _story(Blow(9, "bmc_slow", "node1"), Blow(10, "cut", "node1", 55.0)),
    ),
    Protection(
        "orphans are ended before a job starts again",
        _without(end_orphans, "_counts", lambda _place, _data: {}),
        "no_job_runs_twice_at_once",
        _story(Blow(10, "lose_step_daemon", "7")),
    ),
    Protection(
        "jobs that are well are waited for before a reboot",
        _without(await_drained, "_drained", lambda work, _tools, _node: common.done(work)),
        "no_healthy_job_killed",
        _story(Blow(10, "drained", "node1")),
    ),
    Protection(
        "only what bears our reason is given back",
        _without(node_state.Request, "owner", lambda _self, _node: reasons.OURS),
        "no_wish_is_overruled",
        _story(
            FREEZE,
            Blow(48, "person_drains", "node1"),
            strikes=(Strike(PAUSE, 1, 10.0, "look", "verify", BEGUN),),
        ),
    ),
    Protection(
        "the stop is looked at when a run begins",
        _stop_is_not_seen,
        "nothing_done_while_stopped",
        _story(FREEZE, Blow(12, "stop", seconds=60.0)),
    ),
    Protection(
        "the stop is looked at before each act",
        _stop_is_not_seen_by_the_guard,
        "nothing_done_while_stopped",
        _story(
            FREEZE, Blow(20, "stop", seconds=60.0), strikes=(Strike(PAUSE, 1, 10.0, "look bmc", "fence"),)
        ),
    ),
    Protection(
        "the blast radius",
        _without(holds, "_held", lambda _store, _limits, _key: 0),
        "no_more_held_than_allowed",
        _story(
            *(Blow(10, "freeze", "node%d" % number) for number in (1, 2, 3)),
            limits={"blast_radius_percent": 25.0},
            most_held=1,
            longest=900.0,
        ),
    ),
    Protection(
        "a job that may live on another silent node is not hurried",
        _without(free_jobs, "_may_live_on", lambda _jobs, _dead, _tools: {}),
        "no_job_runs_twice_at_once",
        _story(
            Blow(10, "freeze", "node1"), Blow(10, "freeze", "node2"), limits={"blast_radius_percent": 25.0}, most_held=1
        ),
    ),
    Protection(
        "the high-water mark",
        _without(stop, "restored", lambda _settings, _store: False),
        "no_job_requeued_too_often",
        _story(
            Blow(5, "restore_for_good", seconds=50.0),
            jobs=(JobPlan(7, 2, 60.0, 3, 1),),
        ),
    ),
    Protection(
        "a drain that arrives late is noticed",
        _without(dispatch.left_over, "take_up", lambda _store, _nodes: []),
        "no_node_held_without_incident",
        _story(FREEZE, Blow(12, "late_drain", seconds=110.0), quiet=200.0),
    ),
    Protection(
        "what is on its way is sent again",
        _without(dispatch, "on_its_way", lambda _tries: 1e9),
        "no_incident_without_owner",
        _story(FREEZE, strikes=(Strike(KILL, 2, 0, "sql INSERT INTO runs", "claim"),), longest=600.0),
    ),
    Protection(
        "a Job runs again only when no pod of it may run",
        _without(kubernetes_jobs, "pods_of", lambda _client, _job: []),
        "no_job_runs_twice_at_once",
        _story(Blow(10, "cut", "node1", 60.0), Blow(9, "bmc_silent", "node1"), jobs=(), gangs=(Gang(101),)),
    ),
    Protection(
        "pods are given up only while the node is off",
        _without(release_pods, "_is_off", lambda _work, _tools: True),
        "nothing_forced_on_a_living_node",
        _story(
            FREEZE,
            Blow(25, "person_switches_on", "node1"),
            strikes=(Strike(PAUSE, 1, 15.0, "sql", "release_pods"),),
            jobs=(),
            gangs=(Gang(101),),
        ),
    ),
    Protection(
        "a person's cordon stays",
        _nobody_asks_who_cordoned,
        "no_wish_is_overruled",
        _story(
            Blow(10, "sick", "node1"),
            Blow(25, "person_cordons", "node1"),
            jobs=(),
            gangs=(Gang(101),),
        ),
    ),
    Protection(
        "a lease ends",
        _ended_leases_stay,
        "no_incident_without_owner",
        _story(
            FREEZE, strikes=(Strike(KILL, 1, 0, "acted slurm", "drain"),), deaths_are_seen=False, longest=600.0
        ),
    ),
)


@pytest.mark.parametrize("protection", PROTECTIONS, ids=str)
def test_as_it_is_the_story_ends_well(protection: Protection, ledger: LedgerSettings, tmp_path: Path) -> None:
    fallen: list[Any] = []
    record = tell(protection.story, ledger, tmp_path, lambda site: fallen.extend(site.points.fallen))
    assert invariants.check(record) == []
    assert len(fallen) == len(protection.story.strikes), "a strike did not come to its moment: %s" % fallen


@pytest.mark.parametrize("protection", PROTECTIONS, ids=str)
def test_without_the_protection_an_invariant_is_broken(
    protection: Protection, ledger: LedgerSettings, tmp_path: Path, monkeypatch: Patch
) -> None:
    protection.take_out(monkeypatch)
    told = invariants.check(tell(protection.story, ledger, tmp_path))
    assert any(line.startswith(protection.breaks + ":") for line in told), told
