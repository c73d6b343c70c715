# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    RecoveryError,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import drain, node_module, nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import FIELD_MANAGER
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.drain import Policy, select
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    HOLD_ANNOTATION,
    NODE_ANNOTATION,
    OUT_OF_SERVICE,
    NodeView,
    PodView,
    Taint,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.nodes import (
    Hold,
    Standing,
    not_held,
    plan_cordon,
    plan_fence,
    plan_uncordon,
    plan_unfence,
    standing,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

NOW = 1796036820.0
HELD = Hold("7", False, NOW).as_text()
OURS = {"unschedulable": True, "ownership": HELD, "cordon_managers": (FIELD_MANAGER,)}
FENCED = Taint(OUT_OF_SERVICE, "job-recovery", "NoExecute")
THEIR_FENCE = Taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")


def node(**fields):
    return NodeView("node1", **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Standing.FREE),
        (OURS, Standing.OURS),
        (dict(OURS, cordon_managers=()), Standing.OURS),  # the server keeps no account
        ({"unschedulable": True}, Standing.FOREIGN),
        (dict(OURS, unschedulable=False), Standing.LIFTED),
        # a person uncordoned and cordoned again: our annotation is still there, the cordon is not ours
        (dict(OURS, cordon_managers=("kubectl-cordon",)), Standing.FOREIGN),
        # written by somebody who only looks like us
        (dict(OURS, ownership="7"), Standing.FOREIGN),
        (dict(OURS, ownership="{"), Standing.FOREIGN),
        (dict(OURS, ownership='{"incident": 7, "previous": {"unschedulable": false}, "time": ""}'), Standing.FOREIGN),
        (dict(OURS, ownership="[" * 100000), Standing.FOREIGN),
        (dict(OURS, ownership="[]"), Standing.FOREIGN),
        (dict(OURS, uid="u1", ownership=Hold("7", False, NOW, "u1").as_text()), Standing.OURS),
        # the node was deleted, and restored from a manifest with all that stood in it
        (dict(OURS, uid="u2", ownership=Hold("7", False, NOW, "u1").as_text()), Standing.FOREIGN),
        (dict(OURS, uid="u2", unschedulable=False, ownership=Hold("7", False, NOW, "u1").as_text()), Standing.FREE),
        (dict(OURS, uid="u1", ownership=HELD), Standing.OURS),  # of an earlier version
    ],
)
def test_who_holds_a_node(fields, expected):
    assert standing(node(**fields)) is expected


@pytest.mark.parametrize(
    ("fields", "incident", "outcome", "writes"),
    [
        ({}, "7", "done", True),
        (OURS, "7", "done", False),
        (OURS, "8", "done", True),  # taken over from an incident of before
        ({"unschedulable": True}, "7", "refused", False),
        (dict(OURS, cordon_managers=("kubectl-cordon",)), "7", "refused", False),
        (dict(OURS, unschedulable=False), "7", "refused", False),  # a person lifted the cordon of this incident
        (dict(OURS, unschedulable=False), "8", "done", True),
        ({"held": True}, "7", "refused", False),
    ],
)
def test_cordon(fields, incident, outcome, writes):
    plan = plan_cordon(node(**fields), incident, NOW)
    assert (plan.status, plan.patch is not None) == (outcome, writes)
    assert bool(plan.why) == (outcome == "refused")


@pytest.mark.parametrize(
    ("fields", "incident", "outcome", "patch"),
    [
        ({}, "7", "done", None),
        (OURS, "7", "done", {"spec": {"unschedulable": None}, "metadata": {"annotations": {NODE_ANNOTATION: None}}}),
        (OURS, "", "done", {"spec": {"unschedulable": None}, "metadata": {"annotations": {NODE_ANNOTATION: None}}}),
        (OURS, "8", "refused", None),
        ({"unschedulable": True}, "7", "refused", None),
        # a person lifted it: only our annotation goes
        (
            dict(OURS, unschedulable=False),
            "7",
            "done",
            {"spec": {"unschedulable": None}, "metadata": {"annotations": {NODE_ANNOTATION: None}}},
        ),
        (
            {"taints": (FENCED, Taint("a", "b", "NoSchedule"))},
            "",
            "done",
            {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}},
        ),
        ({"taints": (THEIR_FENCE,)}, "", "done", None),
    ],
)
def test_uncordon(fields, incident, outcome, patch):
    plan = plan_uncordon(node(**fields), incident)
    assert (plan.status, plan.patch) == (outcome, patch)


@pytest.mark.parametrize(
    ("fields", "incident", "why"),
    [
        (OURS, "7", ""),
        (OURS, "8", "it is held by incident 7"),
        (dict(OURS, unschedulable=False), "7", "somebody uncordoned it"),
        (dict(OURS, cordon_managers=("kubectl-cordon",)), "7", "it was cordoned by somebody else"),
        ({"unschedulable": True}, "7", "it was cordoned by somebody else"),
        ({}, "7", "it does not bear our cordon"),  # deleted and added again under the same name
        (OURS, "", "it is held by incident 7"),
    ],
)
def test_a_hold_that_is_lost(fields, incident, why):
    lost = not_held(node(**fields), incident)
    assert lost.startswith(why)
    assert bool(lost) is bool(why)
    fenced = plan_fence(node(**fields), True, incident)
    assert (fenced.status, fenced.patch is None) == (("refused", True) if why else ("done", False))


def test_fence_wants_the_proof():
    for proof in (False, None, "yes", 1):
        with pytest.raises(BadInput, match="proof"):
            plan_fence(node(), proof)
    patch = plan_fence(node(taints=(Taint("a", "", "NoSchedule"),)), True).patch
    assert patch["spec"]["taints"] == [
        {"key": "a", "effect": "NoSchedule"},
        {"key": OUT_OF_SERVICE, "value": "job-recovery", "effect": "NoExecute"},
    ]
    assert plan_fence(node(taints=(THEIR_FENCE,)), True).patch is None


def test_unfence_takes_only_ours():
    assert plan_unfence(node(taints=(THEIR_FENCE,))).patch is None
    assert plan_unfence(node(taints=(THEIR_FENCE, FENCED))).patch == {"spec": {"taints": [THEIR_FENCE.as_object()]}}


def pod(name="p", owner="ReplicaSet/r", **fields):
    return PodView("a", name, owner=owner, phase=fields.pop("phase", "Running"), created_at=NOW - 60, **fields)


@pytest.mark.parametrize(
    ("one", "policy", "where"),
    [
        (pod(), Policy(), "evict"),
        (pod(deleted_at=NOW), Policy(), "evict"),
        (pod(owner=""), Policy(), "forbidden"),
        (pod(owner=""), Policy(unmanaged=True), "evict"),
        (pod(owner="", deleted_at=NOW), Policy(), "evict"),  # somebody else decided already
        (pod(slurm_node="gpu-0"), Policy(), "forbidden"),
        (pod(slurm_node="gpu-0"), Policy(slurm_drained=frozenset({"gpu-1"})), "forbidden"),
        (pod(slurm_node="gpu-0"), Policy(slurm_drained=frozenset({"gpu-0"})), "evict"),
        (pod(slurm_node="gpu-0", deleted_at=NOW), Policy(), "evict"),
        (pod(local_data=True), Policy(), "evict"),
        (pod(local_data=True), Policy(local_data=False), "forbidden"),
        (pod(owner="DaemonSet/d"), Policy(), "ignored"),
        (pod(owner="Node/node1", mirror=True), Policy(), "ignored"),
        (pod(phase="Succeeded"), Policy(), "ignored"),
        (pod(phase="Failed"), Policy(), "ignored"),
        (PodView("a", "p", owner="ReplicaSet/r", created_at=NOW + 1), Policy(), "ignored"),  # after the cordon
    ],
)
def test_pods_of_a_drain(one, policy, where):
    chosen = select([one], NOW, policy)
    assert {"evict": len(chosen.evict), "forbidden": len(chosen.forbidden), "ignored": chosen.ignored}[where] == 1


# ---- against a server ----


NODE = "/api/v1/nodes/node1"


def thing(**metadata):
    return {"kind": "Node", "metadata": dict({"name": "node1"}, **metadata), "spec": {}, "status": {}}


def params(kubeconfig, state, **more):
    defaults = {
        "names": ["node1"],
        "incident": "7",
        "timeout": 0,
        "unmanaged_pods": "refuse",
        "local_data": "evict",
        "power_off_proved": False,
        "tolerate": True,
        "context": "",
        "request_timeout": 5,
    }
    return dict(defaults, state=state, kubeconfig=kubeconfig, **more)


def put_pod(api, name, labels=None, **spec):
    metadata = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}], "labels": labels or {}}
    body = {
        "kind": "Pod",
        "metadata": metadata,
        "spec": dict({"nodeName": "node1"}, **spec),
        "status": {"phase": "Running"},
    }
    return api.put("/api/v1/namespaces/a/pods/%s" % name, body)


def test_cordoned_twice_writes_once(api, kubeconfig):
    api.put(NODE, thing())
    first = node_module.run(params(kubeconfig, "cordoned"), False)
    second = node_module.run(params(kubeconfig, "cordoned"), False)
    assert (first["changed"], second["changed"], len(api.bodies)) == (True, False, 1)
    assert first["diff"]["after"]["node1"] == {"unschedulable": True, "incident": "7", "out_of_service": False}
    held = json.loads(api.see(NODE)["metadata"]["annotations"][NODE_ANNOTATION])
    assert (held["incident"], held["previous"]) == ("7", {"unschedulable": False})


def test_check_mode_tells_the_same_and_writes_nothing(api, kubeconfig):
    api.put(NODE, thing())
    foreseen = node_module.run(params(kubeconfig, "cordoned"), True)
    assert api.bodies == []
    assert node_module.run(params(kubeconfig, "cordoned"), False) == foreseen


def test_a_cordon_that_slips_in_between_wins(api, kubeconfig):
    api.put(NODE, thing())

    def person():
        api.put(NODE, dict(thing(), spec={"unschedulable": True}))

    api.tell("PATCH", NODE, 0, None, before=person)
    result = node_module.run(params(kubeconfig, "cordoned"), False)["results"][0]
    assert (result["status"], api.see(NODE)["metadata"].get("annotations")) == ("refused", None)


def test_a_node_that_changes_for_ever_is_a_failure(api, kubeconfig):
    api.put(NODE, thing())
    api.tell("PATCH", NODE, 409, status(409, "Conflict"), times=100)
    assert node_module.run(params(kubeconfig, "cordoned"), False)["results"][0]["status"] == "failed"
    assert len([request for request in api.requests if request.startswith("PATCH")]) == 5


def test_an_answer_without_the_cordon_is_no_proof(api, kubeconfig):
    api.put(NODE, thing())
    api.tell("PATCH", NODE, 200, thing())
    result = node_module.run(params(kubeconfig, "cordoned"), False)["results"][0]
    assert (result["status"], result["why"]) == ("failed", "the server did not keep incident, unschedulable")


def test_a_failure_of_one_is_not_the_others(api, kubeconfig):
    api.put(NODE, thing())
    api.put(
        "/api/v1/nodes/node2",
        dict(thing(name="node2"), metadata={"name": "node2", "annotations": {HOLD_ANNOTATION: ""}}),
    )
    wanted = params(kubeconfig, "cordoned", names=["nodeX", "node2", "node1", "node1"])
    results = node_module.run(wanted, False)["results"]
    assert [(one["name"], one["status"]) for one in results] == [
        ("nodeX", "failed"),
        ("node2", "refused"),
        ("node1", "done"),
    ]
    with pytest.raises(RecoveryError, match="nodeX failed") as caught:
        node_module.run(dict(wanted, tolerate=False), False)
    assert [one["status"] for one in caught.value.fields["results"]] == ["failed", "refused", "done"]


def test_no_names_is_wrong_use(kubeconfig):
    for names in ([], [""]):
        with pytest.raises(BadInput):
            node_module.run(params(kubeconfig, "cordoned", names=names), False)


def test_a_budget_holds_the_drain_and_is_named(api, kubeconfig):
    api.put(NODE, thing())
    put_pod(api, "web-0")
    put_pod(api, "db-0")
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 1 healthy pods and has 1 currently",
    }
    answer = status(429, "TooManyRequests", "Cannot evict pod", causes=[cause])
    api.tell("POST", "/api/v1/namespaces/a/pods/web-0/eviction", 429, answer, times=100)
    result = node_module.run(params(kubeconfig, "drained"), False)["results"][0]
    assert result["status"] == "waiting"
    assert {one["pod"]: one["budget"] for one in result["pods"]} == {"a/web-0": "web", "a/db-0": ""}
    assert "a/web-0 (disruption budget web allows no eviction now)" in result["why"]
    assert result["after"]["evicted"] == 1


@pytest.mark.parametrize(
    "became",
    [
        lambda there: {**there, "spec": {}},  # a person uncordoned it
        lambda _there: thing(uid="uid-2"),  # it was deleted and added again
        lambda there: {**there, "metadata": {"name": "node1"}},  # a person uncordoned and cordoned it
    ],
)
def test_a_drain_ends_when_the_node_is_not_held_any_more(api, kubeconfig, client, became):
    api.put(NODE, thing())
    put_pod(api, "web-0")
    nodes.cordon(client, "node1", "7", NOW)
    api.put(NODE, became(api.see(NODE)))
    api.bodies.clear()
    with pytest.raises(Conflict, match="not drained any further"):
        drain.drain_pass(client, "node1", "7", Policy())
    with pytest.raises(Conflict, match="not drained any further"):
        drain.forbidden(client, "node1", "7", Policy())
    assert api.bodies == []


def test_a_drain_asks_again_until_the_pods_are_gone(api, kubeconfig):
    api.put(NODE, thing())
    put_pod(api, "web-0")
    path = "/api/v1/namespaces/a/pods/web-0"
    api.tell("POST", path + "/eviction", 429, status(429, "TooManyRequests"), {"Retry-After": "1"})
    api.tell("POST", path + "/eviction", 201, status(201), before=lambda: api.take(path))
    result = node_module.run(params(kubeconfig, "drained", timeout=5), False)["results"][0]
    assert (result["status"], result["pods"], result["after"]["evicted"]) == ("done", [], 1)


def test_a_pod_without_controller_fails_the_drain_and_the_others_go(api, kubeconfig):
    api.put(NODE, thing())
    put_pod(api, "web-0")
    api.put(
        "/api/v1/namespaces/a/pods/bare", {"kind": "Pod", "spec": {"nodeName": "node1"}, "status": {"phase": "Running"}}
    )
    result = node_module.run(params(kubeconfig, "drained"), False)["results"][0]
    assert (result["status"], result["after"]["evicted"]) == ("failed", 1)
    assert "a/bare" in result["why"]


def test_another_pod_of_the_name_is_not_evicted(api, client):
    old = PodView("a", "web-0", uid="old")
    put_pod(api, "web-0")
    assert "gone" in str(drain.evict(client, old))
    assert "deletionTimestamp" not in api.see("/api/v1/namespaces/a/pods/web-0")["metadata"]


def test_a_refused_node_is_not_drained(api, kubeconfig):
    api.put(NODE, dict(thing(), spec={"unschedulable": True}))
    put_pod(api, "web-0")
    assert node_module.run(params(kubeconfig, "drained"), False)["results"][0]["status"] == "refused"
    assert api.bodies == []


def test_check_mode_of_a_drain_names_the_pods(api, kubeconfig):
    api.put(NODE, thing())
    put_pod(api, "web-0")
    result = node_module.run(params(kubeconfig, "drained"), True)["results"][0]
    assert (result["status"], [one["pod"] for one in result["pods"]]) == ("done", ["a/web-0"])
    assert api.bodies == []


def test_fenced_and_given_back(api, kubeconfig):
    api.put(NODE, thing())
    with pytest.raises(BadInput):
        node_module.run(params(kubeconfig, "fenced"), False)
    assert node_module.run(params(kubeconfig, "fenced", power_off_proved=True), False)["changed"]
    assert api.see(NODE)["spec"]["taints"][0]["key"] == OUT_OF_SERVICE
    node_module.run(params(kubeconfig, "cordoned"), False)
    node_module.run(params(kubeconfig, "uncordoned"), False)
    assert api.see(NODE)["spec"] == {"taints": []}
    assert api.see(NODE)["metadata"]["annotations"] == {}


def test_pods_are_released_only_on_proof_and_only_the_stuck_ones(api, client):
    stuck = put_pod(api, "stuck")
    stuck["metadata"]["deletionTimestamp"] = "2026-11-30T11:00:00Z"
    api.put("/api/v1/namespaces/a/pods/stuck", stuck)
    put_pod(api, "alive")
    with pytest.raises(BadInput):
        nodes.release_pods(client, "node1", False, NOW)
    assert nodes.release_pods(client, "node1", True, NOW) == ["a/stuck"]
    assert api.bodies == [{"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-stuck"}}]


def test_the_guard_is_asked_before_each_write(api, client):
    api.put(NODE, thing())

    def lost():
        raise RecoveryError("the claim is lost")

    with pytest.raises(RecoveryError, match="lost"):
        nodes.cordon(client, "node1", "7", NOW, guard=lost)
    assert api.bodies == []
