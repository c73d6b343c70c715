# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole module over a small API server and a helm that plays a script; the real ones are in tests/lab."""

from __future__ import annotations

import base64
import copy
import errno
import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.doc_fragments.kubernetes import ModuleDocFragment
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import chart as module_chart
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release, source
from ansible_collections.mission_control.job_recovery.plugins.modules import helm_chart
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.helm import records
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

SECRETS = "/api/v1/namespaces/apps/secrets"
DEPLOYMENT = "/apis/apps/v1/namespaces/apps/deployments/web"
TOKEN = "nvapi-$(id)-0123456789"
GOOD = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}


@pytest.fixture
def site(api, helm, kubeconfig, packed, tmp_path):
    """`run` calls the module for an archive, `deploys` says what helm makes of it."""
    return Site(api, helm, kubeconfig, packed, tmp_path)


class Site:
    def __init__(self, api, helm, kubeconfig, packed, tmp_path):
        self.api, self.helm, self.work = api, helm, tmp_path / "work"
        self.work.mkdir()
        self.archive = tmp_path / "front.tgz"
        self.archive.write_bytes(packed())
        self.told = []
        self._kubeconfig = kubeconfig

    def run(self, check_mode=False, **options):
        spec = module_chart.SPEC["argument_spec"]
        params = {name: copy.deepcopy(option.get("default")) for name, option in spec.items()}
        params.update(name="web", namespace="apps", chart=str(self.archive), helm=self.helm.path)
        params.update(kubeconfig=self._kubeconfig, work_dir=str(self.work), timeout=30, request_timeout=5)
        params.update(options)
        try:
            return module_chart.run_and_tell(params, check_mode, self.told.append)
        finally:
            assert list(self.work.iterdir()) == [], "something was left behind"

    def there(self, **what):
        secret = records.secret(**what)
        self.api.put(records.path(secret), secret)

    def deploys(self, ready=True, **what):
        """One upgrade by helm; the Deployment is there afterwards."""
        step = what.pop("step", {})
        secret = records.secret(**what)
        post = [(self.api.url + SECRETS, secret)]
        self.helm.plays(upgrade=[{"post": post, **step}])
        self.workload(GOOD if ready else {})

    def workload(self, its_status):
        selector = {"matchLabels": {"app": "web"}}
        self.api.put(DEPLOYMENT, {"metadata": {"generation": 1}, "spec": {"selector": selector}, "status": its_status})

    def digest(self):
        return source._file_digest(str(self.archive))

    @property
    def upgrades(self):
        return [call for call in self.helm.calls if call["words"][0] == "upgrade"]


def test_install(site):
    site.deploys(values={"a": 1}, description=release.description([site.digest()]), own=True)
    done = site.run(values={"a": 1})
    assert done["changed"]
    assert done["because"] == ["there is no such release"]
    assert done["release"]["status"] == "deployed"
    assert done["diff"]["before"] == {}
    assert done["diff"]["after"]["values"] == {"a": 1}
    (call,) = site.upgrades
    assert call["words"] == ["upgrade", "web", str(site.archive)]
    assert json.loads(call["stdin"]) == {"a": 1}
    options = call["options"]
    assert options["--description"] == "mission_control.job_recovery: " + site.digest()
    assert options["--labels"] == "mission-control/managed-by=job-recovery"
    assert {"--install", "--wait", "--create-namespace", "--reset-values"} <= set(options)
    assert 10 < int(options["--timeout"].rstrip("s")) <= 20
    assert site.told[0] == "chart apps/web: install: there is no such release"


def test_the_second_run_changes_nothing(site):
    site.there(values={"a": 1}, description=release.description([site.digest()]))
    site.workload(GOOD)
    done = site.run(values={"a": 1})
    assert (done["changed"], done["because"], "diff" in done) == (False, [], False)
    assert site.helm.calls == []
    assert not site.api.bodies


def test_a_pinned_chart_is_not_even_fetched(site):
    digest = "sha256:" + "d" * 64
    site.there(description=release.description([digest]))
    site.workload(GOOD)
    done = site.run(chart="oci://127.0.0.1:1/front", version="1.0.0", digest=digest)
    assert not done["changed"]
    assert site.helm.calls == []


@pytest.mark.parametrize(
    ("there", "options", "because"),
    [
        ({"version": "0.9.0"}, {}, "version 0.9.0 becomes 1.0.0"),
        ({"values": {"a": 2}}, {}, "the values differ"),
        ({"status": "failed"}, {}, "revision 1 failed"),
    ],
)
def test_upgrade(site, there, options, because):
    site.there(**there)
    site.deploys(revision=2)
    done = site.run(**options)
    assert done["because"] == [because]
    assert done["release"]["revision"] == 2
    assert "--labels" not in site.upgrades[0]["options"], "whose release it is does not change by an upgrade"


def test_check_mode_writes_nothing(site):
    site.there(version="0.9.0", values={"a": 1})
    done = site.run(check_mode=True)
    assert done["changed"]
    assert done["diff"]["before"]["version"] == "0.9.0"
    assert done["diff"]["after"]["version"] == "1.0.0"
    assert done["release"]["version"] == "0.9.0"
    assert site.helm.calls == []
    assert site.run(check_mode=True, state="absent")["changed"]
    assert site.helm.calls == []


def test_another_chart_under_that_name_is_not_replaced(site):
    site.there(chart="database")
    with pytest.raises(Conflict, match="it is of the chart database"):
        site.run()
    assert site.helm.calls == []


# pending-upgrade beside a deployed revision, or a first pending-install alone.
OLD, NEW = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"


@pytest.mark.parametrize("pending", ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"])
@pytest.mark.parametrize("deployed", [True, False])
def test_a_stuck_release_is_told(site, pending, deployed):
    if deployed:
        site.there(revision=2)
    site.there(revision=3, status=pending, created=OLD)
    with pytest.raises(Conflict) as caught:
        site.run()
    message = str(caught.value)
    assert "release web in apps is %s (revision 3, since 2020-01-01T00:00:00Z" % pending in message
    assert ("revision 2 is deployed" if deployed else "nothing is deployed") in message
    assert "repair: true" in message
    assert site.helm.calls == []
    assert not site.api.bodies


@pytest.mark.parametrize("pending", ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"])
def test_a_stuck_release_is_repaired_when_asked(site, pending):
    site.there(revision=3, status=pending, created=OLD)
    foreseen = site.run(check_mode=True, repair=True)
    assert foreseen["because"] == ["revision 3 was %s and is repaired" % pending, "revision 3 failed"]
    assert not site.api.bodies
    site.deploys(revision=4)
    done = site.run(repair=True)
    assert done["because"] == foreseen["because"]
    assert done["release"]["revision"] == 4
    marked = site.api.see(SECRETS + "/sh.helm.release.v1.web.v3")
    assert marked["metadata"]["labels"]["status"] == "failed"
    assert release.parse(marked).status == "failed"


def test_a_release_that_may_be_worked_on_is_not_repaired(site):
    site.there(revision=3, status="pending-upgrade", created=NEW)
    with pytest.raises(Conflict, match="a helm on another machine may work on it"):
        site.run(repair=True)
    assert not site.api.bodies


def test_a_helm_on_this_machine_forbids_the_repair(site):
    site.there(revision=3, status="pending-upgrade", created=OLD)
    argv = ["helm", "-c", "sleep 60; true", "upgrade", "web"]
    with subprocess.Popen(argv, executable="/bin/sh") as busy:
        try:
            with pytest.raises(Conflict, match=r"helm works on it on this machine \(process %d\)" % busy.pid):
                site.run(repair=True)
            with pytest.raises(Conflict, match="helm works on it"):
                site.run(state="absent")
        finally:
            busy.kill()
    assert not site.api.bodies


def test_somebody_who_writes_at_the_same_moment_wins(site):
    site.there(revision=3, status="pending-upgrade", created=OLD)
    path = SECRETS + "/sh.helm.release.v1.web.v3"
    site.api.tell("PATCH", path, 409, status(409, "Conflict", "the object has been modified"))
    with pytest.raises(Conflict, match="has been modified"):
        site.run(repair=True)
    assert site.helm.calls == []


def test_a_failed_install_explains_itself(site):
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off: x"}}}
    pod = {"metadata": {"labels": {"app": "web"}}, "status": {"containerStatuses": [waiting]}}
    site.api.put("/api/v1/namespaces/apps/pods/web-1", pod)
    said = "Error: resource Deployment/apps/web not ready. status: InProgress\ncontext deadline exceeded\n"
    site.deploys(ready=False, status="failed", step={"rc": 1, "stderr": said})
    with pytest.raises(TimedOut) as caught:
        site.run()
    assert str(caught.value).startswith(
        "install of release web in apps failed: Deployment web, pod web-1: its image cannot be had (Back-off: x)"
    )
    assert caught.value.fields["troubles"] == [
        {"object": "Deployment web", "pod": "web-1", "cause": "image", "message": "Back-off: x"}
    ]
    assert caught.value.fields["release"]["status"] == "failed"


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        ('Kubernetes cluster unreachable: Get "https://h:6443": connection refused', Unreachable, "how far it came"),
        ("another operation (install/upgrade/rollback) is in progress", Conflict, "somebody else works on it"),
        ('ServiceAccount "x" exists and cannot be imported into the current release', Conflict, "take_ownership"),
        ("values don't meet the specifications of the schema(s)", BadInput, "no valid objects"),
        ('secrets is forbidden: User "x" cannot create resource "secrets"', Forbidden, "not allowed"),
        ('namespaces "apps" not found', RecoveryError, "create_namespace"),
        ("failed to create typed patch object: expected numeric, got string", BadInput, "no valid objects"),  # [lab]
        ("something new", RecoveryError, "something new"),
    ],
)
def test_what_helm_says_has_a_meaning(site, said, error, why):
    site.helm.plays(upgrade=[{"rc": 1, "stderr": "Error: " + said}])
    with pytest.raises(error, match="install of release web in apps failed") as caught:
        site.run()
    assert why in str(caught.value)


def test_the_api_server_goes_away_in_the_middle(site):
    site.helm.plays(upgrade=[{"rc": 1, "stderr": "Error: UPGRADE FAILED: connection refused"}])
    site.there(version="0.9.0")
    site.api.tell("GET", SECRETS, 0, None)  # answered as usual
    site.api.tell("GET", SECRETS, 503, status(503), times=9)
    with pytest.raises(Unreachable, match="upgrade of release web in apps: how far it came is not known") as caught:
        site.run()
    assert "connection refused" in caught.value.fields["stderr"]


@pytest.mark.parametrize(("version", "forces"), [("v3.19.0", False), ("v4.1.4", True)])
def test_taking_over_what_is_there(site, version, forces):
    post = [(site.api.url + SECRETS, records.secret())]
    site.helm.plays(version=[{"stdout": version}], upgrade=[{"post": post}])
    site.run(take_ownership=True, wait=False)
    (call,) = site.upgrades
    assert call["options"]["--take-ownership"] is True
    assert call["options"].get("--force-conflicts", False) is forces


def test_it_is_not_believed_that_helm_waited(site):
    site.deploys(ready=False)
    with pytest.raises(TimedOut, match="is deployed and not ready"):
        site.run(timeout=7)
    assert any("0 of 1 workloads ready; Deployment web 0/1" in line for line in site.told)
    assert site.run(wait=False)["changed"] is False


def test_absent(site):
    assert site.run(state="absent", chart=None)["changed"] is False
    site.there()
    assert site.run(state="absent", only_own=True)["because"] == ["it was not installed by this collection and stays"]
    site.helm.plays(uninstall=[{"rc": 1, "stderr": "Error: failed to delete release: timed out"}])
    with pytest.raises(TimedOut, match="uninstall of release web in apps failed"):
        site.run(state="absent")
    assert site.helm.calls[-1]["words"] == ["uninstall", "web"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "--debug"}, "no name of a release"),
        ({"name": "Web"}, "no name of a release"),
        ({"namespace": "a/b"}, "no name of a namespace"),
        ({"timeout": 0}, "above zero"),
        ({"values": {"a": {"token": TOKEN}}}, "hold a credential, at a.token"),
        ({"values": {"a": base64.b64encode(TOKEN.encode()).decode()}}, "hold a credential, at a"),
    ],
)
def test_wrong_use(site, options, why):
    with pytest.raises(BadInput, match=why) as caught:
        site.run(username="u", password=TOKEN, **options)
    assert TOKEN not in "%s %s" % (caught.value, caught.value.fields)
    assert site.helm.calls == []


def test_a_full_disk_is_named():
    full = source.disk_full(OSError(errno.ENOSPC, "No space left on device"), "/work")
    assert "no space is left on /work" in str(full)
    assert "work_dir" in str(full)


def test_the_documentation_says_what_the_spec_says():
    documented = yaml.safe_load(helm_chart.DOCUMENTATION)["options"]
    documented.update(yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"])
    spec = helm_chart.SPEC["argument_spec"]
    assert sorted(documented) == sorted(spec)
    for name, option in spec.items():
        for key in ("type", "default", "required", "choices"):
            assert documented[name].get(key) == option.get(key), (name, key)


def test_it_runs_as_a_module(site):
    site.there(version="0.9.0")
    arguments = {"name": "web", "namespace": "apps", "chart": str(site.archive), "kubeconfig": site._kubeconfig}
    arguments.update(helm=site.helm.path, _ansible_check_mode=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    path = pathlib.Path(helm_chart.__file__)
    done = subprocess.run(
        [sys.executable, path],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        text=True,
        capture_output=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["because"] == ["version 0.9.0 becomes 1.0.0"]
