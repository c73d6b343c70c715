# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.volume import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@pytest.fixture
def server():
    made = ApiServer()
    yield made
    made.close()


def probe(server, tmp_path, check_mode=False, **other):
    params = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    params.update(image="busybox", kubeconfig=server.kubeconfig(tmp_path), timeout=1, request_timeout=5)
    result = run({**params, **other}, check_mode)
    (check,) = result["checks"]
    return result["changed"], check


def becomes(server, **status_of_pod):
    """From now on a pod that is asked for has this status, as a kubelet would write it."""
    put = server.put

    def put_with_status(path, thing):
        return put(path, {**thing, "status": status_of_pod} if path.startswith(PODS) else thing)

    server.put = put_with_status


def left(server):
    return [server.collection(path, {})["items"] for path in (PODS, CLAIMS)]


def test_a_pod_wrote(server, tmp_path):
    becomes(server, phase="Succeeded")
    changed, check = probe(server, tmp_path, storage_class="nfs", size_gb=3)
    assert (changed, check["status"], check["hint"]) == (False, "passed", "")
    claim, pod = server.bodies[:2]
    assert claim["spec"]["storageClassName"] == "nfs"
    assert claim["spec"]["resources"]["requests"]["storage"] == "3G"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert left(server) == [[], []]


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"phase": "Failed"}, "the pod Failed"),
        ({}, "the claim is Pending, the pod Pending"),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "(ImagePullBackOff)",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "unbound immediate claims\x1b[2J"}]},
            "(unbound immediate claims",
        ),
    ],
)
def test_no_pod_wrote_and_why(server, tmp_path, pod, words):
    becomes(server, **pod)
    changed, check = probe(server, tmp_path)
    assert (changed, check["status"], words in check["found"]) == (False, "failed", True), check
    assert check["found"].isprintable()
    assert left(server) == [[], []], "nothing is left, also after a failure"


@pytest.mark.parametrize("path", [CLAIMS, PODS])
@pytest.mark.parametrize("code", [403, 500])
def test_what_may_not_be_made_is_unknown_and_nothing_is_left(server, tmp_path, path, code):
    server.tell("POST", path, code, status(code, "Forbidden", "exceeded quota"))
    changed, check = probe(server, tmp_path)
    assert (changed, check["status"]) == (False, "unknown")
    assert left(server) == [[], []]


def test_what_cannot_be_deleted_is_named(server, tmp_path):
    becomes(server, phase="Succeeded")
    names = []
    delete = server.write

    def write(method, path, body):
        if method == "DELETE" and path.startswith(CLAIMS):
            names.append(path.rsplit("/", 1)[1])
            return 403, status(403, "Forbidden")
        return delete(method, path, body)

    server.write = write
    changed, check = probe(server, tmp_path)
    assert (changed, check["status"]) == (True, "failed")
    assert "could not delete persistentvolumeclaims default/%s" % names[0] in check["found"]


def test_check_mode_makes_nothing(server, tmp_path):
    changed, check = probe(server, tmp_path, check_mode=True)
    assert (changed, check["status"], server.requests) == (False, "unknown", [])


@pytest.mark.parametrize("wrong", [{"namespace": "../x"}, {"namespace": ""}, {"size_gb": 0}, {"timeout": 0}])
def test_wrong_use(server, tmp_path, wrong):
    with pytest.raises(BadInput):
        probe(server, tmp_path, **wrong)
