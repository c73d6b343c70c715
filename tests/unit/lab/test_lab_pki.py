# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import json
import subprocess

import pytest
from joblab import pki
from joblab.instance import Instance

NODES = {"node1": "10.89.3.11", "node2": "10.89.3.12"}


def by_name() -> dict[str, pki.Certificate]:
    return {pair.name: pair for pair in pki.certificates("10.89.3.10", "10.89.3.1", NODES)}


@pytest.mark.parametrize(("name", "common_name", "organization"), [
    ("admin", "admin", "system:masters"),
    ("node1", "system:node:node1", "system:nodes"),
    ("kube-proxy", "system:kube-proxy", ""),
    ("scheduler", "system:kube-scheduler", ""),
])
def test_identity_that_rbac_knows(name: str, common_name: str, organization: str) -> None:
    pair = by_name()[name]
    assert (pair.common_name, pair.organization, pair.server) == (common_name, organization, False)


@pytest.mark.parametrize(("name", "address"), [
    ("apiserver", "IP:10.89.3.10"), ("registry", "IP:10.89.3.10"), ("bmc", "IP:10.89.3.1"),
    ("node2-serving", "IP:10.89.3.12"),
])
def test_server_is_valid_for_its_address(name: str, address: str) -> None:
    pair = by_name()[name]
    assert pair.server
    assert address in pair.names
    assert "serverAuth" in pki.openssl_config(pair)


def test_front_proxy_has_its_own_authority() -> None:
    others = {pair.authority for name, pair in by_name().items() if name != "front-proxy-client"}
    assert by_name()["front-proxy-client"].authority == "front-proxy-ca"
    assert others == {"ca"}


def test_kubeconfig_is_self_contained() -> None:
    config = json.loads(pki.kubeconfig("https://h:6443", b"CA", b"CERT", b"KEY"))
    assert config["current-context"] == config["contexts"][0]["name"]
    assert base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]) == b"CA"
    assert base64.b64decode(config["users"][0]["user"]["client-key-data"]) == b"KEY"


def test_pairs_are_valid_private_and_kept(instance: Instance) -> None:
    folder = pki.ensure(instance)
    for name in ("apiserver", "node1", "node4-serving", "bmc"):
        argv = ["openssl", "verify", "-x509_strict", "-CAfile", str(folder / "ca.crt"), str(folder / f"{name}.crt")]
        assert subprocess.run(argv, capture_output=True, check=False).returncode == 0
    private = [path for path in folder.rglob("*") if path.suffix in (".key", ".conf")]
    assert [path.name for path in private if path.stat().st_mode & 0o77] == []
    assert pki.administrator_kubeconfig(instance).stat().st_mode & 0o777 == 0o600

    before = (folder / "apiserver.crt").read_bytes()
    pki.ensure(instance)
    assert (folder / "apiserver.crt").read_bytes() == before


def test_half_made_pairs_are_made_again(instance: Instance) -> None:
    folder = pki.ensure(instance)
    before = (folder / "node1.crt").read_bytes()
    (folder / "made-for").unlink()  # interrupted before the end
    pki.ensure(instance)
    assert (folder / "node1.crt").read_bytes() != before
