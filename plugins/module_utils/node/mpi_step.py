# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tiny step of Slurm on this node, as its slurmd and MPI plugin start any other, while the node stays drained.

`srun --no-allocate` asks the slurmd of the node that is named, and no other; there is no job, no allocation and no
reservation that could let a user's job in, or be left behind. Only root and SlurmUser may.
"""

from __future__ import annotations

import os
import re

from .answer import Refusal
from .command import run
from .config import Config

_MORE = 5  # seconds for srun beyond those of its task
# The boot ID proves where the task ran; where the plugin is PMIx's, its rank proves that the plugin has served it.
_TASK = "echo job-recovery-step ${PMIX_RANK:-none}; exec cat %s/sys/kernel/random/boot_id"
_SAID = re.compile(r"^job-recovery-step (?P<rank>\S+)\s+(?P<boot>[0-9a-f-]{36})\s*$", re.MULTILINE)


def run_step(config: Config, boot_id: str, proc: str) -> dict:
    """Run the step, and judge what it said.

    Args:
        boot_id: of the running system.
        proc: where the task reads the boot ID that it says.

    Returns:
        `{"passed": bool, "rc": int, "output": text}`

    Raises:
        Refusal: `absent` when no test step is configured, or there is no srun; `timed_out` when srun did not end.
    """
    if not config.test_step:
        raise Refusal("absent", "no test step is configured on this node")
    if config.slurm_conf:
        os.environ["SLURM_CONF"] = config.slurm_conf
    ran = run(_argv(config, proc), config.test_step_timeout + _MORE)
    return {"passed": _passed(config.test_step, ran.rc, ran.output, boot_id), "rc": ran.rc, "output": ran.output}


def _argv(config: Config, proc: str) -> list:
    node = config.node_name or os.uname().nodename.partition(".")[0]
    srun = os.path.join(config.slurm_bin_dir, "srun") if config.slurm_bin_dir else "srun"
    return [
        srun,
        "--no-allocate",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        "--nodelist=" + node,
        "--mpi=" + config.test_step,
        "--cpu-bind=none",
        "--input=none",
        "--chdir=/",
        "--job-name=job-recovery-test",
        # should srun die, slurmd would not end the task: no job has it
        "timeout",
        "--kill-after=1",
        str(config.test_step_timeout),
        "/bin/sh",
        "-c",
        _TASK % proc,
    ]


def _passed(plugin: str, rc: int, output: str, boot_id: str) -> bool:
    said = _SAID.search(output)
    if rc != 0 or said is None or said.group("boot") != boot_id:
        return False
    return said.group("rank") == "0" or not plugin.startswith("pmix")
