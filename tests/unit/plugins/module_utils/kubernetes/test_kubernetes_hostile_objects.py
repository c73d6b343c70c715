# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the API server with anything in their fields: read, or refused by an error of ours.

What is put in is made by chance, and the same in each run.
"""

from __future__ import annotations

import base64
import copy
import json
import random

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import plan as helm_plan
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import (
    client,
    detect,
    jobs,
    models,
    nodes,
    watch,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import opt_in
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import docker_config, pull_secret

SEED = 20261130
NOW = 1796036820.0
TIME = "2026-11-30T11:07:00Z"
VALUES = [
    None, True, False, 0, -1, 7.5, float("inf"), 10**30, "", "x", "True", "{{ x }}", "\x1b[31m", "\ud800", TIME,
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00Z", [], {}, [None], [1], ["x"], [[]],
    [{}], {"a": 1}, "[" * 3000, "[]", "{}", '{"incident": 7}', '{"origin": "u", "name": "n", "attempt": "9999999"}',
    '{"incident": "7", "previous": {"unschedulable": true}, "time": 5}',
]


def condition(kind):
    return {"type": kind, "status": "True", "reason": "r", "lastTransitionTime": TIME}


NODE = {
    "metadata": {
        "name": "n1",
        "annotations": {models.NODE_ANNOTATION: '{"incident": "7"}', models.HOLD_ANNOTATION: ""},
        "managedFields": [{"manager": "k", "time": TIME, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}],
    },
    "spec": {"unschedulable": True, "taints": [{"key": "a", "value": "b", "effect": "NoExecute"}]},
    "status": {
        "conditions": [condition("Ready")],
        "nodeInfo": {"bootID": "b", "machineID": "m"},
        "addresses": [{"address": "10.0.0.1"}],
        "capacity": {"cpu": "1"},
    },
}
POD = {
    "metadata": {
        "name": "p",
        "namespace": "a",
        "labels": {"controller-uid": "j"},
        "finalizers": ["x"],
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "j", "controller": True}],
    },
    "spec": {"nodeName": "n1", "volumes": [{"emptyDir": {}}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "conditions": [condition("DisruptionTarget")],
        "containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1, "finishedAt": TIME}}}],
    },
}
JOB = {
    "metadata": {
        "name": "j",
        "namespace": "a",
        "uid": "u",
        "annotations": {
            models.JOB_ANNOTATION: '{"origin": "u", "name": "n", "attempt": 1}',
            models.OPT_IN_ANNOTATION: '{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 3}}',
        },
    },
    "spec": {"backoffLimit": 0, "completions": 3, "completionMode": "Indexed"},
    "status": {"conditions": [condition("Failed")]},
}
STATUS = {
    "kind": "Status",
    "code": 429,
    "message": "m",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "m"}], "retryAfterSeconds": 3},
}
CONFIG = {"auths": {"nvcr.io": {"auth": "YTpi", "username": "a", "password": "b"}, "o.org": {}}, "credsStore": "x"}
RECORD = {
    "name": "web",
    "version": 3,
    "info": {"status": "deployed", "description": "x"},
    "chart": {"metadata": {"name": "c", "version": "1"}},
    "config": {"a": 1},
    "hooks": [{"manifest": "x"}],
}


def look_at_node(thing):
    node = models.node_view(thing)
    nodes.plan_cordon(node, "8", NOW)
    nodes.plan_uncordon(node, "7")
    detect.node_faults([node], NOW, 0)


def look_at_pod(thing):
    pod = models.pod_view(thing)
    nodes.stuck_terminating([pod], NOW, 0)
    detect.CauseMemory().note(pod)


def look_at_job(thing):
    job = models.job_view(thing)
    detect.is_candidate(job, False)
    opt_in.parse(job.opt_in)
    jobs.plan_rerun(job, "", [], completions=jobs.completions_of(thing))


def look_at_status(thing):
    for code in (400, 403, 409, 422, 429, 500):
        client.error_of("GET", "/api/v1/nodes", client.Reply(code, {"Retry-After": "nan"}, thing))
    with pytest.raises(RecoveryError):
        watch.parse_event(json.dumps({"type": "ERROR", "object": thing}).encode(), "/api/v1/nodes")


def look_at_config(thing):
    text = json.dumps(thing)
    docker_config.read(text, NOW)
    data = {pull_secret.KEY: base64.b64encode(text.encode()).decode()}
    secret = {"type": pull_secret.TYPE, "metadata": {"labels": {pull_secret.LABEL: pull_secret.OWNER}}, "data": data}
    wanted = pull_secret.Wanted("p", "t", "nvcr.io", docker_config.Login("a", "b"))
    pull_secret.plan(secret, wanted, NOW)


def look_at_record(thing):
    found = release.parse({"metadata": {"name": "x"}, "data": {"release": release.encoded(thing)}})
    release.marked_failed(found, "x", NOW)
    helm_plan.plan_present(helm_plan.Wanted("c", "1", frozenset(), {}), found)


def slots(thing):
    """Every place of a value in nested lists and objects."""
    for at, inner in list(thing.items() if isinstance(thing, dict) else enumerate(thing)):
        yield thing, at
        if isinstance(inner, (dict, list)):
            yield from slots(inner)


@pytest.mark.parametrize(
    ("good", "look"),
    [
        (NODE, look_at_node),
        (POD, look_at_pod),
        (JOB, look_at_job),
        (STATUS, look_at_status),
        (CONFIG, look_at_config),
        (RECORD, look_at_record),
    ],
)
def test_anything_in_the_place_of_a_value(good, look):
    chance = random.Random(SEED)
    refused = 0
    for _turn in range(150):
        thing = copy.deepcopy(good)
        for _place in range(chance.randrange(1, 4)):
            where, at = chance.choice(list(slots(thing)))
            where[at] = copy.deepcopy(chance.choice(VALUES))
        try:
            look(thing)
        except RecoveryError as exc:
            refused += 1
            problem = str(exc)
            if not problem.isprintable() or len(problem) > 1000:
                pytest.fail("a message that does harm: %r" % problem[:200])
    assert refused < 150
