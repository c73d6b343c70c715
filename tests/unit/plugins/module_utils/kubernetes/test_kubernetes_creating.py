# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import creating
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import PodView
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

NOW = 1796036820.0


def pod(name, owner, since=NOW - 300, node="n"):
    return PodView("a", name, uid="uid-" + name, node=node, owner_uid=owner, creating_since=since)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([pod("p", "u1"), pod("q", "u2")], {"n": ["p", "q"]}),
        ([pod("p", "u1"), pod("q", "u1")], {}),  # one owner alone may ask for what cannot be had
        ([pod("p", ""), pod("q", "")], {"n": ["p", "q"]}),
        ([pod("p", "u1"), pod("q", "u2", NOW - 299)], {}),
        ([pod("p", "u1"), pod("q", "u2", None)], {}),
        ([pod("p", "u1"), pod("q", "u2", node="m")], {}),
        ([pod("p%d" % one, "u%d" % one) for one in range(9)], {"n": ["p0", "p1", "p2", "p3"]}),
    ],
)
def test_which_pods_are_asked_about(pods, found):
    made = creating.candidates(pods, NOW, 300)
    assert {node: [one.name for one in some] for node, some in made.items()} == found


def put_pod(api, name, owner, message="failed to setup network for sandbox", reporter="kubelet", reason=None):
    since = {"lastTransitionTime": "2026-11-30T11:00:00Z"}
    conditions = [{"type": "PodReadyToStartContainers", "status": "False"}]
    conditions += [{"type": "PodScheduled", "status": "True", **since}]
    reference = {"kind": "Job", "name": owner, "uid": owner, "controller": True}
    spec = {"nodeName": "n1", "restartPolicy": "Never"}
    body = {"kind": "Pod", "metadata": {"ownerReferences": [reference]}, "spec": spec}
    api.put("/api/v1/namespaces/a/pods/" + name, {**body, "status": {"phase": "Pending", "conditions": conditions}})
    event = {"kind": "Event", "involvedObject": {"uid": "uid-" + name}, "message": message}
    told = {"reason": reason or "FailedCreatePodSandBox", "source": {"component": reporter}}
    api.put("/api/v1/namespaces/a/events/" + name, {**event, **told})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, 2),
        ({"message": "Failed to create pod sandbox: failed to get sandbox image: failed to pull image"}, 0),
        ({"reason": "FailedMount", "message": "MountVolume.SetUp failed: secret not found"}, 0),
        ({"reason": "Failed", "message": "Failed to pull image"}, 0),
        ({"reporter": "somebody"}, 0),
    ],
)
def test_a_node_that_makes_no_sandboxes(api, client, change, found):
    put_pod(api, "p", "u1")
    put_pod(api, "q", "u2", **change)
    assert creating.on_node(client, "n1", time.time(), 300) == found


def test_events_that_cannot_be_read_prove_nothing(api, client):
    put_pod(api, "p", "u1")
    put_pod(api, "q", "u2")
    api.tell("GET", "/api/v1/namespaces/a/events", 403, status(403, "Forbidden"), times=9)
    with pytest.raises(RecoveryError):
        creating.on_node(client, "n1", time.time(), 300)
