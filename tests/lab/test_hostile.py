# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users of the cluster write code into every text that they can write, real faults happen, and nothing of it runs.

A text is worth nothing as a test unless it travels: each test requires that recovery has read it, by an incident that
ends well or by a refusal that quotes it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from controller import as_service, by_hand, on_head, submit
from hostile_texts import FORMS, control_characters, marks, text, texts
from joblab import ssh
from joblab.demo.cases import Kubernetes, fault
from joblab.demo.cases import _job_manifest as job_manifest
from joblab.demo.cluster import USER
from watching import incidents, sleep_until

#: Fails the first time, and succeeds when it was requeued.
FAILS_ONCE = 'test "${SLURM_RESTART_COUNT:-0}" -gt 0'

_MAKE_FOLDERS = "import json, os, sys\nfor path in json.load(sys.stdin):\n    os.makedirs(path, exist_ok=True)\n"

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - mission_control.job_recovery.recovery_incident_info:
        since: SINCE
      register: ledger
    - ansible.builtin.debug:
        var: ledger
    - ansible.builtin.debug:
        msg: "{{ ledger.incidents + ledger.refusals }} {{ ledger.refusals | map(attribute='why') | join(' ') }}"
    - ansible.builtin.set_fact:
        why: "{{ item.why }}"
      loop: "{{ ledger.refusals }}"
    - ansible.builtin.debug:
        msg: "{{ why }}"
"""


@pytest.fixture(autouse=True)
def no_mark(cluster):
    """No mark before, and none afterwards, whatever the test did; a planted one is found."""
    remove = "find /tmp -name 'hostile-*' -delete"
    for host in ("head", *cluster.instance.nodes):
        cluster.on(host, remove)
    cluster.on("node1", "touch /tmp/hostile-planted-mark")
    assert marks(cluster) == ["node1: /tmp/hostile-planted-mark"]
    cluster.on("node1", remove)
    yield
    assert marks(cluster) == []
    report_everything(cluster)
    assert marks(cluster) == []


def refusals(cluster, target) -> list[dict[str, Any]]:
    return [row for row in cluster.ledger(cluster.begun)["refusals"] if row["target"] == str(target)]


def report_everything(cluster):
    """Every report, none of which may show anything raw."""
    playbook = PLAYBOOK.replace("SINCE", f"{cluster.begun:.0f}")
    as_service(cluster, ["sh", "-c", "cat > /var/lib/job-recovery/report.yml"], stdin=playbook)
    shown = {
        "incidents": on_head(cluster, ["job-recovery", "incidents", "--all"]).output,
        "json": on_head(cluster, ["job-recovery", "incidents", "--all", "--json"]).output,
        "status": on_head(cluster, ["job-recovery", "status"]).output,
        "journal": cluster.head("journalctl -u job-recovery -o cat --since -1h --no-pager"),
        "module": as_service(cluster, ["ansible-playbook", "-vvv", "/var/lib/job-recovery/report.yml"]).output,
    }
    cluster.head("rm -f /var/lib/job-recovery/report.yml")
    for name, output in shown.items():
        assert not control_characters(output), f"{name} shows control characters: {control_characters(output)[:3]}"
    assert "failed=0" in shown["module"], shown["module"][-2000:]
    json.loads(shown["json"])
    return shown


def test_texts_of_slurm(cluster):
    """Every form in every field of jobs, and as a person's reason at a node that breaks meanwhile.

    Jobs that opted in fail and are requeued, and jobs with code as their mode are refused. The node is the person's:
    the refusal quotes the reason, and a repair by override carries it along.
    """
    fault(cluster.instance, "drain_person", "node4", "--reason", texts("reason"))
    fault(cluster.instance, "kill_slurmd", "node4")
    forms = list(FORMS)
    folders = {form: f"/home/{USER}/out/{text('output', form)}" for form in forms}
    words = f"exec runuser -u {USER} -- python3 -c {json.dumps(_MAKE_FOLDERS)}"
    ssh.run(cluster.instance, "head", words.replace("\\n", "\n"), stdin=json.dumps(list(folders.values())))
    good, bad = {}, {}
    for form in forms:
        comment = {"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 5, "note": text("note", form)}}
        comment["text"] = text("comment", form)
        options = {"nodes": "1", "job-name": text("name", form), "output": f"{folders[form]}/%j.out"}
        good[form] = submit(cluster, FAILS_ONCE, options, json.dumps(comment))
        options = {"nodes": "1", "job-name": text("badname", form), "output": "/dev/null"}
        bad[form] = submit(cluster, "exit 1", options, json.dumps({"APS": {"auto_resume_mode": text("mode", form)}}))
    options = {"nodes": "1", "job-name": "broken", "output": "/dev/null"}
    broken = submit(cluster, "exit 1", options, '{"APS": {"auto_resume_mode": ' + texts("broken"))
    sleep_until(lambda: all(cluster.job(job).state == "COMPLETED" for job in good.values()), 300, 2.0)
    for form, job in good.items():
        (row,) = sleep_until(lambda job=job: closed(cluster, str(job)), 60, 1.0)
        assert (row["plan"], cluster.job(job).restarts) == ("requeue_job", 1), (form, row)
    for form, job in {**bad, "broken": broken}.items():
        (refusal,) = sleep_until(lambda job=job: refusals(cluster, job), 60, 1.0)
        assert refusal["gate"] == "opt_in", (form, refusal)
        assert (cluster.job(job).state, cluster.job(job).restarts) == ("FAILED", 0), form
    quoted = " ".join(refusals(cluster, bad["expression"])[0]["why"].split())
    assert "lookup(" in quoted, "the refusal quotes what the user wrote"
    (refusal,) = sleep_until(lambda: refusals(cluster, "node4"), 120, 1.0)
    assert refusal["gate"] == "owner", refusal
    shown = report_everything(cluster)["incidents"]
    assert "lookup(" in shown
    assert "node4" in shown
    done = by_hand(cluster, "restart_daemon", nodes="node4", reason="looked at it", override="owner")
    assert done.rc == 0, done.output
    assert not control_characters(done.output), control_characters(done.output)[:3]
    assert cluster.on("node4", "systemctl is-active slurmd") == "active", done.output
    assert "lookup(" in cluster.node("node4").reason, "the reason stays the person's"


def closed(cluster, target):
    found = incidents(cluster, target)
    return found if found and all(row["state"] == "closed" for row in found) else None


def test_texts_of_kubernetes_jobs(cluster):
    """Annotations, environment and termination messages of pods, while their node loses power."""
    kube = Kubernetes(cluster)
    try:
        kube("apply", "-f", "-", stdin=json.dumps(hostile_job("good", json.loads(opt_in("requeue")))))
        node = sleep_until(lambda: running_on(kube, "good"), 90, 1.0)
        bad = hostile_job("bad", json.loads(opt_in(texts("annotationmode"))))
        bad["spec"]["template"]["spec"]["nodeName"] = node
        kube("apply", "-f", "-", stdin=json.dumps(bad))
        sleep_until(lambda: running_on(kube, "bad"), 90, 1.0)
        fault(cluster.instance, "power_off", node)
        (refusal,) = sleep_until(lambda: refusals(cluster, "default/bad"), 240, 1.0)
        assert refusal["gate"] == "opt_in", refusal
        assert "auto_resume_mode is" in refusal["why"], refusal
        assert sleep_until(lambda: closed(cluster, "default/good"), 240, 1.0)[0]["plan"] == "rerun_kubernetes_job"
        assert sleep_until(lambda: closed(cluster, node), 240, 1.0)
    finally:
        kube.tidy()


def opt_in(mode: str) -> str:
    return json.dumps({"APS": {"auto_resume_mode": mode, "note": texts("annotationnote")}})


def hostile_job(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    """An opted-in Job whose first container ends with code as its termination message."""
    job = job_manifest(name)
    job["metadata"]["annotations"] = {
        "mission-control/auto-resume": json.dumps(asked),
        "example.org/note": texts("annotation"),
    }
    pod = job["spec"]["template"]["spec"]
    (main,) = pod["containers"]
    first = {"name": "first", "image": main["image"], "env": [{"name": "TEXT", "value": texts("termination")}]}
    first["command"] = ["sh", "-c", 'printf %s "$TEXT" > /dev/termination-log']
    pod["initContainers"] = [first]
    return job


def running_on(kube: Kubernetes, name: str) -> str:
    """The node of the Job's running pod; empty while there is none."""
    pods = json.loads(kube("get", "pods", "-l", f"job-name={name}", "-o", "json"))["items"]
    return next((pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"), "")
