# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from joblab import binaries, cache, hostfiles, images, kubernetes, pki, registry
from joblab.errors import LabError
from joblab.instance import HEAD, NODES, Instance

COMPONENTS = sorted((binaries.FILES / "components").glob("*.yaml"))


def objects() -> list[dict]:
    return [item for file in COMPONENTS for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def workloads() -> list[dict]:
    return [item for item in objects() if item["kind"] in ("Deployment", "StatefulSet", "DaemonSet")]


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    instance = Instance(3, tmp_path_factory.mktemp("checkout"))
    artifact = cache.Artifact("all", "k", Path("/nowhere/all-k"))
    names = [name for program in binaries.PROGRAMS for name in program.commands]
    kubernetes.seed_hosts(instance, binaries.Binaries(dict.fromkeys(names, artifact)), pki.ensure(instance))
    registry.seed(instance)
    return instance


# Seeds


@pytest.mark.parametrize("host", [HEAD, *NODES])
def test_every_template_is_filled(seeded: Instance, host: str) -> None:
    folders = ("etc/systemd", "etc/containerd", "etc/cni", "usr/local/sbin")
    files = [file for name in folders for file in (seeded.seed(host) / name).rglob("*") if file.is_file()]
    unfilled = [file.name for file in files if any(word.isupper() for word in file.read_text().split("@")[1::2])]
    assert unfilled == []


def test_secrets_of_a_seed_are_private(seeded: Instance) -> None:
    private = [
        file for host in (HEAD, *NODES) for file in seeded.seed(host).rglob("*")
        if file.is_file() and (file.suffix in (".key", ".conf") or file.name in ("config", "password"))
        and "systemd" not in file.parts
    ]
    assert len(private) > 10
    assert [file for file in private if file.stat().st_mode & 0o77] == []


def test_a_node_gets_no_other_nodes_key(seeded: Instance) -> None:
    config = json.loads((seeded.seed("node2") / "etc/kubernetes/kubelet.conf").read_text())
    certificate = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    argv = ["openssl", "x509", "-noout", "-subject"]
    subject = subprocess.run(argv, input=certificate, capture_output=True, check=True).stdout.decode()
    assert "system:node:node2" in subject
    assert not (seeded.seed("node2") / "etc/kubernetes/pki/ca.key").exists()


def test_units_are_enabled_where_they_belong(seeded: Instance) -> None:
    wanted = {
        host: {link.name for link in (seeded.seed(host) / "etc/systemd/system/multi-user.target.wants").iterdir()}
        for host in (HEAD, "node1")
    }
    assert "kube-apiserver.service" in wanted[HEAD]
    assert "docker-registry.service" in wanted[HEAD]
    assert wanted["node1"] == {"containerd.service", "kubelet.service", "kube-proxy.service"}


def test_routes_lead_to_the_other_nodes(instance: Instance) -> None:
    assert kubernetes.routes(instance, "node2").splitlines() == [
        "ip route replace 10.244.1.0/24 via 10.89.3.11",
        "ip route replace 10.244.3.0/24 via 10.89.3.13",
        "ip route replace 10.244.4.0/24 via 10.89.3.14",
    ]
    assert len(kubernetes.routes(instance, HEAD).splitlines()) == 4


def test_a_template_without_a_value_is_an_error() -> None:
    assert hostfiles.fill("a@b.c @X@", {"X": "1"}) == "a@b.c 1"
    with pytest.raises(LabError, match="No value for MISSING"):
        hostfiles.fill("x @MISSING@ y", {"X": "1"})


# Objects of the components


def test_every_awaited_workload_is_made() -> None:
    named = [(item["metadata"], item["kind"].lower()) for item in workloads()]
    assert {(of["namespace"], f"{kind}/{of['name']}") for of, kind in named} == set(kubernetes.WORKLOADS)


def test_every_namespace_is_made() -> None:
    made = {item["metadata"]["name"] for item in objects() if item["kind"] == "Namespace"} | {"kube-system"}
    assert {item["metadata"]["namespace"] for item in objects() if "namespace" in item["metadata"]} <= made


@pytest.mark.parametrize("item", workloads(), ids=lambda item: item["metadata"]["name"])
def test_workload_is_a_named_stand_in_that_matches_its_selector(item: dict) -> None:
    template = item["spec"]["template"]
    wanted = item["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    assert "job-recovery.lab/stand-in" in item["metadata"]["annotations"]
    assert {one["image"] for one in template["spec"]["containers"]} <= {images.PAUSE, images.METRICS_STAND_IN}


def test_services_select_a_workload() -> None:
    labels = [(item["metadata"]["namespace"], item["spec"]["template"]["metadata"]["labels"]) for item in workloads()]
    for item in objects():
        if item["kind"] == "Service":
            selector = item["spec"]["selector"].items()
            found = [one for space, one in labels if space == item["metadata"]["namespace"] and selector <= one.items()]
            assert found, item["metadata"]["name"]


def test_secrets_of_the_cluster(instance: Instance) -> None:
    pull, loki, certificate = kubernetes.secret_objects(instance)["items"]
    config = json.loads(base64.b64decode(pull["data"][".dockerconfigjson"]))
    entry = config["auths"]["head:5000"]
    assert entry["username"] == "$oauthtoken"
    assert entry["password"].startswith("nvapi-")
    assert base64.b64decode(entry["auth"]).decode() == f"$oauthtoken:{entry['password']}"
    assert base64.b64decode(loki["data"]["auth"]).decode().startswith("loki:$apr1$")
    assert set(certificate["data"]) == {"tls.crt", "tls.key"}


# Readiness


def deployment(generation: int = 1, **status: int) -> dict:
    return {"kind": "Deployment", "metadata": {"generation": generation}, "spec": {"replicas": 1}, "status": status}


def daemon_set(**status: int) -> dict:
    metadata = {"generation": 1}
    return {"kind": "DaemonSet", "metadata": metadata, "spec": {}, "status": {"observedGeneration": 1, **status}}


@pytest.mark.parametrize(("item", "ready"), [
    (deployment(observedGeneration=1, readyReplicas=1), True),
    (deployment(observedGeneration=1), False),
    (deployment(), False),
    (deployment(generation=2, observedGeneration=1, readyReplicas=1), False),
    (daemon_set(desiredNumberScheduled=4, numberReady=4), True),
    (daemon_set(desiredNumberScheduled=4, numberReady=3), False),
    (daemon_set(desiredNumberScheduled=0, numberReady=0), False),
])
def test_workload_is_ready(item: dict, ready: bool) -> None:
    assert kubernetes.workload_is_ready(item) is ready


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_node_is_ready(status: str, ready: bool) -> None:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status}]
    assert kubernetes.is_ready({"status": {"conditions": conditions}}) is ready
    assert kubernetes.is_ready({}) is False
