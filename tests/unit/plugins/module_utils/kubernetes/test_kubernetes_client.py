# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import json
import socket
import threading
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import client as module
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import credentials, rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    AlreadyExists,
    Expired,
    KubernetesClient,
    Throttled,
    allowed,
    describe,
    path_of,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

NODE = "/api/v1/nodes/node1"
CONTEXT = "{current-context: c, contexts: [{name: c, context: {cluster: k}}], "


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("v1", "nodes"), "/api/v1/nodes"),
        (("v1", "nodes", "", "node1"), "/api/v1/nodes/node1"),
        (("batch/v1", "jobs", "team-a"), "/apis/batch/v1/namespaces/team-a/jobs"),
        (("v1", "pods", "a", "b", "eviction"), "/api/v1/namespaces/a/pods/b/eviction"),
        (("v1", "nodes", "", "../secrets"), "/api/v1/nodes/..%2Fsecrets"),
    ],
)
def test_paths_quote_every_part(arguments, path):
    assert path_of(*arguments) == path


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/api/v1/nodes", "list nodes"),
        ("GET", "/api/v1/nodes/node1", "get nodes node1"),
        ("PATCH", "/apis/batch/v1/namespaces/a/jobs/j", "patch jobs.batch j in a"),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", "create pods/eviction p in a"),
        ("GET", "/version", "get /version"),
    ],
)
def test_requests_in_kubernetes_words(method, path, words):
    assert describe(method, path) == words


@pytest.mark.parametrize(
    ("code", "body", "error", "words"),
    [
        (404, status(404, "NotFound"), Absent, "not found"),
        (401, status(401, "Unauthorized"), Forbidden, "credentials are not accepted"),
        (403, status(403, "Forbidden"), Forbidden, "get nodes node1"),
        (409, status(409, "Conflict"), Conflict, "conflict"),
        (409, status(409, "AlreadyExists"), AlreadyExists, ""),
        (422, status(422, "Invalid", "spec: Invalid value\n\x1b[31m"), Conflict, "spec: Invalid value  [31m"),
        (410, status(410, "Expired"), Expired, "too old"),
        (429, status(429, "TooManyRequests"), Throttled, ""),
        (500, status(500, "InternalError", "etcd"), Unreachable, "etcd"),
        (503, b"no healthy upstream", Unreachable, "503"),
        (504, status(504, "Timeout"), TimedOut, ""),
        (400, status(400, "BadRequest", "no"), BadInput, "no"),
        (302, b"", BadInput, "302"),
        (200, b"<html>", Unreadable, "no JSON"),
        (200, b"[1]", Unreadable, "no JSON"),
        (200, b"[" * 100_000, Unreadable, "no JSON"),
        (503, b"{" * 100_000, Unreachable, "503"),
    ],
)
def test_an_answer_is_one_of_our_errors(api, client, code, body, error, words):
    api.tell("GET", NODE, code, body, times=2)
    with pytest.raises(error) as caught:
        client.get(NODE)
    assert caught.type is error
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_budget_is_told_from_a_busy_server(api, client):
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
    }
    api.tell("GET", NODE, 429, status(429, "TooManyRequests", causes=[cause]))
    api.tell("GET", NODE, 429, status(429, "TooManyRequests", retryAfterSeconds=3), {"Retry-After": "7"})
    with pytest.raises(Throttled) as budget:
        client.get(NODE)
    with pytest.raises(Throttled) as busy:
        client.get(NODE)
    assert (budget.value.budget, budget.value.detail) == (True, cause["message"])
    assert (busy.value.budget, busy.value.retry_after) == (False, 7.0)


def test_find_answers_none_only_for_what_is_not_there(api, client):
    assert client.find(NODE) is None
    api.tell("GET", NODE, 403, status(403, "Forbidden"))
    with pytest.raises(Forbidden):
        client.find(NODE)


def test_nobody_listens(tmp_path, api):
    api.close()
    with pytest.raises(Unreachable, match="list nodes: no connection"):
        KubernetesClient(api.kubeconfig(tmp_path), timeout=2).list("/api/v1/nodes")


def test_an_answer_that_drips_does_not_outlast_the_deadline(tmp_path, api):
    listener = socket.create_server(("127.0.0.1", 0))

    def drip():
        connection, _address = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _turn in range(40):
            time.sleep(0.1)
            try:
                connection.sendall(b" ")
            except OSError:
                break
        connection.close()

    threading.Thread(target=drip, daemon=True).start()
    api.url = "http://127.0.0.1:%d" % listener.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(TimedOut):
        KubernetesClient(api.kubeconfig(tmp_path), timeout=0.5).get("/api/v1/nodes/x")
    assert time.monotonic() - began < 1.5
    listener.close()


def test_no_time_left_sends_nothing(api, client):
    with pytest.raises(TimedOut):
        client.patch(NODE, {}, timeout=0)
    assert api.requests == []


def test_a_list_is_read_page_by_page(api, client):
    for number in range(7):
        api.put("/api/v1/nodes/n%d" % number, {"kind": "Node"})
    listing = client.list("/api/v1/nodes", limit=3)
    assert [node["metadata"]["name"] for node in listing.items] == ["n%d" % number for number in range(7)]
    assert listing.resource_version == "107"
    assert len(api.requests) == 3


def test_a_list_whose_pages_expire_begins_again(api, client):
    for number in range(4):
        api.put("/api/v1/nodes/n%d" % number, {"kind": "Node"})
    api.tell("GET", "/api/v1/nodes", 200, {"metadata": {"resourceVersion": "1", "continue": "2"}, "items": [{}]})
    api.tell("GET", "/api/v1/nodes", 410, status(410, "Expired"))
    assert len(client.list("/api/v1/nodes", limit=3).items) == 4


def test_a_list_that_expires_for_ever_ends(api, client):
    api.tell("GET", "/api/v1/nodes", 410, status(410, "Expired"), times=100)
    with pytest.raises(Expired):
        client.list("/api/v1/nodes")


def test_a_renewed_token_is_read_again_once(api, tmp_path):
    api.token = "new"
    api.put(NODE, {"kind": "Node"})
    token = tmp_path / "token"
    token.write_text("old\n")
    reached = KubernetesClient(api.kubeconfig(tmp_path, tokenFile="token", token="worst"))
    with pytest.raises(Forbidden, match="401"):
        reached.get(NODE)
    assert len(api.requests) == 2
    token.write_text("new\n")
    assert reached.get(NODE)["kind"] == "Node"
    assert len(api.requests) == 4


def test_secrets_are_in_no_message(api, tmp_path):
    api.token = "other"
    reached = KubernetesClient(api.kubeconfig(tmp_path, token="SECRET-XYZ"))
    with pytest.raises(Forbidden) as caught:
        reached.get(NODE)
    loaded = credentials.load(api.kubeconfig(tmp_path, token="SECRET-XYZ"))
    assert "SECRET" not in repr(loaded) + str(caught.value) + repr(caught.value.fields)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (None, Unreadable, "No such file"),
        ("token: [SECRET", Unreadable, "no YAML"),
        ("token: !!int SECRET", Unreadable, "no YAML"),
        ("expires: 2026-13-45", Unreadable, "no YAML"),
        ("[]", Unreadable, "no mapping"),
        ("{}", BadInput, "no context named ''"),
        (CONTEXT + "}", BadInput, "no cluster named 'k'"),
        (
            CONTEXT + "clusters: [{name: k, cluster: {}}]}",
            Unreadable,
            "no URL",
        ),
        (
            CONTEXT + "clusters: [{name: k, cluster: {server: 'https://x', certificate-authority-data: '!'}}]}",
            Unreadable,
            "no base64",
        ),
    ],
)
def test_kubeconfigs_that_cannot_be_used(tmp_path, text, error, words):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=words) as caught:
        credentials.load(str(path))
    assert "SECRET" not in str(caught.value)


def test_client_certificates_that_are_none(tmp_path, api):
    api.url = "https://127.0.0.1:1"
    data = base64.b64encode(b"no certificate").decode()
    path = api.kubeconfig(tmp_path, **{"client-certificate-data": data, "client-key-data": data})
    with pytest.raises(Unreadable, match="certificate or key"):
        KubernetesClient(path).get(NODE)


def test_credentials_of_a_program_come_by_the_official_client(tmp_path, api):
    pytest.importorskip("kubernetes")
    helper = tmp_path / "helper"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "t1"},
    }
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t1"}}
    helper.write_text("#!/bin/sh\necho '%s'\n" % json.dumps(credential))
    helper.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(helper), "interactiveMode": "Never"}
    api.token = "t1"
    api.put(NODE, {"kind": "Node"})
    assert KubernetesClient(api.kubeconfig(tmp_path, exec=command)).get(NODE)["kind"] == "Node"


def test_in_cluster_outside_of_a_pod():
    with pytest.raises(BadInput, match="no pod"):
        credentials.load("in-cluster", environ={})


def test_allowed_asks_for_each_verb(api, client):
    answers = iter([True, False, None])
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for answer in answers:
        api.tell("POST", path, 201, {"status": {"allowed": answer} if answer is not None else {}})
    questions = rbac.questions([rbac.Grant("", "nodes", ("get", "patch"), ""), rbac.Grant("", "pods/log", ("x",), "")])
    assert allowed(client, questions) == [True, False, False]
    assert questions[-1] == {"group": "", "resource": "pods", "subresource": "log", "verb": "x"}


def test_the_cluster_role_has_each_resource_once():
    rules = rbac.cluster_role(rbac.OBSERVE + rbac.ACT)["rules"]
    nodes = [rule for rule in rules if rule["resources"] == ["nodes"]]
    assert nodes == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}]
    assert all("*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)


def test_without_urllib3_the_error_says_so(kubeconfig, monkeypatch):
    monkeypatch.setattr(module, "urllib3", None)
    with pytest.raises(Unreadable, match="urllib3 is missing"):
        KubernetesClient(kubeconfig).get(NODE)
