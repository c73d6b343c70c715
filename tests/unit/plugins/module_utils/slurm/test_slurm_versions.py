# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm 22.05 to 25.11 says of one and the same job, in JSON and in text, and what its users can write into it."""

from __future__ import annotations

import json
import time
from typing import Any, Callable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    TimedOut,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import (
    models,
    parse_json,
    parse_text,
    values,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli

OPT_IN = '{"APS":{"auto_resume_mode":"requeue"}}'


def a_number(value: Optional[int]) -> dict[str, Any]:
    """As of data_parser 0.0.39."""
    return {"set": value is not None, "infinite": False, "number": value or 0}


def old(value: Optional[int]) -> int:
    """Before: plain, 0 or NO_VAL for none."""
    return value or 0


def record(number: Callable[[Optional[int]], Any], state: Any, exit_code: Any, **more: Any) -> dict[str, Any]:
    """The job as an answer has it."""
    return {
        "job_id": 15,
        "job_state": state,
        "array_job_id": number(11),
        "array_task_id": number(4),
        "array_task_string": "",
        "het_job_id": number(0),
        "het_job_offset": number(0),
        "name": "train",
        "user_name": "alice",
        "user_id": 1000,
        "account": "ai",
        "state_reason": "NonZeroExitCode",
        "exit_code": exit_code,
        "nodes": "n[1-2]",
        "batch_host": "n1",
        "restart_cnt": 2,
        "requeue": True,
        "batch_flag": True,
        "comment": OPT_IN,
        "admin_comment": "",
        "standard_output": "/o",
        "standard_error": "/e",
        "submit_time": number(100),
        "eligible_time": number(101),
        "start_time": number(102),
        "end_time": number(103),
        "time_limit": number(60),
        "partition": "main",
        "dependency": "",
        "excluded_nodes": "",
        "required_nodes": "",
        "priority": number(9),
        **more,
    }


CODE_23_02 = {"status": "ERROR", "return_code": 3}
CODE_23_11 = {"status": ["ERROR"], "return_code": a_number(3), "signal": {"signal_id": a_number(None), "name": ""}}
CODE_24_05 = {"status": ["ERROR"], "return_code": a_number(3), "signal": {"id": a_number(None), "name": ""}}

JSON = {
    "22.05": record(old, "FAILED", 3 << 8, batch_flag=True, requeue=1),
    "22.05 with nulls": record(old, "FAILED", 3 << 8, admin_comment=None, dependency=None, required_nodes=None),
    "23.02": record(a_number, "FAILED", CODE_23_02),
    "23.11": record(a_number, ["FAILED"], CODE_23_11, state_description=""),
    "24.05": record(a_number, ["FAILED"], CODE_24_05, state_description=""),
    "24.11": record(a_number, ["FAILED"], CODE_24_05, het_job_id_set="", submit_line="sbatch x"),
    "25.05": record(a_number, ["FAILED"], CODE_24_05, stdout_expanded="/o", stderr_expanded="/e"),
    "25.11": record(a_number, ["FAILED"], CODE_24_05, licenses_allocated="", unheard_of={"set": True}),
}
JOB = models.Job(
    id=15, state="FAILED", array_job_id=11, array_task_id=4, name="train", user="alice", uid=1000, account="ai",
    state_reason="NonZeroExitCode", exit_code="3:0", nodes=("n1", "n2"), batch_host="n1", restart_count=2, requeue=True,
    batch=True, comment=OPT_IN, stdout="/o", stderr="/e", submit_time=100, begin_time=101, start_time=102, end_time=103,
    partition="main", priority=9,
)


@pytest.mark.parametrize("version", JSON)
def test_json_of_every_version_is_the_same_job(version: str) -> None:
    assert parse_json.parse_jobs(json.dumps({"jobs": [JSON[version]]})) == [JOB]


TEXT = """JobId=15 ArrayJobId=11 ArrayTaskId=4 {throttle}JobName=train
   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A
   Priority=9 Nice=0 Account=ai QOS=normal{wckey}
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=3:0
   RunTime=00:00:01 TimeLimit=01:00:00 TimeMin=N/A
   SubmitTime=100 EligibleTime=101
   AccrueTime=101
   StartTime=102 EndTime=103 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=102 Scheduler=Main
   Partition=main AllocNode:Sid=head:77
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
{tres}
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) {licenses}Network=(null)
   Command=/home/alice/x.sh
{submit}   WorkDir=/home/alice
   Comment={comment}
   StdErr=/e
   StdIn=/dev/null
   StdOut=/o
{tail}
"""
NEW_TRES = "   ReqTRES=cpu=2,mem=2M,node=2,billing=2\n   AllocTRES=cpu=2,node=2,billing=2"
USUAL = {"throttle": "", "wckey": "", "tres": NEW_TRES, "licenses": "", "submit": "", "tail": "", "comment": OPT_IN}
TEXTS: dict[str, dict[str, str]] = {
    "22.05": {"tres": "   TRES=cpu=2,mem=2M,node=2,billing=2", "tail": "   Power="},
    "23.02": {"tail": "   Power=\n   "},
    "23.11": {"tail": "   TresPerTask=cpu=1", "throttle": "ArrayTaskThrottle=1 "},
    "24.05": {"tail": "   TresPerTask=cpu=1\n", "wckey": " WCKey=*"},
    "24.11": {"comment": OPT_IN + " "},  # this version puts a blank behind it
    "25.05": {"licenses": "LicensesAlloc=(null) ", "submit": "   SubmitLine=sbatch -J train x.sh\n"},
    "25.11": {"licenses": "LicensesAlloc=(null) ", "tail": "   UnheardOf=1 More=2"},
}


@pytest.mark.parametrize("version", TEXTS)
def test_text_of_every_version_is_the_same_job(version: str) -> None:
    text = TEXT.format(**{**USUAL, **TEXTS[version]})
    assert parse_text.parse_jobs(text) == [JOB]


STATES = [
    ("RUNNING", "RUNNING", (), False),
    (["RUNNING"], "RUNNING", (), False),
    ("COMPLETED", "COMPLETED", (), True),
    (["COMPLETED", "COMPLETING"], "COMPLETED", ("COMPLETING",), False),
    (["COMPLETING", "COMPLETED"], "COMPLETED", ("COMPLETING",), False),
    (["PENDING", "REQUEUED", "COMPLETING"], "PENDING", ("COMPLETING", "REQUEUED"), False),
    (["PENDING", "REQUEUE_HOLD", "LAUNCH_FAILED"], "PENDING", ("LAUNCH_FAILED", "REQUEUE_HOLD"), False),
    (["RUNNING", "CONFIGURING"], "RUNNING", ("CONFIGURING",), False),
    (["NODE_FAIL"], "NODE_FAIL", (), True),
    (["FAILED", "SPECIAL_EXIT"], "FAILED", ("SPECIAL_EXIT",), True),
]


@pytest.mark.parametrize(("told", "state", "flags", "finished"), STATES)
def test_states_of_jobs(told: Any, state: str, flags: tuple, finished: bool) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], "job_state": told}]}))
    assert (job.state, job.flags, job.understood, job.finished) == (state, flags, True, finished)


@pytest.mark.parametrize("told", [["FROBNICATED"], ["RUNNING", "FROBNICATED"], "FROBNICATED"])
def test_an_unknown_state_is_not_understood(told: Any) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], "job_state": told}]}))
    assert not job.understood


@pytest.mark.parametrize("told", [[], None, 5, [5], {"RUNNING": True}])
def test_a_state_that_is_none_is_unreadable(told: Any) -> None:
    with pytest.raises(Unreadable):
        parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], "job_state": told}]}))


NO_NUMBERS = [
    None,
    {"set": False, "infinite": False, "number": 7},
    {"set": True, "infinite": True, "number": 7},
    {"set": True, "infinite": False, "number": 4294967294},
    4294967294,
]


@pytest.mark.parametrize("told", NO_NUMBERS)
@pytest.mark.parametrize(
    ("key", "field"),
    [("restart_cnt", "restart_count"), ("submit_time", "submit_time"), ("start_time", "start_time"),
     ("array_task_id", "array_task_id"), ("priority", "priority"), ("eligible_time", "begin_time")],
)
def test_words_for_no_number(told: Any, key: str, field: str) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], key: told}]}))
    assert getattr(job, field) is None


@pytest.mark.parametrize("word", ["NONE", "N/A", "None", "Unknown", "(null)", "n/a", ""])
@pytest.mark.parametrize(("key", "field"), [("state_reason", "state_reason"), ("batch_host", "batch_host"),
                                            ("dependency", "dependency"), ("partition", "partition")])
def test_words_for_nothing(word: str, key: str, field: str) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], key: word}]}))
    assert getattr(job, field) is None


IDS = [
    ("57829110", (57829110, None, None, None, None), "57829110"),
    ("57829110_[5-100]", (57829110, None, None, None, None), "57829110"),
    ("123456_[9201-10000%500]", (123456, None, None, None, None), "123456"),
    ("123456_[1,3,5-7:2...]", (123456, None, None, None, None), "123456"),
    ("715219_23.batch", (715219, 23, None, "batch", None), "715219_23"),
    ("715219_23", (715219, 23, None, None, None), "715219_23"),
    ("715219_0", (715219, 0, None, None, None), "715219_0"),
    ("123.extern", (123, None, None, "extern", None), "123"),
    ("123.0", (123, None, None, "0", None), "123"),
    ("123+1", (123, None, 1, None, None), "123+1"),
    ("123+0.1", (123, None, 0, "1", None), "123+0"),
    ("123;clusterA", (123, None, None, None, "clusterA"), None),
    (" 123 ", (123, None, None, None, None), "123"),
]


@pytest.mark.parametrize(("text", "parts", "argument"), IDS)
def test_ids_of_jobs(text: str, parts: tuple, argument: Optional[str]) -> None:
    ref = values.job_ref(text)
    assert (ref.id, ref.task, ref.het_offset, ref.step, ref.cluster) == parts
    if argument is None:
        with pytest.raises(BadInput):
            assert ref.argument
    else:
        assert ref.argument == argument


NO_IDS = ["", "0", "-1", "x", "1x", "1_", "1_x", "1+", "1;", "1 2", "1,2", "1_[", "{{ 1 }}", "1\n2", "$(id)", "1;a b",
          "9" * 11, "--all"]


@pytest.mark.parametrize("text", NO_IDS)
def test_what_is_no_id_of_a_job(text: str) -> None:
    with pytest.raises(BadInput):
        values.job_ref(text)


HOSTILE = ["{{ lookup('pipe','id') }}", "$(id)`id`", "' OR 1=1 --", '"; rm -rf /', "\x1b[2J\x07", "<script>", "a=b c=d",
           "JobState=RUNNING", "x\n   JobState=RUNNING", "x\nJobId=9 JobName=y", "\u202e", "|~;,", "N/A", "%s%n"]
FREE_TEXTS = [("name", "name"), ("comment", "comment"), ("admin_comment", "admin_comment")]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(("key", "field"), FREE_TEXTS)
def test_json_keeps_what_users_wrote_and_nothing_else_changes(text: str, key: str, field: str) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], key: text}]}))
    expected = {name: getattr(JOB, name) for name in JOB.__dataclass_fields__}
    assert {name: getattr(job, name) for name in JOB.__dataclass_fields__} == {**expected, field: text}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(("key", "field"), [("JobName=train", "name"), ("Comment=" + OPT_IN, "comment")])
def test_text_is_read_right_or_not_at_all(text: str, key: str, field: str) -> None:
    told = TEXT.format(**USUAL).replace(key, key.partition("=")[0] + "=" + text)
    try:
        jobs = parse_text.parse_jobs(told)
    except Unreadable:
        return
    assert len(jobs) == 1
    for name in JOB.__dataclass_fields__:
        if name != field:
            assert getattr(jobs[0], name) == getattr(JOB, name), name


@pytest.mark.parametrize("nodes", ["n[1-", "n1]", "n[1-2", "n[0-99999999]", "n[5-1]"])
def test_nodes_that_are_none_are_unreadable_at_once(nodes: str) -> None:
    began = time.monotonic()
    with pytest.raises(Unreadable):
        parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], "nodes": nodes}]}))
    assert time.monotonic() - began < 1


NODES = [("(null)", ()), ("None assigned", ()), ("", ()), ("n[9-10]", ("n9", "n10")), ("n[09-10]", ("n09", "n10")),
         ("solo", ("solo",))]


@pytest.mark.parametrize(("nodes", "expected"), NODES)
def test_nodes_of_jobs(nodes: str, expected: tuple) -> None:
    (job,) = parse_json.parse_jobs(json.dumps({"jobs": [{**JSON["24.11"], "nodes": nodes}]}))
    assert job.nodes == expected


CALLS: dict[str, Callable[[SlurmCli], Any]] = {
    "jobs": lambda slurm: slurm.jobs([7]),
    "jobs_on": lambda slurm: slurm.jobs_on(["n1"]),
    "job_states": lambda slurm: slurm.job_states(),
    "waiting_jobs": lambda slurm: slurm.waiting_jobs(1000),
    "accounting": lambda slurm: slurm.accounting([7]),
    "submissions": lambda slurm: slurm.submissions([1000], 100),
    "requeue": lambda slurm: slurm.requeue(7),
    "release": lambda slurm: slurm.release(7),
    "update_job": lambda slurm: slurm.update_job(7, admin_comment="x"),
    "config": lambda slurm: slurm.config(),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_command_about_jobs_has_a_deadline(fake: Any, name: str) -> None:
    for tool in ("scontrol", "squeue", "sacct"):
        fake.program(tool, "exec sleep 60")
    began = time.monotonic()
    with pytest.raises(TimedOut):
        CALLS[name](SlurmCli(fake.bin_dir, timeout=0.3))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", CALLS)
def test_every_command_about_jobs_tells_times_that_are_not_ambiguous(
    fake: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    for tool in ("scontrol", "squeue", "sacct"):
        fake.program(tool, 'env > %s/env; exit 5' % fake.folder)
    with pytest.raises(Exception, match="rc 5"):
        CALLS[name](SlurmCli(fake.bin_dir))
    told = dict(line.split("=", 1) for line in (fake.folder / "env").read_text().splitlines() if "=" in line)
    assert (told["SLURM_TIME_FORMAT"], told["TZ"], told["LC_ALL"]) == ("%s", "UTC", "C")
    assert not {"SQUEUE_STATES", "SACCT_FORMAT"} & set(told)
