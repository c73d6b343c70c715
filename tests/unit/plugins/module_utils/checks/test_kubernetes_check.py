# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every requirement in small clusters, judged through a real HTTP server."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import kubernetes, workloads
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.checks.small_cluster import (
    ADAPTER,
    HOOK,
    KYVERNO,
    LOCAL,
    LOCAL_SHARED,
    LOKI,
    METRICS,
    METRICS_ANSWER,
    METRICS_API,
    NFS,
    NGINX,
    OPERATOR,
    PROMETHEUS_TYPE,
    SCRAPE,
    USERS,
    api_service,
    checked,
    down,
    filled,
    grafana,
    ingress,
    prometheus,
    promtail,
    scaled_to_zero,
    secret,
    storage_class,
    thing,
    workload,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

CASES = [
    ("prometheus_operator", [], "failed", "absent"),
    ("prometheus_operator", [PROMETHEUS_TYPE], "failed", "absent"),
    ("prometheus_operator", [OPERATOR, PROMETHEUS_TYPE, prometheus()], "passed", "present"),
    ("prometheus_operator", [down(OPERATOR), PROMETHEUS_TYPE, prometheus()], "failed", "broken"),
    ("prometheus_operator", [OPERATOR, PROMETHEUS_TYPE], "failed", "broken"),
    ("prometheus_operator", [OPERATOR, PROMETHEUS_TYPE, prometheus("False")], "failed", "broken"),
    ("prometheus_operator", [OPERATOR], "failed", "broken"),
    ("prometheus_operator", [workload("StatefulSet", "p", "prom/prometheus:v3")], "failed", "absent"),
    ("prometheus_adapter", [], "failed", "absent"),
    ("prometheus_adapter", [*ADAPTER, api_service("c", "custom.metrics.k8s.io", "a")], "passed", "present"),
    ("prometheus_adapter", [*ADAPTER, api_service("e", "external.metrics.k8s.io", "a")], "passed", "present"),
    ("prometheus_adapter", [*ADAPTER, api_service("c", "custom.metrics.k8s.io", "a", "False")], "failed", "broken"),
    ("prometheus_adapter", [*ADAPTER, api_service("c", "external.metrics.k8s.io", "keda")], "failed", "broken"),
    ("prometheus_adapter", [down(ADAPTER[0])], "failed", "broken"),
    ("metrics_server", [], "failed", "absent"),
    ("metrics_server", [*METRICS, METRICS_API, METRICS_ANSWER], "passed", "present"),
    ("metrics_server", [*METRICS, api_service("m", "metrics.k8s.io", "ms", "False")], "failed", "broken"),
    ("metrics_server", [*METRICS, api_service("m", "metrics.k8s.io", "ms", "Unknown")], "failed", "broken"),
    ("metrics_server", [*METRICS, api_service("m", "metrics.k8s.io", "ms", None)], "failed", "broken"),
    ("metrics_server", [down(METRICS[0]), METRICS_API], "failed", "broken"),
    ("metrics_server", METRICS, "failed", "broken"),
    ("metrics_server", [METRICS_API], "warning", "warning"),
    ("metrics_server", [api_service("m", "metrics.k8s.io", "gone", "False")], "failed", "absent"),
    ("kube_state_metrics", [workload("StatefulSet", "s", "r/kube-state-metrics:v2", 2, 2)], "passed", "present"),
    ("kube_state_metrics", [workload("StatefulSet", "s", "r/kube-state-metrics:v2", 2, 1)], "warning", "warning"),
    ("kube_state_metrics", [workload("Deployment", "s", "r/kube-state-metrics:v2", 0, 0)], "failed", "broken"),
    # an image of another name, as the lab has it: told by the chart's labels
    (
        "kube_state_metrics",
        [workload("Deployment", "s", "pause:1", labels={"app.kubernetes.io/name": "kube-state-metrics"})],
        "passed",
        "present",
    ),
    ("promtail", [], "failed", "absent"),
    ("promtail", promtail(), "passed", "present"),
    ("promtail", [workload("DaemonSet", "p", "grafana/promtail:3", 0, 0)], "failed", "broken"),
    ("promtail", [workload("DaemonSet", "p", "grafana/promtail:3", 7, 6)], "warning", "warning"),
    ("promtail", [workload("Deployment", "p", "grafana/promtail:3")], "failed", "absent"),
    ("promtail", [workload("DaemonSet", "p", "grafana/alloy:1")], "failed", "absent"),
    ("promtail", promtail(nodeSelector={"node-role.kubernetes.io/control-plane": ""}), "failed", "broken"),
    ("ingress_nginx", NGINX, "passed", "present"),
    ("ingress_nginx", [NGINX[0]], "failed", "broken"),
    ("ingress_nginx", [down(NGINX[0]), NGINX[1]], "failed", "broken"),
    (
        "ingress_nginx",
        [
            workload("Deployment", "i", "nginx/nginx-ingress:5"),
            thing("IngressClass", "n", spec={"controller": "nginx.org/x"}),
        ],
        "failed",
        "absent",
    ),
    ("kyverno", [], "passed", "absent"),
    ("kyverno", [thing("CustomResourceDefinition", "policies.kyverno.io")], "warning", "warning"),
    ("kyverno", [KYVERNO], "failed", "present"),
    ("kyverno", [down(KYVERNO)], "failed", "present"),
    ("kyverno", [scaled_to_zero(KYVERNO)], "failed", "present"),
    ("kyverno", [scaled_to_zero(KYVERNO), HOOK], "failed", "broken"),
    ("kyverno", [HOOK], "failed", "broken"),
    ("storage_local_path", [], "failed", "absent"),
    ("storage_local_path", LOCAL, "passed", "present"),
    ("storage_local_path", [LOCAL[0]], "failed", "absent"),
    ("storage_local_path", [LOCAL[1]], "failed", "broken"),
    ("storage_local_path", [down(LOCAL[0]), LOCAL[1]], "failed", "broken"),
    ("storage_nfs_default", [], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir")], "passed", "present"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", beta=True)], "passed", "present"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "True")], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "false")], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "TRUE")], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "yes")], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "")], "failed", "absent"),
    ("storage_nfs_default", [NFS, storage_class("n", "x/nfs-subdir", "True", beta=True)], "failed", "absent"),
    ("storage_nfs_default", [down(NFS), storage_class("n", "x/nfs-subdir")], "failed", "broken"),
    ("storage_nfs_default", [storage_class("n", "x/nfs-subdir")], "failed", "broken"),
    ("storage_nfs_default", [storage_class("n", "site/filer")], "passed", "present"),
    ("storage_nfs_default", [LOCAL[0], storage_class("l", "rancher.io/local-path")], "failed", "absent"),
    ("storage_nfs_default", [*LOCAL_SHARED, storage_class("l", "rancher.io/local-path")], "passed", "present"),
    (
        "storage_nfs_default",
        [NFS, *LOCAL, storage_class("l", "rancher.io/local-path"), storage_class("n", "x/nfs", second=1)],
        "warning",
        "warning",
    ),
    (
        "storage_nfs_default",
        [NFS, *LOCAL, storage_class("l", "rancher.io/local-path", second=1), storage_class("n", "x/nfs")],
        "failed",
        "broken",
    ),
    ("loki_datasource", [], "failed", "absent"),
    ("loki_datasource", [*grafana(), *LOKI], "passed", "present"),
    ("loki_datasource", grafana(), "failed", "broken"),  # its Service does not exist
    ("loki_datasource", grafana("datasources: [{type: loki, url: 'https://logs.example.org'}]"), "passed", "present"),
    ("loki_datasource", [*grafana(labels={}), *LOKI], "failed", "absent"),  # nobody loads it
    ("loki_datasource", [*grafana("datasources: [{type: prometheus}]"), *LOKI], "failed", "absent"),
    ("loki_datasource", [*grafana("{{ no yaml"), *LOKI], "failed", "absent"),
    ("loki_datasource", [*grafana(ready=0), *LOKI], "failed", "broken"),
    ("loki_ingress_auth", LOKI, "failed", "absent"),
    ("loki_ingress_auth", [*LOKI, *NGINX, USERS, ingress()], "passed", "present"),
    ("loki_ingress_auth", [*LOKI, *NGINX, USERS, ingress(tls=False)], "warning", "warning"),
    ("loki_ingress_auth", [*LOKI, *NGINX, USERS, ingress(annotations={})], "failed", "broken"),
    ("loki_ingress_auth", [*LOKI, *NGINX, ingress()], "failed", "broken"),  # no Secret
    ("loki_ingress_auth", [*LOKI, *NGINX, secret("users"), ingress()], "failed", "broken"),
    ("loki_ingress_auth", [*LOKI, *NGINX, USERS, ingress(class_name="other")], "failed", "broken"),
    ("loki_ingress_auth", [*LOKI, down(NGINX[0]), NGINX[1], USERS, ingress()], "failed", "broken"),
    ("loki_ingress_auth", [*LOKI, *NGINX, USERS, ingress(to="grafana")], "failed", "absent"),
    ("promtail_no_var_log", promtail(), "passed", "present"),
    ("promtail_no_var_log", promtail(SCRAPE % "/var/log/*.log"), "failed", "absent"),
    ("promtail_no_var_log", promtail(SCRAPE % "/host/logs/syslog", "/host/logs"), "failed", "absent"),
    ("promtail_no_var_log", promtail(SCRAPE % "/var/log/*.log", "/elsewhere"), "passed", "present"),  # out of its reach
    ("promtail_no_var_log", promtail(SCRAPE % "/var/log/containers/*.log"), "passed", "present"),
    ("promtail_no_var_log", promtail("  - journal: {path: /var/log/journal}\n"), "warning", "warning"),
    (
        "promtail_no_var_log",
        promtail(SCRAPE % "/var/log/*.log", nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        "passed",
        "present",
    ),
    ("promtail_no_var_log", promtail()[:1], "unknown", "unknown"),  # its configuration is not found
]


@pytest.fixture(scope="module")
def served():
    """One server for all cases, emptied before each of them."""
    server = ApiServer()
    yield server
    server.close()


@pytest.mark.parametrize(("check_id", "things", "expected", "word"), CASES)
def test_what_is_found(served, tmp_path, check_id, things, expected, word):
    filled(served, things)
    (check,) = checked(served, tmp_path, only=[check_id])
    assert (check["status"], check["found"].split(":")[0]) == (expected, word), check["found"]
    assert bool(check["hint"]) == (expected != "passed")


NFS_CLASS, LOCAL_CLASS = "x/nfs-subdir", "rancher.io/local-path"
TAKES_B = "2 default classes (b, a), of which the server takes b"


@pytest.mark.parametrize(
    ("classes", "expected", "says"),
    [
        ([("a", NFS_CLASS, 0), ("b", NFS_CLASS, 1)], "warning", TAKES_B),
        ([("b", NFS_CLASS, 1), ("a", NFS_CLASS, 0)], "warning", TAKES_B),
        # made in the same second: the first by name
        ([("b", NFS_CLASS, 1), ("a", NFS_CLASS, 1)], "warning", "(a, b), of which the server takes a"),
        ([("a", LOCAL_CLASS, 0), ("b", NFS_CLASS, 2), ("c", LOCAL_CLASS, 1)], "warning", "the server takes b"),
        ([("a", NFS_CLASS, 0), ("b", LOCAL_CLASS, 2), ("c", NFS_CLASS, 1)], "failed", "the server takes b; "),
    ],
)
@pytest.mark.parametrize("beta", [False, True])
def test_of_several_default_classes_the_one_that_the_server_takes_is_named(
    served, tmp_path, classes, expected, says, beta
):
    made = [storage_class(name, kind, beta=beta, second=second) for name, kind, second in classes]
    filled(served, [NFS, *LOCAL, *made])
    (check,) = checked(served, tmp_path, only=["storage_nfs_default"])
    assert check["status"] == expected
    assert says in check["found"]


def test_a_class_with_the_old_and_the_new_annotation_is_one_default(served, tmp_path):
    made = storage_class("n", NFS_CLASS)
    made["metadata"]["annotations"]["storageclass.beta.kubernetes.io/is-default-class"] = "true"
    filled(served, [NFS, made])
    (check,) = checked(served, tmp_path, only=["storage_nfs_default"])
    assert check["status"] == "passed"


@pytest.mark.parametrize(
    ("things", "expected", "word"),
    [
        ([], "passed", "present"),
        ([KYVERNO, HOOK], "passed", "present"),
        ([HOOK], "failed", "broken"),  # it is gone and holds up admission
    ],
)
def test_kyverno_may_come_after_recovery(served, tmp_path, things, expected, word):
    filled(served, things)
    (check,) = checked(served, tmp_path, only=["kyverno"], hardened=True)
    assert (check["status"], check["found"].split(":")[0]) == (expected, word), check["found"]


def test_every_requirement_has_a_case_that_passes_and_one_that_fails():
    seen = {(check_id, expected) for check_id, _things, expected, _word in CASES}
    assert set(itertools.product(kubernetes.IDS, ("passed", "failed"))) <= seen


def test_a_gateway_with_its_own_password_will_do(served, tmp_path):
    gateway = workload(
        "Deployment",
        "gw",
        "nginxinc/nginx-unprivileged:1",
        pod={"volumes": [{"name": "c", "configMap": {"name": "gw"}}]},
        volumeMounts=[{"name": "c", "mountPath": "/etc/nginx"}],
        labels={"run": "gw", "helm.sh/chart": "loki-18.11.0"},
    )
    open_gateway = thing("ConfigMap", "gw", data={"nginx.conf": "# auth_basic is off\nauth_basic off;"})
    closed = thing("ConfigMap", "gw", data={"nginx.conf": 'auth_basic           "Loki";\nauth_basic_user_file /x;'})
    for config, expected in ((closed, "passed"), (open_gateway, "failed")):
        filled(served, [*LOKI, *NGINX, gateway, config, ingress(annotations={}, to="loki-gateway")])
        (check,) = checked(served, tmp_path, only=["loki_ingress_auth"])
        assert check["status"] == expected, check["found"]


def test_what_may_not_be_read_is_unknown_and_hinders_no_other(served, tmp_path):
    filled(served, [*NGINX, *promtail()])
    served.tell("GET", "/api/v1/namespaces/x/secrets/promtail", 403, status(403, "Forbidden"))
    checks = {check["id"]: check for check in checked(served, tmp_path)}
    assert checks["promtail_no_var_log"]["status"] == "unknown"
    assert "get secrets promtail in x" in checks["promtail_no_var_log"]["found"]
    assert (checks["ingress_nginx"]["status"], checks["promtail"]["status"]) == ("passed", "passed")


def test_an_api_server_that_is_gone_is_unknown_in_all(tmp_path):
    server = ApiServer()
    server.close()
    assert {check["status"] for check in checked(server, tmp_path)} == {"unknown"}


def test_recommended_only_warns(served, tmp_path):
    filled(served, promtail(SCRAPE % "/var/log/*.log"))
    (check,) = checked(served, tmp_path, only=["promtail_no_var_log"], recommended=["promtail_no_var_log"])
    assert check["status"] == "warning"


def test_an_unknown_id_is_wrong_use(served, tmp_path):
    with pytest.raises(BadInput, match="unknown id kiverno"):
        checked(served, tmp_path, only=["kiverno"])


def test_no_secret_is_in_a_result(served, tmp_path):
    filled(served, [*LOKI, *NGINX, secret("users", auth="SECRET-XYZ"), ingress(), *promtail("# SECRET-XYZ")])
    assert "SECRET" not in repr(checked(served, tmp_path))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("promtail", "promtail"),
        ("grafana/promtail:3.5.1", "grafana/promtail"),
        ("registry:5000/a/promtail", "registry:5000/a/promtail"),
        ("registry:5000/a/promtail:1@sha256:abc", "registry:5000/a/promtail"),
        ("", ""),
    ],
)
def test_repositories_of_images(image, name):
    assert workloads.repository(image) == name
