# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes say of their helper, by the script that the role status runs there, and how it is judged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.agents import (
    helper_digest,
    judge,
    run,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, BadInput

COLLECTION = Path(__file__).resolve().parents[5]
HELPER = COLLECTION / "plugins/module_utils/node"
OURS = helper_digest(str(HELPER))
GOOD = {"helper": OURS, "launcher": "yes", "key": "1", "tmpfiles": "yes", "probe": '{"ok":true,"boot_id":"x=y"}'}
IDS = (
    "agents_reached",
    "agents_installed",
    "agents_version",
    "agents_working",
    "agents_key",
    "agents_boot_cleaning",
)


def judged(slurm=("n1", "n2"), **looks):
    found = {check.id: check for check in judge(looks, OURS, slurm)}
    assert tuple(found) == IDS
    return found


def test_all_is_well():
    found = judged(n1=GOOD, n2=GOOD)
    assert {check.status for check in found.values()} == {"passed"}
    assert found["agents_installed"].found == "2 of 2"


@pytest.mark.parametrize(
    ("told", "failing", "named"),
    [
        ({**GOOD, "helper": ""}, "agents_installed", "n2"),
        ({**GOOD, "launcher": ""}, "agents_installed", "n2"),
        ({}, "agents_installed", "n2"),
        ({**GOOD, "helper": "f" * 64}, "agents_version", "n2 (ffffffffffff)"),
        ({**GOOD, "probe": ""}, "agents_working", "n2"),
        ({**GOOD, "probe": '{"ok":false}'}, "agents_working", "n2"),
        ({**GOOD, "probe": "[" * 100000}, "agents_working", "n2"),
        ({**GOOD, "key": "0"}, "agents_key", "n2"),
        ({**GOOD, "key": "2"}, "agents_key", "n2"),
        ({**GOOD, "tmpfiles": ""}, "agents_boot_cleaning", "n2"),
    ],
)
def test_one_node_lacks_something(told, failing, named):
    found = judged(n1=GOOD, n2=told)
    assert [check.id for check in found.values() if check.status == "failed"] == [failing]
    assert "not %s" % named in found[failing].found
    assert found[failing].hint


def test_a_node_of_kubernetes_alone_needs_no_lines_for_slurm():
    assert judged(slurm=["n1"], n1=GOOD, n2={**GOOD, "tmpfiles": ""})["agents_boot_cleaning"].found == "1 of 1"


@pytest.mark.parametrize(("looks", "status"), [({"n1": GOOD, "n2": None}, "warning"), ({"n1": None}, "failed")])
def test_nodes_that_do_not_answer_are_named_once(looks, status):
    found = judged(**looks)
    assert found["agents_reached"].status == status
    assert {check.status for check in list(found.values())[1:]} == {"passed"}


def script(root, authorized_keys):
    """The role's script, as Ansible renders it."""
    variables = yaml.safe_load((COLLECTION / "roles/status/vars/main.yml").read_text())
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["quote"] = lambda text: "'%s'" % text
    return environment.from_string(variables["__status_script"]).render(
        status_node_agent_root=str(root),
        status_authorized_keys=str(authorized_keys),
        job_recovery_cluster="lab",
        __status_helper_files=sorted(path.name for path in HELPER.glob("*.py")),
    )


def test_the_roles_script_says_what_is_judged(tmp_path):
    """With the real helper in the right place, and with one that lacks a file."""
    keys = tmp_path / "keys"
    keys.write_text("restrict ssh-ed25519 AAAA job-recovery@lab\nssh-ed25519 BBBB job-recovery@other\n")
    folder = tmp_path / "job_recovery_node"
    folder.mkdir()
    for path in HELPER.glob("*.py"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "left_over.py").write_text("of an older version\n")

    def said():
        argv = ["sh", "-c", script(tmp_path, keys)]
        output = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False).stdout
        result = run({"names": ["n1"], "results": [{"stdout": output}], "helper": str(HELPER), "slurm": []}, False)
        return output, result

    output, result = said()
    assert "helper=%s\n" % OURS in output
    assert "key=1\n" in output
    assert result["helper"] == OURS
    assert result["without"] == ["n1"], "there is no launcher on this machine"
    (folder / "cli.py").unlink()
    output, result = said()
    assert "helper=%s\n" % OURS not in output
    (tmp_path / "job_recovery_node").rename(tmp_path / "elsewhere")
    output, result = said()
    assert "helper=\n" in output


def test_wrong_use(tmp_path):
    with pytest.raises(BadInput):
        run({"names": ["a"], "results": [], "helper": str(HELPER), "slurm": []}, False)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(Absent):
            helper_digest(str(folder))
