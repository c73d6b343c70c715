# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The token server of the lab's registry, as it runs on the head."""

from __future__ import annotations

import base64
import importlib.machinery
import importlib.util
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml
from joblab import registry
from joblab.instance import HEAD, Instance

PROGRAM = Path(registry.__file__).resolve().parents[1] / "files" / "registry" / "lab-registry-tokens"


class Tokens:
    """A running server, and the folder that it was started with."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.keys = {user: account["password"] for user, account in self.accounts.items()}

    @property
    def accounts(self) -> dict:
        return json.loads((self.folder / "accounts.json").read_text())

    def ask(self, user: str = "", password: str = "", *, method: str = "GET", path: str = "/token", **query) -> tuple:
        """Status and object of an answer."""
        url = f"https://127.0.0.1:{self.port}{path}?{urlencode({'service': 'lab', **query}, doseq=True)}"
        request = urllib.request.Request(url, method=method)
        if user:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(request, timeout=20) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, json.load(exc)

    def access(self, user: str, *scopes: str) -> list[dict]:
        """What a token grants."""
        status, told = self.ask(user, self.keys.get(user, ""), scope=list(scopes))
        assert status == 200
        return json.loads(unpacked(told["token"].split(".")[1]))["access"]


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    instance = Instance(3, tmp_path_factory.mktemp("checkout"))
    registry.seed(instance)
    folder = tmp_path_factory.mktemp("registry") / "registry"
    shutil.copytree(instance.seed(HEAD) / "etc/docker/registry", folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(PROGRAM), str(folder), str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 20
            while time.monotonic() < until:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield Tokens(folder, port)
        finally:
            process.terminate()


def test_the_configuration_leads_to_the_token_server(instance: Instance) -> None:
    registry.seed(instance)
    config = yaml.safe_load((instance.seed(HEAD) / "etc/docker/registry/config.yml").read_text())
    assert config["auth"]["token"]["realm"] == "https://10.89.3.10:5001/token"
    for file in ("accounts.json", "token.key", "tls.key"):
        assert (instance.seed(HEAD) / "etc/docker/registry" / file).stat().st_mode & 0o77 == 0


def test_keys_are_as_long_as_nvidias(instance: Instance) -> None:
    assert len(registry.password(instance)) == 70
    assert registry.password(instance) == registry.password(instance) != registry.password(instance, registry.GUEST)


@pytest.mark.parametrize(("user", "scope", "actions"), [
    (registry.USER, "repository:lab/busybox:pull,push", ["pull", "push"]),
    (registry.USER, "repository:lab/busybox:*", ["*"]),
    (registry.USER, "registry:catalog:*", ["*"]),
    (registry.GUEST, "repository:lab/busybox:pull", []),
    (registry.GUEST, "repository:public/busybox:pull,push", ["pull"]),
    ("", "repository:public/busybox:pull", []),
])
def test_what_is_granted(tokens: Tokens, user: str, scope: str, actions: list[str]) -> None:
    kind, name, _asked = scope.split(":") if scope.startswith("repo") else ("registry", "catalog", "")
    assert tokens.access(user, scope) == [{"type": kind, "name": name, "actions": actions}]


def test_several_wishes_at_once(tokens: Tokens) -> None:
    granted = tokens.access(registry.USER, "repository:a:pull repository:b:pull", "repository:c:pull")
    assert [one["name"] for one in granted] == ["a", "b", "c"]


@pytest.mark.parametrize(("given", "status"), [
    ({"user": registry.USER, "password": "nvapi-wrong"}, 401),
    ({"user": registry.USER, "password": ""}, 401),
    ({"user": "nobody", "password": ""}, 401),
    ({"service": "other"}, 404),
    ({"path": "/other"}, 404),
    ({"method": "POST"}, 405),
])
def test_what_is_refused(tokens: Tokens, given: dict, status: int) -> None:
    assert tokens.ask(**given)[0] == status


def test_a_token_is_signed_by_the_labs_authority(tokens: Tokens, tmp_path: Path) -> None:
    text, _dot, signature = tokens.ask(registry.USER, tokens.keys[registry.USER])[1]["token"].rpartition(".")
    header = json.loads(unpacked(text.split(".")[0]))
    assert (header["alg"], len(unpacked(signature))) == ("ES256", 64)
    certificate = tmp_path / "certificate.pem"
    certificate.write_text(f"-----BEGIN CERTIFICATE-----\n{header['x5c'][0]}\n-----END CERTIFICATE-----\n")
    argv = ["openssl", "verify", "-CAfile", str(tokens.folder / "ca.crt"), str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    argv = ["openssl", "x509", "-in", str(certificate), "-noout", "-pubkey"]
    (tmp_path / "key.pem").write_bytes(subprocess.run(argv, check=True, capture_output=True).stdout)
    (tmp_path / "signature").write_bytes(der(unpacked(signature)))
    argv = ["openssl", "dgst", "-sha256", "-verify", "key.pem", "-signature", "signature"]
    assert subprocess.run(argv, input=text.encode(), cwd=tmp_path, capture_output=True).returncode == 0


def der(signature: bytes) -> bytes:
    """The two numbers as openssl reads them."""
    parts = b""
    for number in (signature[:32], signature[32:]):
        plain = number.lstrip(b"\0")
        plain = b"\0" + plain if plain[0] & 0x80 else plain
        parts += bytes([2, len(plain)]) + plain
    return bytes([0x30, len(parts)]) + parts


@pytest.mark.parametrize("numbers", [
    (b"\x7f" * 32, b"\x01" * 32),
    (b"\xff" * 32, b"\x80" + b"\x01" * 31),
    (b"\0" + b"\x90" * 31, b"\0\0" + b"\x01" * 30),
])
def test_numbers_of_every_length(numbers: tuple[bytes, bytes]) -> None:
    """openssl leaves leading zeros away, and adds one where the first bit is set."""
    loader = importlib.machinery.SourceFileLoader("lab_registry_tokens", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    assert module.numbers(der(b"".join(numbers))) == b"".join(numbers)


def test_the_pull_secret_has_every_name(instance: Instance) -> None:
    config = json.loads(registry.docker_config(instance, "head:5000", "10.89.3.10:5000"))
    assert sorted(config["auths"]) == ["10.89.3.10:5000", "head:5000"]
