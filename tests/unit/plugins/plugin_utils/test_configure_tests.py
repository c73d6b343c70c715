# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of answers that `configure` makes over HTTP: the registry or chart repository, and Loki."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.questions import View
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_tests import (
    FAILED,
    PASSED,
    TESTS,
    UNKNOWN,
    Outcome,
    Site,
)
from ansible_collections.mission_control.job_recovery.tests.stand_ins.charts import ChartRepository
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import (
    Answer,
    Certificate,
    as_text,
    make_certificate,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.registry.registry_server import (
    Account,
    RegistryServer,
)

TOKEN = "nvapi-{{ x }} $HOME"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def registry(certificate: Certificate) -> Iterator[RegistryServer]:
    server = RegistryServer(str(certificate.cert), str(certificate.key))
    server.accounts = {"$oauthtoken": Account(TOKEN)}
    yield server
    server.close()


def tried(topic: str, **answers: Any) -> Outcome:
    return TESTS[topic](View(answers=answers), Site(lambda _name, _arguments: {}, 5))


def test_nothing_is_asked_where_nothing_was_named() -> None:
    assert tried("registry", job_recovery_chart_repository="") == Outcome(PASSED)
    assert tried("loki", job_recovery_loki_url="") == Outcome(PASSED)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, PASSED, "answers, and accepts the account"),
        ({"job_recovery_registry_password": "wrong"}, FAILED, "Registries: 0 of 1"),
        ({"job_recovery_registry_password": TOKEN + "\n"}, FAILED, "newline"),
        ({"job_recovery_registry_user": "somebody"}, FAILED, "Registries: 0 of 1"),
        ({"charts_ca_file": ""}, UNKNOWN, "set charts_ca_file"),
        ({"charts_ca_file": "/nowhere.crt"}, FAILED, "/nowhere.crt"),
        ({"job_recovery_chart_repository": "oci://127.0.0.1:1/x"}, UNKNOWN, "no connection"),
        ({"job_recovery_chart_repository": "oci://UPPER_CASE/x"}, FAILED, "registry"),
    ],
)
def test_a_registry(
    registry: RegistryServer, certificate: Certificate, changed: dict[str, Any], status: str, said: str
) -> None:
    right = {
        "job_recovery_chart_repository": "oci://%s/charts" % registry.name,
        "job_recovery_registry_user": "$oauthtoken",
        "job_recovery_registry_password": TOKEN,
        "charts_ca_file": str(certificate.ca),
    }
    outcome = tried("registry", **{**right, **changed})
    assert (outcome.status, said in outcome.message) == (status, True), outcome
    assert TOKEN not in outcome.message


@pytest.mark.parametrize(
    ("password", "ingress", "status"),
    [
        ("right", ("robot", "right"), PASSED),
        ("wrong", ("robot", "right"), FAILED),
        ("", ("robot", "right"), FAILED),
        ("", None, PASSED),
    ],
)
def test_a_chart_repository(password: str, ingress: Any, status: str) -> None:
    with ChartRepository() as served:
        served.ingress = ingress
        outcome = tried("registry", job_recovery_chart_repository=served.address, job_recovery_registry_user="robot",
                        job_recovery_registry_password=password)
    assert outcome.status == status, outcome


@pytest.mark.parametrize(
    ("changed", "instead", "status", "said"),
    [
        ({}, None, PASSED, "answers to the account"),
        ({"job_recovery_loki_password": "wrong"}, None, FAILED, "Loki answers to us"),
        ({"job_recovery_loki_user": "a:b"}, None, FAILED, "user name"),
        ({"job_recovery_loki_ca": ""}, None, FAILED, "not trusted"),
        ({"job_recovery_loki_url": "https://127.0.0.1:1"}, None, UNKNOWN, "127.0.0.1:1"),
        ({}, as_text(404, "no"), FAILED, "HTTP 404"),
    ],
)
def test_loki(
    certificate: Certificate, changed: dict[str, Any], instead: Answer, status: str, said: str
) -> None:
    with LokiStandIn(certificate) as served:
        served.ingress, served.instead = ("reader", "right"), instead
        served.put({"job": "x"}, "a line")
        right = {
            "job_recovery_loki_url": served.url, "job_recovery_loki_ca": str(certificate.ca),
            "job_recovery_loki_user": "reader", "job_recovery_loki_password": "right",
        }
        outcome = tried("loki", **{**right, **changed})
    assert (outcome.status, said in outcome.message) == (status, True), outcome
    assert "right" not in outcome.message


def test_a_loki_that_is_open_is_told_and_no_reason_to_ask_again(certificate: Certificate) -> None:
    """That is the cluster's fault: pre-flight fails for it."""
    with LokiStandIn(certificate) as served:
        served.put({"job": "x"}, "a line")
        outcome = tried("loki", job_recovery_loki_url=served.url, job_recovery_loki_ca=str(certificate.ca),
                        job_recovery_loki_user="reader", job_recovery_loki_password="any")
    assert outcome.status == PASSED
    assert "Loki is closed to strangers" in outcome.message
