# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana through its Ingress, its password and who may read it: the stand-in for Grafana, and a small API server."""

from __future__ import annotations

import base64
import socket

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils import grafana_password
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import grafana as check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Forbidden,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.tests.stand_ins.grafana import GrafanaStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import (
    as_json,
    as_page,
    as_text,
    make_certificate,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

GENERATED, NEW = "prom-operator-9", "n\u00e9w \"$p@ss': word"
SECRET = "/api/v1/namespaces/prometheus/secrets/kube-prometheus-stack-grafana"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CHECKS = {name: option.get("default") for name, option in check.SPEC["argument_spec"].items()}
CHANGES = {name: option.get("default") for name, option in grafana_password.SPEC["argument_spec"].items()}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def grafana(certificate):
    with GrafanaStandIn(GENERATED, certificate) as made:
        yield made


@pytest.fixture
def site(grafana, certificate, tmp_path):
    """The parameters that both modules share, and the cluster behind them."""
    api = ApiServer()
    put_secret(api, {"admin-user": "admin", "admin-password": GENERATED})
    yield {"api": api, "url": grafana.url, "ca_file": str(certificate.ca), "kubeconfig": api.kubeconfig(tmp_path)}
    api.close()


def put_secret(api, values):
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    api.put(SECRET, {"data": data})


def checked(site, **other):
    result = check.run({**CHECKS, **{key: value for key, value in site.items() if key != "api"}, **other}, False)
    assert GENERATED not in str(result)
    return {one["id"]: one for one in result["checks"]}, result["readers"]


def change(site, check_mode=False, **other):
    given = {**CHANGES, **{key: value for key, value in site.items() if key != "api"}, **other}
    return grafana_password.run(given, check_mode)


# ---- grafana_check ----


@pytest.mark.parametrize("ending", ["", "/", "/login"])
def test_it_answers_and_has_the_generated_password(grafana, site, ending):
    found, readers = checked(site, url=grafana.url + ending)
    assert [one["status"] for one in found.values()] == ["passed", "warning", "passed"], found
    assert "Grafana 13.0.2" in found["grafana_login"]["found"]
    assert readers == []


@pytest.mark.parametrize(
    ("present", "ours", "expected", "failures"),
    [
        (GENERATED, None, "warning", 0),
        (NEW, None, "passed", 1),
        (NEW, NEW, "passed", 0),  # looking every minute must not lock the administrator out
        (GENERATED, NEW, "warning", 1),
        (GENERATED, GENERATED, "warning", 0),
        ("a third one", NEW, "failed", 2),
    ],
)
def test_whose_password_it_is(grafana, site, present, ours, expected, failures):
    grafana.password = present
    found, _readers = checked(site, password=ours)
    assert found["grafana_password"]["status"] == expected, found
    assert len(grafana.failures) == failures


@pytest.mark.parametrize(
    ("answer", "status_wanted", "said"),
    [
        (as_text(404, "default backend - 404"), "failed", "default backend - 404"),
        (as_page(503, "<html>503</html>"), "failed", "HTTP 503"),
        (as_page(302, "", Location="https://login.example.org/?token=SECRET"), "failed", "https://login.example.org/"),
        (as_page(200, "<!DOCTYPE html><title>Another program</title>"), "failed", "a web page"),
        (as_text(401, "", **{"WWW-Authenticate": "Basic"}), "failed", "HTTP 401"),
    ],
)
def test_others_answer_in_its_place(grafana, site, answer, status_wanted, said):
    grafana.instead = answer
    found, _readers = checked(site)
    assert found["grafana_login"]["status"] == status_wanted
    assert said in found["grafana_login"]["found"]
    assert found["grafana_password"]["status"] == "unknown"
    assert "SECRET" not in str(found)


def test_its_database_fails(grafana, site):
    grafana.database = "failing"
    found, _readers = checked(site)
    assert found["grafana_login"]["status"] == "failed"
    assert "database: failing" in found["grafana_login"]["found"]


def test_no_password_by_the_api_is_unknown_and_not_changed(grafana, site):
    grafana.basic = False
    found, _readers = checked(site)
    assert found["grafana_password"]["status"] == "unknown"
    assert "auth.basic" in found["grafana_password"]["found"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (None, "there is no Secret prometheus/kube-prometheus-stack-grafana"),
        ({"admin-user": "admin"}, "has no admin-password"),
        ({"admin-user": "admin", "admin-password": "x\n"}, "control character"),
    ],
)
def test_the_secret_is_not_as_it_should_be(site, values, said):
    site["api"].take(SECRET)
    if values:
        put_secret(site["api"], values)
    found, _readers = checked(site)
    assert found["grafana_password"]["status"] == "unknown"
    assert said in found["grafana_password"]["found"]


def test_nobody_listens_and_nothing_may_be_read(site, certificate):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site["api"].tell("GET", SECRET, 403, status(403, "Forbidden"))
    site["api"].tell("GET", RBAC + "/clusterroles", 403, status(403, "Forbidden"))
    found, readers = checked(site, url="https://127.0.0.1:%d/grafana" % port)
    assert [one["status"] for one in found.values()] == ["unknown", "unknown", "unknown"]
    assert "list clusterroles" in found["grafana_secret_readers"]["found"]
    assert readers == []


def test_a_certificate_that_is_not_trusted(grafana, site, tmp_path):
    other = make_certificate(tmp_path)
    found, _readers = checked(site, ca_file=str(other.ca))
    assert found["grafana_login"]["status"] == "failed"
    assert grafana.requests == []
    found, _readers = checked(site, ca_file=None, validate_certs=False)
    assert found["grafana_login"]["status"] == "warning"


def bind(api, number, role, *subjects):
    path = "%s/clusterrolebindings/b%d" % (RBAC, number)
    api.put(path, {"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": list(subjects)})


@pytest.fixture
def rights(site):
    api = site["api"]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    pods = {"verbs": ["create"], "apiGroups": [""], "resources": ["pods"]}
    api.put(RBAC + "/clusterroles/cluster-admin", {"rules": [everything]})
    api.put(RBAC + "/clusterroles/starter", {"rules": [pods]})
    bind(api, 0, "cluster-admin", {"kind": "Group", "name": "system:masters"})
    return api


@pytest.mark.parametrize(
    ("subject", "role", "expected", "status_wanted"),
    [
        ({"kind": "User", "name": "bob"}, "cluster-admin", [], "warning"),
        ({"kind": "User", "name": "bob"}, "cluster-admin", ["User bob"], "passed"),
        ({"kind": "ServiceAccount", "name": "r", "namespace": "x"}, "starter", [], "warning"),
        ({"kind": "ServiceAccount", "name": "r", "namespace": "x"}, "starter", ["ServiceAccount x/r"], "passed"),
        ({"kind": "Group", "name": "system:authenticated"}, "cluster-admin", [], "failed"),
    ],
)
def test_who_can_read_the_secret(site, rights, subject, role, expected, status_wanted):
    bind(rights, 1, role, subject)
    found, readers = checked(site, readers=expected)
    one = found["grafana_secret_readers"]
    assert one["status"] == status_wanted, one
    assert len(readers) == 2
    assert subject["name"] in one["found"]
    assert {reader["how"] for reader in readers} <= {"reads the Secret", "starts pods beside it"}


def test_only_the_administrators(site, rights):
    found, readers = checked(site)
    assert found["grafana_secret_readers"]["status"] == "passed"
    assert [(one["subject"], one["through"], one["built_in"]) for one in readers] == [
        ("Group system:masters", ["ClusterRoleBinding b0"], True)
    ]


# ---- grafana_password ----


def test_it_is_changed_once(grafana, site):
    assert change(site, check_mode=True, password=NEW) == {"changed": True, "user": "admin"}
    assert grafana.password == GENERATED
    assert change(site, password=NEW) == {"changed": True, "user": "admin"}
    assert grafana.password == NEW
    before = len(grafana.failures)
    assert change(site, password=NEW) == {"changed": False, "user": "admin"}
    assert len(grafana.failures) == before


def test_it_comes_from_a_file(grafana, site, tmp_path):
    path = tmp_path / "password"
    path.write_text(NEW + "\n", encoding="utf-8")
    assert change(site, password_file=str(path))["changed"] is True
    assert grafana.password == NEW


def test_the_old_one_is_given_and_no_secret_is_read(grafana, site):
    grafana.password = "old"
    site["api"].take(SECRET)
    assert change(site, password=NEW, old_password="old", user="admin")["changed"] is True
    assert grafana.password == NEW


def test_the_old_one_is_given_for_the_user_of_the_secret(grafana, site):
    grafana.password = "old"
    assert change(site, password=NEW, old_password="old")["changed"] is True


def told(caught):
    assert GENERATED not in str(caught.value)
    assert NEW not in str(caught.value)
    return str(caught.value)


def test_nobody_knows_the_password(grafana, site):
    grafana.password = "a third one"
    with pytest.raises(Forbidden) as caught:
        change(site, password=NEW)
    assert "reset-admin-password" in told(caught)
    assert grafana.password == "a third one"


def test_it_is_locked(grafana, site):
    for _number in range(3):
        with pytest.raises(Forbidden):
            change(site, password=NEW, old_password="wrong")
    with pytest.raises(Forbidden) as caught:
        change(site, password=NEW)
    assert "wait five minutes" in told(caught)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (as_json(400, {"message": "New password is too short"}), BadInput, "too short"),
        (as_json(400, {"message": "bad: " + NEW}), BadInput, "bad: ***"),
        (as_json(403, {"message": "Not allowed when LDAP is enabled"}), Forbidden, "LDAP"),
        (as_text(502, "bad gateway"), Unreadable, "HTTP 502"),
    ],
)
def test_grafana_refuses(grafana, site, answer, error, said):
    usual = grafana.answer
    grafana.answer = lambda request: answer if request.method == "PUT" else usual(request)
    with pytest.raises(error) as caught:
        change(site, password=NEW)
    assert said in told(caught)


def test_grafana_says_yes_and_does_nothing(grafana, site):
    """Two Grafanas behind one address, each with a database of its own."""
    usual = grafana.answer
    done = as_json(200, {"message": "User password changed"})
    grafana.answer = lambda request: done if request.method == "PUT" else usual(request)
    with pytest.raises(Unreadable, match="several Grafanas"):
        change(site, password=NEW)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"password": ""}, BadInput),
        ({"password": GENERATED}, BadInput),
        ({"password": "a\nb"}, BadInput),
        ({"password_file": "/nonexistent/x"}, Unreadable),
        ({"password": NEW, "secret": "another"}, Absent),
        ({"password": NEW, "url": "grafana"}, BadInput),
    ],
)
def test_wrong_use(grafana, site, wrong, error):
    with pytest.raises(error) as caught:
        change(site, **wrong)
    told(caught)
    assert grafana.password == GENERATED
