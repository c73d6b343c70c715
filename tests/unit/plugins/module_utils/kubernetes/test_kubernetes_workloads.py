# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of other owners: when a person is told that it lost pods and is not made whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners, workloads
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JobView,
    PodView,
    pod_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.workloads import (
    Losses,
    Lost,
    Roots,
    Workload,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobOwner

NOW = 1_800_000_000.0
GANG = Workload("PyTorchJob", "a", "train", "u1", State.WAITING, opt_in="{}")
POD = PodView(
    "a", "train-worker-0", "p1", "n1", "PyTorchJob/train", "u1", phase="Running", cause=Cause.INFRASTRUCTURE,
    disruption="DeletionByTaintManager", disrupted_at=NOW - 100,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "lost", "own", "told"),
    [
        ({}, Lost(NOW - 900), (), True),
        ({}, Lost(NOW - 899), (), False),  # its owner still has time
        ({}, None, (), False),  # it lost nothing
        ({"state": State.UNKNOWN}, Lost(NOW - 900), (), True),
        ({"state": State.RUNNING}, Lost(NOW - 900), (), False),
        ({"state": State.RUNNING}, Lost(NOW - 900, hangs=True), (), True),  # that stands on a lost node
        ({"state": State.FAILED}, Lost(NOW - 900), (), True),
        ({"state": State.FAILED, "since": NOW - 899}, Lost(NOW - 5000), (), False),
        ({"state": State.FAILED, "since": NOW - 900}, Lost(NOW - 5000), (), True),
        ({"state": State.WAITING, "since": NOW - 10}, Lost(NOW - 900), (), True),  # it restarts again and again
        ({"opt_in": None}, Lost(NOW - 900), (), False),
        ({"deleted": True}, Lost(NOW - 900), (), False),
        ({"kind": "JobSet"}, Lost(NOW - 300), (), True),
        ({"kind": "RayCluster", "owner": "RayJob/r"}, Lost(NOW - 5000), (), False),  # that one makes a new cluster
        ({"kind": "RayCluster", "owner": "RayService/r"}, Lost(NOW - 5000), (), False),
        ({"kind": "RayCluster", "owner": "Unheard/of"}, Lost(NOW - 5000), (), True),
        ({"kind": "FluxJob"}, Lost(NOW), (), True),  # nobody knows what it does
        ({"kind": "FluxJob"}, Lost(NOW), (JobOwner("FluxJob", "watch", 60),), False),
        ({"kind": "FluxJob"}, Lost(NOW - 60), (JobOwner("FluxJob", "watch", 60),), True),
        ({}, Lost(NOW - 900), (JobOwner("PyTorchJob", "leave"),), False),
        ({}, Lost(NOW), (JobOwner("PyTorchJob", "report"),), True),
    ],
)
def test_who_is_told_of(change, lost, own, told):
    work = replace(GANG, **change)
    found = workloads.unrecovered([work], {"u1": lost} if lost else {}, own, False, NOW)
    assert found == ([work] if told else [])


def test_a_site_that_recovers_all_is_told_of_all():
    assert workloads.unrecovered([replace(GANG, opt_in=None)], {"u1": Lost(0.0)}, (), True, NOW)


def test_a_loss_is_remembered_though_its_pod_and_job_go():
    losses, work = Losses(), [GANG]
    job = JobView("a", "train-launcher", "j1", owner="MPIJob/train", owner_uid="u1")
    lost = {"j1": {"p1": replace(POD, owner="Job/train-launcher", owner_uid="j1", job_uid="j1")}}
    assert losses.look(work, Roots([job, *work]), lost, [], NOW) == {"u1": Lost(NOW - 100)}
    assert losses.look(work, Roots(work), {}, [], NOW) == {"u1": Lost(NOW - 100)}
    assert losses.look([], Roots([]), {}, [], NOW) == {}
    assert losses.look(work, Roots(work), {}, [], NOW) == {}  # that is another one


@pytest.mark.parametrize(
    ("state", "later", "pods", "made_up"),
    [
        (State.RUNNING, 0.0, [], True),
        (State.RUNNING, -50.0, [], False),  # its owner may not have noticed yet
        (State.RUNNING, 0.0, [POD], False),
        (State.RUNNING, 0.0, [replace(POD, phase="Failed")], True),
        (State.RUNNING, 0.0, [replace(POD, owner_uid="j1", job_uid="j1")], True),  # a Job makes another one beside it
        (State.SUSPENDED, -50.0, [], True),
        (State.WAITING, 5000.0, [], False),
        (State.FAILED, 5000.0, [], False),
        (State.UNKNOWN, 5000.0, [], False),
    ],
)
def test_what_is_made_up_for_is_never_counted_again(state, later, pods, made_up):
    losses, lost, now = Losses(), {"u1": {"p1": POD}}, NOW + later
    running = [replace(GANG, state=state)]
    losses.look(running, Roots(running), lost, pods, now)
    found = losses.look([GANG], Roots([GANG]), lost, [], now + 1)  # it waits, for another reason perhaps
    assert found == ({} if made_up else {"u1": Lost(NOW - 100)})
    again = {"u1": {"p1": POD, "p2": replace(POD, uid="p2", disrupted_at=now)}}
    assert losses.look([GANG], Roots([GANG]), again, [], now + 1) == {"u1": Lost(now)}


def test_the_top_of_a_chain_is_found_and_a_circle_ends():
    things = [replace(GANG, uid=uid, owner_uid=above) for uid, above in (("a", "b"), ("b", "c"), ("c", "gone"))]
    assert Roots(things).of("a") == "c"
    assert Roots(things).of("unheard") == "unheard"
    circle = [replace(GANG, uid="a", owner_uid="b"), replace(GANG, uid="b", owner_uid="a")]
    assert Roots(circle).of("a") == "b"
    assert Roots([replace(GANG, uid="a", owner_uid="a")]).of("a") == "a"


@pytest.mark.parametrize(
    ("change", "own", "told"),
    [
        ({"owner": "", "owner_uid": ""}, (), True),  # nobody makes it again
        ({"owner": "Unheard/of"}, (), True),
        ({"owner": "Unheard/of"}, (JobOwner("Unheard", "leave"),), False),
        ({}, (), False),  # its PyTorchJob is judged
        ({"owner": "ReplicaSet/web"}, (), False),
        ({"owner": "Job/j", "job_uid": "j1"}, (), False),
        ({"owner": "", "opt_in": None}, (), False),
        ({"owner": "", "mirror": True}, (), False),
        ({"owner": "", "cause": Cause.APPLICATION}, (), False),
        ({"owner": "", "cause": None}, (), False),
    ],
)
def test_pods_of_nobody(change, own, told):
    pod = replace(POD, **{"opt_in": "{}", **change})
    found = workloads.lost_pods([pod], own, False)
    assert [(one.kind, one.key, one.uid, one.state) for one in found] == (
        [("Pod", "a/train-worker-0", "p1", State.FAILED)] if told else []
    )


@pytest.mark.parametrize(
    ("version", "owner", "job_uid"),
    [
        ("batch/v1", "Job/j", "u1"),
        ("", "Job/j", "u1"),
        ("batch.volcano.sh/v1alpha1", "Job.batch.volcano.sh/j", ""),
    ],
)
def test_a_job_of_volcano_is_none_of_batch(version, owner, job_uid):
    reference = {"apiVersion": version, "kind": "Job", "name": "j", "uid": "u1", "controller": True}
    pod = pod_view({"metadata": {"name": "j-0", "namespace": "a", "ownerReferences": [reference]}})
    assert (pod.owner, pod.job_uid, pod.owner_uid) == (owner, job_uid, "u1")


def test_a_sites_row_is_read_like_the_known_one_unless_it_says_where():
    own = (JobOwner("PyTorchJob", "watch", 5), JobOwner("Flux", "watch", 5, "f.io", "fluxes", "f.io/name"))
    rows = owners.table(own)
    by_kind = {row.kind: row for row in rows}
    assert len(by_kind) == len(rows) == len(owners.OWNERS) + 1
    usual = {row.kind: row for row in owners.OWNERS}["PyTorchJob"]
    assert by_kind["PyTorchJob"] == replace(usual, after=5.0)
    assert (by_kind["Flux"].group, by_kind["Flux"].resource, by_kind["Flux"].label) == ("f.io", "fluxes", "f.io/name")
