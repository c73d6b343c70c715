# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's certificate authorities, certificates and kubeconfigs, made with openssl.

Everything lies in one folder of the instance, readable by root alone:

    pki/ca.crt, ca.key                     signs everything but the front proxy
    pki/front-proxy-ca.crt, .key           signs the API server towards aggregated APIs
    pki/NAME.crt, NAME.key                 one pair for each entry of ``certificates()``
    pki/sa.key, sa.pub                     sign and check service account tokens
    pki/kubeconfigs/NAME.conf              self-contained kubeconfigs of the components
    kubeconfig                             the administrator's, for the host

Keys are on P-256: all of it takes about a second. The pairs are made again when the addresses or
the list of certificates changed, or one is about to expire; the authorities are kept.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from . import command, hostfiles
from .errors import LabError
from .instance import Instance

DAYS = 3650
SERVICE_CIDR_FIRST_IP = "10.96.0.1"
OPENSSL_DEADLINE = 30
API_PORT = 6443


@dataclass(frozen=True)
class Certificate:
    """What one key pair is for. ``names`` are openssl's subjectAltName entries ("DNS:head", "IP:10.0.0.1")."""

    name: str
    common_name: str
    organization: str = ""
    authority: str = "ca"
    server: bool = False
    names: tuple[str, ...] = ()


def certificates(head_ip: str, bridge_ip: str, nodes: Mapping[str, str]) -> list[Certificate]:
    """Every pair the lab needs; ``nodes`` maps a node's name to its address."""
    api_names = ["DNS:localhost", "DNS:head", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"]
    pairs = [
        Certificate("apiserver", "kube-apiserver", server=True,
                    names=(*api_names, "IP:127.0.0.1", f"IP:{SERVICE_CIDR_FIRST_IP}", f"IP:{head_ip}")),
        Certificate("apiserver-kubelet-client", "kube-apiserver-kubelet-client", organization="system:masters"),
        Certificate("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
        Certificate("admin", "admin", organization="system:masters"),
        Certificate("controller-manager", "system:kube-controller-manager"),
        Certificate("scheduler", "system:kube-scheduler"),
        Certificate("kube-proxy", "system:kube-proxy"),
        Certificate("kwok", "kwok-controller"),
        Certificate("registry", "registry", server=True,
                    names=("DNS:head", "DNS:localhost", "IP:127.0.0.1", f"IP:{head_ip}")),
        Certificate("registry-token", "registry-token"),
        Certificate("loki", "loki", server=True, names=("DNS:loki.lab", f"IP:{head_ip}")),
        Certificate("bmc", "bmc", server=True, names=("DNS:bmc", "DNS:localhost", f"IP:{bridge_ip}")),
    ]
    for node, address in nodes.items():
        pairs.append(Certificate(node, f"system:node:{node}", organization="system:nodes"))
        pairs.append(Certificate(f"{node}-serving", node, server=True, names=(f"DNS:{node}", f"IP:{address}")))
    return pairs


def openssl_config(certificate: Certificate) -> str:
    """Configuration of ``openssl req`` for one certificate.

    The key identifiers are asked for by name: strict verifiers (Python 3.13's default) refuse a chain without them.
    """
    name = [f"O = {certificate.organization}"] if certificate.organization else []
    lines = [
        "[req]",
        "prompt = no",
        "distinguished_name = name",
        "x509_extensions = extensions",
        "[name]",
        *name,
        f"CN = {certificate.common_name}",
        "[extensions]",
        "basicConstraints = critical,CA:FALSE",
        "keyUsage = critical,digitalSignature",
        f"extendedKeyUsage = {'serverAuth' if certificate.server else 'clientAuth'}",
        "subjectKeyIdentifier = hash",
        "authorityKeyIdentifier = keyid",
    ]
    if certificate.names:
        lines.append("subjectAltName = " + ",".join(certificate.names))
    return "\n".join(lines) + "\n"


def kubeconfig(server: str, ca: bytes, certificate: bytes, key: bytes) -> str:
    """A self-contained kubeconfig as JSON, which every client reads as YAML."""

    def packed(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return json.dumps({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority-data": packed(ca)}}],
        "users": [{"name": "lab", "user": {
            "client-certificate-data": packed(certificate), "client-key-data": packed(key)}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }, indent=2) + "\n"


def path(instance: Instance) -> Path:
    """Folder of the instance's keys; root alone may enter it."""
    return instance.state / "pki"


def administrator_kubeconfig(instance: Instance) -> Path:
    """The kubeconfig (mode 0600) with every right, for use on this machine."""
    return instance.state / "kubeconfig"


def ensure(instance: Instance) -> Path:
    """Make what is missing or outdated of the instance's keys and kubeconfigs; return the folder."""
    nodes = {node: instance.address(node) for node in instance.nodes}
    head_ip = instance.address(instance.head)
    folder = path(instance)
    pairs = certificates(head_ip, instance.gateway, nodes)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    with (folder / ".lock").open("w") as lock:  # several parts of the lab come up side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        _complete(folder, pairs, head_ip, list(nodes))
    admin = (folder / "kubeconfigs" / "admin.conf").read_text()
    hostfiles.write_private(administrator_kubeconfig(instance), admin)
    return folder


def _complete(folder: Path, pairs: list[Certificate], head_ip: str, nodes: list[str]) -> None:
    _ensure_authority(folder, "ca", "lab")
    _ensure_authority(folder, "front-proxy-ca", "lab-front-proxy")
    _ensure_service_account_key(folder)
    fingerprint = _fingerprint(pairs, (folder / "ca.crt").read_bytes())
    stamp = folder / "made-for"
    if not (stamp.exists() and stamp.read_text() == fingerprint and _lasts(folder / "apiserver.crt")):
        with ThreadPoolExecutor(max_workers=4) as pool:
            for _unused in pool.map(lambda pair: _issue(folder, pair), pairs):
                pass
        _write_kubeconfigs(folder, f"https://{head_ip}:{API_PORT}", nodes)
        stamp.write_text(fingerprint)


def seed(instance: Instance) -> None:
    """Give every host the certificate of the lab's authority, as /etc/lab/ca.crt."""
    content = (ensure(instance) / "ca.crt").read_bytes()
    for host in instance.hosts:
        hostfiles.put(instance, host, "/etc/lab/ca.crt", content)


def _fingerprint(pairs: list[Certificate], ca: bytes) -> str:
    text = json.dumps([asdict(pair) for pair in pairs], sort_keys=True).encode()
    return hashlib.sha256(text + ca).hexdigest()


def _lasts(certificate: Path) -> bool:
    """Whether the certificate is valid for another thirty days (all pairs are made together)."""
    if not certificate.exists():
        return False
    argv = ["openssl", "x509", "-in", str(certificate), "-noout", "-checkend", str(30 * 86400)]
    return command.run(argv, timeout=OPENSSL_DEADLINE, check=False).returncode == 0


def _write_kubeconfigs(folder: Path, server: str, nodes: list[str]) -> None:
    target = folder / "kubeconfigs"
    target.mkdir(mode=0o700, exist_ok=True)
    ca = (folder / "ca.crt").read_bytes()
    for name in ["admin", "controller-manager", "scheduler", "kube-proxy", "kwok", *nodes]:
        text = kubeconfig(server, ca, (folder / f"{name}.crt").read_bytes(), (folder / f"{name}.key").read_bytes())
        hostfiles.write_private(target / f"{name}.conf", text)


def _ensure_authority(folder: Path, name: str, common_name: str) -> None:
    if (folder / f"{name}.crt").exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as work:
        config = Path(work) / "config"
        config.write_text(
            "[req]\ndistinguished_name = name\nprompt = no\nx509_extensions = authority\n"
            f"[name]\nCN = {common_name}\n"
            "[authority]\nbasicConstraints = critical,CA:TRUE\n"
            "keyUsage = critical,keyCertSign,cRLSign,digitalSignature\nsubjectKeyIdentifier = hash\n")
        _self_made(Path(work), config)
        _move_pair(Path(work), folder, name)


def _ensure_service_account_key(folder: Path) -> None:
    if (folder / "sa.pub").exists():
        return
    key = folder / "sa.key"
    _openssl("genrsa", "-out", str(key), "2048")
    key.chmod(0o600)
    public = folder / ".sa.pub"
    _openssl("rsa", "-in", str(key), "-pubout", "-out", str(public))
    public.replace(folder / "sa.pub")


def _issue(folder: Path, pair: Certificate) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as work:
        config = Path(work) / "config"
        config.write_text(openssl_config(pair))
        _self_made(Path(work), config, "-CA", str(folder / f"{pair.authority}.crt"),
                   "-CAkey", str(folder / f"{pair.authority}.key"))
        _move_pair(Path(work), folder, pair.name)


def _self_made(work: Path, config: Path, *signer: str) -> None:
    """A new key and its certificate in one run of openssl: ``work``/key and ``work``/crt."""
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256",
             "-keyout", str(work / "key"), "-out", str(work / "crt"),
             "-days", str(DAYS), "-config", str(config), *signer)


def _move_pair(work: Path, folder: Path, name: str) -> None:
    (work / "key").chmod(0o600)
    (work / "key").replace(folder / f"{name}.key")
    (work / "crt").replace(folder / f"{name}.crt")  # last: its presence means that the pair is whole


def _openssl(*arguments: str) -> None:
    try:
        command.run(["openssl", *arguments], timeout=OPENSSL_DEADLINE)
    except LabError as exc:
        if "Command not found" in str(exc):
            raise LabError("openssl is missing: apt-get install openssl") from exc
        raise
