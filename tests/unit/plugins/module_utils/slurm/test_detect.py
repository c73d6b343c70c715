# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, KINDS, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import JobEnds, parse
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import detect, queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    Job,
    JobState,
    NodeGroup,
    NodeState,
    split_node_state,
)

OURS = "job-recovery #12 node_not_responding"

NODES = [
    ("idle", None, None),
    ("allocated", None, None),
    ("mixed+planned", None, None),
    ("idle+reserved", None, None),
    # silent, in every shape; whose the drain is, the gates say
    ("idle+not_responding", None, "node_not_responding"),
    ("allocated+not_responding", None, "node_not_responding"),
    ("down+not_responding", "Not responding", "node_not_responding"),
    ("idle+drain+not_responding", "ADMIN SHUTDOWN", "node_not_responding"),
    ("down*", "Not responding", "node_not_responding"),
    # silent by wish
    ("idle+reboot_issued+not_responding", None, None),
    ("idle+drain+reboot_requested+not_responding", "kernel update", None),
    ("idle+cloud+powered_down+not_responding", None, None),
    ("idle+powering_up+not_responding", None, None),
    # back
    ("down", "Node unexpectedly rebooted", "node_rebooted"),
    ("down", "Not responding", "node_back"),
    ("down+drain", "Not responding", "node_back"),
    ("idle+drain", "Not responding", None),
    # drained by Slurm itself, alone and joined
    ("idle+drain", "Kill task failed", "node_drained"),
    ("idle+drain", "Kill task failed (JobId=7 StepId=0)", "node_drained"),
    ("idle+drain", "batch job complete failure", "node_drained"),
    ("idle+drain", "Prolog error", "node_drained"),
    ("idle+drain", "Epilog error", "node_drained"),
    ("idle+drain", "Prolog/Epilog failure", "node_drained"),
    ("idle+drain", "Job env setup error", "node_drained"),
    ("idle+drain", "Duplicate jobid", "node_drained"),
    ("allocated+drain", "Kill task failed", "node_drained"),
    ("idle+drain", "Kill task failed, Epilog error", "node_drained"),
    ("idle+drain", "Low RealMemory (reported:1900 < 100.00% of configured:2000)", "node_misconfigured"),
    ("idle+drain", "Low CPUs, Kill task failed", "node_misconfigured"),
    ("idle+drain+invalid_reg", "gres/gpu count reported lower than configured (0 < 8)", "node_misconfigured"),
    ("down+invalid_reg", "Low socket*core*thread count, Low CPUs", "node_misconfigured"),
    ("down", "reboot timed out", "reboot_failed"),
    ("down", "ResumeTimeout reached", "reboot_failed"),
    # a person's or a tool's
    ("idle+drain", "ADMIN SHUTDOWN", None),
    ("idle+drain", "Kill task failed, I look at it on Monday", "node_drained"),
    ("down", "kernel panic, see ticket 7", None),
    ("idle+drain", "NHC: check_fs_mount: /scratch not mounted", None),
    # in our own repair; what comes on top of it is news
    ("down+drain+not_responding", OURS, None),
    ("idle+drain", OURS + " : reboot complete", None),
    ("down+drain", OURS + " : Not responding", None),
    ("idle+drain", OURS + ", Kill task failed", "node_drained"),
    ("idle+drain", OURS + " : Kill task failed", "node_drained"),
    ("down+drain", "ADMIN SHUTDOWN : Not responding", "node_back"),
    # not understood: hands off
    ("down+unheard_of", "Node unexpectedly rebooted", None),
    ("down+?", "Not responding", None),
    ("unknown+not_responding", None, None),
]


@pytest.mark.parametrize(("state", "reason", "kind"), NODES)
def test_node_fault(state, reason, kind):
    base, flags = split_node_state(state.split("+"))
    seen = detect.node_fault(NodeState("node1", base, flags, reason))
    assert (seen.kind if seen else None) == kind
    if seen:
        assert seen.name == "node1"
        assert KINDS[seen.kind].target == NODE


def test_a_node_of_two_partitions_is_one_fault():
    why = "Node unexpectedly rebooted"
    groups = [NodeGroup("node[1-2]", "DOWN", (), why), NodeGroup("node3", "IDLE", (), None),
              NodeGroup("node2", "DOWN", (), why)]
    assert detect.node_faults(groups) == [detect.Seen("node_rebooted", "node1"), detect.Seen("node_rebooted", "node2")]


def job(state, flags=(), submit=100, reason=None, **more):
    return JobState(id=7, state=state, flags=tuple(flags), submit_time=submit, state_reason=reason, **more)


JOBS = [
    (job("RUNNING"), None, None, None),
    (job("FAILED"), job("RUNNING"), "job_failed", None),
    (job("FAILED"), None, "job_failed", None),
    (job("NODE_FAIL"), job("RUNNING"), "job_failed", None),
    (job("BOOT_FAIL"), job("PENDING"), "job_failed", None),
    (job("OUT_OF_MEMORY"), job("RUNNING"), "job_failed", "report"),
    (job("TIMEOUT"), job("RUNNING"), "job_failed", "report"),
    # not over yet
    (job("FAILED", ["COMPLETING"]), job("RUNNING"), None, None),
    (job("PENDING", ["COMPLETING"]), job("RUNNING"), None, None),
    (job("DEADLINE"), job("PENDING"), "job_failed", "report"),
    # what a person ended stays ended
    (job("CANCELLED"), job("RUNNING"), None, None),
    (job("COMPLETED"), job("RUNNING"), None, None),
    (job("PREEMPTED"), job("RUNNING"), None, None),
    # requeued: may have left something behind
    (job("PENDING", submit=200), job("RUNNING"), "stale_spool", None),
    (job("PENDING", submit=200), job("PENDING"), "stale_spool", None),
    (job("PENDING"), None, "stale_spool", None),
    (job("PENDING"), job("PENDING"), None, None),
    (job("PENDING", reason="launch_failed_requeued_held"), job("RUNNING"), "job_launch_held", None),
    (job("PENDING", reason="JobHeldUser"), job("PENDING"), None, None),
]


@pytest.mark.parametrize(("state", "previous", "kind", "suggestion"), JOBS)
def test_job_candidate(state, previous, kind, suggestion):
    seen = detect.job_candidate(state, previous)
    assert (seen.kind if seen else None) == kind
    if seen:
        assert KINDS[seen.kind].target == JOB
        assert detect.suggestion(seen, state, JobEnds()) == suggestion


ENDS = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE")


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize(("wish", "suggestion"), [("requeue", None), ("report", "report")])
def test_what_follows_each_end_is_a_setting(state, wish, suggestion):
    ends = parse({"cluster": "lab", "scope": {"partitions": ["main"]}, "job_ends": {state: wish}}).job_ends
    seen = detect.job_candidate(job(state), job("RUNNING"))
    assert detect.suggestion(seen, job(state), ends) == suggestion
    for other in set(ENDS) - {state}:
        assert ends.of(other) == JobEnds().of(other)


@pytest.mark.parametrize(
    "ends", [{"CANCELLED": "requeue"}, {"COMPLETED": "requeue"}, {"TIMEOUT": "ignore"}, {"TIMEOUT": 1}]
)
def test_a_cancelled_job_cannot_be_asked_for(ends):
    with pytest.raises(BadInput):
        parse({"cluster": "lab", "scope": {"partitions": ["main"]}, "job_ends": ends})
    assert JobEnds().of("CANCELLED") == JobEnds().of("COMPLETED") == JobEnds().of("of") == ""


@pytest.mark.parametrize(("restarted", "kind"), [(True, "stale_spool"), (False, None)])
def test_a_requeued_job_that_completed_may_have_hidden_a_failed_launch(restarted, kind):
    seen = detect.job_candidate(job("COMPLETED"), job("RUNNING"), restarted)
    assert (seen.kind if seen else None) == kind
    assert detect.job_candidate(job("COMPLETED", ["COMPLETING"]), job("RUNNING"), restarted) is None


STUCK = [
    (job("COMPLETING", ["COMPLETING"], end_time=100, nodes=("n1", "n2")), ["n1", "n2"]),
    (job("FAILED", ["COMPLETING"], end_time=100, nodes=("n1",)), ["n1"]),
    (job("COMPLETING", ["COMPLETING"], end_time=101, nodes=("n1",)), []),
    (job("COMPLETING", ["COMPLETING"], end_time=None, nodes=("n1",)), []),
    (job("COMPLETING", ["COMPLETING"], end_time=5000, nodes=("n1",)), []),
    (job("RUNNING", end_time=100, nodes=("n1",)), []),
    (job("COMPLETING", ["COMPLETING"], end_time=100), []),
]


@pytest.mark.parametrize(("state", "nodes"), STUCK)
def test_which_node_keeps_a_job_completing(state, nodes):
    seen = detect.stuck_nodes(state, 1000.0, 899.0)
    assert [(fault.kind, fault.name) for fault in seen] == [("job_stuck_completing", node) for node in nodes]
    assert KINDS["job_stuck_completing"].target == NODE


GRACES = [
    ({"UnkillableStepTimeout": "60 sec", "KillWait": "30 sec"}, 0, 150),
    ({"UnkillableStepTimeout": "60 sec", "KillWait": "30 sec", "Epilog": "(null)"}, 0, 150),
    ({"UnkillableStepTimeout": "180 sec"}, 0, 240),
    ({"UnkillableStepTimeout": "60 sec", "Epilog": "/etc/e.sh", "PrologEpilogTimeout": "65534"}, 0, 720),
    ({"UnkillableStepTimeout": "60 sec", "Epilog[0]": "/etc/e.sh"}, 0, 720),
    ({"UnkillableStepTimeout": "60 sec", "Epilog": "/etc/e.sh", "PrologEpilogTimeout": "40"}, 0, 160),
    ({"UnkillableStepTimeout": "60 sec", "Epilog[0]": "/e", "EpilogTimeout": "50 sec", "PrologEpilogTimeout": "40"},
     0, 170),
    ({"UnkillableStepTimeout": "60 sec"}, 5.0, 5.0),
    ({}, 5.0, 5.0),
    ({}, 0, None),  # nobody knows
    ({"UnkillableStepTimeout": "soon"}, 0, None),
]


@pytest.mark.parametrize(("config", "setting", "grace"), GRACES)
def test_completing_grace(config, setting, grace):
    assert detect.completing_grace(config, setting) == grace


@pytest.mark.parametrize(
    ("age", "interval"),
    [("300 sec", 5.0), ("15 sec", 5.0), ("6 sec", 2.0), ("2 sec", 2 / 3), ("0 sec", 5.0), ("", 5.0)],
)
def test_jobs_are_looked_at_more_often_than_they_are_purged(age, interval):
    assert detect.job_interval({"MinJobAge": age}, 5.0) == pytest.approx(interval)


OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":3}}'
COMMENTS = [
    (OPT_IN, False, True),
    (None, False, False),
    ("", False, False),
    ("my comment", False, False),
    (None, True, True),
    ('{"other":{"auto_resume_mode":"requeue"}}', False, False),
    # broken, but plainly meant: the gate refuses it by name
    ('{"APS":{"auto_resume_mode":"requeue"', False, True),
    ("[" * 100000 + "auto_resume_mode", False, True),
]


@pytest.mark.parametrize(("comment", "everybody", "expected"), COMMENTS, ids=range(len(COMMENTS)))
def test_confirmed_by_comment(comment, everybody, expected):
    candidate = detect.Seen("job_failed", "7", 100)
    assert detect.confirmed(candidate, Job(id=7, state="FAILED", comment=comment), everybody) is expected


@pytest.mark.parametrize(("restarts", "expected"), [(None, False), (0, False), (1, True)])
def test_a_job_that_never_ran_left_nothing_behind(restarts, expected):
    candidate = detect.Seen("stale_spool", "7", 100)
    requeued = Job(id=7, state="PENDING", comment=OPT_IN, restart_count=restarts)
    assert detect.confirmed(candidate, requeued, False) is expected


def test_only_the_leader_of_a_heterogeneous_job():
    candidate = detect.Seen("job_failed", "8", 100)
    assert not detect.confirmed(candidate, Job(id=8, state="FAILED", comment=OPT_IN, het_job_id=7), False)


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (job("FAILED"), "7"),
        (job("FAILED", array_job_id=5, array_task_id=0), "5_0"),
        (job("PENDING", array_job_id=5, array_tasks="1-3"), "7"),
    ],
)
def test_job_name(state, name):
    assert queue.job_name(state) == name


@pytest.mark.parametrize(
    ("previous", "ran", "kind"),
    [
        (None, False, None),  # only submitted
        (None, True, "stale_spool"),
        (job("RUNNING"), False, "stale_spool"),
        (job("PENDING"), True, None),
    ],
)
def test_what_may_have_left_files_behind(previous, ran, kind):
    seen = detect.job_candidate(job("PENDING"), previous, ran=ran)
    assert (seen.kind if seen else None) == kind
