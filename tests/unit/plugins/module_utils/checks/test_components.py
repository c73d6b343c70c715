# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each component broken on purpose: removed, broken, renamed, moved, forbidden; and the catalogue itself."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import catalogue, evidence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.checks import small_cluster
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.checks.small_cluster import (
    ADAPTER,
    COLLECTIONS,
    METRICS,
    METRICS_ANSWER,
    METRICS_API,
    METRICS_PATH,
    NGINX,
    OPERATOR,
    PROMETHEUS_TYPE,
    api_service,
    checked,
    down,
    filled,
    prometheus,
    promtail,
    thing,
    workload,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

# Of each component a good state: first its workload.
GOOD = {
    "prometheus_operator": [OPERATOR, PROMETHEUS_TYPE, prometheus()],
    "prometheus_adapter": [*ADAPTER, api_service("c", "custom.metrics.k8s.io", "a")],
    "promtail": promtail(),
    "metrics_server": [*METRICS, METRICS_API, METRICS_ANSWER],
    "kube_state_metrics": [workload("Deployment", "s", "r/kube-state-metrics:v2")],
    "ingress_nginx": NGINX,
}
# What must be read to judge it, beside its workloads.
READ = {
    "prometheus_operator": [
        (
            COLLECTIONS["CustomResourceDefinition"] + "/prometheuses.monitoring.coreos.com",
            "get customresourcedefinitions",
        ),
        ("/apis/monitoring.coreos.com/v1/prometheuses", "list prometheuses"),
    ],
    "prometheus_adapter": [
        (COLLECTIONS["APIService"], "list apiservices"),
        ("/api/v1/services", "list services"),
    ],
    "promtail": [],
    "metrics_server": [(COLLECTIONS["APIService"], "list apiservices"), (METRICS_PATH, "list nodes")],
    "kube_state_metrics": [],
    "ingress_nginx": [(COLLECTIONS["IngressClass"], "list ingressclasses")],
}
COMPONENTS = sorted(GOOD)


@pytest.fixture(scope="module")
def served():
    server = ApiServer()
    yield server
    server.close()


def found(server, tmp_path, component, things, **params):
    filled(server, things)
    (check,) = checked(server, tmp_path, only=[component], **params)
    assert bool(check["hint"]) == (check["status"] != "passed")
    return check["status"], check["found"].split(":")[0], check["found"]


def replaced(things, old, new):
    """The same things with a text replaced in all of them, values of Secrets aside."""
    return [
        one if one["kind"] == "Secret" else json.loads(json.dumps(one).replace(json.dumps(old), json.dumps(new)))
        for one in things
    ]


def moved(one):
    made = copy.deepcopy(one)
    if made.get("metadata", {}).get("namespace"):
        made["metadata"]["namespace"] = "elsewhere"
    if made["kind"] == "APIService":
        made["spec"]["service"]["namespace"] = "elsewhere"
    return made


def test_every_component_of_the_catalogue_is_here():
    assert [entry["id"] for entry in catalogue.COMPONENTS if entry["id"] not in GOOD] == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_it_is_there(served, tmp_path, component):
    assert found(served, tmp_path, component, GOOD[component])[:2] == ("passed", "present")


@pytest.mark.parametrize("component", COMPONENTS)
def test_removed(served, tmp_path, component):
    answers = [one for one in GOOD[component][1:] if one["kind"] not in ("answer", "APIService")]
    assert found(served, tmp_path, component, answers)[:2] == ("failed", "absent")


@pytest.mark.parametrize("component", COMPONENTS)
def test_broken(served, tmp_path, component):
    first, *others = GOOD[component]
    assert found(served, tmp_path, component, [down(first), *others])[:2] == ("failed", "broken")


@pytest.mark.parametrize("component", COMPONENTS)
def test_renamed(served, tmp_path, component):
    """Another release name: the workload, its labels and its Services are called differently."""
    name = GOOD[component][0]["metadata"]["name"]
    things = replaced(GOOD[component], name, "xyz-%s-0815" % component.replace("_", "-"))
    assert found(served, tmp_path, component, things)[:2] == ("passed", "present")


@pytest.mark.parametrize("component", COMPONENTS)
def test_moved_to_another_namespace(served, tmp_path, component):
    assert found(served, tmp_path, component, list(map(moved, GOOD[component])))[:2] == ("passed", "present")


@pytest.mark.parametrize("style", ["app.kubernetes.io/name", "app", "k8s-app"])
@pytest.mark.parametrize("component", COMPONENTS)
def test_mirrored_under_another_name_and_told_by_its_label(served, tmp_path, component, style):
    """The lab runs one pause image for all; sites rename images when they mirror them."""
    things = copy.deepcopy(GOOD[component])
    entry = catalogue.entry(component)["workloads"]
    template = things[0]["spec"]["template"]
    template["metadata"]["labels"].update({style: entry["names"][0], **entry.get("labels", {})})
    template["spec"]["containers"][0]["image"] = "registry.example.org/mirror/abc:1"
    assert found(served, tmp_path, component, things)[:2] == ("passed", "present")


FORBIDDEN = [
    *((component, "/apis/apps/v1/daemonsets", "list daemonsets") for component in COMPONENTS),
    *((component, path, said) for component in COMPONENTS for path, said in READ[component]),
]


@pytest.mark.parametrize(("component", "path", "said"), FORBIDDEN)
def test_forbidden_is_unknown_and_the_permission_is_named(served, tmp_path, component, path, said):
    filled(served, [])
    things = [
        *(one for one in GOOD[component] if one.get("path") != path),
        {"kind": "answer", "path": path, "code": 403, "body": status(403, "Forbidden")},
    ]
    state, word, text = found(served, tmp_path, component, things)
    assert (state, word) == ("unknown", "unknown")
    assert said in text


# The APIService is there, and does not answer.
@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        ({"code": 503, "body": status(503, "ServiceUnavailable")}, "unknown", "unknown"),
        ({"code": 404, "body": status(404, "NotFound")}, "failed", "does not answer for nodes"),
        ({"body": {"kind": "Status"}}, "failed", "answers something else"),
        ({"body": {"kind": "NodeMetricsList", "items": []}}, "warning", "knows no node yet"),
    ],
)
def test_metrics_server_must_really_answer(served, tmp_path, answer, state, words):
    things = [*METRICS, METRICS_API, {"kind": "answer", "path": METRICS_PATH, **answer}]
    got, _word, text = found(served, tmp_path, "metrics_server", things)
    assert (got, words in text) == (state, True), text


@pytest.mark.parametrize("conditions", [[], [{"type": "Established", "status": "False"}]])
def test_a_resource_type_that_is_not_served_is_broken(served, tmp_path, conditions):
    kind = thing("CustomResourceDefinition", "prometheuses.monitoring.coreos.com", status={"conditions": conditions})
    assert found(served, tmp_path, "prometheus_operator", [OPERATOR, kind, prometheus()])[:2] == ("failed", "broken")


# ---- a site's own requirements ----

SITE = {
    "id": "gpu_operator",
    "title": "GPU Operator",
    "required": "the GPU Operator runs",
    "hint": "install it",
    "workloads": {"images": ["gpu-operator"]},
    "evidence": [
        {
            "title": "class",
            "resource": "networking.k8s.io/v1/ingressclasses",
            "select": "[?spec.controller == 'nvidia']",
            "good": "spec.parameters.ready",
            "lacking": "there is no class",
            "broken": "no class is ready",
        }
    ],
}
GPU = workload("Deployment", "gpu", "nvcr.io/nvidia/gpu-operator:v25")


@pytest.mark.parametrize(
    ("things", "state", "words"),
    [
        ([], "failed", "absent: no workload runs GPU Operator"),
        ([GPU], "failed", "broken: there is no class"),
        ([GPU, thing("IngressClass", "c", spec={"controller": "nvidia"})], "failed", "broken: no class is ready"),
        (
            [GPU, thing("IngressClass", "c", spec={"controller": "nvidia", "parameters": {"ready": True}})],
            "passed",
            "present: Deployment x/gpu 1/1, class c",
        ),
    ],
)
def test_a_site_adds_a_component(served, tmp_path, things, state, words):
    got, _word, text = found(served, tmp_path, "gpu_operator", things, requirements=[SITE])
    assert (got, text.startswith(words)) == (state, True), text


def test_a_site_replaces_one_of_ours(served, tmp_path):
    mine = {**SITE, "id": "promtail", "title": "Fluent Bit", "workloads": {"images": ["fluent-bit"]}, "evidence": []}
    agent = workload("DaemonSet", "logs", "fluent/fluent-bit:4")
    assert found(served, tmp_path, "promtail", [agent], requirements=[mine])[0] == "passed"


def test_values_of_objects_are_data(served, tmp_path):
    """Names and reasons that somebody chose come into the result as one printable line."""
    api = api_service("v1beta1.custom.metrics.k8s.io", "custom.metrics.k8s.io", "a", "False")
    api["status"]["conditions"][0]["reason"] = "\x1b[2J{{ 7 * 7 }}\n`id`"
    text = found(served, tmp_path, "prometheus_adapter", [*ADAPTER, api])[2]
    assert text.isprintable()
    assert "{{ 7 * 7 }}" in text


WRONG = [
    ({"id": "Bad Id"}, "has no id"),
    ({"hint": None}, "hint is missing"),
    ({"colour": "red"}, "unknown key colour"),
    ({"workloads": None, "evidence": None}, "neither workloads nor evidence"),
    ({"workloads": {"images": ["("]}}, "no regular expressions"),
    ({"workloads": {"kinds": ["Pod"], "names": ["x"]}}, "unknown kind Pod"),
    ({"workloads": {"labels": {"a": "b"}}}, "one of images, names and argument"),
    ({"workloads": {"image": ["x"]}}, "unknown key image"),
    ({"evidence": [{**SITE["evidence"][0], "good": "a ==="}]}, "no JMESPath expression"),
    ({"evidence": [{**SITE["evidence"][0], "path": "/api/v1/x"}]}, "exactly one of resource and path"),
    ({"evidence": [{**SITE["evidence"][0], "resource": "Deployments"}]}, "no GROUP/VERSION/PLURAL"),
    ({"evidence": [{**SITE["evidence"][0], "resource": None, "path": "/../x"}]}, "no path of the API"),
    ({"evidence": [{**SITE["evidence"][0], "belongs": {"object": "a"}}]}, "belongs needs object and workload"),
    ({"evidence": [{"title": "x"}]}, "good is missing"),
    ({"when_absent": [{"text": "x"}]}, "exactly one of resource and path"),
]


@pytest.mark.parametrize(("change", "said"), WRONG)
def test_a_requirement_that_is_none_is_wrong_use(change, said):
    with pytest.raises(BadInput, match=said):
        evidence.parse({**SITE, **change})


def test_the_same_requirement_twice_is_wrong_use(served, tmp_path):
    with pytest.raises(BadInput, match="given twice"):
        checked(served, tmp_path, requirements=[SITE, SITE])


# ---- facts ----


def test_facts_of_nodes_and_back_ends(served, tmp_path):
    info = {"machineID": "m", "bootID": "b", "systemUUID": "u"}
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    told = {"capacity": {"cpu": "8", "memory": "16384Mi"}, "nodeInfo": info, "addresses": addresses}
    nfs = copy.deepcopy(small_cluster.NFS)
    env = {"PROVISIONER_NAME": "x/nfs-subdir", "NFS_SERVER": "filer", "NFS_PATH": "/export"}
    nfs["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": key, "value": value} for key, value in env.items()
    ]
    csi = thing("StorageClass", "csi", provisioner="nfs.csi.k8s.io", parameters={"server": "filer2", "share": "/s"})
    other = thing("StorageClass", "ceph", provisioner="rbd.csi.ceph.com")
    node = thing("Node", "n1", status=told)
    filled(served, [node, nfs, small_cluster.storage_class("n", "x/nfs-subdir"), csi, other])
    result = small_cluster.run(served, tmp_path, only=["kyverno"], facts=True)
    assert result["nodes"] == [
        {
            "name": "n1",
            "memory_mb": 16384.0,
            "threads": 8,
            "machine_id": "m",
            "boot_id": "b",
            "smbios_uuid": "u",
            "addresses": ["10.0.0.1"],
        }
    ]
    assert sorted(result["storage"], key=lambda one: one["class"]) == [
        {"class": "ceph", "default": False, "kind": "other", "provisioner": "rbd.csi.ceph.com"},
        {"class": "csi", "default": False, "kind": "nfs", "server": "filer2", "path": "/s"},
        {"class": "n", "default": True, "kind": "nfs", "server": "filer", "path": "/export"},
    ]


@pytest.mark.parametrize(
    ("config", "ends"),
    [
        (
            '{"nodePathMap": [{"node": "DEFAULT", "paths": ["/opt/a", "/data"]}]}',
            [{"kind": "node", "path": "/opt/a"}, {"kind": "node", "path": "/data"}],
        ),
        ('{"sharedFileSystemPath": "/cm/shared/v"}', [{"kind": "shared", "path": "/cm/shared/v"}]),
        ("no json", [{"kind": "node", "path": ""}]),
    ],
)
def test_where_local_path_writes(served, tmp_path, config, ends):
    server, _config = small_cluster.LOCAL_SHARED
    filled(served, [server, thing("ConfigMap", "lp", data={"config.json": config}), small_cluster.LOCAL[1]])
    result = small_cluster.run(served, tmp_path, only=["kyverno"], facts=True)
    assert result["storage"] == [{"class": "local-path", "default": False, **end} for end in ends]


def test_facts_that_may_not_be_read_are_empty(served, tmp_path):
    filled(served, [])
    for path in ("/api/v1/nodes", COLLECTIONS["StorageClass"]):
        served.tell("GET", path, 403, status(403, "Forbidden"), times=9)
    result = small_cluster.run(served, tmp_path, only=["kyverno"], facts=True)
    assert (result["nodes"], result["storage"]) == ([], [])
