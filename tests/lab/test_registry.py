# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials against a real registry with token authentication, a real API server and real kubelets."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from dataclasses import dataclass

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import registry as registry_check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import pull_secret
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import secret as registry_secret
from joblab import helm, instance, kubernetes, pki, registry
from joblab.demo.cluster import wait
from secret_search import in_output

#: A new one each time: the last one may still be going away.
NAMESPACE = "registry-test-" + secrets.token_hex(3)
SECRET = "pull"
GUESTS_REPOSITORY = "public/busybox"
CHART = "registry-test"
VERSION = "0.1.0"


@dataclass(frozen=True)
class Lab:
    """The running lab, and what is in its registry."""

    instance: instance.Instance

    @property
    def address(self) -> str:
        return registry.address(self.instance)

    @property
    def ca_file(self) -> str:
        return str(pki.path(self.instance) / "ca.crt")

    @property
    def key(self) -> str:
        return registry.password(self.instance)

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return kubernetes.kubectl(self.instance, ["--namespace", NAMESPACE, *args], stdin=stdin).stdout

    def site(self, user: str = registry.USER, key: str = "", **more: object) -> dict:
        """The registry, as the modules take it."""
        account = {"username": user, "password": key or registry.password(self.instance, user)} if user else {}
        return {"registry": self.address, "ca_file": self.ca_file, **account, **more}


@pytest.fixture(scope="module")
def lab():
    """The lab with an image that guests may pull, and an empty namespace; taken away afterwards."""
    found = Lab(instance.from_environment())
    registry.push_busybox(found.instance, GUESTS_REPOSITORY)
    kubernetes.kubectl(found.instance, ["create", "namespace", NAMESPACE])
    yield found
    kubernetes.kubectl(found.instance, ["delete", "namespace", NAMESPACE, "--wait=false"])


@pytest.fixture(scope="module")
def chart(lab, tmp_path_factory):
    """A chart in the registry, as registry_check takes it; put there, and pulled again, by helm with a login."""
    folder = tmp_path_factory.mktemp("chart")
    source = folder / CHART
    source.mkdir()
    (source / "Chart.yaml").write_text(f"apiVersion: v2\nname: {CHART}\nversion: {VERSION}\n")
    with helm.logged_in(lab.instance) as client:
        client.run(["package", str(source), "--destination", str(folder)])
        client.push(folder / f"{CHART}-{VERSION}.tgz")
        (folder / "pulled").mkdir()
        assert client.pull(CHART, VERSION, folder / "pulled").stat().st_size > 100
    return {"chart": f"oci://{lab.address}/charts/{CHART}", "version": VERSION}


def check(*sites: dict, images: tuple[str, ...] = (), charts: tuple[dict, ...] = (), **more: object) -> dict:
    """What registry_check returns."""
    spec = registry_check.SPEC["argument_spec"]
    params = {name: option.get("default") for name, option in spec.items()}
    for name, given in (("registries", sites), ("charts", charts)):
        defaults = {key: option.get("default") for key, option in spec[name]["options"].items()}
        params[name] = [{**defaults, **one} for one in given]
    return registry_check.run({**params, "images": list(images), **more}, False)


def keep_secret(lab: Lab, check_mode: bool = False, **given: object) -> dict:
    """What registry_secret returns; the registry is called as the nodes call it."""
    params = {name: option.get("default") for name, option in registry_secret.SPEC["argument_spec"].items()}
    params.update(
        name=SECRET,
        namespaces=[NAMESPACE],
        registry=registry.NAME,
        username=registry.USER,
        password=lab.key,
        kubeconfig=str(pki.administrator_kubeconfig(lab.instance)),
    )
    return registry_secret.run({**params, **given}, check_mode)


def stand(lab: Lab, content: str, kind: str = pull_secret.TYPE, key: str = pull_secret.KEY, **more: object) -> None:
    """Make a secret as somebody did by hand, but with our label."""
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": SECRET, "labels": {pull_secret.LABEL: pull_secret.OWNER}},
        "data": {key: encoded(content)},
    }
    lab.kubectl("create", "--filename", "-", stdin=json.dumps({**made, **more}))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# ---- registry_check ----


def answer(lab: Lab, site: dict, image: str, **more: object) -> str:
    return check(site, images=(f"{lab.address}/{image}",), **more)["results"][-1]["answer"]


def test_what_is_there_is_found(lab, chart):
    found = check(lab.site(), images=(f"{lab.address}/lab/busybox:1",), charts=(chart,), platforms=["linux/amd64"])
    assert {one["id"]: one["status"] for one in found["checks"]} == {
        "registry_credentials": "passed",
        "registry_access": "passed",
        "registry_images": "passed",
        "registry_charts": "passed",
    }, found
    digest = found["results"][1]["digest"]
    assert answer(lab, lab.site(), f"lab/busybox@{digest}", platforms=["linux/amd64"]) == "present"
    newest = {"chart": chart["chart"]}
    pinned = {**chart, "digest": found["results"][2]["digest"]}
    assert [one["answer"] for one in check(lab.site(), charts=(newest, pinned))["results"][1:]] == ["present"] * 2


def test_the_real_registry_tells_its_refusals_apart(lab):
    guest = lab.site(registry.GUEST)
    rows = {
        "a wrong key": answer(lab, lab.site(key="nvapi-" + "x" * 64), "lab/busybox:1"),
        "a key cut off": answer(lab, lab.site(key=lab.key[:-20]), "lab/busybox:1"),
        "a key in quotes": answer(lab, lab.site(key=f"'{lab.key}'"), "lab/busybox:1"),
        "the $ lost": answer(lab, lab.site(user="oauthtoken", key=lab.key), "lab/busybox:1"),
        "no credentials": answer(lab, lab.site(user=""), "lab/busybox:1"),
        "a guest where guests may": answer(lab, guest, f"{GUESTS_REPOSITORY}:1"),
        "a guest where they may not": answer(lab, guest, "lab/busybox:1"),
        "no such tag": answer(lab, lab.site(), "lab/busybox:2"),
        "no such repository": answer(lab, lab.site(), "lab/nothing:1"),
        "for another processor": answer(lab, lab.site(), "lab/busybox:1", platforms=["linux/arm64"]),
        "an authority unheard of": answer(lab, lab.site(ca_file=""), "lab/busybox:1"),
        "no TLS where there is": answer(lab, lab.site(plain_http=True), "lab/busybox:1"),
    }
    assert rows == {
        "a wrong key": "bad_credentials",
        "a key cut off": "bad_credentials",
        "a key in quotes": "bad_credentials",
        "the $ lost": "bad_credentials",
        "no credentials": "bad_credentials",
        "a guest where guests may": "present",
        "a guest where they may not": "no_permission",
        "no such tag": "absent",
        "no such repository": "absent",
        "for another processor": "absent",
        "an authority unheard of": "untrusted",
        "no TLS where there is": "unreadable",
    }


def test_charts_are_refused_like_images(lab, chart):
    assert check(lab.site(registry.GUEST), charts=(chart,))["results"][-1]["answer"] == "no_permission"
    for missing in ({**chart, "version": "9.9.9"}, {**chart, "chart": chart["chart"] + "-lost"}):
        assert check(lab.site(), charts=(missing,))["results"][-1]["answer"] == "absent"
    image = {"chart": f"oci://{lab.address}/lab/busybox", "version": ""}
    assert check(lab.site(), charts=(image,))["results"][-1]["answer"] == "absent"


def test_a_registry_that_is_stopped_is_unknown(lab):
    gone = {**lab.site(), "registry": lab.address.replace(":5000", ":5999")}
    found = check(gone, images=(f"{gone['registry']}/lab/busybox:1",))
    assert [one["answer"] for one in found["results"]] == ["unreachable", "unreachable"]
    assert [one["status"] for one in found["checks"]] == ["passed", "unknown", "unknown"]


# ---- registry_secret, and the kubelet's own opinion ----


def run_pod(lab: Lab, name: str) -> None:
    """A pod whose image has to be asked for anew, with the secret."""
    container = {"name": "main", "image": registry.BUSYBOX, "imagePullPolicy": "Always", "command": ["true"]}
    spec = {"restartPolicy": "Never", "imagePullSecrets": [{"name": SECRET}], "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    lab.kubectl("create", "--filename", "-", stdin=json.dumps(pod))


def ended(lab: Lab, name: str) -> str:
    """`Succeeded`, or why the kubelet waits, or nothing yet."""
    status = json.loads(lab.kubectl("get", "pod", name, "--output", "json"))["status"]
    waiting = [one.get("state", {}).get("waiting", {}) for one in status.get("containerStatuses", [])]
    reasons = [one.get("reason", "") for one in waiting if "Pull" in one.get("reason", "")]
    return "Succeeded" if status["phase"] == "Succeeded" else next(iter(reasons), "")


def test_a_pod_pulls_with_the_secret(lab):
    """A newline at the end, as `echo ... | base64` leaves it: the kubelet cannot pull; repaired, it can."""
    lab.kubectl("delete", "secret", SECRET, "--ignore-not-found")
    pair = encoded(f"{registry.USER}:{lab.key}\n")
    stand(lab, json.dumps({"auths": {registry.NAME: {"auth": pair}}}))
    run_pod(lab, "with-newline")
    assert wait(lambda: ended(lab, "with-newline"), 30) in ("ErrImagePull", "ImagePullBackOff")
    foreseen = keep_secret(lab, check_mode=True)
    result = keep_secret(lab)
    assert result["changed"]
    assert {**result, "results": None} == {**foreseen, "results": None}
    assert "newline" in result["results"][0]["found"][0]
    assert keep_secret(lab)["changed"] is False
    run_pod(lab, "repaired")
    assert wait(lambda: ended(lab, "repaired"), 30) == "Succeeded"


FAULTY = {
    "no auths": lambda pair: json.dumps({registry.NAME: {"auth": pair}}),
    "auth encoded twice": lambda pair: json.dumps({"auths": {registry.NAME: {"auth": encoded(pair)}}}),
    "a URL": lambda pair: json.dumps({"auths": {f"https://{registry.NAME}/v2/": {"auth": pair}}}),
    "auths a list": lambda pair: json.dumps({"auths": []}),
    "no credentials": lambda pair: json.dumps({"auths": {registry.NAME: {}}, "credsStore": "desktop"}),
}


def test_what_the_api_server_takes_and_nobody_can_use(lab):
    pair = encoded(f"{registry.USER}:{lab.key}")
    for name, fault in FAULTY.items():
        lab.kubectl("delete", "secret", SECRET, "--ignore-not-found")
        stand(lab, fault(pair))
        result = keep_secret(lab)
        assert result["changed"], name
        assert result["results"][0]["found"], name
        assert keep_secret(lab)["changed"] is False, name


def refusal(lab: Lab, **given: object) -> str:
    with pytest.raises(RecoveryError) as caught:
        keep_secret(lab, **given)
    assert not in_output({"key": lab.key}, str(caught.value) + json.dumps(caught.value.fields))
    return str(caught.value)


def test_what_can_never_be_changed_is_told_and_made_anew_by_option(lab):
    lab.kubectl("delete", "secret", SECRET, "--ignore-not-found")
    pair = {"auth": encoded(f"{registry.USER}:old")}
    stand(lab, json.dumps({"auths": {registry.NAME: pair, "other.example.org": pair}}), immutable=True)
    assert "immutable" in refusal(lab)
    assert keep_secret(lab, recreate=True)["changed"]
    written = lab.kubectl("get", "secret", SECRET, "--output", r"jsonpath={.data.\.dockerconfigjson}")
    assert json.loads(base64.b64decode(written))["auths"]["other.example.org"] == pair
    lab.kubectl("delete", "secret", SECRET)
    stand(lab, json.dumps({registry.NAME: pair}), pull_secret.OLD_TYPE, pull_secret.OLD_KEY)
    assert pull_secret.OLD_TYPE in refusal(lab)
    assert keep_secret(lab, recreate=True)["changed"]
    assert keep_secret(lab, state="absent", others="remove", password=None)["changed"]
    assert lab.kubectl("get", "secret", SECRET, "--ignore-not-found") == ""


def test_namespaces_and_rights_that_are_missing_are_told(lab):
    assert "no namespace lost-and-gone" in refusal(lab, namespaces=["lost-and-gone"])
    token = lab.kubectl("create", "token", "default").strip()
    config = json.loads(pki.administrator_kubeconfig(lab.instance).read_text())
    config["users"][0]["user"] = {"token": token}
    folder = lab.instance.state / "secret"
    kubeconfig = folder / "registry-test.kubeconfig"
    try:
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(json.dumps(config))
        assert "get secrets %s in %s" % (SECRET, NAMESPACE) in refusal(lab, kubeconfig=str(kubeconfig))
    finally:
        kubeconfig.unlink()


# ---- as a site runs them ----

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - mission_control.job_recovery.registry_check:
        registries: "{{ sites }}"
        images: "{{ images }}"
    - mission_control.job_recovery.registry_secret: "{{ wanted }}"
    - mission_control.job_recovery.registry_secret: "{{ wanted }}"
      register: again
      failed_when: again.changed
    - mission_control.job_recovery.registry_secret: "{{ wanted | combine({'password': wanted.password ~ '\\n'}) }}"
      register: newline
      failed_when: newline is not failed
"""


def test_secrets_are_not_shown(lab, tmp_path):
    """By ansible-playbook, showing all it can."""
    lab.kubectl("delete", "secret", SECRET, "--ignore-not-found")
    wrong = "nvapi-" + "w" * 64
    variables = {
        "sites": [lab.site(), {**lab.site(key=wrong), "registry": f"{lab.address}/other"}],
        "images": [f"{lab.address}/lab/busybox:1"],
        "wanted": {
            "name": SECRET,
            "namespaces": [NAMESPACE],
            "registry": registry.NAME,
            "username": registry.USER,
            "password": lab.key,
            "kubeconfig": str(pki.administrator_kubeconfig(lab.instance)),
        },
    }
    (tmp_path / "variables.json").touch(mode=0o600)
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    (tmp_path / "playbook.yml").write_text(PLAYBOOK)
    argv = ["ansible-playbook", "-vvv", "--diff", "-e", "@variables.json", "playbook.yml"]
    done = subprocess.run(argv, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    output = done.stdout + done.stderr
    assert not in_output({"key": lab.key, "wrong key": wrong}, output)
    assert done.returncode == 0, output[-4000:]
