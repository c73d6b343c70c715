# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's cluster as somebody who uses it sees it: submit a job, look at it, look at a node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import ssh
from ..errors import LabError
from ..instance import Instance

SPOOL = "/var/spool/slurmd"
OPT_IN = '{"APS":{"auto_resume_mode":"requeue","max_requeue_times":5}}'
USER = "alice"


@dataclass(frozen=True)
class JobState:
    """A Slurm job now: state, restarts, reason it waits for, nodes (compressed), exit code text."""

    state: str
    restarts: int
    reason: str
    nodes: str


@dataclass(frozen=True)
class NodeState:
    """A Slurm node now: every state word in lower case, and its reason."""

    words: frozenset[str]
    reason: str

    @property
    def in_service(self) -> bool:
        """Whether jobs can run on it."""
        return bool(self.words & {"idle", "mixed", "allocated"}) and not self.words & {
            "drain",
            "not_responding",
            "down",
            "reboot_requested",
            "reboot_issued",
        }


class Cluster:
    """Commands on the head of one instance of the lab."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        #: Whether Slurm's two minutes before a requeued job runs again are skipped, where nobody else does it.
        self.impatient = False

    def head(self, script: str, timeout: float = 30, check: bool = True) -> str:
        """Run a shell script on the head as root and give its output."""
        return ssh.run(self.instance, "head", script, timeout=timeout, check=check).stdout.strip()

    def on(self, node: str, script: str, timeout: float = 30, check: bool = False) -> str:
        """Run a shell script on a node as root and give its output."""
        return ssh.run(self.instance, node, script, timeout=timeout, check=check).stdout.strip()

    # Slurm

    def submit(self, script: str, nodes: str, name: str, comment: str = OPT_IN, options: str = "--requeue") -> int:
        """Submit a batch script that wants exactly these nodes (a host list; empty: any two) and give the job's id."""
        where = f"-w {nodes}" if nodes else "-N2"
        path = f"/home/{USER}/{name}.sh"
        self.write(path, "#!/bin/bash\n" + script)
        command = (
            f"cd /home/{USER} && HOME=/home/{USER} sbatch --parsable {where} --exclusive {options} -J {name}"
            f" --open-mode=append -o /home/{USER}/{name}-%j.out --comment='{comment}' {path}"
        )
        return int(ssh.run(self.instance, "head", ["su", USER, "-c", command]).stdout.strip().split(";")[0])

    def write(self, path: str, text: str) -> None:
        """Put a file into the home that all hosts share."""
        ssh.run(self.instance, "head", f"cat > {path} && chmod 755 {path}", stdin=text)

    def output(self, name: str, job: int) -> str:
        """What the job wrote."""
        return self.head(f"cat /home/{USER}/{name}-{job}.out 2>/dev/null; true")

    def job(self, job: int) -> JobState:
        """The job now, as squeue shows it."""
        columns = "StateCompact:8,RestartCnt:8,Reason:40,NodeList:40,State:20"
        text = self.head(f"squeue -h -a -t all -j {job} -O '{columns}'")
        if not text:
            raise LabError(f"Job {job} is not known to Slurm any more")
        line = text.splitlines()[0]
        return JobState(line[96:].strip(), int(line[8:16]), line[16:56].strip(), line[56:96].strip())

    def history(self, job: int) -> list[str]:
        """The states of the job's runs, oldest first, as accounting has them."""
        text = self.head(f"sacct -n -X -P -D -j {job} -o State,ExitCode,NodeList")
        return text.splitlines()

    def node(self, node: str) -> NodeState:
        """The node now, with every flag."""
        text = self.head(f"sinfo -h -N -n {node} -O 'StateComplete:100,Reason:200'").splitlines()[0]
        reason = text[100:].strip()
        return NodeState(frozenset(text[:100].strip().lower().split("+")), "" if reason == "none" else reason)

    def cancel(self, job: int) -> None:
        """End the job if it still runs."""
        self.head(f"scancel -f {job} 2>/dev/null; true")

    def stale_files(self, node: str, job: int) -> list[str]:
        """Names of the job's files in the node's spool."""
        text = self.on(node, f"cd {SPOOL} && ls -d *{job}* 2>/dev/null; true")
        return [name for name in text.split() if "pmix" in name]

    def processes(self, node: str, job: int) -> list[int]:
        """Processes of the job on the node, found by their environment."""
        script = f"grep -lz '^SLURM_JOB_ID={job}$' /proc/[0-9]*/environ 2>/dev/null; true"
        return [int(path.split("/")[2]) for path in self.on(node, script).split()]

    # Recovery

    def recovery(self, on: bool) -> None:
        """Start or stop the recovery service, where it is installed."""
        act = "start" if on else "stop"
        self.head(f"! systemctl cat job-recovery >/dev/null 2>&1 || systemctl {act} job-recovery", timeout=60)

    def now(self) -> float:
        """The cluster's clock, epoch seconds."""
        return float(self.head("date +%s.%N"))

    def ledger(self, since: float, *names: str) -> dict[str, Any]:
        """`incidents` with their steps and `refusals` of the ledger since then (epoch seconds), the newest first."""
        command = ["job-recovery", "incidents", *names, "--json", "--since", f"{since:.0f}"]
        return json.loads(ssh.run(self.instance, "head", command).stdout)


def wait(what: Callable[[], Any], seconds: float, interval: float = 0.4) -> Any:
    """Ask until the answer is true, and give it; the last answer after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = what()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(interval)
