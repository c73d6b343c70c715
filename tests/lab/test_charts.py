# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts by a real helm from a real registry into a real cluster: installed, upgraded, interrupted, repaired, removed.

Needs the lab, and nothing of the collection installed on it. Everything is made in namespaces of its own.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import chart as module_chart
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release as releases
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import account, client
from joblab import binaries, helm, instance, pki, registry, ssh
from joblab.demo.cluster import wait
from secret_search import forms_of, watched

FILES = Path(__file__).resolve().parent / "files"
FRONT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: front
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app: front}
  template:
    metadata:
      labels: {app: front}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: {{ .Values.image }}
          command: [{{ .Values.command }}]
{{- if .Values.claim }}
          volumeMounts:
            - {name: data, mountPath: /data}
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: {{ .Values.claim }}}
{{- end }}
"""
# The image is on every node, and it has one program.
VALUES = {"replicas": 1, "image": "lab.local/pause:1", "command": "/pause", "claim": ""}


class Site:
    """The lab, and what these tests keep on this machine."""

    def __init__(self, lab: instance.Instance, folder: Path) -> None:
        self.lab, self.folder, self.work = lab, folder, folder / "work"
        self.work.mkdir()
        self.helm = str(binaries.find("helm"))
        self.kubeconfig = str(pki.administrator_kubeconfig(lab))
        self.api = client.KubernetesClient(self.kubeconfig)
        self.authority = str(pki.path(lab) / "ca.crt")
        self.token = folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(registry.password(lab) + "\n")
        self.told: list[str] = []

    @property
    def account(self) -> dict[str, str]:
        return {"username": registry.USER, "password_file": str(self.token), "ca_file": self.authority}

    def pack(self, version: str, name: str = "front", more: bytes = b"") -> Path:
        """A chart's archive."""
        source = self.folder / "sources" / f"{name}-{version}" / name
        (source / "templates").mkdir(parents=True, exist_ok=True)
        (source / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: {version}\n")
        (source / "values.yaml").write_text(yaml.safe_dump(VALUES))
        (source / "templates" / "front.yaml").write_text(FRONT)
        (source / "more").write_bytes(more)
        subprocess.run([self.helm, "package", source, "-d", self.folder], check=True, stdout=subprocess.DEVNULL)
        return self.folder / f"{name}-{version}.tgz"

    def push(self, archive: Path) -> None:
        with helm.logged_in(self.lab) as caller:
            caller.push(archive)

    def address(self, name: str = "front") -> str:
        return f"oci://{registry.address(self.lab)}/charts/{name}"

    def params(self, **options):
        spec = module_chart.SPEC["argument_spec"]
        made = {name: option.get("default") for name, option in spec.items()}
        made.update(name="front", kubeconfig=self.kubeconfig, helm=self.helm, work_dir=str(self.work), timeout=90)
        return {**made, **options}

    def run(self, check_mode=False, **options):
        return module_chart.run_and_tell(self.params(**options), check_mode, self.told.append)

    def left(self) -> list[Path]:
        """What runs have left behind on this machine."""
        return list(self.work.iterdir())

    def newest(self, namespace: str, name: str = "front"):
        return releases.newest(self.api, namespace, name)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(instance.from_environment(), tmp_path_factory.mktemp("charts"))
    made.push(made.pack("1.0.0"))
    made.push(made.pack("1.1.0"))
    return made


@pytest.fixture
def namespace(site, request):
    """A namespace of the test's own, removed afterwards (in the background)."""
    name = "charts-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    yield name
    assert not site.left()
    with contextlib.suppress(Absent):
        site.api.delete(client.path_of("v1", "namespaces", name=name))


# From a registry that wants an account


def test_installed_unchanged_upgraded_and_removed(site, namespace):
    common = {"namespace": namespace, "chart": site.address(), **site.account}
    foreseen = site.run(check_mode=True, version="1.0.0", **common)
    assert (foreseen["changed"], foreseen["release"]) == (True, None)
    first = site.run(version="1.0.0", values={"replicas": 2}, **common)
    assert first["release"]["status"] == "deployed"
    assert first["release"]["own"]
    archive, manifest = sorted(
        first["release"]["digests"], key=lambda digest: digest != _digest(site.folder / "front-1.0.0.tgz")
    )
    assert archive == _digest(site.folder / "front-1.0.0.tgz")
    again = site.run(version="1.0.0", values={"replicas": 2}, **common)
    assert (again["changed"], again["release"]["revision"]) == (False, 1)
    pinned = dict(common, chart="oci://127.0.0.1:1/charts/front", version="1.0.0", digest=manifest)
    assert not site.run(values={"replicas": 2.0}, **pinned)["changed"], "a pinned chart needs no registry"
    with pytest.raises(Conflict, match="has the digest"):
        site.run(version="1.1.0", digest=manifest, **common)
    other = site.run(version="1.1.0", **common)
    assert other["because"] == ["version 1.0.0 becomes 1.1.0", "the values differ"]
    assert other["release"]["revision"] == 2
    assert site.newest(namespace).values == {}, "earlier values are not kept"
    assert not site.run(chart=str(site.folder / "front-1.1.0.tgz"), namespace=namespace)["changed"]
    assert not site.run(state="absent", only_own=True, namespace="default")["changed"]
    assert site.run(state="absent", only_own=True, namespace=namespace)["changed"]
    assert site.newest(namespace) is None
    assert not site.run(state="absent", namespace=namespace)["changed"]


def test_what_goes_wrong_at_the_registry_is_told_apart(site):
    """One test for all: each of them takes a second, and a test by itself takes four to begin."""
    token = registry.password(site.lab)
    wrong = [
        ({"password": "nvapi-wrong-0123456789", "password_file": None}, Forbidden, "not accepted"),
        ({"username": None, "password_file": None}, Forbidden, "wants an account"),
        ({"version": "9.9.9"}, Absent, "no such chart or version"),
        ({"chart": site.address("other")}, Absent, "no such chart or version"),
        ({"ca_file": None}, Unreachable, "TLS failed"),
        ({"chart": site.address().replace(f":{registry.PORT}", ":1")}, Unreachable, "does not answer"),
        ({"values": {"a": [base64.b64encode(b"x" + token.encode()).decode()]}}, BadInput, "hold a credential"),
    ]
    params = {"namespace": "default", "version": "1.0.0", **site.account, "chart": site.address()}
    for options, error, why in wrong:
        with pytest.raises(error, match=why) as caught:
            site.run(**{**params, **options})
        said = f"{caught.value} {caught.value.fields}"
        assert not any(form in said for form in forms_of(token)), options
        assert not site.left(), options
    assert site.newest("default") is None


def test_dockers_own_login(site, namespace):
    stored = site.folder / "config.json"
    stored.touch(mode=0o600)
    stored.write_text(registry.docker_config(site.lab, registry.address(site.lab)))
    options = {"docker_config": str(stored), "ca_file": site.authority, "chart": site.address(), "version": "^1.0.0"}
    assert site.run(namespace=namespace, wait=False, **options)["release"]["version"] == "1.1.0"


# From a repository, an archive


class _Repository(SimpleHTTPRequestHandler):
    """A chart repository with an account, on this machine."""

    expected = "Basic " + base64.b64encode(b"robot:$ecr'et\"-of-the-repository").decode()

    def do_GET(self):
        if self.headers.get("Authorization") == self.expected:
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()

    def log_message(self, *_args):
        pass


def test_a_repository_that_wants_an_account(site, namespace):
    subprocess.run([site.helm, "repo", "index", site.folder], check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Repository, directory=str(site.folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    password = "$ecr'et\"-of-the-repository"
    common = {"namespace": namespace, "chart": "front", "username": "robot", "wait": False}
    common["repository"] = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with watched({"password": password}) as seen:
            done = site.run(password=password, version="1.0.0", **common)
        assert done["release"]["digests"] == [_digest(site.folder / "front-1.0.0.tgz")]
        with pytest.raises(Forbidden, match="not accepted"):
            site.run(password="wrong-password", version="1.0.0", **common)
        with pytest.raises(Absent):
            site.run(password=password, version="9.9.9", **common)
    finally:
        server.shutdown()
        server.server_close()
    assert not seen, seen


def test_a_provenance_is_proved(site, namespace):
    common = {"namespace": namespace, "name": "signed", "chart": str(FILES / "signed-1.0.0.tgz")}
    assert site.run(keyring=str(FILES / "maker.gpg"), **common)["changed"]
    with pytest.raises(Conflict, match="provenance does not hold"):
        site.run(keyring=str(FILES / "other.gpg"), **common)
    with pytest.raises(Conflict, match="provenance does not hold"):
        site.run(**{**common, "keyring": str(FILES / "maker.gpg"), "chart": str(site.folder / "front-1.0.0.tgz")})


def test_what_is_there_already_is_taken_over_only_when_asked(site, namespace):
    pod = {
        "metadata": {"labels": {"app": "front"}},
        "spec": {"containers": [{"name": "main", "image": "lab.local/pause:0"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "front"}}, "template": pod}
    site.api.create(client.path_of("v1", "namespaces"), {"metadata": {"name": namespace}})
    site.api.create(client.path_of("apps/v1", "deployments", namespace), {"metadata": {"name": "front"}, "spec": spec})
    common = {"namespace": namespace, "chart": str(site.folder / "front-1.0.0.tgz")}
    with pytest.raises(Conflict, match="take_ownership"):
        site.run(**common)
    assert site.run(take_ownership=True, **common)["release"]["status"] == "deployed"


def test_a_full_disk(site):
    big = site.pack("2.0.0", more=os.urandom(200_000))
    site.push(big)
    small = site.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k,mode=0700", "tmpfs", small], check=True)
    try:
        with pytest.raises(RecoveryError, match="no space is left") as caught:
            site.run(
                namespace="default", chart=site.address(), version="2.0.0", **{**site.account, "work_dir": str(small)}
            )
        assert "work_dir" in str(caught.value)
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
    assert site.newest("default") is None


# What cannot come up explains itself

TROUBLES = {
    "image": ({"image": f"{registry.NAME}/lab/none:1"}, "image", "its image cannot be had"),
    "quota": ({}, "quota", "exceeded quota: none"),
    "volume": ({"claim": "data"}, "volume", "data"),
    "crash": ({"command": "/none"}, "crash", "/none"),
}


def test_a_failed_install_says_which_pod_and_why(site):
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    site.api.create(client.path_of("v1", "namespaces"), {"metadata": {"name": "charts-quota"}})
    site.api.create(client.path_of("v1", "resourcequotas", "charts-quota"), quota)

    def install(kind):
        with pytest.raises(TimedOut) as caught:
            site.run(
                namespace="charts-" + kind,
                chart=str(site.folder / "front-1.0.0.tgz"),
                values=TROUBLES[kind][0],
                timeout=26,
            )
        return caught.value

    try:
        with ThreadPoolExecutor(len(TROUBLES)) as pool:
            found = dict(zip(TROUBLES, pool.map(install, TROUBLES)))
        for kind, (_values, cause, words) in TROUBLES.items():
            assert [each["cause"] for each in found[kind].fields["troubles"]] == [cause], found[kind].fields
            assert words in str(found[kind]), str(found[kind])
            assert found[kind].fields["release"]["status"] == "failed"
        assert any(
            re.search(
                r"charts-image/front: pending-install, 0 of 1 workloads ready; Deployment front 0/1: its "
                r"image cannot be had \(pod front-",
                line,
            )
            for line in site.told
        ), site.told
        mended = site.run(namespace="charts-image", chart=str(site.folder / "front-1.0.0.tgz"))
        assert mended["because"] == ["revision 1 failed", "the values differ"]
    finally:
        for kind in TROUBLES:
            site.api.delete(client.path_of("v1", "namespaces", name="charts-" + kind))


# Interrupted, and run again

_MODULE = """
import json, sys
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import chart
print(json.dumps(chart.run(json.loads(sys.stdin.read()), False)), flush=True)
"""


@contextlib.contextmanager
def begun(site, **options):
    """A run of its own process that waits for a pod that does not become ready; `(process, helm's process ID)`."""
    never = {"image": "lab.local/pause:none"}
    options = {"chart": str(site.folder / "front-1.1.0.tgz"), "values": never, **options}
    child = subprocess.Popen(
        [sys.executable, "-c", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    child.stdin.write(json.dumps(site.params(**options)))
    child.stdin.close()
    revision = getattr(site.newest(options["namespace"]), "revision", 0)
    helms: list[int] = []
    try:
        assert wait(lambda: getattr(site.newest(options["namespace"]), "revision", 0) > revision, 20)
        helms += [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_helm(pid, options["namespace"])]
        assert len(helms) == 1
        yield child, helms[0]
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
        for pid in helms:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _is_helm(pid: str, namespace: str) -> bool:
    with contextlib.suppress(OSError):
        words = Path("/proc", pid, "cmdline").read_bytes().decode().split("\0")
        return os.path.basename(words[0]) == "helm" and "upgrade" in words and namespace in words
    return False


def test_a_stopped_run_is_written_down_and_goes_on(site, namespace):
    with begun(site, namespace=namespace) as (child, _helm):
        child.terminate()
        assert child.wait(20) == -signal.SIGTERM
    assert site.newest(namespace).status == "failed"
    assert not site.left()
    done = site.run(namespace=namespace, chart=str(site.folder / "front-1.1.0.tgz"))
    assert done["release"]["status"] == "deployed"


@pytest.mark.parametrize("deployed", [False, True])
def test_a_killed_run_is_told_and_repaired_when_asked(site, namespace, deployed):
    common = {"namespace": namespace, "chart": str(site.folder / "front-1.1.0.tgz")}
    if deployed:
        site.run(**common)
    pending = "pending-upgrade" if deployed else "pending-install"
    with begun(site, namespace=namespace) as (child, helm_pid):
        child.kill()
        assert wait(lambda: not site.left(), 10), "what the killed run kept is still there"
        with pytest.raises(Conflict, match=rf"is {pending} .* helm works on it on this machine"):
            site.run(repair=True, repair_after=0, **common)
        os.kill(helm_pid, signal.SIGKILL)
        assert wait(lambda: not _is_helm(str(helm_pid), namespace), 10)
    with pytest.raises(Conflict, match=f"is {pending} .* was interrupted.*repair: true"):
        site.run(**common)
    with pytest.raises(Conflict, match="try again in"):
        site.run(repair=True, **common)
    assert site.newest(namespace).status == pending
    done = site.run(repair=True, repair_after=0, **common)
    assert done["because"][0] == f"revision {2 if deployed else 1} was {pending} and is repaired"
    assert (done["release"]["status"], done["release"]["revision"]) == ("deployed", 3 if deployed else 2)
    history = subprocess.run(
        [site.helm, "--kubeconfig", site.kubeconfig, "history", "front", "-n", namespace, "-o", "json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    statuses = [each["status"] for each in json.loads(history.stdout)]
    # helm itself goes on from a failed first revision by superseding it
    assert statuses == (["superseded", "failed", "deployed"] if deployed else ["superseded", "deployed"])


def test_the_api_server_goes_down_in_the_middle(site, namespace):
    common = {"namespace": namespace, "chart": str(site.folder / "front-1.1.0.tgz")}
    with begun(site, timeout=20, **common) as (child, _helm):
        ssh.run(site.lab, "head", "systemctl stop kube-apiserver")
        try:
            child.wait(60)
            said = child.stderr.read()
        finally:
            ssh.run(site.lab, "head", "systemctl start kube-apiserver")
    assert "Unreachable" in said or "TimedOut" in said, said
    assert "how far it came is not known" in said, said
    assert not site.left()
    assert wait(lambda: _answers(site, namespace), 60)
    done = site.run(repair=True, repair_after=0, **common)
    assert done["release"]["status"] == "deployed"


def _answers(site, namespace) -> bool:
    try:
        return site.newest(namespace) is not None
    except RecoveryError:
        return False


# The collection's own chart, by the role

_PLAYBOOK = """
- hosts: controller
  gather_facts: false
  tasks:
    - ansible.builtin.import_role:
        name: mission_control.job_recovery.charts
        %s
"""


def role(site, tasks, chart, namespace, *options):
    """Run the role `charts` as site.yml and uninstall.yml do, or its file `tasks`; the whole output."""
    settings = {
        "charts_helm": site.helm,
        "charts_username": registry.USER,
        "charts_password": "{{ lookup('ansible.builtin.file', '%s') }}" % site.token,
        "charts_ca_file": site.authority,
        "charts_work_dir": str(site.work),
        "charts_releases": [
            {
                "name": "job-recovery",
                "namespace": namespace,
                "chart": chart,
                "version": "0.1.0",
                "values": {"name": namespace, "namespaces": ["default"], "admissionPolicy": {"enabled": True}},
            }
        ],
    }
    (site.folder / "role.yml").write_text(_PLAYBOOK % (f"tasks_from: {tasks}" if tasks else ""))
    (site.folder / "settings.yml").write_text(yaml.safe_dump(settings))
    inventories = [f"--inventory={path}" for path in (site.lab.inventory, site.lab.checkout / "inventory/lab")]
    argv = ["ansible-playbook", *inventories, site.folder / "role.yml", "-e", f"@{site.folder}/settings.yml"]
    done = subprocess.run([*argv, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_collections_own_chart(site, namespace):
    source = site.lab.checkout / "charts" / "job-recovery"
    subprocess.run([site.helm, "lint", "--strict", "--set", "namespaces={default}", source], check=True)
    subprocess.run([site.helm, "package", source, "-d", site.folder], check=True)
    site.push(site.folder / "job-recovery-0.1.0.tgz")
    assert _rendered(site, source) == account.objects("ns", "job-recovery", ["default", "training"])[1:]
    secret = {"token of the registry": registry.password(site.lab)}
    address = site.address("job-recovery")
    with watched(secret) as seen:
        said = role(site, "", address, namespace, "-vvv", "--diff")
        assert "changed=1" in said
        said += (second := role(site, "", address, namespace, "-vvv", "--diff"))
        assert "changed=0" in second
        assert f"chart {namespace}/job-recovery: install: there is no such release" in said
    assert not seen, seen
    assert not any(form in said for form in forms_of(secret["token of the registry"]))
    assert not site.left()
    _policy_holds(site, namespace)
    assert "changed=1" in role(site, "remove.yml", "/nowhere", namespace)
    assert site.newest(namespace, "job-recovery") is None
    with pytest.raises(Absent):
        site.api.get(client.path_of("rbac.authorization.k8s.io/v1", "clusterroles", name=namespace))


def _rendered(site, source):
    argv = [site.helm, "template", "x", source, "-n", "ns", "--set", "namespaces={default,training}"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    found = list(yaml.safe_load_all(done.stdout))
    order = account.objects("ns", "job-recovery", ["default", "training"])[1:]
    assert len(found) == len(order)
    return sorted(found, key=lambda each: order.index(each) if each in order else -1)


def test_the_chart_for_monitoring(site):
    source = site.lab.checkout / "charts" / "job-recovery-monitoring"
    subprocess.run([site.helm, "lint", "--strict", source], check=True)
    sets = ["metrics.addresses={10.0.0.1,fd00::1}", "metrics.labels.release=x", "datasource.lokiUrl=http://loki:3100"]
    argv = [site.helm, "template", "x", source, "-n", "ns", *(word for each in sets for word in ("--set", each))]
    found = list(filter(None, yaml.safe_load_all(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)))
    by_kind = {each["kind"]: each for each in found}
    boards = [each for each in found if each["metadata"].get("labels") == {"grafana_dashboard": "1"}]
    made = {name: text for each in boards for name, text in each["data"].items()}
    assert made == {path.name: path.read_text().rstrip() for path in (source / "files" / "dashboards").iterdir()}
    assert by_kind["PrometheusRule"]["spec"] == yaml.safe_load((source / "files" / "alerts.yaml").read_text())
    addresses = by_kind["Endpoints"]["subsets"][0]["addresses"]
    assert [each["ip"] for each in addresses] == ["10.0.0.1", "fd00::1"]
    assert by_kind["ServiceMonitor"]["metadata"]["labels"] == {"release": "x"}
    assert {each["metadata"]["namespace"] for each in found} == {"ns"}
    least = [site.helm, "template", "x", source, "--set", "dashboards.enabled=false,alerts.enabled=false"]
    assert not subprocess.run(least, stdout=subprocess.PIPE, check=True).stdout.strip()
    for wrong in ("metrics.addresses={host.example}", "metrics.prot=1", "datasource.lokiUrl=loki"):
        refused = subprocess.run([site.helm, "template", "x", source, "--set", wrong], capture_output=True)
        assert refused.returncode != 0, wrong


def _policy_holds(site, namespace):
    """By the account's own token: what recovery does is let in, the rest is not."""
    path = client.path_of("v1", "secrets", namespace, "job-recovery-token")
    assert wait(lambda: site.api.get(path).get("data", {}).get("token"), 20)
    token = base64.b64decode(site.api.get(path)["data"]["token"]).decode()
    config = yaml.safe_load(Path(site.kubeconfig).read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    own = site.folder / "own.kubeconfig"
    own.touch(mode=0o600)
    own.write_text(yaml.safe_dump(config))
    robot = client.KubernetesClient(str(own))
    node = client.path_of("v1", "nodes", name="node4")
    assert wait(lambda: not _lets(robot, node, {"metadata": {"labels": {"x": "y"}}}), 20), "the policy is not there"
    for refused in (
        {"metadata": {"annotations": {"x": "y"}}},
        {"metadata": {"annotations": {"mission-control/hold": "y"}}},
        {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}},
    ):
        assert not _lets(robot, node, refused), refused
    ours = {"mission-control/job-recovery": "{}"}
    fence = [{"key": "node.kubernetes.io/out-of-service", "value": "test", "effect": "NoSchedule"}]
    try:
        assert _lets(robot, node, {"metadata": {"annotations": ours}, "spec": {"unschedulable": True, "taints": fence}})
    finally:
        undo = {"metadata": {"annotations": dict.fromkeys(ours)}, "spec": {"unschedulable": None, "taints": None}}
        site.api.patch(node, undo)
    spec = {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "lab.local/pause:1"}]}},
        "suspend": True,
    }
    jobs = client.path_of("batch/v1", "jobs", "default")
    with pytest.raises(RecoveryError, match="no Job without its annotation"):
        robot.create(jobs, {"metadata": {"name": "charts-x"}, "spec": spec})
    robot.create(jobs, {"metadata": {"name": "charts-x", "annotations": ours}, "spec": spec})
    job = client.path_of("batch/v1", "jobs", "default", "charts-x")
    try:
        robot.patch(job, {"metadata": {"annotations": {"mission-control/job-recovery": '{"rerun_as":"y"}'}}})
        assert not _lets(robot, job, {"spec": {"suspend": False}})
    finally:
        site.api.delete(job)


def _lets(robot, path, patch) -> bool:
    """Whether a patch is let in; anything but the policy that keeps it out is an error."""
    try:
        robot.patch(path, patch)
    except Conflict as exc:
        if "ValidatingAdmissionPolicy" not in str(exc):
            raise
        return False
    return True


def _digest(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
