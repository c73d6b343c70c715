# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client against a small registry, well-behaved and not."""

from __future__ import annotations

import socket
import subprocess
import threading
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import challenge, look
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.client import (
    BadCredentials,
    NoPermission,
    RegistryClient,
    TooMany,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import Login
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import (
    parse_chart,
    parse_image,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.transport import (
    Transport,
    UntrustedTls,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.registry.registry_server import (
    MANIFEST,
    Account,
    RegistryServer,
    digest_of,
)

OWNER = Login("$oauthtoken", "nvapi-" + "k" * 64)
GUEST = Login("guest", "guest's password")
WRONG = Login("$oauthtoken", "nvapi-" + "x" * 64)


@pytest.fixture
def ask(registry, transport):
    """A client of the registry: `ask(login)`."""

    def made(login=OWNER, **more):
        return RegistryClient(registry.name, login, transport, timeout=3.0, plain_http=True, **more)

    return made


def image(client, text, *platforms):
    return look.image(client, parse_image("%s/%s" % (client.registry, text)), platforms)


def chart(client, text, *more):
    return look.chart(client, parse_chart("oci://%s/%s" % (client.registry, text), *more))


@pytest.mark.parametrize("mode", ["token", "basic"])
@pytest.mark.parametrize(
    ("login", "name", "error"),
    [
        (OWNER, "lab/busybox:1", None),
        (OWNER, "lab/busybox:2", Absent),
        (OWNER, "lab/nothing:1", Absent),
        (WRONG, "lab/busybox:1", BadCredentials),
        (None, "lab/busybox:1", BadCredentials),
        (GUEST, "public:1", None),
        (GUEST, "lab/busybox:1", NoPermission),
        (GUEST, "lab/nothing:1", NoPermission),
    ],
)
def test_the_answers_are_told_apart(registry, ask, mode, login, name, error):
    registry.mode = mode
    if error is None:
        assert image(ask(login), name).digest.startswith("sha256:")
        return
    with pytest.raises(error) as caught:
        image(ask(login), name)
    kinds = (Absent, BadCredentials, NoPermission)
    assert [kind for kind in kinds if isinstance(caught.value, kind)] == [error]
    for secret in (OWNER.password, WRONG.password, GUEST.password, WRONG.basic, GUEST.basic):
        assert secret not in str(caught.value)


def test_missing_repository_and_missing_tag_are_told_apart(ask):
    with pytest.raises(Absent, match="no such repository"):
        image(ask(), "lab/nothing:1")
    with pytest.raises(Absent, match="repository is there"):
        image(ask(), "lab/busybox:2")


@pytest.mark.parametrize("mode", ["token", "basic", "open"])
@pytest.mark.parametrize(("login", "error"), [(OWNER, None), (GUEST, None), (WRONG, BadCredentials)])
def test_log_in(registry, ask, mode, login, error):
    registry.mode = mode
    if error is None or mode == "open":
        ask(login).log_in()
    else:
        with pytest.raises(error):
            ask(login).log_in()


def test_credentials_are_sent_only_when_asked_for_and_only_to_whom_asks(registry, ask):
    registry.mode = "open"
    image(ask(), "lab/busybox:1")
    assert set(registry.authorizations) == {""}
    registry.mode = "token"
    registry.authorizations.clear()
    registry.requests.clear()
    image(ask(), "lab/busybox:1")
    for request, sent in zip(registry.requests, registry.authorizations):
        assert sent.startswith("Basic ") is request.startswith("GET /token")


def test_a_token_is_used_again_for_the_same_repository(registry, ask):
    client = ask()
    for _time in range(3):
        image(client, "lab/busybox:1")
    assert len([request for request in registry.requests if "/token" in request]) == 1
    registry.tokens.clear()  # they have ended meanwhile
    assert image(client, "lab/busybox:1")


@pytest.mark.parametrize(
    ("name", "platforms", "missing"),
    [
        ("lab/multi:1", ["linux/amd64", "linux/arm64"], ""),
        ("lab/multi:1", ["linux/riscv64"], "not there for linux/riscv64, only for linux/amd64, linux/arm64"),
        ("lab/multi:1", ["linux/arm64/v8"], "not there for linux/arm64/v8"),
        ("lab/busybox:1", ["linux/amd64"], ""),
        ("lab/busybox:1", ["linux/arm64"], "not there for linux/arm64, only for linux/amd64"),
    ],
)
def test_platforms(ask, name, platforms, missing):
    if not missing:
        assert image(ask(), name, *platforms)
        return
    with pytest.raises(Absent, match=missing):
        image(ask(), name, *platforms)


def test_an_index_with_a_part_that_is_missing(registry, ask):
    there = registry.repositories["lab/multi"].manifests
    part = next(digest for digest, (kind, data) in there.items() if kind == MANIFEST)
    del there[part]
    with pytest.raises(Absent, match="a part for linux/amd64 that the registry does not have"):
        image(ask(), "lab/multi:1", "linux/amd64")


def test_digests(registry, ask):
    digest = registry.repositories["lab/busybox"].tags["1"]
    assert image(ask(), "lab/busybox@" + digest).digest == digest
    assert image(ask(), "lab/busybox:gone@" + digest).digest == digest
    with pytest.raises(Absent):
        image(ask(), "lab/busybox@" + digest_of(b"other"))
    kind, data = registry.repositories["lab/busybox"].manifests[digest]
    registry.repositories["lab/busybox"].manifests[digest] = (kind, data + b" ")
    with pytest.raises(Unreadable, match="not what the digest says"):
        image(ask(), "lab/busybox@" + digest, "linux/amd64")


def test_charts(registry, ask):
    digest = chart(ask(), "charts/access", "0.1.0").digest
    assert chart(ask(), "charts/access", "0.2.0-rc.1+build5").digest == digest
    assert chart(ask(), "charts/access", "0.1.0", digest)
    assert chart(ask(), "charts/access").digest == ""
    with pytest.raises(Absent, match="repository is there"):
        chart(ask(), "charts/access", "9.9.9")
    with pytest.raises(Unreadable, match="its digest is"):
        chart(ask(), "charts/access", "0.1.0", digest_of(b"other"))
    with pytest.raises(Unreadable, match="no Helm chart"):
        chart(ask(), "lab/busybox:1")
    with pytest.raises(Absent, match="none of its tags"):
        chart(ask(), "lab/busybox")
    with pytest.raises(Absent, match="no such repository"):
        chart(ask(), "charts/nothing")
    with pytest.raises(Unreadable, match="is a Helm chart and no image"):
        image(ask(), "charts/access:0.1.0", "linux/amd64")


def test_tags_come_page_by_page(registry, ask):
    for number in range(7):
        registry.repositories["lab/busybox"].tags["t%d" % number] = "x"
    registry.page = 3
    assert ask().tags("lab/busybox") == ["1", *("t%d" % number for number in range(7))]


def nvidia_like(handler):
    """A token server that refuses the scope with 403, and a wrong key with 401."""
    if not handler.path.startswith("/token"):
        return False
    account = handler.server.account_of(handler.headers.get("Authorization", ""))
    if account is not None and "lab%2Fbusybox" in handler.path and account.repositories is not None:
        handler.error(403, "DENIED")
        return True
    return False


def test_a_token_server_that_refuses_the_scope(registry, ask):
    registry.differs = nvidia_like
    with pytest.raises(NoPermission, match="403"):
        image(ask(GUEST), "lab/busybox:1")
    with pytest.raises(BadCredentials):
        image(ask(WRONG), "lab/busybox:1")
    assert image(ask(OWNER), "lab/busybox:1")


def always(status, code="UNKNOWN", headers=None, path=""):
    def differs(handler):
        if path in handler.path:
            handler.error(status, code, headers)
            return True
        return False

    return differs


@pytest.mark.parametrize(
    ("differs", "error", "words"),
    [
        (always(429), TooMany, "too often"),
        (always(429, path="/token"), TooMany, "token server was asked too often"),
        (always(503), Unreachable, "HTTP 503"),
        (always(500, path="/token"), Unreachable, "token server is in trouble"),
        (always(401), Unreadable, "does not say what it wants"),
        (always(401, headers={"WWW-Authenticate": "Negotiate"}), Unreadable, "does not say"),
        (always(401, headers={"WWW-Authenticate": 'Bearer realm="/token"'}), Unreadable, "no URL"),
        (always(404, path="/token"), Unreadable, "HTTP 404"),
        (always(402, path="/manifests/"), NoPermission, "payment required"),
        (always(418, path="/manifests/"), Unreadable, "418 .UNKNOWN words of the registry"),
    ],
)
def test_registries_that_misbehave(registry, ask, differs, error, words):
    registry.differs = differs
    with pytest.raises(error, match=words):
        image(ask(), "lab/busybox:1")


def test_a_registry_that_does_not_take_its_own_tokens(registry, ask):
    def forget(handler):
        if handler.path.startswith("/v2/"):
            handler.server.tokens.clear()
        return False

    registry.differs = forget
    with pytest.raises(Unreadable, match="the token of its own token server"):
        image(ask(), "lab/busybox:1")


@pytest.mark.parametrize("body", [b"<html>Log in to the hotel's network</html>", b"[]", b"", b"[" * 100_000])
def test_something_else_answers(registry, ask, body):
    def page(handler):
        handler.answer(200, body, {"Content-Type": "text/html"})
        return True

    registry.differs = page
    with pytest.raises(Unreadable, match="is a registry at this address"):
        image(ask(), "lab/busybox:1")


def test_no_registry_at_the_address(registry, ask):
    registry.differs = always(404)
    with pytest.raises(Unreadable, match="no registry at this address"):
        ask().log_in()


def test_an_old_manifest_is_named(registry, ask):
    old = "application/vnd.docker.distribution.manifest.v1+prettyjws"

    def answer(handler):
        if "/manifests/" in handler.path:
            handler.answer(200, b"{}", {"Content-Type": old})
            return True
        return False

    registry.mode, registry.differs = "open", answer
    with pytest.raises(Unreadable, match="containerd does not take"):
        image(ask(), "lab/busybox:1")


def test_head_is_not_known(registry, ask):
    registry.differs = lambda handler: handler.command == "HEAD" and (handler.error(405, "UNSUPPORTED") or True)
    assert image(ask(), "lab/busybox:1")


def test_redirects_lose_the_credentials(registry, ask):
    other = RegistryServer()
    other.mode = "open"
    other.put_image("lab/busybox", "1")
    target = "http://%s/v2/lab/busybox/manifests/1" % other.name

    def away(handler):
        if "/manifests/" in handler.path and handler.headers.get("Authorization"):
            handler.answer(307, b"", {"Location": target})
            return True
        return False

    registry.differs = away
    try:
        assert image(ask(), "lab/busybox:1")
        assert other.authorizations == [""]
    finally:
        other.close()


def test_redirects_end(registry, ask):
    registry.differs = lambda handler: handler.answer(307, b"", {"Location": handler.path}) or True
    with pytest.raises(Unreadable, match="without end"):
        image(ask(), "lab/busybox:1")


def test_too_long(registry, ask):
    registry.mode = "open"
    registry.differs = lambda handler: handler.answer(200, b" " * 5000000, {"Content-Type": "text/plain"}) or True
    with pytest.raises(Unreadable, match="longer than"):
        image(ask(), "lab/busybox:1")


def test_no_connection(transport):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        name = "127.0.0.1:%d" % unused.getsockname()[1]
    client = RegistryClient(name, OWNER, transport, 3.0, plain_http=True)
    with pytest.raises(Unreachable, match="refused"):
        client.log_in()
    with pytest.raises(Unreachable, match="no connection"):
        RegistryClient("registry.invalid", OWNER, transport, 3.0).log_in()


@pytest.mark.parametrize("drip", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"])
def test_silence_ends_in_time(transport, drip):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_slowly, args=(server, drip), daemon=True)
        thread.start()
        client = RegistryClient("127.0.0.1:%d" % server.getsockname()[1], OWNER, transport, 0.5, plain_http=True)
        begun = time.monotonic()
        with pytest.raises(TimedOut, match="in time"):
            client.log_in()
        assert time.monotonic() - begun < 3
        thread.join(5)


def answer_slowly(server, drip):
    """Nothing at all, or a beginning and then a byte now and then."""
    connection, _address = server.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(drip)
        for _byte in range(20):
            time.sleep(0.1)
            try:
                connection.sendall(b" " * bool(drip))
            except OSError:
                return


# ---- TLS ----


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Certificates, each its own authority: of this machine, of another name, and one that has ended."""
    folder = tmp_path_factory.mktemp("tls")
    made = {}
    for name, subject, days in (("good", "IP:127.0.0.1", "2"), ("other", "DNS:other.example.org", "2")):
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256"]
        argv += ["-keyout", str(folder / (name + ".key")), "-out", str(folder / (name + ".crt")), "-days", days]
        argv += ["-subj", "/CN=test", "-addext", "subjectAltName=" + subject]
        subprocess.run(argv, check=True, capture_output=True)
        made[name] = (str(folder / (name + ".crt")), str(folder / (name + ".key")))
    return made


def over_tls(pair, trusted, act):
    server = RegistryServer(*pair)
    server.accounts = {OWNER.username: Account(OWNER.password)}
    server.put_image("lab/busybox", "1")
    transport = Transport(trusted)
    try:
        return act(server, transport)
    finally:
        transport.close()
        server.close()


def test_tls(pairs):
    def act(server, transport):
        return image(RegistryClient(server.name, OWNER, transport, 3.0), "lab/busybox:1")

    assert over_tls(pairs["good"], pairs["good"][0], act)
    with pytest.raises(UntrustedTls, match="self-signed certificate"):
        over_tls(pairs["good"], "", act)
    with pytest.raises(UntrustedTls, match="IP address mismatch"):
        over_tls(pairs["other"], pairs["other"][0], act)


def test_no_tls_there(registry, transport):
    with pytest.raises(UntrustedTls, match="does not speak TLS"):
        RegistryClient(registry.name, OWNER, transport, 3.0).log_in()
    assert registry.authorizations == []


def test_tls_there_although_the_site_says_that_there_is_none(pairs):
    def act(server, transport):
        RegistryClient(server.name, OWNER, transport, 3.0, plain_http=True).log_in()

    with pytest.raises(RecoveryError):
        over_tls(pairs["good"], "", act)


def test_credentials_are_not_sent_in_clear_to_a_token_server(pairs, registry):
    def act(server, transport):
        server.realm = "http://%s/token" % registry.name
        RegistryClient(server.name, OWNER, transport, 3.0).log_in()

    with pytest.raises(Unreadable, match="the credentials were not sent there"):
        over_tls(pairs["good"], pairs["good"][0], act)
    assert registry.requests == []


def test_redirects_out_of_tls_are_not_followed(pairs, registry):
    def act(server, transport):
        server.mode = "open"
        server.differs = lambda handler: handler.answer(307, b"", {"Location": "http://%s/x" % registry.name}) or True
        image(RegistryClient(server.name, OWNER, transport, 3.0), "lab/busybox:1")

    with pytest.raises(Unreadable, match="out of TLS"):
        over_tls(pairs["good"], pairs["good"][0], act)
    assert registry.requests == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_cannot_be_loaded(tmp_path, content):
    path = tmp_path / "ca.crt"
    if content:
        path.write_text(content)
    with pytest.raises(BadInput, match="cannot be loaded"):
        Transport(str(path))


# ---- proxies ----


def test_the_proxy_of_the_environment_is_used(registry, transport, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:secret@%s" % registry.name)

    def proxied(handler):
        assert handler.headers.get("Proxy-Authorization", "").startswith("Basic ")
        handler.answer(200, b"{}")
        return True

    registry.differs = proxied
    RegistryClient("registry.example.org", None, transport, 3.0, plain_http=True).log_in()
    assert registry.requests == ["GET http://registry.example.org/v2/"]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    registry.differs = None
    RegistryClient(registry.name, OWNER, transport, 3.0, plain_http=True).log_in()


# ---- challenges ----


@pytest.mark.parametrize(
    ("header", "scheme", "parameters"),
    [
        (
            'Bearer realm="https://a/token",service="a b",scope="x:y:pull,push"',
            "bearer",
            {"realm": "https://a/token", "service": "a b", "scope": "x:y:pull,push"},
        ),
        ('Basic realm="x", Bearer realm="https://a"', "bearer", {"realm": "https://a"}),
        ('BASIC realm="a \\"quoted\\" name"', "basic", {"realm": 'a "quoted" name'}),
        ("bearer realm=https", "bearer", {"realm": "https"}),
        ("Basic", "basic", {}),
        ("Negotiate, Basic realm=x", "basic", {"realm": "x"}),
    ],
)
def test_challenges(header, scheme, parameters):
    chosen = challenge.choose(header)
    assert (chosen.scheme, dict(chosen.parameters)) == (scheme, parameters)


@pytest.mark.parametrize("header", ["", "Negotiate", ",,,", '"', "Bearer=x"])
def test_no_challenges(header):
    assert challenge.choose(header) is None
