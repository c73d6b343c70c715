# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.jobs import (
    new_job,
    plan_rerun,
    rerun_name,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    JOB_ANNOTATION,
    OPT_IN_ANNOTATION,
    JobState,
    JobView,
    Origin,
    PodView,
)
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

JOB = "/apis/batch/v1/namespaces/a/jobs/train"
JOBS = "/apis/batch/v1/namespaces/a/jobs"
OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":3}}'


def server_job(state="Failed", **metadata):
    """As kube-apiserver 1.36 answers it, shortened."""
    labels = {
        "batch.kubernetes.io/controller-uid": "u1",
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": "u1",
        "job-name": "train",
        "team": "a",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": dict(
            {
                "name": "train",
                "namespace": "a",
                "uid": "u1",
                "creationTimestamp": "2026-11-30T10:00:00Z",
                "generation": 1,
                "labels": {"team": "a"},
                "annotations": {
                    OPT_IN_ANNOTATION: OPT_IN,
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                    "batch.kubernetes.io/job-tracking": "",
                    "note": "{{ lookup('pipe','touch /tmp/x') }}",
                },
                "managedFields": [{"manager": "kubectl"}],
            },
            **metadata,
        ),
        "spec": {
            "backoffLimit": 0,
            "completionMode": "Indexed",
            "completions": 16,
            "parallelism": 16,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}},
            "manualSelector": False,
            "ttlSecondsAfterFinished": 100,
            "template": {
                "metadata": {"creationTimestamp": None, "labels": labels, "annotations": {"x": "y"}},
                "spec": {"containers": [{"name": "c", "image": "i", "args": ["$(touch /tmp/x)", "a\nb"]}]},
            },
        },
        "status": {"failed": 1, "conditions": [{"type": state, "status": "True", "reason": "BackoffLimitExceeded"}]},
    }


@pytest.mark.parametrize(
    ("name", "attempt", "completions", "expected"),
    [
        ("train", 1, None, "train-bb8203-r1"),
        ("train", 12, None, "train-bb8203-r12"),
        ("x" * 63, 1, None, "x" * 53 + "-bb8203-r1"),
        ("x" * 63, 1, 16, "x" * 50 + "-bb8203-r1"),
        ("x" * 52 + "-tail", 1, None, "x" * 52 + "-bb8203-r1"),
        ("a.b", 1, None, "a.b-bb8203-r1"),
    ],
)
def test_the_name_of_a_rerun(name, attempt, completions, expected):
    made = rerun_name(Origin("u1", name), attempt, completions)
    assert made == expected
    assert len(made) + (len("-%d" % (completions - 1)) if completions else 0) <= 63


def test_jobs_of_one_name_and_two_uids_get_two_names():
    assert rerun_name(Origin("u1", "train"), 1) != rerun_name(Origin("u2", "train"), 1)


def test_a_new_job_has_all_of_the_users_and_nothing_of_the_servers():
    old = server_job()
    made = new_job(old, "train-x-r1", Origin("u1", "train", "u1", 1))
    assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}
    assert made["metadata"]["labels"] == {"team": "a"}
    assert set(made["metadata"]["annotations"]) == {OPT_IN_ANNOTATION, JOB_ANNOTATION, "note"}
    assert "selector" not in made["spec"]
    assert "manualSelector" not in made["spec"]
    assert made["spec"]["template"]["metadata"] == {"labels": {"team": "a"}, "annotations": {"x": "y"}}
    assert made["spec"]["template"]["spec"] == old["spec"]["template"]["spec"]
    assert (made["spec"]["ttlSecondsAfterFinished"], made["spec"]["completions"]) == (100, 16)
    assert old == server_job()  # and the old one is as it was


@pytest.mark.parametrize(
    ("changed", "labels"),
    [
        ({"batch.kubernetes.io/controller-uid": "u1", "batch.kubernetes.io/job-name": "train"}, None),
        ({"controller-uid": "u1", "job-name": "train"}, None),
        ({"job-name": "mine", "app": "x", "controller": "y", "batch.kubernetes.io/other": "z"},
         {"app": "x", "controller": "y", "batch.kubernetes.io/other": "z"}),
        (None, None),
        ({}, None),
    ],
)
def test_labels_of_the_server_go_in_both_spellings_and_in_both_places(changed, labels):
    old = server_job(labels=changed)
    old["spec"]["template"]["metadata"] = {"labels": changed, "annotations": None}
    made = new_job(old, "x", Origin("u1", "train", "u1", 1))
    assert made["metadata"].get("labels") == labels
    assert made["spec"]["template"]["metadata"].get("labels") == labels


def test_a_job_without_metadata_in_its_template_or_with_a_selector_of_its_own():
    old = server_job()
    del old["spec"]["template"]["metadata"]
    old["spec"].update(manualSelector=True, suspend=False, selector={"matchLabels": {"app": "x"}})
    made = new_job(old, "x", Origin("u1", "train", "u1", 1))
    assert not {"selector", "manualSelector"}.intersection(made["spec"])
    assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"completionMode": "Indexed", "completions": 16}, 16),
        ({"completionMode": "NonIndexed", "completions": 16}, None),
        ({"completions": 16}, None),
        ({"completionMode": "Indexed"}, None),
        ({"completionMode": "Indexed", "completions": "16"}, None),
        (None, None),
    ],
)
def test_completions_of_an_indexed_job(spec, wanted):
    assert jobs.completions_of({"spec": spec}) == wanted


@pytest.mark.parametrize(
    ("spec", "succeeded", "told"),
    [
        ({"completionMode": "Indexed", "completions": 16}, "0-3,7", "the indexes 0-3,7 had succeeded and run again"),
        ({"completionMode": "Indexed", "completions": 16}, "", ""),
        ({"completionMode": "Indexed", "completions": 16}, None, ""),
        ({"completionMode": "Indexed", "completions": 16}, "0," * 5000, "the indexes %s had succeeded" % ("0," * 30)),
        ({"completions": 16}, "0-3", ""),
    ],
)
def test_indexes_that_run_again_although_they_had_succeeded_are_told(spec, succeeded, told):
    made = jobs.runs_whole({"spec": spec, "status": {"completedIndexes": succeeded}})
    assert made.startswith(told)
    assert bool(made) == bool(told)


def test_a_rerun_tells_which_indexes_run_again(api, kubeconfig):
    job = server_job()
    job["status"]["completedIndexes"] = "0-3"
    api.put(JOB, job)
    foreseen, done = (jobs.run(params(kubeconfig), check)["results"][0]["why"] for check in (True, False))
    assert foreseen == done
    assert done.startswith("the indexes 0-3 had succeeded")


def view(**fields):
    return JobView(**dict({"namespace": "a", "name": "train", "uid": "u1", "state": JobState.FAILED}, **fields))


ALIVE = PodView("a", "train-0", node="node1", phase="Running")
PLANS = [
    (view(), {}, "done", "train-bb8203-r1"),
    (view(state=JobState.FAILING), {}, "done", "train-bb8203-r1"),
    (view(), {"uid": "u1"}, "done", "train-bb8203-r1"),
    (view(), {"uid": "u0"}, "refused", None),
    (view(deleted=True), {}, "refused", None),
    (view(owner="CronJob/nightly"), {}, "refused", None),
    (view(state=JobState.COMPLETE), {}, "refused", None),
    (view(state=JobState.RUNNING), {}, "refused", None),
    (view(state=JobState.SUSPENDED), {}, "refused", None),
    (view(record=Origin("u1", "train", rerun_as="train-bb8203-r1").as_text()), {}, "done", None),
    # the second rerun is named by the first Job of the chain
    (
        view(uid="u2", name="train-bb8203-r1", record=Origin("u1", "train", "u1", 1).as_text()),
        {},
        "done",
        "train-bb8203-r2",
    ),
    (view(record=Origin("u1", "train", "u1", 3).as_text()), {"max_attempts": 3}, "refused", None),
    (view(record=Origin("u1", "train", "u1", 2).as_text()), {"max_attempts": 3}, "done", "train-bb8203-r3"),
    # nobody knows whether the pods on a silent node run: two Jobs on one checkpoint
    (view(state=JobState.FAILING), {"pods": [ALIVE]}, "waiting", None),
    (view(state=JobState.FAILING), {"pods": [ALIVE], "nodes_proved_off": ["node1"]}, "done", "train-bb8203-r1"),
    (view(), {"pods": [PodView("a", "p", node="node1", phase="Failed")]}, "done", "train-bb8203-r1"),
    (view(), {"pods": [PodView("a", "p", phase="Pending")]}, "done", "train-bb8203-r1"),
]


@pytest.mark.parametrize(("job", "arguments", "outcome", "name"), PLANS)
def test_whether_a_job_runs_again(job, arguments, outcome, name):
    plan = plan_rerun(job, **dict({"uid": "", "pods": []}, **arguments))
    assert (plan.status, plan.name) == (outcome, name)
    assert plan.why or name


# ---- against a server ----


def params(kubeconfig, **more):
    defaults = {
        "jobs": [{"job": "a/train", "uid": ""}],
        "state": "rerun",
        "max_attempts": 0,
        "nodes_proved_off": [],
        "tolerate": True,
        "context": "",
        "request_timeout": 5,
    }
    return dict(defaults, kubeconfig=kubeconfig, **more)


def created(api):
    return [request for request in api.requests if request.startswith("POST")]


def test_run_again_twice_makes_one_job(api, kubeconfig):
    api.put(JOB, server_job())
    first = jobs.run(params(kubeconfig), False)
    second = jobs.run(params(kubeconfig), False)
    name = rerun_name(Origin("u1", "train"), 1, 16)
    assert first["results"] == [
        {
            "name": "a/train",
            "status": "done",
            "why": "",
            "before": {"rerun_as": ""},
            "after": {"rerun_as": name},
            "new": name,
        }
    ]
    assert (first["changed"], second["changed"], len(created(api))) == (True, False, 1)
    assert second["results"][0]["new"] == name
    assert json.loads(api.see("%s/%s" % (JOBS, name))["metadata"]["annotations"][JOB_ANNOTATION]) == {
        "origin": "u1",
        "name": "train",
        "previous": "u1",
        "attempt": 1,
    }
    assert json.loads(api.see(JOB)["metadata"]["annotations"][JOB_ANNOTATION])["rerun_as"] == name


def test_killed_between_the_two_writes(api, kubeconfig):
    api.put(JOB, server_job())
    jobs.run(params(kubeconfig), False)
    api.put(JOB, server_job())  # as if the old Job had never been marked
    assert jobs.run(params(kubeconfig), False)["results"][0]["status"] == "done"
    assert "rerun_as" in api.see(JOB)["metadata"]["annotations"][JOB_ANNOTATION]


def test_a_new_job_that_a_person_deleted_stays_deleted(api, kubeconfig):
    api.put(JOB, server_job())
    name = jobs.run(params(kubeconfig), False)["results"][0]["new"]
    api.take("%s/%s" % (JOBS, name))
    jobs.run(params(kubeconfig), False)
    assert len(created(api)) == 1


def test_a_job_of_the_name_that_is_not_ours_is_in_the_way(api, kubeconfig):
    api.put(JOB, server_job())
    api.put("%s/%s" % (JOBS, rerun_name(Origin("u1", "train"), 1, 16)), server_job(uid="u9", name="x"))
    result = jobs.run(params(kubeconfig), False)["results"][0]
    assert (result["status"], result["new"]) == ("failed", "")
    assert JOB_ANNOTATION not in api.see(JOB)["metadata"]["annotations"]


def test_check_mode_writes_nothing(api, kubeconfig):
    api.put(JOB, server_job())
    foreseen = jobs.run(params(kubeconfig), True)
    assert api.bodies == []
    assert jobs.run(params(kubeconfig), False) == foreseen


def test_pods_of_the_job_that_may_run_hold_it_up(api, kubeconfig):
    api.put(JOB, server_job("FailureTarget"))
    owner = [{"kind": "Job", "name": "train", "uid": "u1", "controller": True}]
    pod = {
        "kind": "Pod",
        "metadata": {"labels": {"controller-uid": "u1"}, "ownerReferences": owner},
        "spec": {"nodeName": "node1"},
        "status": {"phase": "Running"},
    }
    api.put("/api/v1/namespaces/a/pods/train-0", pod)
    assert jobs.run(params(kubeconfig), False)["results"][0]["status"] == "waiting"
    assert jobs.run(params(kubeconfig, nodes_proved_off=["node1"]), False)["results"][0]["status"] == "done"


def test_a_job_that_is_gone_is_refused_and_a_server_that_is_gone_is_a_failure(api, kubeconfig):
    assert jobs.run(params(kubeconfig), False)["results"][0]["status"] == "refused"
    api.tell("GET", JOB, 503, status(503))
    assert jobs.run(params(kubeconfig), False)["results"][0]["status"] == "failed"


def test_a_job_that_is_deleted_in_the_middle_needs_no_mark(api, kubeconfig):
    api.put(JOB, server_job())
    name = rerun_name(Origin("u1", "train"), 1, 16)
    api.tell("POST", JOBS, 201, server_job(name=name), before=lambda: api.take(JOB))
    assert jobs.run(params(kubeconfig), False)["results"][0]["status"] == "done"
    assert api.see(JOB) is None


def test_wrong_use(kubeconfig):
    for wanted in ([], [{"job": "train"}], [{"job": "a/../../x"}], [{"job": "a/b/c"}], [{"job": "a/{{x}}"}]):
        with pytest.raises(BadInput):
            jobs.run(params(kubeconfig, jobs=wanted), False)


def test_undone_fails_unless_tolerated(api, kubeconfig):
    with pytest.raises(RecoveryError, match="a/train refused: it is gone") as caught:
        jobs.run(params(kubeconfig, tolerate=False), False)
    assert caught.value.fields["results"][0]["status"] == "refused"
