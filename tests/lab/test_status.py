# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows the installation: its state at any time, Grafana's password, and policies that come after it.

Grafana and Loki are stand-ins (tests/stand_ins); the API server, its RBAC and its admission policies are real. Policies
of Kubernetes itself stand in for Kyverno's.
"""

from __future__ import annotations

import base64
import json
import os
import secrets as random
import subprocess
from dataclasses import dataclass

import pytest
from ansible_collections.mission_control.job_recovery.tests.stand_ins.grafana import GrafanaStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import make_certificate
from controller import Ended, on_head
from joblab import kubernetes
from secret_search import in_output
from watching import sleep_until

ACCOUNT = "system:serviceaccount:job-recovery:job-recovery"
NOTE = "/etc/job-recovery/hardened.json"
SECRET = "kube-prometheus-stack-grafana"


class Secret(str):
    """A text that is no template, whatever is in it."""

    __slots__ = ()


@dataclass
class Site:
    """A cluster, what stands beside it, and the variables that tell playbooks of it."""

    cluster: object
    folder: object
    loki: LokiStandIn
    grafana: GrafanaStandIn
    variables: dict
    secrets: dict

    def play(self, name: str, *options: str, **more: object) -> Ended:
        """Run a playbook of the collection as an administrator does, with secrets from a private file."""
        path = self.folder / "variables.yml"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as handle:
            for variable, value in {**self.variables, **more}.items():
                tag = "!unsafe " if isinstance(value, Secret) else ""
                handle.write(f"{variable}: {tag}{json.dumps(value)}\n")
        instance = self.cluster.instance
        inventories = (instance.inventory, instance.checkout / "inventory/lab")
        argv = ["ansible-playbook", *(f"--inventory={one}" for one in inventories), "--extra-vars", f"@{path}"]
        argv += ["-vvv", "--diff", *options, f"mission_control.job_recovery.{name}"]
        plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}  # Molecule wants colours
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, env=plain)
        output = done.stdout + done.stderr
        assert not in_output(self.secrets, output)
        return Ended(done.returncode, output)

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """kubectl as the cluster's administrator."""
        return kubernetes.kubectl(self.cluster.instance, args, stdin=stdin, check=check)


def status_of(output: str, check: str) -> str:
    """The status of one check in a table that a playbook showed."""
    lines = [line.strip().strip("\",-' ") for line in output.splitlines()]
    found = [line.split()[0] for line in lines if line.split()[1:2] == [check]]
    assert found, f"{check} is not in the table:\n{output[-6000:]}"
    return found[-1]


@pytest.fixture(scope="module")
def site(whole_cluster, tmp_path_factory):
    """The installed lab with a Loki behind an Ingress, and a Grafana with a generated password in its Secret."""
    folder = tmp_path_factory.mktemp("site")
    certificate = make_certificate(folder)
    names = ("generated", "new", "loki")
    secrets = {name: Secret(f"Pa$s\"'{{{{ {name} }}}} {random.token_urlsafe(9)}") for name in names}
    variables = {
        "job_recovery_loki_user": "reader",
        "job_recovery_loki_password": secrets["loki"],
        "job_recovery_loki_ca": str(certificate.ca),
        "job_recovery_grafana_ca": str(certificate.ca),
        "harden_settle": 5,
        "preflight_report": "",
    }
    with LokiStandIn(certificate) as loki, GrafanaStandIn(secrets["generated"], certificate) as grafana:
        loki.ingress = ("reader", secrets["loki"])
        loki.put({"job": "x"}, "a line")
        urls = {"job_recovery_loki_url": loki.url, "job_recovery_grafana_url": grafana.url}
        made = Site(whole_cluster, folder, loki, grafana, {**variables, **urls}, secrets)
        data = {"admin-user": "admin", "admin-password": secrets["generated"]}
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        metadata = {"name": SECRET, "namespace": "prometheus"}
        thing = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        made.kubectl("apply", "-f", "-", stdin=json.dumps(thing))
        try:
            yield made
        finally:
            made.kubectl("delete", "secret", "-n", "prometheus", SECRET)


def test_all_is_shown_and_the_generated_password_is_changed(site):
    before = site.play("status")
    assert before.rc == 0, before.output[-6000:]
    for check in ("recovery_service", "recovery_canary", "agents_installed", "agents_version", "loki_closed"):
        assert status_of(before.output, check) == "passed", check
    assert "4 of 4" in before.output
    assert status_of(before.output, "grafana_password") == "warning"
    assert "system:masters" in before.output, "who can read the Secret is listed"
    new = {"job_recovery_grafana_password": site.secrets["new"]}
    first, second = site.play("grafana", **new), site.play("grafana", **new)
    assert (first.rc, second.rc) == (0, 0), first.output[-3000:] + second.output[-3000:]
    assert "changed=1" in first.output
    assert "changed=0" in second.output
    assert site.grafana.password == site.secrets["new"]


def test_what_is_wrong_is_named_and_policies_are_refused(site):
    cluster = site.cluster
    cluster.on("node2", "mv /usr/local/lib/job-recovery /usr/local/lib/elsewhere", check=True)
    site.loki.ingress = None
    cluster.recovery(on=False)
    try:
        told = site.play("status", status_canary_timeout=2)
        refused = site.play("harden", harden_policies=policy("calm", "true"), harden_canary_timeout=2)
    finally:
        cluster.on("node2", "mv /usr/local/lib/elsewhere /usr/local/lib/job-recovery", check=True)
        site.loki.ingress = ("reader", site.secrets["loki"])
        cluster.recovery(on=True)
    assert told.rc != 0
    for check in ("recovery_service", "recovery_canary", "agents_installed", "loki_closed"):
        assert status_of(told.output, check) == "failed", check
    assert "3 of 4: not node2" in told.output
    assert refused.rc != 0
    assert "Refused: policies come after recovery, and recovery does not work now" in refused.output
    assert site.kubectl("get", "validatingadmissionpolicy", "calm", check=False).returncode != 0
    assert on_head(cluster, ["test", "-e", NOTE]).rc != 0
    sleep_until(lambda: on_head(cluster, ["job-recovery", "status"]).rc == 0, 60)


def test_policies_come_after_recovery_and_site_runs_again(site):
    """A policy that really denies, and a workload that pre-flight takes for Kyverno."""
    policies = [*policy("no-forbidden", "!object.metadata.name.startsWith('forbidden')", "configmaps", ""), KYVERNO]
    try:
        done = site.play("harden", harden_policies=policies)
        assert done.rc == 0, done.output[-6000:]
        assert "Recovery works under" in done.output
        assert status_of(done.output, "kubernetes_admits_nodes") == "passed"
        denied = site.kubectl("create", "configmap", "forbidden", "-n", "default", check=False)
        assert "denied request" in denied.stderr, denied
        assert "changed=0" in site.play("harden", harden_policies=policies).output
        again = site.play("preflight")
        assert status_of(again.output, "kyverno") == "passed"
        assert "kyverno-admission-controller" in again.output
        assert again.rc == 0, again.output[-6000:]
        on_head(site.cluster, ["rm", NOTE])
        assert status_of(site.play("preflight").output, "kyverno") == "failed"
    finally:
        on_head(site.cluster, ["rm", "-f", NOTE])
        for thing in reversed(policies):
            site.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(thing))


def test_a_policy_that_recovery_does_not_work_under_goes_again(site):
    policies = policy("nobody-cordons", f"request.userInfo.username != '{ACCOUNT}'", "nodes", "")
    try:
        done = site.play("harden", harden_policies=policies)
        assert done.rc != 0
        assert "Recovery does not work under the policies: kubernetes_admits_nodes" in done.output
        assert status_of(done.output, "kubernetes_admits_nodes") == "failed"
        assert "nobody-cordons" in done.output
        assert "2 that this run made were removed again" in done.output
        left = site.kubectl("get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
        assert "nobody-cordons" not in left.stdout
        assert on_head(site.cluster, ["test", "-e", NOTE]).rc != 0
    finally:
        on_head(site.cluster, ["rm", "-f", NOTE])
        for thing in reversed(policies):
            site.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=json.dumps(thing))


def policy(name: str, expression: str, resource: str = "configmaps", group: str = "") -> list[dict]:
    """An admission policy of Kubernetes itself, and the binding that puts it in force."""
    version = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not on this cluster"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]


KYVERNO = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "kyverno-admission-controller",
        "namespace": "default",
        "labels": {"app.kubernetes.io/part-of": "kyverno"},
        "annotations": {"job-recovery.lab/stand-in": "nothing runs; only its name and image are Kyverno's"},
    },
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "kyverno"}},
        "template": {
            "metadata": {"labels": {"app": "kyverno"}},
            "spec": {"containers": [{"name": "kyverno", "image": "ghcr.io/kyverno/kyverno:v1.16.0"}]},
        },
    },
}
