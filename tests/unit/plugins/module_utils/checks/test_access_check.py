# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster would let the service do: dry runs against a small API server that refuses as real ones do."""

from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import access
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    Forbidden,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NODE, JOBS = "/api/v1/nodes/n1", "/apis/batch/v1/namespaces/team/jobs"
POD = "/api/v1/namespaces/team/pods/p1"
BY_POLICY = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'calm' with binding 'all' denied request: not here"
BY_WEBHOOK = 'admission webhook "validate.kyverno.svc-fail" denied the request: no'
DEFAULTS = {name: option.get("default") for name, option in access.SPEC["argument_spec"].items()}


@pytest.fixture
def api():
    server = ApiServer()
    server.put(NODE, {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    server.tell("POST", REVIEWS, 201, {"status": {"allowed": True}}, times=999)
    yield server
    server.close()


def checked(api, folder, **other):
    params = {**DEFAULTS, "kubeconfig": api.kubeconfig(folder), "nodes": ["n1"], "namespaces": ["team"], **other}
    result = access.run(params, False)
    assert result["changed"] is False
    return {check["id"]: check for check in result["checks"]}


def test_all_is_allowed_and_everything_was_a_dry_run(api, tmp_path):
    api.put(POD, {"status": {"phase": "Running"}})
    api.put(POD.replace("p1", "p2"), {"status": {"phase": "Failed"}})
    found = checked(api, tmp_path)
    assert {check["status"] for check in found.values()} == {"passed"}, found
    writes = [one for one in api.requests if not one.startswith("GET") and REVIEWS not in one]
    assert [one.split("?")[0].rsplit("/", 2)[-2:] for one in writes] == [
        ["nodes", "n1"],
        ["team", "jobs"],
        ["p2", "eviction"],
        ["pods", "p2"],
    ]
    assert all("dryRun=All" in one for one in writes[:3])
    eviction, deletion = api.bodies[-2:]
    assert eviction["deleteOptions"]["dryRun"] == ["All"]
    assert deletion == {"dryRun": ["All"], "preconditions": {"uid": "uid-p2"}}


def test_what_would_be_written_is_what_recovery_writes(api, tmp_path):
    checked(api, tmp_path)
    node = next(body for body in api.bodies if "taints" in body.get("spec", {}))
    assert node["spec"]["unschedulable"] is True
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["mine", "node.kubernetes.io/out-of-service"]
    job = next(body for body in api.bodies if body.get("kind") == "Job")
    assert job["metadata"]["annotations"]["mission-control/job-recovery"]
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.k8s.io/pause:3.10"


def test_the_newest_job_is_tried_as_it_would_be_run_again(api, tmp_path):
    for number in (1, 2):
        spec = {"selector": {"x": "y"}, "template": {"spec": {"containers": [{"image": "users:%d" % number}]}}}
        metadata = {"creationTimestamp": "2026-11-30T10:00:0%dZ" % number}
        api.put("%s/j%d" % (JOBS, number), {"metadata": metadata, "spec": spec})
    checked(api, tmp_path)
    job = next(body for body in api.bodies if body.get("kind") == "Job")
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "users:2"
    assert "selector" not in job["spec"]


@pytest.mark.parametrize(
    ("method", "path", "code", "message", "check", "expected"),
    [
        ("PATCH", NODE, 403, BY_POLICY, "kubernetes_admits_nodes", "failed"),
        ("PATCH", NODE, 422, BY_POLICY, "kubernetes_admits_nodes", "failed"),
        ("POST", JOBS, 400, BY_WEBHOOK, "kubernetes_admits_jobs", "failed"),
        ("POST", JOBS, 403, 'jobs is forbidden: User "x" cannot create resource', "kubernetes_admits_jobs", "failed"),
        ("POST", JOBS, 500, 'failed calling webhook "x": no endpoints', "kubernetes_admits_jobs", "failed"),
        ("POST", JOBS, 500, "etcd is down", "kubernetes_admits_jobs", "unknown"),
        (
            "POST",
            JOBS,
            400,
            'admission webhook "x" does not support dry run',
            "kubernetes_admits_jobs",
            "unknown",
        ),
        ("POST", POD + "/eviction", 429, "", "kubernetes_admits_evictions", "unknown"),
        ("POST", POD + "/eviction", 404, "", "kubernetes_admits_evictions", "passed"),
        ("DELETE", POD, 403, BY_POLICY, "kubernetes_admits_deletions", "failed"),
        ("DELETE", POD, 409, "uid", "kubernetes_admits_deletions", "unknown"),
        ("GET", NODE, 404, "", "kubernetes_admits_nodes", "unknown"),
        ("GET", "/api/v1/namespaces/team/pods", 403, "", "kubernetes_admits_evictions", "failed"),
    ],
)
def test_something_is_refused(api, tmp_path, method, path, code, message, check, expected):
    api.put(POD, {"status": {"phase": "Running"}})
    api.tell(method, path, code, status(code, "", message))
    found = checked(api, tmp_path)
    assert found[check]["status"] == expected, found[check]
    assert found[check]["hint"] or expected == "passed"
    if code == 403 and message == BY_POLICY:
        assert "not here" in found[check]["found"]


def test_a_disruption_budget_speaks_after_admission(api, tmp_path):
    api.put(POD, {"status": {"phase": "Running"}})
    causes = [{"reason": "DisruptionBudget", "message": "needs 1"}]
    api.tell("POST", POD + "/eviction", 429, status(429, "TooManyRequests", "no", causes=causes))
    assert checked(api, tmp_path)["kubernetes_admits_evictions"]["status"] == "passed"


def test_rights_are_named(api, tmp_path):
    server = ApiServer()
    try:
        server.put(NODE, {"spec": {}})
        server.may = lambda wanted: (wanted["verb"], wanted["resource"]) != ("list", "nodes")
        one = checked(server, tmp_path)["kubernetes_rights"]
    finally:
        server.close()
    assert one["status"] == "failed"
    assert one["found"].endswith("not list nodes")


def test_the_workers_are_tried_where_no_node_is_named(api, tmp_path):
    api.put("/api/v1/nodes/n2", {"spec": {}})
    api.put("/api/v1/nodes/cp", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {}})
    assert checked(api, tmp_path, nodes=[])["kubernetes_admits_nodes"]["found"] == "2 of 2"
    assert checked(api, tmp_path, nodes=[], most_nodes=1)["kubernetes_admits_nodes"]["found"] == "1 of 1"
    api.tell("GET", "/api/v1/nodes", 500, {})
    assert checked(api, tmp_path, nodes=[])["kubernetes_admits_nodes"]["status"] == "unknown"


def test_no_pod_to_try_with_is_a_warning(api, tmp_path):
    found = checked(api, tmp_path)
    assert found["kubernetes_admits_evictions"]["status"] == "warning"
    assert found["kubernetes_admits_deletions"]["status"] == "warning"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Forbidden("x"), True),
        (Conflict(BY_POLICY), True),
        (Conflict("the object has been modified"), False),
        (BadInput(BY_WEBHOOK), True),
        (TimedOut("no answer in time"), False),
        (Unreachable('HTTP 500, failed calling webhook "v"'), True),
    ],
)
def test_who_says_no(error, expected):
    assert access.refuses(error) is expected


@pytest.mark.parametrize("wrong", [{"namespaces": []}, {"most_nodes": 0}])
def test_wrong_use(api, tmp_path, wrong):
    with pytest.raises(BadInput):
        checked(api, tmp_path, **wrong)
