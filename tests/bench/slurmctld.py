# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld with very many nodes and jobs, in the root file system of the lab's image.

Its many nodes have no slurmd: slurmctld keeps what it knows of them, and that is all that a look reads. Debian's
emulator package (24.11.5) does not start: its slurmctld asks for a FrontendName, which its library refuses. Three
nodes have a slurmd of their own, so that jobs really run and fail. Made to be used in a mount and a process namespace
of its own, whose end ends all of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "lab"))

from joblab import image  # noqa: E402 (the lab is no package of Python's path)

LIVE = ("live1", "live2", "live3")
_PORT = 27817
_PART = 100  # components of one heterogeneous job: each is a job of its own in the queue
_TASKS = 1000  # of one array
_TOOLS = ("sinfo", "squeue", "scontrol", "sacct", "sacctmgr")

_CONFIG = """ClusterName=scale
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=%(port)d
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd-%%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdTimeout=0
SlurmdParameters=config_overrides
MaxJobCount=200000
MessageTimeout=60
MinJobAge=300
NodeName=node[00001-%(nodes)05d] NodeHostName=nowhere NodeAddr=127.0.0.1 Port=%(nowhere)d CPUs=8 RealMemory=16000
NodeName=live[1-3] NodeHostName=localhost NodeAddr=127.0.0.1 Port=[%(first)d-%(last)d] CPUs=8 RealMemory=1000
PartitionName=main Nodes=node[00001-%(nodes)05d] State=DOWN
PartitionName=live Nodes=live[1-3] Default=YES State=UP
PartitionName=later Nodes=live[1-3] State=DOWN
"""


class Slurmctld:
    """The cluster, up; `bin_dir` has its commands.

    Args:
        folder: an empty one, on a disk.
        nodes: how many nodes it has.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.root = folder / "root"
        self.bin_dir = folder / "bin"
        self._mount(folder)
        self._configure(nodes)
        self.run(["/usr/sbin/munged", "--force"])
        self._process = self._start("/usr/sbin/slurmctld", "-D", "-c")
        self._wait(lambda: "UP" in self.run(["scontrol", "ping"], check=False), "slurmctld does not answer")
        for name in LIVE:
            self._start("/usr/sbin/slurmd", "-D", "-c", "-N", name)
        self._wait(lambda: self.run(["sinfo", "-h", "-p", "live", "-o", "%T"]).split() == ["idle"], "slurmd is not up")

    @property
    def seconds(self) -> float:
        """Seconds of a core that slurmctld has used."""
        return used(self._process.pid)

    def run(self, argv: list[str], check: bool = True) -> str:
        """Run a command in the cluster's root."""
        done = subprocess.run(
            ["chroot", str(self.root), *argv], capture_output=True, text=True, timeout=120, check=False
        )
        if check and done.returncode:
            raise RuntimeError("%s: rc %d: %s" % (" ".join(argv), done.returncode, done.stderr.strip()))
        return done.stdout

    def fill(self, jobs: int) -> None:
        """Submit jobs that wait: a fifth of them alone, the others as tasks of arrays.

        Each is a record of its own in slurmctld, as tasks are that were changed one by one. squeue prints those that
        wait for the same reason as one line.
        """
        part = "#SBATCH --partition=later --time=60 --output=/dev/null\n"
        script = "#!/bin/sh\n" + "#SBATCH hetjob\n".join([part] * _PART) + "true\n"
        (self.root / "tmp/waits").write_text(script, encoding="ascii")
        for _each in range(jobs // 5 // _PART):
            self.run(["sbatch", "/tmp/waits"])
        tasks = "1-%d" % _TASKS
        argv = ["sbatch", "--parsable", "--partition=later", "--output=/dev/null", "--array=" + tasks, "--wrap=true"]
        for _each in range(jobs * 4 // 5 // _TASKS):
            array = self.run(argv).strip()
            self.run(["scontrol", "update", "JobId=%s_[%s]" % (array, tasks), "Nice=1"])

    def fail_job(self, comment: str) -> str:
        """Submit a job that fails at once; its id."""
        (self.root / "tmp/fails").write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
        argv = ["sbatch", "--parsable", "--output=/dev/null", "--comment=" + comment, "/tmp/fails"]
        return self.run(argv).strip()

    def _mount(self, folder: Path) -> None:
        layers = [path for path in (image.ensure().path / image.STORE / "overlay").glob("*/diff")
                  if os.path.lexists(path / "usr/sbin/slurmctld")]
        if len(layers) != 1:
            raise RuntimeError("the lab's image has no single layer with Slurm")
        for name in ("root", "upper", "work", "bin"):
            (folder / name).mkdir()
        options = "lowerdir=%s,upperdir=%s,workdir=%s" % (layers[0], folder / "upper", folder / "work")
        for argv in (
            ["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)],
            ["mount", "--rbind", "/dev", str(self.root / "dev")],
            ["mount", "-t", "proc", "proc", str(self.root / "proc")],
            ["mount", "-t", "tmpfs", "tmpfs", str(self.root / "run")],
        ):
            subprocess.run(argv, check=True)
        for tool in _TOOLS:
            text = '#!/bin/sh\nexec chroot %s %s "$@"\n' % (self.root, tool)
            (self.bin_dir / tool).write_text(text, encoding="utf-8")
            (self.bin_dir / tool).chmod(0o755)

    def _configure(self, nodes: int) -> None:
        ports = {"port": _PORT, "nowhere": _PORT + 9, "first": _PORT + 1, "last": _PORT + 3}
        for path in ("etc/slurm", "var/spool/slurmctld", "run/munge", *("var/spool/slurmd-" + name for name in LIVE)):
            (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / "etc/slurm/slurm.conf").write_text(_CONFIG % {"nodes": nodes, **ports}, encoding="ascii")
        (self.root / "etc/slurm/cgroup.conf").write_text("CgroupPlugin=disabled\n", encoding="ascii")
        key = self.root / "etc/munge/munge.key"
        key.unlink(missing_ok=True)
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for path in ("etc/munge", "var/log/munge", "var/lib/munge", "run/munge", "etc/munge/munge.key"):
            os.chown(self.root / path, 0, 0)

    def _start(self, *argv: str) -> subprocess.Popen[bytes]:
        with (self.root / "var/log/bench").open("ab") as log:
            return subprocess.Popen(["chroot", str(self.root), *argv], stdout=log, stderr=log)

    def _wait(self, condition: Callable[[], bool], trouble: str) -> None:
        until = time.monotonic() + 60
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError("%s: %s" % (trouble, (self.root / "var/log/bench").read_text()[-1000:]))
            time.sleep(0.5)


def used(pid: int) -> float:
    """Seconds of a core that a process and its children that ended have used."""
    words = Path("/proc/%d/stat" % pid).read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
