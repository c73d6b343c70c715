# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loki's API through its Ingress: the stand-in for Loki, and what gateways and login pages answer in its place."""

from __future__ import annotations

import socket

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.loki import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import (
    Answer,
    as_page,
    as_text,
    make_certificate,
)

USER, PASSWORD = "reader", 'p@ss"w$rd: \u00e4'
DEFAULTS = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def loki(certificate):
    with LokiStandIn(certificate) as made:
        made.ingress = (USER, PASSWORD)
        made.put({"job": "x"}, "a line")
        yield made


def params(certificate, url, **other):
    return {**DEFAULTS, "url": url, "ca_file": str(certificate.ca), "user": USER, "password": PASSWORD, **other}


def checked(*args, **other):
    result = run(params(*args, **other), True)
    assert result["changed"] is False
    assert PASSWORD not in str(result)
    return {check["id"]: check for check in result["checks"]}


def statuses(found):
    return [found[name]["status"] for name in ("loki_tls", "loki_closed", "loki_access")]


@pytest.mark.parametrize("ending", ["", "/", "/loki/api/v1", "/loki/api/v1/"])
def test_all_is_well(loki, certificate, ending):
    found = checked(certificate, loki.url + ending)
    assert statuses(found) == ["passed", "passed", "passed"], found
    assert loki.requests == ["GET /loki/api/v1/labels"] * 3
    assert not any(check["hint"] for check in found.values())


def test_open_to_all(loki, certificate):
    loki.ingress = None
    found = checked(certificate, loki.url)
    assert statuses(found) == ["passed", "failed", "passed"]
    assert "anybody reads all logs" in found["loki_closed"]["hint"]


def test_a_gateway_that_takes_any_password(loki, certificate):
    """It asks for credentials and does not look at them."""
    loki.asked = lambda request: (
        loki.answer(request) if request.account else as_text(401, "", **{"WWW-Authenticate": "Basic"})
    )
    found = checked(certificate, loki.url)
    assert statuses(found) == ["passed", "failed", "passed"]
    assert "with a wrong password: HTTP 200" in found["loki_closed"]["found"]


def test_our_password_is_wrong(loki, certificate):
    found = checked(certificate, loki.url, password="another")
    assert statuses(found) == ["passed", "passed", "failed"]
    assert "auth-secret" in found["loki_access"]["hint"]


@pytest.mark.parametrize(
    ("ingress", "tenant", "expected", "hint"),
    [
        (True, "team", ["passed", "passed", "passed"], ""),
        (True, "tema", ["passed", "passed", "warning"], "tenant 'tema' is right"),
        (True, "", ["passed", "passed", "failed"], "X-Scope-OrgID"),
        # Loki's own 401 looks like a protected API, and whoever gets it can write the header
        (False, "", ["passed", "failed", "failed"], "X-Scope-OrgID"),
        (False, "team", ["passed", "failed", "passed"], ""),
    ],
)
def test_tenants(certificate, ingress, tenant, expected, hint):
    with LokiStandIn(certificate, tenants=True) as loki:
        loki.ingress = (USER, PASSWORD) if ingress else None
        loki.put({"job": "x"}, "a line", tenant="team")
        found = checked(certificate, loki.url, tenant=tenant)
    assert statuses(found) == expected
    assert hint in found["loki_access"]["hint"]


LOGIN = {"Location": "https://login.example.org/oauth2/start?rd=SECRET"}


@pytest.mark.parametrize(
    ("answer", "closed", "access", "said"),
    [
        (as_page(302, "", **LOGIN), "warning", "failed", "https://login.example.org/oauth2/start"),
        (as_page(200, "<!DOCTYPE html><title>Sign in</title>"), "warning", "failed", "a web page"),
        (Answer(302, b"", {"Location": "/login"}), "warning", "failed", "/login"),
        (as_text(200, "{}"), "unknown", "failed", "HTTP 200 ({})"),
        (as_text(404, "default backend - 404"), "unknown", "failed", "default backend - 404"),
        (as_text(403, "forbidden"), "warning", "failed", "HTTP 403"),
        (as_text(401, "token wanted", **{"WWW-Authenticate": "Bearer"}), "warning", "failed", "HTTP 401"),
        (as_text(429, "slow down"), "unknown", "unknown", "HTTP 429"),
        (as_page(503, "<html>503</html>"), "unknown", "failed", "HTTP 503"),
        (as_page(502, "<html>502 Bad Gateway</html>"), "failed", "failed", "HTTP 502"),
        (as_text(504, "\x1b[2J late"), "failed", "failed", "HTTP 504 ([2J late)"),
        (as_text(500, "boom"), "unknown", "failed", "HTTP 500 (boom)"),
        (as_page(400, "The plain HTTP request was sent to HTTPS port"), "unknown", "failed", "HTTP 400"),
    ],
)
def test_others_answer_in_place_of_loki(loki, certificate, answer, closed, access, said):
    loki.instead = answer
    found = checked(certificate, loki.url)
    assert statuses(found) == ["passed", closed, access], found
    assert said in found["loki_access"]["found"]
    assert "SECRET" not in str(found)
    assert found["loki_access"]["hint"]


def test_a_redirect_to_tls_says_nothing_about_credentials(certificate):
    with LokiStandIn() as loki:
        where = loki.url.replace("http:", "https:") + "/loki/api/v1/labels"
        loki.instead = Answer(308, b"", {"Location": where})
        found = checked(certificate, loki.url)
    assert statuses(found) == ["warning", "unknown", "failed"]
    assert "https://" in found["loki_access"]["hint"]


def test_a_certificate_that_is_not_trusted_gets_no_password(loki, certificate, tmp_path):
    other = make_certificate(tmp_path)
    found = checked(certificate, loki.url, ca_file=str(other.ca))
    assert statuses(found) == ["failed", "unknown", "failed"]
    assert "is not trusted" in found["loki_tls"]["found"]
    assert loki.requests == []


def test_another_name_than_the_certificate_has(loki, certificate):
    found = checked(certificate, loki.url.replace("127.0.0.1", "other.test"), address="127.0.0.1")
    assert statuses(found) == ["failed", "unknown", "failed"]


def test_by_the_clusters_address_under_the_name_of_the_certificate(loki, certificate):
    found = checked(certificate, loki.url.replace("127.0.0.1", "loki.test"), address="127.0.0.1")
    assert statuses(found) == ["passed", "passed", "passed"], found


def test_without_verification_it_is_a_warning(loki, certificate, tmp_path):
    found = checked(certificate, loki.url, ca_file=None, validate_certs=False)
    assert statuses(found) == ["warning", "passed", "passed"]


def test_plain_http_is_a_warning(certificate):
    with LokiStandIn() as loki:
        loki.ingress = (USER, PASSWORD)
        loki.put({"job": "x"}, "a line")
        assert statuses(checked(certificate, loki.url)) == ["warning", "passed", "passed"]


def test_nobody_listens(certificate):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = checked(certificate, "https://127.0.0.1:%d" % port)
    assert statuses(found) == ["unknown", "unknown", "unknown"]


def test_nobody_answers(certificate):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "http://127.0.0.1:%d" % silent.getsockname()[1]
        found = checked(certificate, url, timeout=0.2)
    assert statuses(found) == ["warning", "unknown", "unknown"]
    assert "no answer in 0.2 s" in found["loki_access"]["found"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "loki.example.org"},
        {"url": "https://"},
        {"url": "ftp://x/"},
        {"url": "https://u:p@x/"},
        {"url": "https://x:port/"},
        {"url": "https://x/?a=b"},
        {"user": "a:b"},
        {"user": ""},
        {"password": "line\n"},
        {"tenant": "a\r\nX: y"},
        {"timeout": 0},
    ],
)
def test_wrong_use(certificate, wrong):
    with pytest.raises(BadInput) as caught:
        run({**params(certificate, "https://127.0.0.1:9"), **wrong}, False)
    assert "line\n" not in str(caught.value)


def test_a_ca_that_is_none(certificate, tmp_path):
    with pytest.raises(Unreadable, match="cannot be loaded"):
        run(params(certificate, "https://127.0.0.1:9", ca_file=str(tmp_path / "none")), False)
