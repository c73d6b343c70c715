# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chart repositories over HTTP in registry_check: their form, their index, their credentials, and their charts."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import registry as registry_check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.tests.stand_ins.charts import ChartRepository
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import (
    Answer,
    Certificate,
    as_text,
    make_certificate,
)

LOGIN = ("robot", "pa'ss $word")
DIGEST = "sha256:" + hashlib.sha256(b"archive").hexdigest()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def repository(certificate: Certificate) -> Iterator[ChartRepository]:
    with ChartRepository(certificate) as served:
        served.ingress = LOGIN
        served.put("access", "0.1.0", b"archive")
        served.put("access", "v0.2.0-rc.1+build5", b"other")
        yield served


def run(**given: Any) -> dict[str, Any]:
    spec = registry_check.SPEC["argument_spec"]
    params = {name: option.get("default") for name, option in spec.items()}
    params.update(given)
    for name in ("registries", "repositories", "charts"):
        defaults = {key: option.get("default") for key, option in spec[name]["options"].items()}
        params[name] = [{**defaults, **one} for one in params[name]]
    return registry_check.run(params, False)


def site(repository: ChartRepository, certificate: Certificate, **more: Any) -> dict[str, Any]:
    return {"url": repository.address, "username": LOGIN[0], "password": LOGIN[1], "ca_file": str(certificate.ca),
            **more}


def chart(repository: ChartRepository, name: str = "access", **more: Any) -> dict[str, Any]:
    return {"chart": name, "repository": repository.address, **more}


def told(result: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in result["checks"]}


def answers(result: dict[str, Any]) -> list[str]:
    return [one["answer"] for one in result["results"]]


def test_all_is_there(repository: ChartRepository, certificate: Certificate) -> None:
    wanted = [{"version": "0.1.0", "digest": DIGEST}, {"version": "0.2.0-rc.1+build5"}, {}]
    result = run(
        repositories=[site(repository, certificate)], charts=[chart(repository, **one) for one in wanted]
    )
    assert told(result) == {
        "registry_credentials": "passed", "chart_repositories": "passed", "registry_charts": "passed",
    }, result
    assert answers(result) == ["accepted"] + ["present"] * 3
    assert result["results"][1]["digest"] == DIGEST
    assert repository.requests.count("GET /charts/index.yaml") == 1
    assert LOGIN[1] not in json.dumps(result)


@pytest.mark.parametrize(
    ("wanted", "answer", "why"),
    [
        ({"version": "9.9.9"}, "absent", "this version is not"),
        ({"name": "nothing"}, "absent", "has no such chart"),
        ({"version": "0.1.0", "digest": "sha256:" + "0" * 64}, "unreadable", "its digest is " + DIGEST),
        ({"name": "gone"}, "absent", "the archive is not there"),
        ({"name": "empty"}, "unreadable", "has no address"),
    ],
)
def test_what_cannot_be_had_is_told_apart(
    repository: ChartRepository, certificate: Certificate, wanted: dict[str, str], answer: str, why: str
) -> None:
    repository.put("gone", "1.0.0", b"x")
    repository.archives.clear()
    repository.put("empty", "1.0.0", b"x")
    repository.entries["empty"][0]["urls"] = []
    result = run(repositories=[site(repository, certificate)], charts=[chart(repository, **wanted)])
    assert answers(result) == ["accepted", answer]
    assert why in result["results"][1]["why"]
    assert told(result)["registry_charts"] == "failed"


@pytest.mark.parametrize(
    ("given", "answer", "status"),
    [
        ({"password": "wrong"}, "bad_credentials", "failed"),
        ({"username": "", "password": ""}, "bad_credentials", "failed"),
        ({"password": LOGIN[1] + "\n"}, "bad_credentials", "failed"),
        ({"ca_file": ""}, "untrusted", "failed"),
    ],
)
def test_a_repository_that_is_not_open_to_us_is_asked_once(
    repository: ChartRepository, certificate: Certificate, given: dict[str, str], answer: str, status: str
) -> None:
    result = run(repositories=[site(repository, certificate, **given)], charts=[chart(repository)])
    assert answers(result) == [answer, answer]
    assert told(result)["chart_repositories"] == status
    assert len(repository.requests) <= 1


@pytest.mark.parametrize(
    ("instead", "answer", "status"),
    [
        (as_text(403, "no"), "no_permission", "failed"),
        (as_text(404, "no"), "absent", "failed"),
        (as_text(429, "later"), "too_many_requests", "unknown"),
        (as_text(503, "later"), "unreachable", "unknown"),
        (as_text(200, "<html>log in</html>"), "unreadable", "failed"),
        (as_text(200, "entries: [1, 2]"), "unreadable", "failed"),
        (as_text(200, "\tno: yaml: at: all"), "unreadable", "failed"),
        (Answer(200, b"\xff\xfe\x00"), "unreadable", "failed"),
    ],
)
def test_what_else_may_answer(
    repository: ChartRepository, certificate: Certificate, instead: Answer, answer: str, status: str
) -> None:
    repository.instead = instead
    result = run(repositories=[site(repository, certificate)])
    assert answers(result) == [answer]
    assert told(result)["chart_repositories"] == status


def test_a_server_without_head_and_an_archive_that_lies_elsewhere(
    repository: ChartRepository, certificate: Certificate
) -> None:
    """The account is the repository's: another host does not get it, and may be asked without."""
    repository.head = False
    with ChartRepository(certificate) as elsewhere:
        elsewhere.put("far", "1.0.0", b"x")
        repository.put("far", "1.0.0", b"x", url=elsewhere.address + "/far-1.0.0.tgz")
        result = run(
            repositories=[site(repository, certificate)], charts=[chart(repository), chart(repository, "far")]
        )
        assert answers(result) == ["accepted", "present", "present"]
        elsewhere.ingress = LOGIN
        result = run(repositories=[site(repository, certificate)], charts=[chart(repository, "far")])
        assert answers(result) == ["accepted", "bad_credentials"], "the account was sent to another host"


def test_an_open_repository_need_not_be_named(certificate: Certificate) -> None:
    with ChartRepository() as served:
        served.put("access", "0.1.0", b"archive")
        result = run(charts=[chart(served, version="v0.1.0")])
        assert (answers(result), told(result)) == (["present"], {"registry_charts": "passed"})


def test_nvidias_repository_wants_its_user_and_its_key() -> None:
    result = run(repositories=[{"url": "https://helm.ngc.nvidia.com/nvidia", "password": "nvapi-" + "k" * 64 + "\n"}])
    found = next(check["found"] for check in result["checks"] if check["id"] == "registry_credentials")
    assert "newline" in found
    assert "user name" not in found
    assert "not asked" in result["results"][0]["why"]


def test_a_password_is_not_sent_without_tls() -> None:
    result = run(repositories=[{"url": "http://charts.invalid/x", "username": "robot", "password": "secret"}])
    assert answers(result) == ["bad_credentials"]
    assert "would travel unencrypted" in result["results"][0]["why"]


@pytest.mark.parametrize(
    "given",
    [
        {"repositories": [{"url": "oci://nvcr.io/nvidia"}]},
        {"repositories": [{"url": "https://robot:secret@charts.example.org"}]},
        {"repositories": [{"url": "https://charts.example.org/?token=secret"}]},
        {"repositories": [{"url": "https://a"}, {"url": "https://a/"}]},
        {"charts": [{"chart": "a/b", "repository": "https://charts.example.org"}]},
        {"charts": [{"chart": "a", "repository": "https://charts.example.org", "version": "^1.2"}]},
        {"charts": [{"chart": "a", "repository": "https://charts.example.org", "digest": "1234"}]},
    ],
)
def test_wrong_use(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as error:
        run(**given)
    assert "secret" not in str(error.value)
