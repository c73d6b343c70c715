# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's registry for images and charts, standing in for NVIDIA's: it refuses whoever has no credentials.

It runs on the head, over TLS by the lab's own authority, as ``head:5000`` (from this machine: the head's address), and
beside it a small token server, because with tokens, as NVIDIA's and most others have them, a wrong password, a missing
right and a missing image are different answers. There are two accounts:

- NVIDIA's, which may do everything: the user is literally ``$oauthtoken``, the password an ``nvapi-...`` key, kept in
  secret/ngc;
- a guest, who may pull from ``public/`` and nothing else (secret/registry_guest).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from . import binaries, command, hostfiles, images, pki
from .errors import LabError
from .instance import HEAD, Instance

USER = "$oauthtoken"
GUEST = "guest"
PORT = 5000
TOKEN_PORT = 5001
#: What the hosts of the lab call it.
NAME = f"{HEAD}:{PORT}"
BUSYBOX_REPOSITORY = "lab/busybox"
BUSYBOX = f"{NAME}/{BUSYBOX_REPOSITORY}:{images.TAG}"
UNITS = ("lab-registry-tokens", "docker-registry")
#: What the accounts may do: patterns of repositories, and the actions there.
_RIGHTS = {USER: {"*": ["*"]}, GUEST: {"public/*": ["pull"]}}
_SERVICE = "lab"

_FILES = Path(__file__).resolve().parents[1] / "files" / "registry"
_FOLDER = "/etc/docker/registry"
_CALL_SECONDS = 20
_READY_SECONDS = 60


def password(instance: Instance, user: str = USER) -> str:
    """The key of an account; made up at its first use and kept (mode 0600, no newline). As long as NVIDIA's are."""
    file = instance.secret("ngc" if user == USER else f"registry_{user}")
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hostfiles.write_private(file, f"nvapi-{secrets.token_urlsafe(48)}")
    return file.read_text(encoding="ascii").strip()


def address(instance: Instance) -> str:
    """HOST:PORT of the registry as this machine reaches it."""
    return f"{instance.address(HEAD)}:{PORT}"


def docker_config(instance: Instance, *names: str) -> str:
    """Docker's config.json with the credentials, for every given registry name. Secret."""
    key = password(instance)
    auth = base64.b64encode(f"{USER}:{key}".encode()).decode()
    return json.dumps({"auths": {name: {"username": USER, "password": key, "auth": auth} for name in names}})


def seed(instance: Instance) -> None:
    """Put the registry into the head's seed: it starts with the head. Call it before the head's first boot."""
    keys = pki.ensure(instance)

    def put(path: str, content: str | bytes, mode: int = 0o644) -> None:
        hostfiles.put(instance, HEAD, path, content, mode)

    values = {"HEAD_IP": instance.address(HEAD), "TOKEN_PORT": str(TOKEN_PORT)}
    put(f"{_FOLDER}/config.yml", hostfiles.fill((_FILES / "config.yml").read_text(encoding="utf-8"), values))
    put(f"{_FOLDER}/tls.crt", (keys / "registry.crt").read_bytes())
    put(f"{_FOLDER}/tls.key", (keys / "registry.key").read_bytes(), 0o600)
    put(f"{_FOLDER}/ca.crt", (keys / "ca.crt").read_bytes())
    put(f"{_FOLDER}/token.crt", (keys / "registry-token.crt").read_bytes())
    put(f"{_FOLDER}/token.key", (keys / "registry-token.key").read_bytes(), 0o600)
    accounts = {user: {"password": password(instance, user), "rights": rights} for user, rights in _RIGHTS.items()}
    put(f"{_FOLDER}/accounts.json", json.dumps(accounts), 0o600)
    for program in ("lab-registry-prepare", "lab-registry-tokens"):
        put(f"/usr/local/sbin/{program}", (_FILES / program).read_bytes(), 0o755)
    put(f"{hostfiles.UNITS}/lab-registry-tokens.service", (_FILES / "lab-registry-tokens.service").read_bytes())
    hostfiles.enable(instance, HEAD, "lab-registry-tokens.service")
    put(f"{hostfiles.UNITS}/docker-registry.service.d/lab-registry.conf", (_FILES / "lab.conf").read_bytes())
    hostfiles.enable(instance, HEAD, "docker-registry.service", "/usr/lib/systemd/system")


def wait_ready(instance: Instance, timeout: float = _READY_SECONDS) -> None:
    """Wait until the registry takes our credentials and refuses a stranger. Raises LabError if it does neither."""

    def ready() -> bool:
        try:
            with _Client(instance) as client:
                return client.status("GET", "/v2/") == http.client.OK
        except OSError:
            return False

    command.wait_for("the registry answers (on the head: journalctl -u docker-registry -u lab-registry-tokens)",
                     ready, timeout=timeout)
    with _Client(instance, authenticated=False) as stranger:
        status = stranger.status("GET", "/v2/")
    if status != http.client.UNAUTHORIZED:
        raise LabError(f"The registry answered {status} to a request without credentials instead of 401")


def push_busybox(instance: Instance, repository: str = BUSYBOX_REPOSITORY) -> str:
    """Push the lab's busybox image unless it is there; return its reference."""
    applets = binaries.find("applets").read_text(encoding="utf-8").split()
    reference = f"{NAME}/{repository}:{images.TAG}"
    push(instance, repository, images.busybox(reference, binaries.find("busybox"), applets))
    return reference


def push(instance: Instance, repository: str, image: images.Image, tag: str = images.TAG) -> None:
    """Push an image to REPOSITORY:TAG. Nothing is sent if the registry has the same one."""
    manifest = image.manifest
    with _Client(instance, repository) as client:
        if client.digest(f"/v2/{repository}/manifests/{tag}") == images.digest(manifest):
            return
        for blob in (image.config, image.layer):
            client.upload(repository, blob)
        client.expect(http.client.CREATED, "PUT", f"/v2/{repository}/manifests/{tag}", manifest,
                      {"Content-Type": images.MANIFEST_TYPE})


class _Client:
    """The few calls of the registry's HTTP API (OCI distribution 1.1) that a push needs, on one connection.

    Raises OSError if its token server does not answer or gives no token.
    """

    def __init__(self, instance: Instance, repository: str = "", *, authenticated: bool = True) -> None:
        context = ssl.create_default_context(cafile=str(pki.path(instance) / "ca.crt"))
        host = instance.address(HEAD)
        self._headers = {"Accept": images.MANIFEST_TYPE}
        if authenticated:
            self._headers["Authorization"] = f"Bearer {_token(instance, repository, context)}"
        self._connection = http.client.HTTPSConnection(host, PORT, timeout=_CALL_SECONDS, context=context)

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, {**self._headers, **(headers or {})})
        response = self._connection.getresponse()
        response.read()  # the connection is used again
        return response

    def status(self, method: str, path: str) -> int:
        """Status of a call."""
        return self._call(method, path).status

    def digest(self, path: str) -> str | None:
        """Digest of what is at a path, none if nothing is."""
        response = self._call("HEAD", path)
        return response.getheader("Docker-Content-Digest") if response.status == http.client.OK else None

    def expect(
        self, status: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Make a call. Raises LabError if it is answered with another status."""
        response = self._call(method, path, body, headers)
        if response.status != status:
            raise LabError(f"The registry answered {response.status} to {method} {path} instead of {status}")
        return response

    def upload(self, repository: str, blob: bytes) -> None:
        """Send a blob unless the registry has it."""
        digest = images.digest(blob)
        if self.status("HEAD", f"/v2/{repository}/blobs/{digest}") == http.client.OK:
            return
        started = self.expect(http.client.ACCEPTED, "POST", f"/v2/{repository}/blobs/uploads/")
        location = started.getheader("Location", "")
        path = "/" + location.split("/", 3)[3] if "://" in location else location
        separator = "&" if "?" in path else "?"
        self.expect(http.client.CREATED, "PUT", f"{path}{separator}digest={digest}", blob,
                    {"Content-Type": "application/octet-stream"})


def _token(instance: Instance, repository: str, context: ssl.SSLContext) -> str:
    """A token with which to pull from and push to a repository (none: only to log in)."""
    query = {"service": _SERVICE, **({"scope": f"repository:{repository}:pull,push"} if repository else {})}
    account = base64.b64encode(f"{USER}:{password(instance)}".encode()).decode()
    connection = http.client.HTTPSConnection(
        instance.address(HEAD), TOKEN_PORT, timeout=_CALL_SECONDS, context=context)
    with contextlib.closing(connection):
        connection.request("GET", f"/token?{urlencode(query)}", headers={"Authorization": f"Basic {account}"})
        response = connection.getresponse()
        body = response.read()
    if response.status != http.client.OK:
        raise ConnectionError(f"The token server of the registry answered {response.status}")
    return json.loads(body)["token"]
