# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import json
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import command, source
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.account import Account

ACCOUNT = Account("$oauthtoken", "nvapi-0123456789abcdef")
OPTIONS = {
    "chart": "oci://registry.example/charts/front",
    "repository": None,
    "version": "1.0.0",
    "digest": None,
    "ca_file": None,
    "plain_http": False,
    "keyring": None,
}


def parsed(**options):
    return source.parse({**OPTIONS, **options})


def fetched(helm, account=None, seconds=20, **options):
    """The chart, its archive's name and the calls; whatever is left behind is a failure."""
    with command.private_folder() as folder:
        caller = command.Helm(helm.path, folder, time.monotonic() + seconds, account.secrets if account else ())
        return source.fetch(parsed(**options), account, caller, folder)


@pytest.mark.parametrize(
    ("options", "kind", "host"),
    [
        ({}, "oci", "registry.example"),
        ({"chart": "oci://10.0.0.1:5000/a/b"}, "oci", "10.0.0.1:5000"),
        ({"chart": "front", "repository": "https://h:8443/charts/"}, "repository", "h:8443"),
        ({"chart": "/srv/x.tgz"}, "local", ""),
        ({"chart": "./x"}, "local", ""),
        ({"version": "^1.2.0"}, "oci", "registry.example"),
        ({"version": ">=1.0.0 <2.0.0"}, "oci", "registry.example"),
        ({"version": None}, "oci", "registry.example"),
    ],
)
def test_sources(options, kind, host):
    found = parsed(**options)
    assert (found.kind, found.host) == (kind, host)
    assert found.exact is (found.version == "1.0.0")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"chart": "front"}, "no oci:// address and no path"),
        ({"chart": "--debug"}, "no oci:// address and no path"),
        ({"chart": "oci://registry.example"}, "no oci:// address"),
        ({"chart": "oci://registry.example/a:1.0.0"}, "version apart"),
        ({"chart": "oci://user:s3cret@registry.example/a"}, "holds an account"),
        ({"chart": "--debug", "repository": "https://h/"}, "no name of a chart"),
        ({"chart": "a/b", "repository": "https://h/"}, "no name of a chart"),
        ({"chart": "front", "repository": "ftp://h/"}, "no http"),
        ({"chart": "front", "repository": "https://user:s3cret@h/"}, "holds an account"),
        ({"version": "--debug;"}, "version"),
        ({"digest": "sha256:ABC"}, "digest"),
        ({"digest": "a" * 64}, "digest"),
    ],
)
def test_what_is_no_source(options, why):
    with pytest.raises(BadInput, match=why) as caught:
        parsed(**options)
    assert "s3cret" not in str(caught.value)


def test_a_chart_of_a_registry(helm, packed):
    data, manifest = packed(), "sha256:" + "b" * 64
    said = "Pulled: registry.example/charts/front:1.0.0\nDigest: %s\n" % manifest
    helm.plays(pull=[{"files": {"front-1.0.0.tgz": data.hex()}, "stdout": said}])
    chart = fetched(helm, ACCOUNT, ca_file="/ca.crt")
    assert (chart.name, chart.version) == ("front", "1.0.0")
    assert chart.digests == {manifest, "sha256:" + hashlib.sha256(data).hexdigest()}
    (call,) = helm.calls
    assert call["mode"] == "0o700"
    assert json.loads(call["login"]) == {"auths": {"registry.example": {"auth": ACCOUNT.basic}}}
    assert not any(secret in word for secret in ACCOUNT.secrets for word in call["argv"])
    assert call["options"]["--ca-file"] == "/ca.crt"


def test_without_an_account_none_is_used(helm, packed):
    helm.plays(pull=[{"files": {"x.tgz": packed().hex()}}])
    fetched(helm)
    assert json.loads(helm.calls[0]["login"]) == {"auths": {}}


def test_a_chart_of_a_repository(helm, packed):
    helm.plays(pull=[{"files": {"x.tgz": packed().hex()}}])
    fetched(helm, ACCOUNT, chart="front", repository="https://h/charts")
    add, pull = helm.calls
    assert add["words"] == ["repo", "add", "repository", "https://h/charts"]
    assert add["stdin"] == ACCOUNT.password
    assert add["options"]["--username"] == ACCOUNT.user
    assert pull["words"] == ["pull", "repository/front"]
    assert not any(ACCOUNT.password in word for call in (add, pull) for word in call["argv"])


@pytest.mark.parametrize("options", [{"plain_http": True}, {"chart": "front", "repository": "http://h/"}])
def test_an_account_does_not_travel_unencrypted(helm, options):
    with pytest.raises(BadInput, match="unencrypted"):
        fetched(helm, ACCOUNT, **options)
    assert helm.calls == []


def test_an_archive_and_a_folder(helm, packed, tmp_path):
    path = tmp_path / "front.tgz"
    path.write_bytes(packed())
    chart = fetched(helm, chart=str(path))
    assert (chart.name, chart.version, chart.path) == ("front", "1.0.0", str(path))
    assert chart.digests == {"sha256:" + hashlib.sha256(packed()).hexdigest()} or len(chart.digests) == 1
    folder = tmp_path / "front"
    folder.mkdir()
    (folder / "Chart.yaml").write_text("name: front\nversion: 1.0.0\n")
    first = fetched(helm, chart=str(folder)).digests
    (folder / "values.yaml~").write_text("an editor's")
    assert fetched(helm, chart=str(folder)).digests == first
    (folder / "values.yaml").write_text("a: 1\n")
    assert fetched(helm, chart=str(folder)).digests != first
    assert helm.calls == []


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"version": "1.0.1"}, Conflict, "is of version 1.0.0"),
        ({"digest": "sha256:" + "c" * 64}, Conflict, "has the digest"),
        ({"text": "name: [\n"}, Unreadable, "no YAML"),
        ({"text": "name: x\n"}, Unreadable, "no chart and version"),
        ({"text": "- x\n"}, Unreadable, "no chart and version"),
        ({"raw": b"\x1f\x8bcut"}, Unreadable, "no archive"),
        ({"raw": b""}, Unreadable, "no archive"),
    ],
)
def test_archives_that_are_not_what_they_should_be(helm, packed, tmp_path, options, error, why):
    path = tmp_path / "front.tgz"
    path.write_bytes(options.pop("raw") if "raw" in options else packed(text=options.pop("text", None)))
    with pytest.raises(error, match=why):
        fetched(helm, chart=str(path), **options)


def test_the_manifests_digest_is_as_good_as_the_archives(helm, packed):
    data, manifest = packed(), "sha256:" + "b" * 64
    step = {"files": {"x.tgz": data.hex()}, "stderr": "Digest: %s\n" % manifest}
    for digest in (manifest, "sha256:" + hashlib.sha256(data).hexdigest()):
        helm.plays(pull=[step])
        assert digest in fetched(helm, digest=digest).digests
    helm.plays(pull=[step])
    with pytest.raises(Conflict, match="nothing was installed"):
        fetched(helm, digest="sha256:" + "c" * 64)


def test_a_provenance_is_asked_for(helm, packed, tmp_path):
    helm.plays(pull=[{"files": {"x.tgz": packed().hex(), "x.tgz.prov": "00"}}])
    fetched(helm, keyring="/keys")
    assert helm.calls[0]["options"]["--verify"] is True
    assert helm.calls[0]["options"]["--keyring"] == "/keys"
    path = tmp_path / "x.tgz"
    path.write_bytes(packed())
    helm.plays(verify=[{"rc": 1, "stderr": "Error: open x.tgz.prov: no such file or directory"}])
    with pytest.raises(Conflict, match="provenance"):
        fetched(helm, chart=str(path), keyring="/keys")
    with pytest.raises(BadInput, match="a folder has no provenance"):
        fetched(helm, chart=str(tmp_path), keyring="/keys")


# What helm 4.1.4 says; "[lab]" was seen there, the others are what registries are known to answer.
SAID = [
    ('failed to perform "FetchReference" on source: unexpected status code 401: Unauthorized', Forbidden, "(401)"),
    ("response status code 403: denied: requested access to the resource is denied", Forbidden, "(403)"),
    ('failed to perform "FetchReference" on source: h/x:9.9.9: not found', Absent, "no such chart"),
    ('chart "front" matching 9.9.9 not found in repository index', Absent, "no such chart"),
    ("dial tcp 127.0.0.1:1: connect: connection refused", Unreachable, "does not answer"),  # [lab]
    ("dial tcp: lookup nope.invalid on 10.0.0.1:53: no such host", Unreachable, "does not answer"),  # [lab]
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority", Unreachable, "TLS failed"),
    ("http: server gave HTTP response to HTTPS client", Unreachable, "TLS failed"),
    ("write /w/chart/front.tgz: no space left on device", RecoveryError, "no space is left"),
    ("openpgp: signature made by unknown entity", Conflict, "provenance"),
    ('failed to fetch provenance "https://h/front-1.0.0.tgz.prov"', Conflict, "provenance"),
    ("net/http: request canceled (Client.Timeout exceeded while awaiting headers)", TimedOut, "in time"),
    ("unexpected status code 503: Service Unavailable", Unreachable, "does not answer"),
    ("something new", Unreadable, "something new"),
]


@pytest.mark.parametrize(("said", "error", "why"), SAID)
def test_what_helm_says_has_a_meaning(said, error, why):
    ended = command.Ended(1, "", "Error: " + said)
    found = source.error_of(parsed(), ended, logged_in=True)
    assert found.__class__ is error
    assert why in str(found)


def test_without_an_account_401_asks_for_one():
    found = source.error_of(parsed(), command.Ended(1, "", "401 Unauthorized"), logged_in=False)
    assert "wants an account" in str(found)


def test_a_password_that_helm_repeats_is_not_told(helm):
    helm.plays(pull=[{"rc": 1, "stderr": "401: %s and %s\n" % ACCOUNT.secrets}])
    with pytest.raises(Forbidden) as caught:
        fetched(helm, ACCOUNT)
    assert not any(secret in "%s %s" % (caught.value, caught.value.fields) for secret in ACCOUNT.secrets)


def test_a_registry_that_hangs(helm):
    helm.plays(pull=[{"sleep": 30}])
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        fetched(helm, seconds=0.5)
    assert time.monotonic() - begun < 10


def test_no_helm(tmp_path):
    class Nothing:
        path = str(tmp_path / "none")

    with pytest.raises(Absent, match="install Helm"):
        fetched(Nothing)
