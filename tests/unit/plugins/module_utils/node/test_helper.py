# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node helper as sshd starts it: the folder copied away from the collection, a launcher, a command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import cli

BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
OTHER_BOOT = "00000000-1111-2222-3333-444444444444"
JOB = 987654321

SYSTEMCTL = """\
#!{python}
import json, os, sys, time
state = json.load(open({state!r}))
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv) + "\\n")
verb = sys.argv[1]
if state.get("hangs"):
    time.sleep(60)
if verb == "show":
    blocks = []
    for unit in sys.argv[3:]:
        load, active, sub, pid = state["units"][unit]
        blocks.append("LoadState=%s\\nActiveState=%s\\nSubState=%s\\nMainPID=%s" % (load, active, sub, pid))
    print("\\n\\n".join(blocks))
elif verb in ("start", "restart"):
    for unit in sys.argv[2:]:
        if state.get("start_fails"):
            sys.exit("Job for %s failed because the control process exited with error code." % unit)
        state["units"][unit] = ["loaded", "active", "running", "4711"]
    json.dump(state, open({state!r}, "w"))
elif verb == "is-system-running":
    print(state.get("system", "running"))
    sys.exit(0 if state.get("system", "running") == "running" else 1)
elif verb == "is-active":
    print("inactive")
    sys.exit(3)
elif verb != "reset-failed":
    sys.exit("unknown argument " + verb)
"""
SYSTEMD_RUN = """\
#!{python}
import json, sys
state = json.load(open({state!r}))
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv) + "\\n")
if state.get("run_fails"):
    sys.exit("Failed to start transient timer unit: Unit job-recovery-reboot.timer was already loaded")
"""


class Helper:
    """The helper, installed in a folder with a systemd of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {
            "units": {
                "slurmd.service": ["loaded", "active", "running", "100"],
                "kubelet.service": ["not-found", "inactive", "dead", "0"],
            }
        }
        self.config: dict[str, Any] = {"smbios_uuid_path": str(folder / "uuid")}
        (folder / "uuid").write_text("4C4C4544-0039-5910-804E-B6C04F4D3733\n", encoding="ascii")
        shutil.copytree(
            Path(cli.__file__).parent, folder / "lib/job_recovery_node", ignore=shutil.ignore_patterns("__pycache__")
        )
        paths = {"python": sys.executable, "state": str(folder / "state"), "log": str(folder / "log")}
        (folder / "bin").mkdir()
        self._program("bin/systemctl", SYSTEMCTL.format(**paths))
        self._program("bin/systemd-run", SYSTEMD_RUN.format(**paths))
        self._program(
            "launcher",
            textwrap.dedent(
                """\
                #!%s -IS
                import sys
                sys.path.insert(0, %r)
                from job_recovery_node.cli import main
                sys.exit(main(config_path=%r, path=%r))
                """
            )
            % (sys.executable, str(folder / "lib"), str(folder / "node.json"), "%s:/usr/bin:/bin" % (folder / "bin")),
        )

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def raw(self, line: Optional[str], *argv: str) -> subprocess.CompletedProcess:
        (self.folder / "state").write_text(json.dumps(self.state), encoding="utf-8")
        (self.folder / "node.json").write_text(json.dumps(self.config), encoding="utf-8")
        environment = {**os.environ, "LD_PRELOAD": ""}
        environment.pop("SSH_ORIGINAL_COMMAND", None)
        if line is not None:
            environment["SSH_ORIGINAL_COMMAND"] = line
        return subprocess.run(
            [str(self.folder / "launcher"), *argv],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, line: str) -> dict[str, Any]:
        done = self.raw(line)
        assert done.stderr == ""
        (answer,) = [json.loads(each) for each in done.stdout.splitlines() if each]
        assert answer["job_recovery_node"] == 1
        assert done.returncode == (0 if answer["ok"] else 1)
        return answer

    def refusal(self, line: str) -> str:
        answer = self.ask(line)
        assert answer["ok"] is False
        return answer["error"]["kind"]

    @property
    def called(self) -> list[list[str]]:
        log = self.folder / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [json.loads(line)[1:] for line in lines]


@pytest.fixture(name="helper")
def _helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "reboot",
        "sh -c id",
        "probe; id",
        "probe $(id)",
        "probe `id`",
        "probe\nid",
        "probe 'x'",
        "probe x",
        "probe --what",
        "restart sshd.service",
        "restart",
        "reboot --if-boot-id",
        "reboot --if-boot-id ABC",
        "reboot --if-boot-id " + BOOT_ID.upper().replace("-", "_"),
        "spool-clean ../etc",
        "spool-clean --job 0",
        "spool-clean --job 12x",
        "spool-clean --dir .tmp",
        "orphans",
        "orphans -1",
        "orphans 99999999999",
        "end-orphans 7",
        "end-orphans 7 --process 12",
        "health --now",
        "probe " + "x" * 70000,
        "probe --if-machine-id 12",
    ],
)
def test_anything_but_a_known_line_is_refused(helper: Helper, line: str) -> None:
    assert helper.refusal(line) == "bad_input"
    assert helper.called == []


def test_the_command_line_counts_only_without_ssh(helper: Helper) -> None:
    assert json.loads(helper.raw(None, "probe").stdout)["ok"] is True
    assert json.loads(helper.raw("health", "probe").stdout)["verb"] == "health"


def test_probe(helper: Helper) -> None:
    helper.config["spool_dir"] = "/var/spool/slurmd"
    answer = helper.ask("probe")
    assert answer["boot_id"] == BOOT_ID
    assert answer["smbios_uuid"] == "4c4c4544-0039-5910-804e-b6c04f4d3733"
    assert answer["spool_dir"] == "/var/spool/slurmd"
    assert answer["uptime"] > 0
    slurmd = {"load": "loaded", "active": "active", "sub": "running", "main_pid": 100}
    assert answer["units"]["slurmd.service"] == slurmd
    assert answer["units"]["kubelet.service"]["load"] == "not-found"


def test_probe_answers_about_the_boot_although_systemd_hangs(helper: Helper) -> None:
    helper.state["hangs"] = True
    answer = helper.ask("probe")
    assert (answer["boot_id"], answer["units"]) == (BOOT_ID, {})


@pytest.mark.parametrize(
    "config",
    [
        {"spool_dir": "relative"},
        {"unheard_of": 1},
        {"health_timeout": "60"},
        {"node_name": "a b"},
    ],
)
def test_a_configuration_that_is_not_understood_is_not_guessed(helper: Helper, config: dict[str, Any]) -> None:
    helper.config = config
    assert helper.refusal("probe") == "unreadable"


def test_conditions_of_every_verb(helper: Helper) -> None:
    assert helper.ask("probe --if-boot-id " + BOOT_ID)["ok"] is True
    assert helper.refusal("restart slurmd.service --if-boot-id " + OTHER_BOOT) == "conflict"
    assert helper.refusal("probe --if-machine-id " + "0" * 32) == "conflict"
    assert ["start", "slurmd.service"] not in helper.called


def test_restart_starts_what_is_dead(helper: Helper) -> None:
    helper.state["units"]["slurmd.service"] = ["loaded", "failed", "failed", "0"]
    answer = helper.ask("restart slurmd.service")
    assert answer["changed"] == ["slurmd.service"]
    assert answer["units"]["slurmd.service"]["active"] == "active"
    assert ["start", "slurmd.service"] in helper.called


def test_restart_leaves_what_is_active(helper: Helper) -> None:
    assert helper.ask("restart slurmd.service")["changed"] == []
    assert not [call for call in helper.called if call[0] in ("start", "restart")]
    assert helper.ask("restart slurmd.service --force")["changed"] == ["slurmd.service"]
    assert ["restart", "slurmd.service"] in helper.called


def test_restart_starts_only_the_dead_one_of_two(helper: Helper) -> None:
    helper.state["units"]["kubelet.service"] = ["loaded", "inactive", "dead", "0"]
    assert helper.ask("restart slurmd.service kubelet.service")["changed"] == ["kubelet.service"]
    assert [call for call in helper.called if call[0] == "start"] == [["start", "kubelet.service"]]


def test_restart_that_fails_says_so(helper: Helper) -> None:
    helper.state["units"]["slurmd.service"] = ["loaded", "failed", "failed", "0"]
    helper.state["start_fails"] = True
    assert "exited with error code" in helper.ask("restart slurmd.service")["error"]["message"]
    assert helper.refusal("restart kubelet.service") == "absent"


def test_reboot_compares_and_swaps(helper: Helper) -> None:
    answer = helper.ask("reboot --if-boot-id " + OTHER_BOOT)
    assert (answer["rebooting"], answer["boot_id"]) == (False, BOOT_ID)
    assert helper.called == []
    assert helper.ask("reboot --if-boot-id " + BOOT_ID)["rebooting"] is True
    (order,) = helper.called
    assert order[-2:] == ["systemctl", "reboot"]
    assert "--unit=job-recovery-reboot" in order


def test_reboot_by_the_sites_own_command(helper: Helper) -> None:
    helper.config["reboot_command"] = str(helper.folder / "bin/site-reboot")
    assert helper.refusal("reboot --if-boot-id " + BOOT_ID) == "absent"
    assert helper.called == []
    helper._program("bin/site-reboot", "#!/bin/sh\n")
    assert helper.ask("reboot --if-boot-id " + BOOT_ID)["rebooting"] is True
    (order,) = helper.called
    assert order[-1] == helper.config["reboot_command"]
    assert "systemctl" not in order


def test_reboot_that_systemd_does_not_take(helper: Helper) -> None:
    helper.state["run_fails"] = True
    assert helper.refusal("reboot --if-boot-id " + BOOT_ID) == "failed"
    helper.state["system"] = "stopping"
    assert helper.ask("reboot --if-boot-id " + BOOT_ID)["rebooting"] is True


def test_evidence(helper: Helper) -> None:
    helper._program("bin/dmesg", "#!/bin/sh\necho line\n")
    answer = helper.ask("evidence --kib 8")
    assert (answer["boot_id"], sorted(answer["files"])) == (BOOT_ID, ["kernel.log", "processes.txt"])
    assert helper.refusal("evidence") == "bad_input"
    assert helper.refusal("evidence --kib 8 --if-boot-id " + OTHER_BOOT) == "conflict"


def test_health(helper: Helper) -> None:
    assert helper.refusal("health") == "absent"
    command = helper.folder / "health"
    command.write_text("#!/bin/sh\necho 'GPU 3 is gone'\nexit 2\n", encoding="utf-8")
    command.chmod(0o755)
    helper.config["health_command"] = str(command)
    answer = helper.ask("health")
    assert (answer["fit"], answer["rc"], answer["output"]) == (False, 2, "GPU 3 is gone\n")
    command.write_text("#!/bin/sh\nsleep 50 &\nexit 0\n", encoding="utf-8")
    assert helper.ask("health")["fit"] is True
    command.write_text("#!/bin/sh\nsleep 50\n", encoding="utf-8")
    helper.config["health_timeout"] = 1
    assert helper.refusal("health") == "timed_out"
    command.unlink()
    assert helper.refusal("health") == "absent"


SRUN = """\
#!{python}
import os, subprocess, sys
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
first = next(place for place, word in enumerate(sys.argv) if place and not word.startswith("--"))
mode = open({mode!r}).read()
if "no-allocate" not in options:
    sys.exit("srun: error: Unable to allocate resources: Requested node configuration is not available")
if options["nodelist"] != "node7":
    print("srun: error: Can't find an address, check slurm.conf", file=sys.stderr)
    sys.exit(244)
if mode == "bind":
    print("srun: error: task 0 launch failed: Unspecified error", file=sys.stderr)
    sys.exit(1)
environment = dict(os.environ)
if options["mpi"].startswith("pmix") and mode != "unserved":
    environment["PMIX_RANK"] = "0"
task = sys.argv[first:]
if mode == "elsewhere":
    task[-1] = task[-1].replace("cat ", "echo {other} ;: ")
if mode == "stuck":
    task[-1] = "sleep 60"
rc = subprocess.run(task, env=environment).returncode
print(os.environ.get("SLURM_CONF", ""))
sys.exit(rc)
"""


@pytest.mark.parametrize(
    ("mode", "config", "ended"),
    [
        ("", {}, (True, 0)),
        ("", {"test_step": "none"}, (True, 0)),
        ("", {"slurm_conf": "/opt/slurm.conf"}, (True, 0)),
        ("", {"node_name": "node8"}, (False, 244)),
        ("bind", {}, (False, 1)),
        ("unserved", {}, (False, 0)),
        ("elsewhere", {}, (False, 0)),
        ("stuck", {}, (False, 124)),  # the task's own deadline, which holds when srun is gone, too
        ("", {"test_step": ""}, "absent"),
        ("", {"slurm_bin_dir": "/nowhere"}, "absent"),
        ("", {"test_step": "pmix; id"}, "unreadable"),
    ],
)
def test_a_step_runs_on_this_very_node(helper: Helper, mode: str, config: dict[str, Any], ended: Any) -> None:
    (helper.folder / "mode").write_text(mode, encoding="utf-8")
    srun = SRUN.format(python=sys.executable, mode=str(helper.folder / "mode"), other=OTHER_BOOT)
    helper._program("bin/srun", srun)
    helper.config.update({"node_name": "node7", "test_step": "pmix", "test_step_timeout": 1, **config})
    if isinstance(ended, str):
        assert helper.refusal("test-step") == ended
        return
    answer = helper.ask("test-step --if-boot-id " + BOOT_ID)
    assert (answer["passed"], answer["rc"]) == ended
    assert config.get("slurm_conf", "") in answer["output"]
    assert helper.refusal("test-step --if-boot-id " + OTHER_BOOT) == "conflict"


def test_a_long_answer_is_bounded(helper: Helper) -> None:
    command = helper.folder / "health"
    command.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x\n", encoding="utf-8")
    command.chmod(0o755)
    helper.config["health_command"] = str(command)
    assert len(helper.ask("health")["output"]) == 4096


@pytest.fixture(name="job_processes")
def _job_processes() -> Iterator[list[subprocess.Popen]]:
    started: list[subprocess.Popen] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def of_job(number: int, *argv: str) -> subprocess.Popen:
    process = subprocess.Popen(argv, env={"SLURM_JOB_ID": str(number), "PATH": "/usr/bin:/bin"})
    until = time.monotonic() + 5
    while time.monotonic() < until:  # until exec has happened and the environment is the new one
        if b"SLURM_JOB_ID=%d" % number in Path("/proc/%d/environ" % process.pid).read_bytes():
            break
        time.sleep(0.01)
    return process


def named(answer: dict[str, Any]) -> str:
    return " ".join("--process %d.%d" % (each["pid"], each["start"]) for each in answer["processes"])


def owners(*jobs: int, uid: int | None = None) -> str:
    """The jobs' user: by default whoever runs these tests."""
    return " ".join("--owner %d.%d" % (job, os.getuid() if uid is None else uid) for job in jobs)


def test_an_environment_that_anybody_can_write_makes_no_process_the_jobs(helper: Helper, job_processes: list) -> None:
    """Only its user's own count; and where he is not known, none of root, whose prolog starts daemons."""
    job_processes.append(of_job(JOB, "sleep", "60"))
    assert helper.ask("orphans %d %s" % (JOB, owners(JOB, uid=os.getuid() + 1)))["count"] == 0
    assert helper.ask("orphans %d" % JOB)["count"] == (0 if os.getuid() == 0 else 1)
    process = "--process %d.1" % job_processes[0].pid
    assert helper.ask("end-orphans %d %s %s" % (JOB, process, owners(JOB, uid=os.getuid() + 1)))["ended"] == 0
    assert job_processes[0].poll() is None


def test_orphans_are_found_by_their_environment(helper: Helper, job_processes: list) -> None:
    job_processes += [of_job(JOB, "sleep", "60"), of_job(JOB + 1, "sleep", "60")]
    answer = helper.ask("orphans %d %s" % (JOB, owners(JOB)))
    assert [each["pid"] for each in answer["processes"]] == [job_processes[0].pid]
    assert answer["jobs"] == {str(JOB): 1}
    assert helper.ask("orphans %d %d %s" % (JOB, JOB + 1, owners(JOB, JOB + 1)))["count"] == 2


def test_exactly_the_listed_orphans_are_ended(helper: Helper, job_processes: list) -> None:
    forks = "trap '' TERM HUP; while :; do sleep 0.02; done"
    job_processes += [of_job(JOB, "sh", "-c", forks), of_job(JOB, "sleep", "60")]
    listed = helper.ask("orphans %d %s" % (JOB, owners(JOB)))
    job_processes.append(of_job(JOB, "sleep", "61"))  # the next run, started here meanwhile
    answer = helper.ask("end-orphans %d %s %s" % (JOB, named(listed), owners(JOB)))
    assert answer["ended"] >= 2
    assert answer["jobs"] == {str(JOB): 1}
    left = helper.ask("orphans %d %s" % (JOB, owners(JOB)))["processes"]
    assert [each["pid"] for each in left] == [job_processes[2].pid]


def test_a_process_that_is_not_the_jobs_is_not_ended(helper: Helper, job_processes: list) -> None:
    job_processes.append(of_job(JOB + 1, "sleep", "60"))
    other = named(helper.ask("orphans %d %s" % (JOB + 1, owners(JOB + 1))))
    assert helper.ask("end-orphans %d %s %s" % (JOB, other, owners(JOB)))["ended"] == 0
    start = "--process %d.1" % job_processes[0].pid
    assert helper.ask("end-orphans %d %s %s" % (JOB + 1, start, owners(JOB + 1)))["ended"] == 0
    assert job_processes[0].poll() is None


def test_a_forged_title_is_no_slurmstepd(helper: Helper, job_processes: list) -> None:
    # only root's title counts; a test that runs as root makes root's
    argv = ["sh", "-c", "exec -a 'slurmstepd: [%d.0]' sleep 60" % JOB]
    process = subprocess.Popen(["bash", *argv[1:]], env={"PATH": "/usr/bin:/bin"})
    job_processes.append(process)
    time.sleep(0.3)
    found = helper.ask("orphans %d %s" % (JOB, owners(JOB)))["processes"]
    assert [each["how"] for each in found] == (["slurmstepd"] if os.geteuid() == 0 else [])


def test_spool_verbs(helper: Helper) -> None:
    assert helper.refusal("spool-look") == "absent"
    spool = helper.folder / "spool/slurmd"
    spool.mkdir(parents=True)
    helper.config.update(spool_dir=str(spool), node_name="node1")
    assert helper.refusal("spool-clean") == "failed"  # none of slurmd's own files: not a spool
    for name in ("cred_state", "stepd.slurm.pmix.7.0", "stepd.slurm.pmix.8.0"):
        (spool / name).write_text("", encoding="ascii")
    stale = [str(spool / ("stepd.slurm.pmix.%d.0" % job)) for job in (7, 8)]
    assert helper.ask("spool-look")["stale"] == stale
    assert helper.ask("spool-look --job 8")["stale"] == stale[1:]
    answer = helper.ask("spool-clean --job 8")
    assert (answer["removed"], answer["stale"], answer["failed"]) == (stale[1:], [], [])
    assert helper.ask("spool-clean")["removed"] == stale[:1]
    assert (spool / "cred_state").exists()


def test_it_starts_fast(helper: Helper) -> None:
    helper.raw("probe")
    used = []
    for _each in range(5):
        before = os.times()
        helper.raw(None, "orphans")
        after = os.times()
        used.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(used) < 0.2  # seconds of a core, some 0.05; this notices a heavy import on a busy machine, too


def test_nothing_heavy_is_imported(helper: Helper) -> None:
    code = "import sys; sys.path.insert(0, %r); import job_recovery_node.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", code % str(helper.folder / "lib")], capture_output=True, text=True, check=True
    )
    assert not {"dataclasses", "subprocess", "argparse", "tempfile", "ansible"} & set(done.stdout.split())
