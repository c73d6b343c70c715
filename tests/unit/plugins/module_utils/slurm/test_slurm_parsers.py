# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import (
    models,
    parse_json,
    parse_text,
    values,
)

CAPTURES = pathlib.Path(__file__).parent / "captures"


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def test_idle_node() -> None:
    (node,) = parse_text.parse_nodes(capture("scontrol_node-24.11-idle.txt"))
    assert node == models.Node(
        name="n1", base_state="IDLE", hostname="host-n1", address="10.0.0.11", boot_time=1758466931,
        slurmd_start_time=1758467000, cpus=32, sockets=2, cores_per_socket=8, threads_per_core=2, memory_mb=515000,
        partitions=("main", "debug"), features=("ib", "a100"), gres="gpu:a100:8(S:0-1)", version="24.11.5",
        os="Linux 6.8.0-1029 #32-Ubuntu SMP PREEMPT_DYNAMIC Fri May 23 23:55:03 UTC 2025")


def test_free_text_of_nodes_invents_nothing() -> None:
    first, second = parse_text.parse_nodes(capture("scontrol_node-24.11-free_text.txt"))
    assert (first.reason, first.reason_user, first.reason_time) == (
        "prolog instance=i-0123 job=42: manager down", "root", 1790002931)
    assert first.comment == "a=b c=d"
    assert json.loads(first.extra)["message"] == "OK"
    assert first.boot_time == 1758466931
    assert (second.base_state, second.flags) == ("DOWN", ("DRAIN", "NOT_RESPONDING"))
    assert second.reason == "fan 3 is loud\nplease ask Bob [not root@1] first\nState=IDLE"
    assert (second.reason_user, second.reason_time) == ("bob", 1758466931)
    assert second.boot_time is None
    assert second.version is None


@pytest.mark.parametrize(("text", "expected"), [
    (None, (None, None, None)), ("(null)", (None, None, None)), ("", (None, None, None)),
    ("x [root@5]", ("x", "root", 5)), ("x [a@1] [root@5]", ("x [a@1]", "root", 5)),
    ("no stamp", ("no stamp", None, None)),
    ("x [root@Unknown]", ("x", "root", None)), ("[node_problem] gpu [root@5]", ("[node_problem] gpu", "root", 5)),
    ("State=IDLE BootTime=1 [root@5]", ("State=IDLE BootTime=1", "root", 5)), (" [root@5]", ("", "root", 5)),
    ("x [1060117917@5]", ("x", "1060117917", 5)), ("x [root@5] more", ("x [root@5] more", None, None)),
    ("x [root@5]\nsecond [bob@6]", ("x\nsecond [bob@6]", "root", 5)), ("x\ny [root@5]", ("x\ny [root@5]", None, None)),
    ("x [a b@5]", ("x", "a b", 5)), ("x [root@5 ]", ("x", "root", 5)), ("x[root@5]", ("x[root@5]", None, None)),
])
def test_reason_stamp(text: str, expected: tuple) -> None:
    assert parse_text.split_reason_stamp(text) == expected


@pytest.mark.parametrize("when", [
    "2025-07-21 14:35:22.UTC", "2025-07-21 14:35:22", "21 Jul 14:35", "Yesterday", "14:35:22", "2025-07-21T14:35:22Z",
    "2025-07-21T14:35:22+02:00", "2025-07-21T14:35", "2025-13-21T14:35:22", "1.7e9", "-1758466931", "9" * 20,
])
def test_ambiguous_times_are_refused(when: str) -> None:
    whole = capture("scontrol_node-24.11-idle.txt")
    for key in ("BootTime=1758466931", "SlurmdStartTime=1758467000"):
        text = whole.replace(key, key.partition("=")[0] + "=" + when)
        assert text != whole
        with pytest.raises(Unreadable):
            parse_text.parse_nodes(text)


def test_a_reason_set_at_an_ambiguous_time_is_refused() -> None:
    with pytest.raises(Unreadable):
        parse_text.split_reason_stamp("prolog failed [root@2025-07-21 14:35:22.UTC]")


@pytest.mark.parametrize("name", ["scontrol_node_json-22.05-drained.json", "scontrol_node_json-24.11-drained.json"])
def test_node_of_every_json_version_is_the_same(name: str) -> None:
    (node,) = parse_json.parse_nodes(capture(name))
    assert dataclasses.replace(node, version=None) == models.Node(
        name="n1", base_state="IDLE", flags=("DRAIN",), hostname="n1", address="n1",
        reason="prolog instance=i-0123 job=42: manager down", reason_user="root", reason_time=1758467000,
        boot_time=1758466931, slurmd_start_time=1758466999, cpus=32, sockets=2, cores_per_socket=8,
        threads_per_core=2, memory_mb=515000, partitions=("main",), os="Linux 6.8.0-1029 #32-Ubuntu SMP")
    assert node.version in ("22.05.8", "24.11.5")


@pytest.mark.parametrize(("fields", "state"), [
    ({"state": "idle", "state_flags": ["DRAIN"]}, "IDLE+DRAIN"),
    ({"state": ["IDLE", "DRAIN"]}, "IDLE+DRAIN"),
    ({"state": ["DRAIN", "IDLE"]}, "IDLE+DRAIN"),
    ({"state": "idle+drain"}, "IDLE+DRAIN"),
    ({"state": ["IDLE+DRAIN"]}, "UNKNOWN+IDLE+DRAIN"),
    ({"state": "idle", "state_flags": []}, "IDLE"),
    ({"state": "idle", "state_flags": None}, "IDLE"),
    ({"state": "down*", "state_flags": ["DRAIN"]}, "DOWN+DRAIN+NOT_RESPONDING"),
    ({"state": "mixed", "state_flags": "MAINT"}, "MIXED+MAINTENANCE"),
    ({"state": ["IDLE", "IDLE"]}, "IDLE+IDLE"),
    ({"state": ["IDLE", "FROBNICATED"]}, "IDLE+FROBNICATED"),
    ({"state": ["IDLE", "?"]}, "IDLE+?"),
    ({"state": ["IDLE", ""]}, "IDLE"),
])
def test_a_nodes_state_in_every_form_of_json(fields: dict, state: str) -> None:
    (node,) = parse_json.parse_nodes(json.dumps({"nodes": [{"name": "n1", **fields}]}))
    assert node.state == state
    assert node.understood is (state not in ("UNKNOWN+IDLE+DRAIN", "IDLE+IDLE", "IDLE+FROBNICATED", "IDLE+?"))


@pytest.mark.parametrize(("state", "found", "finished"), [
    ("RUNNING", ("RUNNING", ()), False),
    (["RUNNING"], ("RUNNING", ()), False),
    (["COMPLETED", "COMPLETING"], ("COMPLETED", ("COMPLETING",)), False),
    (["COMPLETING", "COMPLETED"], ("COMPLETED", ("COMPLETING",)), False),
    ("COMPLETED+COMPLETING", ("COMPLETED", ("COMPLETING",)), False),
    ("COMPLETING", ("COMPLETING", ("COMPLETING",)), False),  # older versions hide the base
    (["COMPLETED"], ("COMPLETED", ()), True),
    (["CANCELLED"], ("CANCELLED", ()), True),
    (["FAILED", "FROBNICATED"], ("FAILED", ("FROBNICATED",)), True),
])
def test_a_jobs_state_in_every_form_of_json(state: object, found: tuple, finished: bool) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{"job_id": 7, "job_state": state}]}))
    assert ((job.state, job.flags), job.finished) == (found, finished)


@pytest.mark.parametrize(("key", "value", "field", "expected"), [
    ("exit_code", 256, "exit_code", "1:0"),
    ("exit_code", 9, "exit_code", "0:9"),
    ("exit_code", {"set": True, "infinite": False, "number": 256}, "exit_code", "1:0"),
    ("exit_code", {"return_code": {"set": True, "infinite": False, "number": 1}, "signal": None}, "exit_code", "1:0"),
    ("exit_code", {"return_code": 0, "signal": {"signal_id": 15}}, "exit_code", "0:15"),
    ("exit_code", {"status": ["SUCCESS"]}, "exit_code", "0:0"),
    ("priority", -2, "priority", None),
    ("priority", {"set": False, "infinite": False, "number": 7}, "priority", None),
    ("start_time", 0, "start_time", None),
    ("restart_cnt", 3.0, "restart_count", 3),
])
def test_numbers_of_a_job_in_every_form_of_json(key: str, value: object, field: str, expected: object) -> None:
    record = {"job_id": 7, "job_state": ["FAILED"], key: value}
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [record]}))
    assert getattr(job, field) == expected


@pytest.mark.parametrize(("key", "value"), [
    ("job_id", -7), ("job_id", 0), ("job_id", None), ("job_id", 7.5), ("job_id", "7"), ("job_id", True),
    ("job_id", {"set": False, "infinite": False, "number": 7}),
    ("job_id", {"set": True, "infinite": True, "number": 7}),
    ("job_state", None), ("job_state", []), ("job_state", [7]), ("job_state", {"current": ["RUNNING"]}),
    ("restart_cnt", "2"), ("restart_cnt", -9), ("restart_cnt", float("nan")), ("restart_cnt", [2]),
    ("exit_code", {"signal": 9}), ("exit_code", "0:9"), ("comment", 7), ("nodes", "n[1-"), ("nodes", ["n1"]),
    ("batch_flag", "yes"), ("submit_time", "2025-07-21T14:35:22"),
])
def test_a_job_of_json_that_is_none(key: str, value: object) -> None:
    record = {"job_id": 7, "job_state": ["RUNNING"], key: value}
    with pytest.raises(Unreadable):
        parse_json.parse_jobs(json.dumps({"jobs": [record]}))


@pytest.mark.parametrize(("answer", "said"), [
    ({"errors": [{"error": "Invalid job id specified", "description": "x"}]}, ["Invalid job id specified"]),
    ({"errors": [{"description": "x"}]}, ["x"]), ({"errors": ["x"]}, ["x"]), ({"errors": []}, []),
    ({"errors": None}, []), ({"errors": 7}, []), ({"errors": "x"}, []), ({"errors": {"error": "x"}}, []),
    ({"errors": [None, 7, {}, {"error": [1]}]}, ["None", "7", "None", "a list"]), ([], []), ({}, []),
])
def test_what_an_answer_calls_errors(answer: object, said: list[str]) -> None:
    assert parse_json.errors(json.dumps(answer)) == said


def test_array_task_has_two_ids_and_is_one_job() -> None:
    (job,) = parse_text.parse_jobs(capture("scontrol_job-24.11-array_task.txt"))
    assert (job.id, job.array_job_id, job.array_task_id, job.array_tasks) == (2653326, 2653325, 1, None)
    assert job.name == "train run=7 of 9"
    assert (job.user, job.uid) == ("alice", 1000)
    assert (job.state, job.flags, job.state_reason) == ("RUNNING", (), None)
    assert (job.requeue, job.restart_count, job.batch, job.exit_code) == (True, 2, True, "0:0")
    assert job.nodes == ("n01", "n02")
    assert job.batch_host == "n01"
    assert job.excluded_nodes == ("n8", "n9")
    assert job.comment == '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":3}} k=v1=v2'
    assert job.stdout == "/home/alice/out 1.log"
    assert (job.submit_time, job.begin_time, job.start_time, job.end_time) == (
        1758466900, 1758466901, 1758466931, None)


@pytest.mark.parametrize(("user", "found"), [
    ("alice(1000)", ("alice", 1000)), ("1000(1000)", ("1000", 1000)), ("(null)(1000)", (None, 1000)),
    ("alice de bruin(1000)", ("alice de bruin", 1000)), ("DOMAIN\\alice(1060117917)", ("DOMAIN\\alice", 1060117917)),
    ("alice", ("alice", None)), ("a(1)(2)", ("a(1)", 2)), ("x(%s)" % ("9" * 5000), ("x(%s)" % ("9" * 5000), None)),
])
def test_users_and_groups_with_blanks(user: str, found: tuple) -> None:
    line = "UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A"
    text = capture("scontrol_job-24.11-array_task.txt")
    assert line in text
    text = text.replace(line, "UserId=%s GroupId=domain users(513) MCS_label=N/A" % user)
    (job,) = parse_text.parse_jobs(text)
    assert (job.user, job.uid) == found
    assert job.nodes == ("n01", "n02")


def test_held_job() -> None:
    (job,) = parse_text.parse_jobs(capture("scontrol_job-24.11-pending.txt"))
    assert job.held
    assert job.nodes == ()
    assert job.batch_host is None
    assert job.comment is None
    assert job.state_reason == "launch_failed_requeued_held"


def test_array_that_has_not_started() -> None:
    text = capture("scontrol_job-24.11-pending.txt").replace(
        "JobId=7 ", "JobId=57829110 ArrayJobId=57829110 ArrayTaskId=5-100%3 ")
    (job,) = parse_text.parse_jobs(text)
    assert (job.array_task_id, job.array_tasks) == (None, "5-100%3")


def test_job_of_older_json() -> None:
    (job,) = parse_json.parse_jobs(capture("squeue_json-22.05-running.json"))
    assert (job.id, job.state, job.flags, job.exit_code) == (7, "RUNNING", (), "1:0")
    assert (job.array_job_id, job.array_task_id, job.het_job_id, job.end_time) == (None, None, None, None)
    assert job.comment == "{{ lookup('pipe','id') }}"
    assert job.nodes == ("n01", "n02")


@pytest.mark.parametrize(("description", "reason", "expected", "by_slurm"), [
    ("launch failed requeued held", "JobHeldAdmin", "launch_failed_requeued_held", True),
    ("launch failed requeued held", "JobHeldUser", "launch_failed_requeued_held", True),
    ("job requeued in held state", "JobHeldUser", "job_requeued_in_held_state", False),
    ("", "JobHeldUser", "JobHeldUser", False), ("", "None", None, False),
])
def test_who_holds_a_job_in_json(description: str, reason: str, expected: str, by_slurm: bool) -> None:
    answer = json.loads(capture("squeue_json-24.11.5-cluster.json"))
    answer["jobs"] = [each for each in answer["jobs"] if each["job_id"] == 27]
    answer["jobs"][0].update(state_description=description, state_reason=reason)
    (job,) = parse_json.parse_jobs(json.dumps(answer))
    assert (job.state_reason, job.held, job.held_by_slurm) == (expected, True, by_slurm)


def test_completing_job_has_not_finished() -> None:
    (job,) = parse_json.parse_jobs(capture("squeue_json-24.11-completing.json"))
    assert (job.state, job.flags, job.finished, job.exit_code) == ("COMPLETED", ("COMPLETING",), False, "0:9")
    assert job.comment == "line one\nJobId=9 JobName=forged\n"
    assert job.restart_count == 2
    assert job.excluded_nodes == ("n8", "n9")


def test_text_and_json_of_a_real_cluster_say_the_same_of_nodes() -> None:
    text = parse_text.parse_nodes(capture("scontrol_node-24.11.5-cluster.txt"))
    other = parse_json.parse_nodes(capture("scontrol_node_json-24.11.5-cluster.json"))
    assert [node.name for node in text] == ["node1", "node2", "node3", "node4"]
    # The text form indents the further lines of a reason.
    flat = [dataclasses.replace(node, reason=node.reason and "\n".join(map(str.strip, node.reason.split("\n"))))
            for node in other]
    assert text == flat
    assert (text[2].state, text[2].reason) == ("IDLE+DRAIN", "fan 3 is loud\nState=IDLE [not root@1] first")
    assert text[2].comment == "a=b c=d"
    assert (text[3].state, text[3].reason, text[3].reason_user) == (
        "DOWN+NOT_RESPONDING", "Not responding", "slurm")


def test_text_and_json_of_a_real_cluster_say_the_same_of_jobs() -> None:
    text = {job.id: job for job in parse_text.parse_jobs(capture("scontrol_job-24.11.5-cluster.txt"))}
    other = {job.id: job for job in parse_json.parse_jobs(capture("squeue_json-24.11.5-cluster.json"))}
    assert text == other
    states = {job.state for job in text.values()}
    assert {"RUNNING", "PENDING", "CANCELLED", "COMPLETED", "FAILED"} <= states
    assert any(job.het_job_offset == 1 for job in text.values())
    assert (text[23].het_jobs, text[24].het_jobs, text[25].het_jobs) == ((23, 24), (23, 24), ())
    assert any(job.array_tasks == "2-5%1" for job in text.values())


def test_forged_record_of_a_real_cluster_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        parse_text.parse_jobs(capture("scontrol_job-24.11.5-forged_name.txt"))


def test_sinfo_of_a_real_cluster() -> None:
    groups = parse_text.parse_node_groups((CAPTURES / "sinfo-24.11.5-cluster.txt").read_bytes(), (256, 400, 256))
    states = [state for group in groups for state in group.states]
    assert [(each.name, each.node.state) for each in states] == [
        ("node1", "ALLOCATED"), ("node2", "ALLOCATED"), ("node3", "IDLE+DRAIN"), ("node4", "DOWN+NOT_RESPONDING")]
    assert states[0].reason is None
    assert states[2].reason.startswith("fan 3 is loud")


def test_sinfo_of_ten_thousand_nodes() -> None:
    """What Slurm's short states would show as one group, `drained*`, is two: every flag tells groups apart."""
    groups = parse_text.parse_node_groups((CAPTURES / "sinfo-24.11.5-groups.txt").read_bytes(), (1024, 400, 256))
    found = {group.hosts: ("+".join((group.base_state, *group.flags)), group.reason) for group in groups}
    assert found["node[00001,00009]"] == ("IDLE+DRAIN+NOT_RESPONDING", "aa")
    assert found["node00003"] == ("DOWN+DRAIN+NOT_RESPONDING", "aa")
    assert found["node[00006-00008,00010-10000]"] == ("IDLE+NOT_RESPONDING", "x")
    assert sum(len(group.states) for group in groups) == 10003


FORGERIES = {
    "a second record in the job's name": ("JobName=wrap", "JobName=x\nJobId=9 JobName=forged\n   UserId=root(0)"),
    "a state in the job's name": ("JobName=wrap", "JobName=x\n   JobState=RUNNING Reason=None Dependency=(null)"),
    "a host in the job's name": ("JobName=wrap", "JobName=x\n   BatchHost=victim"),
    "an output path in the comment": ("   StdErr=", "   Comment=x\n   StdOut=/etc/passwd\n   StdErr="),
    "a line before the others": ("JobId=7", "   UserId=root(0)\nJobId=7"),
    "a state in the command": ("   Command=(null)", "   Command=x\n   Requeue=1"),
    "no state at all": ("JobState=PENDING", "Nothing=PENDING"),
    "an id that is none": ("JobId=7 ", "JobId=seven "),
    "a restart count that is none": ("Restarts=1", "Restarts=many"),
    "nodes that are none": ("   NodeList=(null)", "   NodeList=n[1-"),
}


@pytest.mark.parametrize("case", sorted(FORGERIES))
def test_forged_or_damaged_job_is_unreadable(case: str) -> None:
    old, new = FORGERIES[case]
    text = capture("scontrol_job-24.11-pending.txt")
    assert old in text
    with pytest.raises(Unreadable):
        parse_text.parse_jobs(text.replace(old, new, 1))


@pytest.mark.parametrize("keys", [
    "ArrayJobId=99 ArrayTaskId=3", "ArrayTaskId=1-9", "HetJobId=5 HetJobOffset=1", "HetJobId=7", "Comment=no",
    "HetJobIdSet=99-100", "HetJobIdSet=7-8 HetJobId=7",
    "Anything=1 Restarts=9 NodeList=victim JobState=RUNNING", "Power= Reason=x", "ExitCode=9:9", "BatchFlag=0",
])
@pytest.mark.parametrize("text", ["JobName=", "Network=", "StdOut="])
def test_keys_that_a_user_put_behind_a_text_of_his_make_no_other_job(keys: str, text: str) -> None:
    """A forged ArrayJobId would make this job another user's: Slurm's commands are given array and task."""
    whole = capture("scontrol_job-24.11-pending.txt")
    (before,) = parse_text.parse_jobs(whole)
    try:
        (job,) = parse_text.parse_jobs(whole.replace(text, "%sx\n   %s Rest=" % (text, keys), 1))
    except Unreadable:
        return
    assert job.argument == "7"
    texts = {"name": None, "stdout": None, "comment": None}
    assert dataclasses.replace(job, **texts) == dataclasses.replace(before, **texts)


def test_harmless_newline_in_a_comment_is_kept() -> None:
    text = capture("scontrol_job-24.11-array_task.txt").replace("k=v1=v2", "one\ntwo")
    assert parse_text.parse_jobs(text)[0].comment.endswith("one\ntwo")


def test_nothing_found_is_an_empty_list() -> None:
    assert parse_text.parse_nodes("Node n9 not found\n") == []
    assert parse_text.parse_jobs("No jobs in the system\n") == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"nodes": null}', '{"nodes": [1]}', '{"nodes": [{}]}',
                                  '{"nodes": [{"name": "n1"}]}', '{"nodes": [{"name": "n1", "state": []}]}',
                                  '{"nodes": [{"name": "n1", "state": ["IDLE"], "cpus": "many"}]}', '{"nodes": [',
                                  '{"nodes": [{"name": "n1", "state": ["IDLE"], "partitions": [["a"]]}]}',
                                  '{"nodes": [{"name": "n1", "state": ["IDLE"], "boot_time": NaN}]}',
                                  '{"nodes": [{"name": "n1", "state": ["IDLE"], "boot_time": -1e400}]}', "[" * 100_000])
def test_json_that_is_no_answer(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_json.parse_nodes(text)


def sinfo(*rows: tuple[str, str, str]) -> bytes:
    return b"".join(("%-8s%-40s%-20s" % row).encode() + b"\n" for row in rows)


WIDTHS = (8, 40, 20)


def test_sinfo_keeps_every_flag() -> None:
    output = sinfo(("n1", "down+drain+reboot_issued+not_responding", "a reason of Bob's th"),
                   ("n[2,4]", "idle", "none"), ("n3", "mixed", "two\nlines"))
    first, second, third = parse_text.parse_node_groups(output, WIDTHS)
    assert (first.base_state, first.flags) == ("DOWN", ("DRAIN", "NOT_RESPONDING", "REBOOT_ISSUED"))
    assert first.reason_cut
    assert first.reason == "a reason of Bob's th"
    assert (second.hosts, second.base_state, second.flags, second.reason) == ("n[2,4]", "IDLE", (), None)
    assert [state.name for state in second.states] == ["n2", "n4"]
    assert third.reason == "two\nlines"


@pytest.mark.parametrize("output", [b"n1\n", sinfo(("n1", "idle", "none"))[:-1], sinfo(("", "idle", "none")),
                                    sinfo(("n1", "", "none")),
                                    sinfo(("n1", "x" * 40, "none"))])
def test_sinfo_that_is_damaged_or_cut_off(output: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_text.parse_node_groups(output, WIDTHS)


def test_events_of_nodes() -> None:
    output = ("node4|DRAIN|root(0)|1796039217|ours\n"
              "node4|DRAIN|bob(1000)|1796039222|ADMIN SHUTDOWN | a=b\nsecond line\n"
              "node5|DOWN||1796039300|\n")
    first, second, third = parse_text.parse_node_events(output, ["node4", "node5"])
    assert (first.name, first.state, first.user, first.time, first.reason) == (
        "node4", "DRAIN", "root", 1796039217, "ours")
    assert (second.user, second.reason) == ("bob", "ADMIN SHUTDOWN | a=b\nsecond line")
    assert (third.user, third.reason) == (None, None)
    assert parse_text.parse_node_events("", ["node4"]) == []
    with pytest.raises(Unreadable):
        parse_text.parse_node_events("rubbish", ["node4"])


@pytest.mark.parametrize(("limit", "state", "end"), [
    ({"set": True, "infinite": True, "number": 0}, "RUNNING", None),
    ({"set": True, "infinite": False, "number": 60}, "RUNNING", 1758467031),
    ({"set": True, "infinite": True, "number": 0}, "COMPLETED", 1758467031),
])
def test_end_of_a_job_without_a_time_limit(limit: dict, state: str, end: int) -> None:
    answer = json.loads(capture("squeue_json-24.11-completing.json"))
    answer["jobs"][0].update(time_limit=limit, job_state=[state])
    assert parse_json.parse_jobs(json.dumps(answer))[0].end_time == end


COLUMNS = parse_text.Columns(("id", "array_job_id", "array_task", "state", "reason"), "~5eca~")


def line(*cells: str) -> str:
    return "".join(cell + "~5eca~" for cell in cells) + "\n"


def test_squeue_columns() -> None:
    rows = COLUMNS.parse(line("7", "7", "N/A", "RUNNING", "None") + line("9", "8", "1", "PENDING", "a\n7|7|N/A|b")
                         + line("8", "8", "2-5%2", "COMPLETING", "None"))
    first, second, third = map(parse_text.parse_job_state, rows)
    assert (first.id, first.array_job_id, first.state, first.flags) == (7, None, "RUNNING", ())
    assert (second.id, second.array_job_id, second.array_task_id, second.state_reason) == (9, 8, 1, "a\n7|7|N/A|b")
    assert (third.array_tasks, third.state, third.flags) == ("2-5%2", "COMPLETING", ("COMPLETING",))


@pytest.mark.parametrize("output", ["7~5eca~\n", line("7", "7", "N/A", "RUNNING", "None")[:-9], "rubbish",
                                    line("7", "7", "N/A", "RUNNING", "None", "more")])
def test_columns_that_are_not_whole(output: str) -> None:
    with pytest.raises(Unreadable):
        COLUMNS.parse(output)


def test_no_lines() -> None:
    assert COLUMNS.parse("") == []


@pytest.mark.parametrize(("text", "expected"), [
    ("CANCELLED by 1060117917", ("CANCELLED", 1060117917)), ("CANCELLED", ("CANCELLED", None)),
    ("COMPLETED", ("COMPLETED", None)), ("NODE_FAIL", ("NODE_FAIL", None)), ("UNHEARD_OF", ("UNHEARD_OF", None)),
    ("CANCELLED+", ("CANCELLED", None)), ("CANCELLED by 0", ("CANCELLED", 0)), (" FAILED ", ("FAILED", None)),
    ("CANCELLED by 4294967295", ("CANCELLED", 4294967295)), ("OUT_OF_ME+", ("OUT_OF_ME", None)),
])
def test_accounting_state(text: str, expected: tuple) -> None:
    assert parse_text.accounting_state(text) == expected


@pytest.mark.parametrize("text", ["", "by 5", "RUNNING x", "{{ x }}", "CANCELLED by", "CANCELLED by bob", "cancelled",
                                  "CANCELLED by 5 by 6", "CANCELLED\nFAILED", "CANCELLED by " + "9" * 5000])
def test_accounting_state_that_is_none(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_text.accounting_state(text)


def test_accounting_of_a_component() -> None:
    row = {"jobidraw": "124", "jobid": "123+1", "state": "FAILED"}
    record = parse_text.parse_accounting(row)
    assert (record.id, record.het_job_id, record.array_job_id) == (124, 123, None)


@pytest.mark.parametrize(("value", "expected"), [
    (None, ()), ("", ()), ("(null)", ()), ("23-24", (23, 24)), ("23", (23,)), ("23-24,27", (23, 24, 27)),
])
def test_ids(value: str, expected: tuple) -> None:
    assert values.ids(value) == expected


@pytest.mark.parametrize("value", ["x", "1-", "-1", "1-x", "1;2"])
def test_ids_that_are_none(value: str) -> None:
    with pytest.raises(Unreadable):
        values.ids(value)


def test_accounting_of_an_array_task_and_its_step() -> None:
    row = {"jobidraw": "2653326.batch", "jobid": "2653325_1.batch", "state": "CANCELLED by 5", "exitcode": "0:15",
           "nodelist": "None assigned", "submit": "1758466900", "start": "1758466931", "end": "Unknown",
           "jobname": "Unknown", "comment": "N/A"}
    record = parse_text.parse_accounting(row)
    assert (record.id, record.step, record.array_job_id, record.array_task_id) == (2653326, "batch", 2653325, 1)
    assert (record.state, record.cancelled_by, record.nodes, record.end_time) == ("CANCELLED", 5, (), None)
    assert (record.name, record.comment) == ("Unknown", "N/A")


def test_config() -> None:
    real = parse_text.parse_config(capture("scontrol_config-24.11.5.txt"))
    assert (real["SlurmdSpoolDir"], real["SLURM_VERSION"]) == ("/var/spool/slurmd", "24.11.5")
    config = parse_text.parse_config(capture("scontrol_config-24.11.txt"))
    assert config["SlurmdSpoolDir"] == "/var/spool/slurm/%n"
    assert config["MinJobAge"] == "300 sec"
    assert "PrologFlags" not in config


def test_config_that_is_none() -> None:
    with pytest.raises(Unreadable):
        parse_text.parse_config("hello = world\n")
