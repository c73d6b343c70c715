# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real kube-apiserver over a real etcd, alone on loopback: no controller, no kubelet, nothing that acts by itself.

Authorization is RBAC and an audit log tells what was asked by whom. The programs are the lab's, built where the cache
has none. What it serves is what an administrator puts there, so states that a healthy cluster does not have on demand,
and very large ones, can be had within seconds.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    AlreadyExists,
    KubernetesClient,
    path_of,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))

from joblab import binaries  # the lab is no package of Python's path

_START_SECONDS = 120.0
_STOP_SECONDS = 20.0
_ISSUER = "https://kubernetes.default.svc"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class ControlPlane:
    """Up until `close`.

    Args:
        folder: an empty one, on a disk.

    Attributes:
        admin: a client that may do everything.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen] = {}
        self._port, client_port, peer_port = _free_ports(3)
        self._token = secrets.token_urlsafe(24)
        self._write_files()
        try:
            self._start("etcd", self._etcd(client_port, peer_port))
            self._start("kube-apiserver", self._apiserver(client_port))
            self.admin = self._await_ready()
        except BaseException:
            self.close()
            raise

    def kubeconfig(self, name: str, token: str) -> str:
        """The path of a kubeconfig for whoever has this token."""
        authority = base64.b64encode((self.folder / "tls" / "apiserver.crt").read_bytes())
        cluster = {"server": "https://127.0.0.1:%d" % self._port, "certificate-authority-data": authority.decode()}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bare", "cluster": cluster}],
            "users": [{"name": "bare", "user": {"token": token}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "bare"}}],
            "current-context": "bare",
        }
        path = self.folder / ("%s.conf" % name)
        path.touch(mode=0o600)
        path.write_text(json.dumps(content), encoding="utf-8")
        return str(path)

    def account_token(self, namespace: str, account: str) -> str:
        """A token of a ServiceAccount, good for an hour."""
        path = path_of("v1", "serviceaccounts", namespace, account, "token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.admin.create(path, body)["status"]["token"])

    def apply(self, thing: Mapping[str, Any], status: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make an object, with a status if one is given; one that is there stays as it is."""
        collection, path = _paths(thing)
        try:
            made = self.admin.create(collection, dict(thing))
        except AlreadyExists:
            made = self.admin.get(path)
        if status is not None:
            made = self.admin.patch(path + "/status", {"status": dict(status)})
        return made

    def asked(self) -> Iterator[dict[str, Any]]:
        """What service accounts have asked so far, by the audit log; a watch that goes on counts, too."""
        lines = (self.folder / "audit.log").read_text(encoding="utf-8").splitlines()
        return (json.loads(line) for line in lines)

    def pid(self, name: str) -> int:
        """The process id of one of the two programs."""
        return self._processes[name].pid

    def close(self) -> None:
        """End both programs."""
        for name in ("kube-apiserver", "etcd"):
            process = self._processes.pop(name, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_STOP_SECONDS)

    def _write_files(self) -> None:
        (self.folder / "audit.yaml").write_text(json.dumps(_AUDIT_POLICY), encoding="utf-8")
        (self.folder / "audit.log").touch()
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text('%s,admin,admin,"system:masters"\n' % self._token, encoding="utf-8")
        for argv in (
            ["openssl", "genrsa", "-out", "sa.key", "2048"],
            ["openssl", "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"],
        ):
            subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, timeout=60)

    def _start(self, name: str, options: list[str]) -> None:
        argv = [str(binaries.find(name)), *options]
        with (self.folder / (name + ".log")).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _etcd(self, client_port: int, peer_port: int) -> list[str]:
        clients, peers = ("http://127.0.0.1:%d" % port for port in (client_port, peer_port))
        return [
            "--data-dir=etcd", "--unsafe-no-fsync", "--listen-client-urls=" + clients,
            "--advertise-client-urls=" + clients, "--listen-peer-urls=" + peers,
            "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
        ]  # fmt: skip

    def _apiserver(self, client_port: int) -> list[str]:
        return [
            "--etcd-servers=http://127.0.0.1:%d" % client_port, "--bind-address=127.0.0.1",
            "--secure-port=%d" % self._port, "--cert-dir=tls", "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC", "--anonymous-auth=false", "--allow-privileged=true",
            # pods are made without a controller that makes their namespaces' default accounts
            "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.97.0.0/16",
            "--service-account-issuer=" + _ISSUER, "--service-account-key-file=sa.pub",
            "--service-account-signing-key-file=sa.key", "--audit-policy-file=audit.yaml", "--audit-log-path=audit.log",
            "--audit-log-mode=blocking",
        ]  # fmt: skip

    def _await_ready(self) -> KubernetesClient:
        until = time.monotonic() + _START_SECONDS
        while True:
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            if dead or time.monotonic() > until:
                log = (self.folder / ((dead or ["kube-apiserver"])[0] + ".log")).read_text(errors="replace")
                raise RuntimeError("the API server is not up: %s" % log[-2000:])
            try:
                admin = KubernetesClient(self.kubeconfig("admin", self._token), timeout=30.0)
                admin.get(path_of("v1", "namespaces", name="default"))
                admin.get(path_of("rbac.authorization.k8s.io/v1", "clusterroles", name="system:basic-user"))
            except (RecoveryError, OSError):  # it makes its certificate first
                time.sleep(0.3)
            else:
                return admin


def _paths(thing: Mapping[str, Any]) -> tuple[str, str]:
    """Of an object its collection's path and its own."""
    plural, metadata = thing["kind"].lower() + "s", thing["metadata"]
    where = metadata.get("namespace", "")
    return path_of(thing["apiVersion"], plural, where), path_of(thing["apiVersion"], plural, where, metadata["name"])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _number in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
