# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read nodes and jobs for a playbook (modules `slurm_node_info` and `slurm_job_info`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import DEFAULT_TIMEOUT, SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import as_dict

_COMMON: dict[str, Any] = {
    "tolerate": {"type": "bool", "default": False},
    "bin_dir": {"type": "path"},
    "timeout": {"type": "int", "default": int(DEFAULT_TIMEOUT)},
}
NODE_SPEC: dict[str, Any] = {
    "argument_spec": {"names": {"type": "list", "elements": "str", "default": []}, **_COMMON},
    "supports_check_mode": True,
}
JOB_SPEC: dict[str, Any] = {
    "argument_spec": {
        "jobs": {"type": "list", "elements": "str", "default": []},
        "nodes": {"type": "list", "elements": "str", "default": []},
        **_COMMON,
    },
    "required_one_of": [("jobs", "nodes")],
    "supports_check_mode": True,
}


def run_nodes(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return `{"changed": False, "nodes": [...]}`: the nodes named, in that order, or all.

    Raises:
        RecoveryError: `Absent` for a name that Slurm does not know, unless `tolerate`; Slurm could not be read.
    """
    del check_mode  # reading is the same
    names = hostlist.expand_all(params["names"]) if params.get("names") else None
    slurm = SlurmCli(params.get("bin_dir"), params.get("timeout") or DEFAULT_TIMEOUT)
    nodes = slurm.nodes(names, missing_ok=bool(params.get("tolerate")))
    return {"changed": False, "nodes": [as_dict(node) for node in nodes]}


def run_jobs(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return `{"changed": False, "jobs": [...]}`: the jobs named, and those on the nodes named, each once.

    Raises:
        RecoveryError: `Absent` for a job that Slurm does not know (any more), unless `tolerate`.
    """
    del check_mode  # reading is the same
    slurm = SlurmCli(params.get("bin_dir"), params.get("timeout") or DEFAULT_TIMEOUT)
    jobs = {job.id: job for job in slurm.jobs(params.get("jobs") or [], missing_ok=bool(params.get("tolerate")))}
    for job in slurm.jobs_on(hostlist.expand_all(params.get("nodes") or [])):
        jobs.setdefault(job.id, job)
    return {"changed": False, "jobs": [as_dict(job) for job in jobs.values()]}
