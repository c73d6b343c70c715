# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Slurm modules as Ansible runs them: a process, JSON in, JSON out, over executables in bin_dir."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.modules import (
    slurm_job,
    slurm_job_info,
    slurm_node,
    slurm_node_info,
    slurm_spool,
)

MODULES = (slurm_node_info, slurm_job_info, slurm_node, slurm_job, slurm_spool)
NODE = {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "{{ lookup('pipe','id') }}\n$(id)",
        "reason_set_by_user": "bob", "boot_time": 5, "partitions": ["main"]}
JOB = {"job_id": 7, "job_state": ["CANCELLED", "COMPLETING"], "nodes": "n[1-2]", "restart_cnt": 0, "comment": "é\n'\""}


@pytest.fixture
def bin_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    for tool, answer in {"scontrol": {"nodes": [NODE]}, "squeue": {"jobs": [JOB]}}.items():
        (tmp_path / (tool + ".json")).write_text(json.dumps(answer), encoding="utf-8")
        path = tmp_path / tool
        path.write_text("#!/bin/bash\ncat %s.json\n" % path, encoding="utf-8")
        path.chmod(0o755)
    return tmp_path


def call(module: Any, **params: Any) -> tuple[int, dict[str, Any]]:
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": params})
    done = subprocess.run([sys.executable, module.__file__], input=arguments, capture_output=True, text=True,
                          timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def fragments(names: list[str]) -> dict[str, Any]:
    from ansible_collections.mission_control.job_recovery.plugins.doc_fragments.slurm import ModuleDocFragment

    options: dict[str, Any] = {}
    for name in names:
        part = name[len("mission_control.job_recovery.slurm"):].lstrip(".")
        options.update(yaml.safe_load(getattr(ModuleDocFragment, part.upper() or "DOCUMENTATION"))["options"])
    return options


@pytest.mark.parametrize("module", MODULES)
def test_documentation_is_the_specification(module: Any) -> None:
    documented = yaml.safe_load(module.DOCUMENTATION)
    options = {**documented["options"], **fragments(documented.get("extends_documentation_fragment", []))}
    spec = module.SPEC["argument_spec"]
    assert set(options) == set(spec)
    for name, option in options.items():
        for key in ("type", "elements", "choices", "default", "required"):
            assert option.get(key) == spec[name].get(key), (name, key)
    assert yaml.safe_load(module.RETURN)
    assert yaml.safe_load(module.EXAMPLES)


def test_node_info(bin_dir: pathlib.Path) -> None:
    rc, result = call(slurm_node_info, names=["n1"], bin_dir=str(bin_dir))
    assert rc == 0
    (node,) = result["nodes"]
    assert (node["name"], node["base_state"], node["flags"]) == ("n1", "IDLE", ["DRAIN"])
    assert node["reason"] == NODE["reason"]
    assert set(node) == set(yaml.safe_load(slurm_node_info.RETURN)["nodes"]["contains"])


def test_node_info_of_an_absent_node(bin_dir: pathlib.Path) -> None:
    rc, result = call(slurm_node_info, names=["n9"], bin_dir=str(bin_dir))
    assert (rc, result["failed"], result["names"]) == (1, True, ["n9"])
    rc, result = call(slurm_node_info, names=["n9"], bin_dir=str(bin_dir), tolerate=True)
    assert (rc, result["nodes"]) == (0, [])


def test_job_info(bin_dir: pathlib.Path) -> None:
    rc, result = call(slurm_job_info, jobs=["7"], nodes=["n2"], bin_dir=str(bin_dir))
    assert rc == 0
    (job,) = result["jobs"]
    assert (job["id"], job["state"], job["flags"], job["nodes"]) == (7, "CANCELLED", ["COMPLETING"], ["n1", "n2"])
    assert job["comment"] == JOB["comment"]
    assert set(job) == set(yaml.safe_load(slurm_job_info.RETURN)["jobs"]["contains"])


def test_node_of_a_person_is_left(bin_dir: pathlib.Path) -> None:
    rc, result = call(slurm_node, names=["n1"], state="drained", reason="ours", bin_dir=str(bin_dir))
    assert (rc, result["failed"], result["changed"]) == (1, True, False)
    assert result["results"][0]["why"] == "owner_person"
    rc, result = call(slurm_node, names=["n1"], state="drained", reason="ours", bin_dir=str(bin_dir), tolerate=True)
    assert (rc, result["changed"], result["results"][0]["status"]) == (0, False, "refused")


def test_cancelled_job_is_left(bin_dir: pathlib.Path) -> None:
    rc, result = call(slurm_job, jobs=["7"], state="requeued", bin_dir=str(bin_dir), _ansible_check_mode=True)
    assert (rc, result["results"][0]["why"]) == (1, "cancelled")


@pytest.mark.parametrize(("module", "params", "word"), [
    (slurm_node, {"names": ["n1"], "state": "drained"}, "reason"),
    (slurm_node, {"names": ["n1"], "state": "resumed"}, "ours"),
    (slurm_node, {"names": ["n1"], "state": "gone", "reason": "x"}, "state"),
    (slurm_job, {"jobs": ["7"]}, "state"),
    (slurm_node_info, {"names": ["n[1"]}, "unbalanced"),
])
def test_wrong_use(bin_dir: pathlib.Path, module: Any, params: dict[str, Any], word: str) -> None:
    rc, result = call(module, bin_dir=str(bin_dir), **params)
    assert (rc, result["failed"]) == (1, True)
    assert word in result["msg"]


def test_spool(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "spool"
    (folder / "pmix.7.0" / "deep").mkdir(parents=True)
    (folder / "cred_state").touch()
    params = {"path": str(folder), "node_name": "n1", "application_directories": ""}
    rc, result = call(slurm_spool, _ansible_check_mode=True, **params)
    assert (rc, result["changed"], result["removed"]) == (0, True, [str(folder / "pmix.7.0")])
    assert (folder / "pmix.7.0").exists()
    rc, result = call(slurm_spool, **params)
    assert (rc, result["changed"], result["removed"]) == (0, True, [str(folder / "pmix.7.0")])
    assert result["kept"] == [{"path": str(folder / "cred_state"), "why": "slurmd"}]
    rc, result = call(slurm_spool, **params)
    assert (rc, result["changed"]) == (0, False)


def test_spool_that_is_none(tmp_path: pathlib.Path) -> None:
    rc, result = call(slurm_spool, path=str(tmp_path), node_name="n1")
    assert (rc, result["cause"]) == (1, "not_a_spool")
