# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import time
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import commands
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import (
    AsyncSlurmCli,
    SlurmCli,
    environment,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

CAPTURES = pathlib.Path(__file__).parent / "captures"
NODE = {"state": ["IDLE"], "boot_time": 1}
JOB = {"job_id": 7, "job_state": ["RUNNING"], "nodes": "n[1-2]", "restart_cnt": 0}


def says(fake: Any, tool: str, stdout: str = "", stderr: str = "", rc: int = 0) -> None:
    (fake.folder / "out").write_text(stdout, encoding="utf-8")
    (fake.folder / "err").write_text(stderr, encoding="utf-8")
    fake.program(tool, "cat %s/out; cat %s/err >&2; exit %d" % (fake.folder, fake.folder, rc))


@pytest.mark.parametrize(("stderr", "error", "cause"), [
    ("slurm_load_node error: Unable to contact slurm controller (connect failure)", Unreachable, "unreachable"),
    ("slurm_load_node error: Socket timed out on send/recv operation", Unreachable, "unreachable"),
    ("slurm_load_node error: Zero Bytes were transmitted or received", Unreachable, "unreachable"),
    ("slurm_load_node error: Slurm backup controller in standby mode", Unreachable, "unreachable"),
    ("scontrol: fatal: Could not establish a configuration source", Unreachable, "unreachable"),
    ("slurm_load_node error: Protocol authentication error", Forbidden, "authentication"),
    ("slurm_load_node error: Access/permission denied", Forbidden, "forbidden"),
    ("slurm_update error: Invalid user id", Forbidden, "forbidden"),
    ("slurm_update error: Something nobody has heard of", RecoveryError, "failed"),
])
def test_complaints(fake: Any, stderr: str, error: type[RecoveryError], cause: str) -> None:
    says(fake, "scontrol", stderr=stderr, rc=1)
    with pytest.raises(RecoveryError) as caught:
        SlurmCli(fake.bin_dir).nodes(["n1"])
    assert caught.type is error
    assert caught.value.fields["cause"] == cause
    assert caught.value.fields["rc"] == 1
    assert caught.value.fields["stderr"] == stderr


@pytest.mark.parametrize(("stderr", "error", "cause"), [
    ("Requested operation is presently disabled for job 7", Conflict, "requeue_disabled"),
    ("Only batch jobs are accepted or processed for job 7", Conflict, "not_batch"),
    ("Job is pending execution for job 7", Conflict, "pending"),
    ("Job not heterogeneous job leader for job 7", Conflict, "not_het_leader"),
    ("Invalid user id for job 7", Forbidden, "forbidden"),
    ("Invalid job id specified for job 7", Absent, "absent"),
    ("Access/permission denied for job 7", Forbidden, "forbidden"),
    ("Job/step already completing or completed for job 7", Conflict, "ended"),
    ("Operation only allowed on leader job of heterogeneous job for job 7", Conflict, "not_het_leader"),
    ("Requeue is not supported for heterogeneous job 7", Conflict, "not_het_leader"),
    ("slurm_requeue error: Only batch jobs are accepted or processed", Conflict, "not_batch"),
    ("scontrol: error: JOB IS PENDING EXECUTION", Conflict, "pending"),
    ("Job is pending execution\nJob is pending execution", Conflict, "pending"),
    ("Unable to contact slurm controller (connect failure)", Unreachable, "unreachable"),
    ("\x1b[31mRequested operation is presently disabled\x1b[0m", Conflict, "requeue_disabled"),
    ("Nobody has heard of this for job 7", RecoveryError, "failed"),
    ("", RecoveryError, "failed"),
    ("x" * 100_000, RecoveryError, "failed"),
    ("\xff\xfe {{ lookup('pipe','id') }}", RecoveryError, "failed"),
])
def test_complaints_about_a_requeue(fake: Any, stderr: str, error: type[RecoveryError], cause: str) -> None:
    says(fake, "scontrol", stderr=stderr, rc=1)
    with pytest.raises(RecoveryError) as caught:
        SlurmCli(fake.bin_dir).requeue(7)
    assert caught.type is error
    assert caught.value.fields["cause"] == cause
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


def test_a_reboot_by_slurm_names_neither_asap_nor_a_next_state(fake: Any) -> None:
    fake.program("scontrol", 'test "$*" = "reboot n[1-2]" || exit 97')
    SlurmCli(fake.bin_dir).reboot_nodes(["n1", "n2"])
    with pytest.raises(BadInput):
        SlurmCli(fake.bin_dir).reboot_nodes([])


def test_nodes_by_one_call_in_the_order_asked_for(fake: Any) -> None:
    fake.world({"nodes": {"n1": NODE, "n2": NODE, "n3": NODE, "n4": NODE}})
    nodes = SlurmCli(fake.bin_dir).nodes(["n3", "n1", "n2", "n3"])
    assert [node.name for node in nodes] == ["n3", "n1", "n2"]
    assert fake.calls() == [["scontrol", "--all", "--json", "show", "node", "n[1-3]"]]
    assert len(SlurmCli(fake.bin_dir).nodes()) == 4


def test_a_node_that_is_not_there(fake: Any) -> None:
    fake.world({"nodes": {"n1": NODE}})
    with pytest.raises(Absent, match="n9") as caught:
        SlurmCli(fake.bin_dir).nodes(["n1", "n9"])
    assert caught.value.fields["names"] == ["n9"]
    assert [node.name for node in SlurmCli(fake.bin_dir).nodes(["n1", "n9"], missing_ok=True)] == ["n1"]


def test_no_names_ask_nothing(fake: Any) -> None:
    assert SlurmCli(fake.bin_dir).nodes([]) == []
    assert SlurmCli(fake.bin_dir).jobs([]) == []
    assert SlurmCli(fake.bin_dir).jobs_on([]) == []
    assert fake.calls() == []


@pytest.mark.parametrize("name", ["-x", "n1;id", "ALL", "all", "n 1", "", "n[1-2]"])
def test_names_that_never_reach_slurm(fake: Any, name: str) -> None:
    with pytest.raises(BadInput):
        SlurmCli(fake.bin_dir).update_node([name], "DOWN", "x")
    with pytest.raises(BadInput):
        SlurmCli(fake.bin_dir).nodes([name])
    assert fake.calls() == []


@pytest.mark.parametrize("job", ["-1", "7;id", "all", "", "7 8"])
def test_jobs_that_never_reach_slurm(fake: Any, job: str) -> None:
    for method in ("requeue", "release"):
        with pytest.raises(BadInput):
            getattr(SlurmCli(fake.bin_dir), method)(job)
    assert fake.calls() == []


def test_text_is_one_argument(fake: Any) -> None:
    fake.world({"nodes": {"n1": NODE}, "jobs": {}})
    hostile = "$(touch /tmp/x) `id` ; {{ lookup('pipe','id') }} State=RESUME | ' \\"
    SlurmCli(fake.bin_dir).update_node(["n1"], "DRAIN", hostile)
    assert fake.now["nodes"]["n1"]["reason"] == hostile
    assert fake.now["nodes"]["n1"]["state"] == ["IDLE", "DRAIN"]


def test_older_scontrol_without_json(fake: Any) -> None:
    text = (CAPTURES / "scontrol_node-24.11-free_text.txt").read_text(encoding="utf-8")
    (fake.folder / "text").write_text(text, encoding="utf-8")
    fake.program("scontrol", """echo "$*" >> {0}/asked
        [[ "$*" == *--json* ]] && {{ echo "scontrol: unrecognized option '--json'" >&2; exit 1; }}
        cat {0}/text; echo "Node n9 not found"; exit 1""".format(fake.folder))
    slurm = SlurmCli(fake.bin_dir)
    assert [node.name for node in slurm.nodes(["n2", "n1", "n9"], missing_ok=True)] == ["n2", "n1"]
    assert [node.name for node in slurm.nodes(["n2"])] == ["n2"]
    asked = (fake.folder / "asked").read_text(encoding="utf-8").splitlines()
    assert asked == ["--all --json show node n[1-2,9]", "--all show node n[1-2,9]", "--all show node n2"]


def test_older_squeue_without_json(fake: Any) -> None:
    text = (CAPTURES / "scontrol_job-24.11-array_task.txt").read_text(encoding="utf-8")
    (fake.folder / "text").write_text(text, encoding="utf-8")
    fake.program("squeue", "echo \"squeue: error: cannot find serializer plugin for json\" >&2; exit 1")
    fake.program("scontrol", """
        [[ "$*" == *" 9" ]] && {{ echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }}
        cat {}/text""".format(fake.folder))
    (job,) = SlurmCli(fake.bin_dir).jobs(["2653325_1", "2653326", "9"], missing_ok=True)
    assert job.id == 2653326
    with pytest.raises(Absent):
        SlurmCli(fake.bin_dir).jobs([9])


def test_jobs_by_one_call(fake: Any) -> None:
    jobs = {"7": JOB, "8": dict(JOB, job_id=8), "9": dict(JOB, job_id=9, array_job_id=8, array_task_id=3)}
    fake.world({"nodes": {}, "jobs": jobs})
    slurm = SlurmCli(fake.bin_dir)
    assert [job.id for job in slurm.jobs([7, "8_3"])] == [7, 9]
    assert fake.calls() == [["squeue", "--all", "--json", "--states=all", "--jobs=7,8_3"]]
    with pytest.raises(Absent, match="10"):
        slurm.jobs([7, 10])


def test_jobs_on_nodes(fake: Any) -> None:
    jobs = {"7": JOB, "8": dict(JOB, job_id=8, nodes="n3"), "9": dict(JOB, job_id=9, job_state=["PENDING"]),
            "10": dict(JOB, job_id=10, job_state=["CANCELLED", "COMPLETING"])}
    fake.world({"nodes": {}, "jobs": jobs})
    assert [job.id for job in SlurmCli(fake.bin_dir).jobs_on(["n2"])] == [7, 10]


def test_half_an_answer_is_none(fake: Any) -> None:
    says(fake, "scontrol", stdout='{"nodes": [{"name": "n1", "state": ["ID')
    with pytest.raises(Unreadable):
        SlurmCli(fake.bin_dir).nodes(["n1"])


def test_command_that_is_not_there(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="scontrol is not there"):
        SlurmCli(str(tmp_path)).ping()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="not in PATH"):
        SlurmCli().ping()


def test_environment_of_the_commands(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_TIME_FORMAT": "relative", "SQUEUE_STATES": "PD", "SLURM_CLUSTERS": "other",
                        "SLURM_CONF": "/etc/x.conf", "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo"}.items():
        monkeypatch.setenv(name, value)
    fake.world({"nodes": {"n1": NODE}})
    SlurmCli(fake.bin_dir).nodes(["n1"])
    seen = fake.now["environment"]
    assert seen["SLURM_TIME_FORMAT"] == "%s"
    assert (seen["SLURM_CONF"], seen["LC_ALL"], seen["TZ"]) == ("/etc/x.conf", "C", "UTC")
    assert not {"SQUEUE_STATES", "SLURM_CLUSTERS"}.intersection(seen)
    assert "SINFO_ALL" not in environment({"SINFO_ALL": "1"})


HANGS = "sleep 300 & echo $! > %s/child; echo $$ > %s/parent; wait"


def alive(fake: Any, name: str) -> bool:
    pid = int((fake.folder / name).read_text(encoding="utf-8"))
    try:
        state = pathlib.Path("/proc/%d/stat" % pid).read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for(path: pathlib.Path, seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)


def wait_dead(fake: Any) -> bool:
    until = time.monotonic() + 3
    while time.monotonic() < until and (alive(fake, "child") or alive(fake, "parent")):
        time.sleep(0.02)
    return not alive(fake, "child") and not alive(fake, "parent")


def test_deadline_kills_the_command_and_its_children(fake: Any) -> None:
    fake.program("scontrol", HANGS % (fake.folder, fake.folder))
    started = time.monotonic()
    with pytest.raises(TimedOut) as caught:
        SlurmCli(fake.bin_dir, timeout=0.5).ping()
    assert time.monotonic() - started < 3
    assert caught.value.fields["cause"] == "timeout"
    assert wait_dead(fake)


async def test_deadline_in_an_event_loop(fake: Any) -> None:
    fake.program("scontrol", HANGS % (fake.folder, fake.folder))
    with pytest.raises(TimedOut):
        await AsyncSlurmCli(fake.bin_dir, timeout=0.5).ping()
    assert wait_dead(fake)


async def test_cancelling_kills_the_command(fake: Any) -> None:
    fake.program("scontrol", HANGS % (fake.folder, fake.folder))
    task = asyncio.create_task(AsyncSlurmCli(fake.bin_dir).ping())
    await asyncio.to_thread(wait_for, fake.folder / "parent")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait_dead(fake)


@pytest.mark.parametrize("turns", range(6))
async def test_cancelling_while_it_starts_kills_it_and_its_children(fake: Any, turns: int) -> None:
    fake.program("scontrol", HANGS % (fake.folder, fake.folder))
    task = asyncio.create_task(AsyncSlurmCli(fake.bin_dir).ping())
    for _turn in range(turns):
        await asyncio.sleep(0)
    wait_for(fake.folder / "parent", 0.5 if turns else 0)  # the loop stands still meanwhile, as on a busy machine
    task.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - started < 5
    assert not heirs(fake)


def heirs(fake: Any) -> list[str]:
    """What runs with the environment of this test, but for the test itself."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(fake.folder).encode() in (process / "environ").read_bytes() and process.name != str(os.getpid()):
                found.append((process / "cmdline").read_bytes().decode())
    return found


async def test_both_adapters_say_the_same(fake: Any) -> None:
    fake.world({"nodes": {"n1": NODE}, "jobs": {"7": JOB}})
    sync, other = SlurmCli(fake.bin_dir), AsyncSlurmCli(fake.bin_dir)
    assert await other.nodes(["n1"]) == sync.nodes(["n1"])
    assert await other.jobs([7]) == sync.jobs([7])
    with pytest.raises(Absent):
        await other.nodes(["n9"])


def test_large_answers_do_not_block(fake: Any) -> None:
    fake.program("scontrol", "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo 'Slurmctld(primary) at head is UP'")
    assert SlurmCli(fake.bin_dir).ping() == [commands.Controller("primary", "head", True)]


@pytest.mark.parametrize(("stdout", "rc", "up"), [
    ("Slurmctld(primary) at head is UP\n", 0, [True]),
    ("Slurmctld(primary) at head is DOWN\n", 1, [False]),
    ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n", 0, [False, True]),
])
def test_ping(fake: Any, stdout: str, rc: int, up: list[bool]) -> None:
    says(fake, "scontrol", stdout=stdout, rc=rc)
    assert [controller.up for controller in SlurmCli(fake.bin_dir).ping()] == up


def test_node_states_and_its_columns(fake: Any) -> None:
    asked = "--all --noheader --Format=NodeList:1024,StateComplete:400,Reason:256"
    fake.program("sinfo", """[[ "$*" == "%s" ]] || exit 97
        printf '%%-1024s%%-400s%%-256s\\n' n1 down+drain+not_responding 'ask Bob' n2 idle none n2 idle none""" % asked)
    first, second = SlurmCli(fake.bin_dir).node_states()
    assert (first.name, first.base_state, first.flags, first.reason) == (
        "n1", "DOWN", ("DRAIN", "NOT_RESPONDING"), "ask Bob")
    assert second.reason is None


def test_a_list_of_nodes_that_is_too_long_for_its_column_is_asked_for_again(fake: Any) -> None:
    """As sinfo does, the fake cuts off what is longer than its column."""
    names = ["n%d" % number for number in range(1, 999, 2)]
    fake.program("sinfo", """format=${3#--Format=NodeList:}; width=${format%%%%,*}
        printf "%%-$width.${width}s%%-400s%%-256s\\n" '%s' down none""" % ("n[%s]" % ",".join(n[1:] for n in names)))
    assert [state.name for state in SlurmCli(fake.bin_dir).node_states()] == names


def test_job_states_and_a_separator_that_nobody_knows(fake: Any) -> None:
    answers = {"%A": "7", "%F": "7", "%K": "N/A", "%T": "RUNNING", "%U": "1000", "%N": "n[1-2]", "%P": "main",
               "%V": "5", "%S": "6", "%e": "Unknown", "%r": "None"}
    script = ";".join("s/%s/%s/" % (form, answer.replace("/", "\\/")) for form, answer in answers.items())
    fake.program("squeue", """[[ "$1 $2" == "--all --noheader" && "$3" == --format=* && $# == 3 ]] || exit 97
        echo "$3" | tee -a %s/formats | sed 's/^--format=//;%s'""" % (fake.folder, script))
    (state,) = SlurmCli(fake.bin_dir).job_states()
    assert (state.id, state.state, state.uid, state.nodes) == (7, "RUNNING", 1000, ("n1", "n2"))
    assert (state.submit_time, state.start_time, state.end_time, state.array_job_id) == (5, 6, None, None)
    SlurmCli(fake.bin_dir).job_states()
    formats = (fake.folder / "formats").read_text(encoding="utf-8").splitlines()
    assert formats[0] != formats[1]


def test_job_states_of_jobs_that_are_gone(fake: Any) -> None:
    says(fake, "squeue", stderr="slurm_load_jobs error: Invalid job id specified", rc=1)
    assert SlurmCli(fake.bin_dir).job_states([9]) == []


def test_accounting_whatever_a_comment_says(fake: Any) -> None:
    fake.program("sacct", r"""for word in "$@"; do case $word in --delimiter=*) d=${word#--delimiter=};; esac; done
        [[ " $* " == *" --jobs=7 "* && " $* " == *" --duplicates "* && " $* " == *" --allocations "* ]] || exit 97
        row() { for cell in "$@"; do printf '%s%s' "$cell" "$d"; done; echo; }
        row 7 7 REQUEUED 0:0 0:0 alice main 'n[1-2]' 5 6 7 wrap 'a|b
9|9|COMPLETED'
        row 7 7 'CANCELLED by 1000' 0:15 0:0 alice main 'None assigned' 8 None 9 wrap '' """)
    first, second = SlurmCli(fake.bin_dir).accounting([7])
    assert (first.state, first.nodes, first.comment) == ("REQUEUED", ("n1", "n2"), "a|b\n9|9|COMPLETED")
    assert (second.state, second.cancelled_by, second.nodes, second.comment) == ("CANCELLED", 1000, (), None)


def test_how_jobs_were_submitted(fake: Any) -> None:
    fake.program("sacct", r"""for word in "$@"; do case $word in --delimiter=*) d=${word#--delimiter=};; esac; done
        [[ " $* " == *" --uid=5,1000 "* && " $* " == *" --starttime=1970-01-01T00:01:40 "* ]] || exit 97
        row() { for cell in "$@"; do printf '%s%s' "$cell" "$d"; done; echo; }
        row 7 7 RUNNING 6 'sbatch -d afterok:5 a|b
9|9|RUNNING|5|sbatch'
        row 8 8 PENDING Unknown 'sbatch x'""")
    first, second = SlurmCli(fake.bin_dir).submissions([1000, 5, 1000], 100)
    assert (first.id, first.start_time, first.submit_line) == (7, 6, "sbatch -d afterok:5 a|b\n9|9|RUNNING|5|sbatch")
    assert (second.id, second.start_time) == (8, None)
    assert SlurmCli(fake.bin_dir).submissions([], 100) == []


def test_a_users_waiting_jobs(fake: Any) -> None:
    capture = CAPTURES / "squeue_json-24.11.5-cluster.json"
    asked = '[[ "$*" == "--all --json --states=PENDING --user=1000" ]]'
    fake.program("squeue", "%s && exec cat %s; exit 97" % (asked, capture))
    assert [job.id for job in SlurmCli(fake.bin_dir).waiting_jobs(1000)] == [26, 27, 28, 29]


def test_a_users_waiting_jobs_where_squeue_knows_no_json(fake: Any) -> None:
    fake.program("squeue", """case "$*" in
        *--json*) echo "squeue: unrecognized option '--json'" >&2; exit 1;;
        "--all --noheader --format=%A --states=PENDING --user=1000") echo 7;;
        *) exit 97;; esac""")
    text = CAPTURES / "scontrol_job-24.11-pending.txt"
    fake.program("scontrol", """[[ "$*" == "--all show job 7" ]] && exec cat %s; exit 97""" % text)
    assert [job.id for job in SlurmCli(fake.bin_dir).waiting_jobs(1000)] == [7]


def test_the_comment_of_a_job_that_has_ended(fake: Any) -> None:
    fake.program("sacct", r"""for word in "$@"; do case $word in --delimiter=*) d=${word#--delimiter=};; esac; done
        [[ " $* " == *" --jobs=7 "* ]] || exit 97
        printf '7%ssee ticket|4\nb%s\n' "$d" "$d";""")
    assert SlurmCli(fake.bin_dir).accounted_comment(7) == "see ticket|4\nb"
    fake.program("sacct", "exit 0")
    assert SlurmCli(fake.bin_dir).accounted_comment(7) is None
    fake.program("sacctmgr", "printf '%%s\\n' \"$@\" > %s/told" % fake.folder)
    SlurmCli(fake.bin_dir).update_finished_job(7, "a b $(id) {{ 1 }}")
    told = (fake.folder / "told").read_text(encoding="utf-8").splitlines()
    words = ["--immediate", "--quiet", "modify", "job", "where", "jobid=7", "set"]
    assert told == [*words, "AdminComment=a b $(id) {{ 1 }}"]


def test_accounting_of_nodes(fake: Any) -> None:
    fake.program("sacct", r"""[[ " $* " == *" --nodelist=n[1-2] "* && " $* " == *" --starttime="* ]] || exit 97""")
    assert SlurmCli(fake.bin_dir).accounting(since=100, nodes=["n1", "n2"]) == []


def test_spool_directory_of_a_node() -> None:
    node = Node(name="n1", base_state="IDLE", hostname="host1")
    assert commands.resolve_spool_dir("/var/spool/slurm/%n", node) == "/var/spool/slurm/n1"
    assert commands.resolve_spool_dir("/local/%h/%n/%n", node) == "/local/host1/n1/%n"
    assert commands.resolve_spool_dir("/var/spool/slurmd", node) == "/var/spool/slurmd"


def test_nothing_is_left_open(fake: Any) -> None:
    fake.world({"nodes": {"n1": NODE}})
    before = len(os.listdir("/proc/self/fd"))
    for _turn in range(3):
        SlurmCli(fake.bin_dir).nodes(["n1"])
    assert len(os.listdir("/proc/self/fd")) == before
