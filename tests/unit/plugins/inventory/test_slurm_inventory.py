# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plugin is run by ansible-inventory and ansible, as users run it, over a scontrol in bin_dir."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.inventory import slurm

COLLECTIONS = pathlib.Path(slurm.__file__).parents[5]
HOSTILE = "{{ lookup('pipe','touch %s') }}"


def node(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "hostname": name, "address": "10.0.0." + name[-1], "state": state.split("+"), "cpus": 8,
            "real_memory": 1000, "partitions": ["main"], "features": [], "reason": "", **more}


class Place:
    """A folder with a scontrol that answers with some nodes, and inventory files."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.touched = folder / "touched"
        self.answer([
            node("n1", "IDLE", partitions=["main", "gpu-a"], features=["ib"]),
            node("n2", "DOWN+DRAIN+NOT_RESPONDING", reason=HOSTILE % self.touched, comment=HOSTILE % self.touched,
                 extra="secret", reason_set_by_user="root"),
            node("n3", "FUTURE"),
            node("n4", "MIXED", partitions=["gpu-a"], address=""),
        ])

    def answer(self, nodes: list[dict[str, Any]]) -> None:
        (self.folder / "nodes.json").write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
        self.program("echo x >> {0}/called; cat {0}/nodes.json".format(self.folder))

    def program(self, script: str) -> None:
        path = self.folder / "scontrol"
        check = "[[ \"$*\" == '--all --json show node' ]] || exit 97"
        path.write_text("#!/bin/bash\n%s\n%s\n" % (check, script), encoding="utf-8")
        path.chmod(0o755)

    @property
    def calls(self) -> int:
        called = self.folder / "called"
        return len(called.read_text(encoding="utf-8").splitlines()) if called.exists() else 0

    def run(self, command: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run ansible-COMMAND (`adhoc` is ansible itself) over an inventory file."""
        path = self.folder / "slurm.yml"
        path.write_text("plugin: mission_control.job_recovery.slurm\nbin_dir: %s\n%s" % (self.folder, text),
                        encoding="utf-8")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
            "ANSIBLE_INVENTORY_ENABLED": "mission_control.job_recovery.slurm",
            "ANSIBLE_HOME": str(self.folder / "home"),
        }
        return subprocess.run([sys.executable, "-m", "ansible", command, "-i", str(path), *arguments], check=False,
                              capture_output=True, text=True, timeout=120, env=environment)

    def inventory(self, text: str = "") -> dict[str, Any]:
        """What `ansible-inventory --list` says."""
        done = self.run("inventory", "--list", text=text)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    return Place(tmp_path)


def hosts(inventory: dict[str, Any], group: str | None = None) -> list[str]:
    return sorted(inventory["_meta"]["hostvars"] if group is None else inventory[group]["hosts"])


CONSTRUCTED = """
groups:
  small: slurm_memory_mb < 2000
keyed_groups:
  - {key: slurm_features, prefix: feature}
compose:
  half: slurm_cpus // 2
"""


def test_hosts_groups_and_variables(place: Place) -> None:
    inventory = place.inventory(CONSTRUCTED)
    assert hosts(inventory) == ["n1", "n2", "n4"]
    assert hosts(inventory, "small") == ["n1", "n2", "n4"]
    assert hosts(inventory, "feature_ib") == ["n1"]
    assert inventory["_meta"]["hostvars"]["n1"]["half"] == 4
    assert hosts(inventory, "slurm_partition_main") == ["n1", "n2"]
    assert hosts(inventory, "slurm_partition_gpu_a") == ["n1", "n4"]
    assert hosts(inventory, "slurm_base_down") == ["n2"]
    assert hosts(inventory, "slurm_state_drain") == hosts(inventory, "slurm_state_not_responding") == ["n2"]
    variables = inventory["_meta"]["hostvars"]
    # ansible-core shows so what it will not take for a template.
    assert variables["n1"]["ansible_host"] == {"__ansible_unsafe": "10.0.0.1"}
    assert (variables["n1"]["slurm_cpus"], variables["n1"]["slurm_memory_mb"]) == (8, 1000)
    assert "ansible_host" not in variables["n4"]
    assert variables["n2"]["slurm_reason"] == {"__ansible_unsafe": HOSTILE % place.touched}
    assert not {"slurm_comment", "slurm_extra"}.intersection(variables["n2"])
    assert place.calls == 1


CACHED = """
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: %s/cache
compose:
  copied: slurm_reason
keyed_groups:
  - {key: slurm_reason, prefix: why}
"""


def test_text_of_people_is_never_a_template_and_the_cache_changes_nothing(place: Place) -> None:
    for _from_cache in (False, True):
        done = place.run("adhoc", "n2", "-c", "local", "-m", "ansible.builtin.debug",
                         "-a", "msg='{{ slurm_reason }} {{ copied }}'", text=CACHED % place.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("lookup(") == 2
        assert not place.touched.exists()
    assert place.calls == 1


NODES = {
    "n1": {"base_state": "IDLE", "flags": [], "partitions": ["main", "gpu"]},
    "n2": {"base_state": "DOWN", "flags": ["DRAIN", "NOT_RESPONDING"], "partitions": ["main"]},
    "n3": {"base_state": "FUTURE", "flags": [], "partitions": []},
}


@pytest.mark.parametrize(("partitions", "states", "excluded", "names"), [
    ([], [], [], ["n1", "n2", "n3"]), (["gpu"], [], [], ["n1"]), (["main"], [], ["FUTURE"], ["n1", "n2"]),
    ([], ["idle", "DRAIN"], [], ["n1", "n2"]), ([], [], ["down", "future"], ["n1"]), (["none"], [], [], []),
    (["main"], ["IDLE"], [], ["n1"]), ([], ["DRAIN"], ["NOT_RESPONDING"], []),
])
def test_filters(partitions: list[str], states: list[str], excluded: list[str], names: list[str]) -> None:
    assert [name for name, node in NODES.items() if slurm.is_wanted(node, partitions, states, excluded)] == names


def test_half_an_inventory_is_none(place: Place) -> None:
    place.program("echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    done = place.run("inventory", "--list")
    assert done.returncode != 0
    assert "Unable to contact slurm controller" in done.stderr
    assert "n1" not in done.stdout


@pytest.mark.parametrize(("name", "mine"), [
    ("slurm.yml", True), ("lab.slurm.yaml", True), ("hosts.yml", False), ("slurm.json", False)])
def test_whose_files(tmp_path: pathlib.Path, name: str, mine: bool) -> None:
    (tmp_path / name).write_text("plugin: x\n", encoding="utf-8")
    assert slurm.InventoryModule().verify_file(str(tmp_path / name)) is mine
