# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import rights
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import account, rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.checks.small_cluster import (
    checked,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

SCOPE = ["team-a", "team-b"]


@pytest.fixture
def server():
    made = ApiServer()
    yield made
    made.close()


@pytest.fixture
def client(server, tmp_path):
    made = KubernetesClient(server.kubeconfig(tmp_path), timeout=5.0)
    yield made
    made.close()


def matching(**wanted):
    return lambda asked: any(asked.get(key, "") != value for key, value in wanted.items())


@pytest.mark.parametrize("purpose", sorted(rights.PURPOSES))
def test_every_verb_is_asked_for(server, client, purpose):
    check = rights.judge(client, purpose, SCOPE)
    assert (check.status, check.found) == ("passed", "may do all")
    asked = [body["spec"]["resourceAttributes"] for body in server.bodies]
    for grant in rights.PURPOSES[purpose][1]:
        resource, _slash, sub = grant.resource.partition("/")
        for verb in grant.verbs:
            wanted = {"group": grant.group, "resource": resource, "subresource": sub, "verb": verb}
            assert any(wanted.items() <= one.items() for one in asked), wanted


@pytest.mark.parametrize(
    ("purpose", "may", "found"),
    [
        ("act", matching(verb="patch", resource="nodes"), "may not patch nodes"),
        ("act", matching(subresource="eviction"), "may not create pods/eviction"),
        ("act", matching(group="batch", namespace="team-b"), "may not create, patch jobs.batch in team-b"),
        ("act", matching(group="batch", namespace=""), ""),  # everywhere is not needed
        ("observe", matching(verb="watch", group=""), "may not watch nodes; watch pods"),
        ("observe", matching(verb="watch", resource="jobs"), "may not watch jobs.batch; watch jobs.batch.volcano.sh"),
        ("check", matching(resource="secrets"), "may not get, list secrets"),
        ("install", matching(resource="namespaces"), "may not get, create, patch namespaces"),
        # who may not give away what it has not must have it
        ("install", matching(verb="escalate"), ""),
        (
            "install",
            lambda asked: asked["verb"] != "escalate" and asked.get("subresource") != "eviction",
            "may not create pods/eviction",
        ),
        ("install", matching(subresource="eviction"), ""),  # it may escalate
    ],
)
def test_what_is_missing_is_named(server, client, purpose, may, found):
    server.may = may
    check = rights.judge(client, purpose, SCOPE)
    assert (check.status, check.found) == (("failed", found) if found else ("passed", "may do all"))
    assert bool(check.hint) == bool(found)


def test_what_is_asked_is_what_the_installer_grants():
    """The service's own account, as the installer makes it, is asked about exactly its own rights."""
    granted = set()
    for thing in account.objects("job-recovery", "job-recovery", SCOPE):
        for rule in thing.get("rules", []):
            granted |= {(rule["apiGroups"][0], rule["resources"][0], verb) for verb in rule["verbs"]}
    asked = {
        (one["group"], one["resource"] + ("/" + one["subresource"] if one["subresource"] else ""), one["verb"])
        for one in rights.questions([*rbac.OBSERVE, *rbac.ACT], SCOPE)
    }
    assert asked == granted


def test_a_server_that_does_not_answer_is_unknown(server, client):
    server.tell(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 500, status(500, "InternalError"), times=99
    )
    assert rights.judge(client, "act", SCOPE).status == "unknown"


def test_the_module_adds_them_on_demand(server, tmp_path):
    checks = checked(server, tmp_path, only=["kyverno"], rights=["act", "install"], namespaces=SCOPE)
    assert [(check["id"], check["status"]) for check in checks] == [
        ("kyverno", "passed"),
        ("kubernetes_rights_act", "passed"),
        ("kubernetes_rights_install", "passed"),
    ]
