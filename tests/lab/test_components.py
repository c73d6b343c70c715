# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pre-flight of Kubernetes on the real API server: components moved, broken and removed, and put back.

Every state of every component is in the unit tests; this is whether a real server tells of them as those say.
"""

from __future__ import annotations

import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import kubernetes as kubernetes_check
from joblab import binaries, instance, kubernetes
from watching import sleep_until

KSM = "30-kube-state-metrics.yaml"
MOVED = "elsewhere"
KYVERNO = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "kyverno-admission-controller", "namespace": MOVED},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "kyverno"}},
        "template": {
            "metadata": {"labels": {"app": "kyverno"}},
            "spec": {"containers": [{"name": "kyverno", "image": "ghcr.io/kyverno/kyverno:v1.16.0"}]},
        },
    },
}
#: What is done, and for which check: its status and how what it found begins.
BREAKAGES = (
    ("delete prometheuses.monitoring.coreos.com --all -n prometheus", "prometheus_operator", "broken"),
    ("delete apiservice v1beta1.custom.metrics.k8s.io", "prometheus_adapter", "broken"),
    ("delete apiservice v1beta1.metrics.k8s.io", "metrics_server", "absent"),
    ("delete deployment metrics-server -n kube-system", "metrics_server", "absent"),
    (f"scale deployment own-metrics -n {MOVED} --replicas=0", "kube_state_metrics", "broken"),
    ("delete daemonset promtail -n loki", "promtail", "absent"),
    ("delete ingressclass nginx", "ingress_nginx", "broken"),
    ("delete storageclass local-path", "storage_local_path", ""),
    (
        "annotate storageclass nfs-client --overwrite storageclass.kubernetes.io/is-default-class=false",
        "storage_nfs_default",
        "",
    ),
    ("delete configmap kube-prometheus-stack-grafana-datasource -n prometheus", "loki_datasource", "absent"),
    ("annotate ingress loki -n loki nginx.ingress.kubernetes.io/auth-type-", "loki_ingress_auth", ""),
)


@pytest.fixture
def lab():
    """The lab with its components as they were, before and after."""
    made = instance.from_environment()
    yield made
    kubernetes.kubectl(made, ["delete", "namespace", MOVED, "--ignore-not-found", "--wait=false"])
    kubernetes.install_components(made)


def checks(lab) -> dict[str, tuple[str, str]]:
    """Status and finding of every check, by id."""
    options = kubernetes_check.SPEC["argument_spec"]
    given = {name: option.get("default") for name, option in options.items()}
    result = kubernetes_check.run({**given, "kubeconfig": str(lab.state / "kubeconfig")}, False)
    return {one["id"]: (one["status"], one["found"]) for one in result["checks"]}


def faults(lab) -> dict[str, tuple[str, str]]:
    """What is not as it should be; the lab's metrics server is a stand-in that knows no node, which is a warning."""
    allowed = {("metrics_server", "warning")}
    return {
        check: told for check, told in checks(lab).items() if told[0] != "passed" and (check, told[0]) not in allowed
    }


def test_moved_broken_removed_and_put_back(lab):
    assert not faults(lab)
    kubernetes.kubectl(lab, ["create", "namespace", MOVED])
    moved = (binaries.FILES / "components" / KSM).read_text(encoding="utf-8")
    for old, new in (
        ("namespace: kube-system", f"namespace: {MOVED}"),
        ("\n  name: kube-state-metrics", "\n  name: own-metrics"),
        ("serviceAccountName: kube-state-metrics", "serviceAccountName: own-metrics"),
    ):
        assert old in moved
        moved = moved.replace(old, new)
    kubernetes.kubectl(lab, ["apply", "-f", "-"], stdin=moved)
    kubernetes.kubectl(lab, ["delete", "deployment", "kube-state-metrics", "-n", "kube-system"])
    sleep_until(lambda: checks(lab)["kube_state_metrics"][0] == "passed", 60, 1.0)
    assert MOVED in checks(lab)["kube_state_metrics"][1]

    for command, _check, _found in BREAKAGES:
        kubernetes.kubectl(lab, command.split())
    kubernetes.kubectl(lab, ["apply", "-f", "-"], stdin=json.dumps(KYVERNO))
    wanted = {check: found for _command, check, found in BREAKAGES} | {"kyverno": ""}

    def as_wanted() -> bool:
        told = checks(lab)
        return all(told[check][0] == "failed" and told[check][1].startswith(found) for check, found in wanted.items())

    try:
        sleep_until(as_wanted, 30, 1.0)
    except AssertionError:
        raise AssertionError({check: checks(lab)[check] for check in wanted}) from None
    assert set(wanted) | {"promtail_no_var_log"} == set(kubernetes_check.IDS), "each of them is broken here"

    kubernetes.kubectl(lab, ["delete", "namespace", MOVED, "--wait=false"])
    kubernetes.install_components(lab)
    sleep_until(lambda: not faults(lab), 60, 1.0)
