# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines as the installer registers them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import machines, report
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings

NODE = {
    "name": "node1",
    "slurm_name": "node1",
    "kubernetes_name": "k8s-1",
    "ssh_address": "10.0.0.1",
    "bmc_url": "https://10.1.0.1/redfish/v1/Systems/1",
    "smbios_uuid": "4c4c4544-0042-3010-8058-c7c04f4a4e32",
    "machine_id": "a" * 32,
    "boot_id": "11111111-1111-4111-8111-111111111111",
}


@pytest.fixture
def settings(ledger: LedgerSettings, tmp_path: Path) -> str:
    data = {
        "cluster": "lab",
        "state_dir": str(tmp_path),
        "scope": {"partitions": ["main"]},
        "ledger": dataclasses.asdict(ledger),
    }
    (tmp_path / "settings.yml").write_text(yaml.safe_dump(data), encoding="utf-8")
    return str(tmp_path / "settings.yml")


def run(settings: str, *items: dict[str, Any], state: str = "present", check_mode: bool = False) -> dict[str, Any]:
    return machines.run({"machines": list(items), "state": state, "settings": settings}, check_mode)


def test_a_second_time_changes_nothing(settings: str, store: Store) -> None:
    assert run(settings, NODE, check_mode=True)["changed"]
    assert store.machines.all() == []
    first = run(settings, NODE)
    assert (first["changed"], first["machines"], first["diff"]["before"]) == (True, ["node1"], {})
    assert first["diff"]["after"]["node1"]["kubernetes_name"] == "k8s-1"
    assert not run(settings, NODE)["changed"]
    assert not run(settings, {"name": "node1"})["changed"]  # what is not given stays
    moved = run(settings, {"name": "node1", "ssh_address": "10.0.0.9"})
    assert moved["diff"]["after"]["node1"]["machine_id"] == "a" * 32
    answer = report.run(
        {"incidents": [], "states": [], "names": [], "since": 0.0, "limit": 1, "machines": True, "settings": settings},
        False,
    )
    assert answer["machines"][0]["ssh_address"] == "10.0.0.9"
    assert run(settings, {"name": "node1"}, state="absent")["changed"]
    assert not run(settings, {"name": "node1"}, state="absent")["changed"]


def test_two_machines_cannot_have_one_name(settings: str) -> None:
    run(settings, NODE)
    with pytest.raises(BadInput, match="another machine of the ledger"):
        run(settings, {"name": "other", "slurm_name": "node1"})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "a b"},
        {"name": "{{ x }}"},
        {"slurm_name": "node[1-2]"},
        {"kubernetes_name": "$(id)"},
        {"ssh_address": "10.0.0.1 -oProxyCommand=id"},
        {"ssh_address": "-oProxyCommand=id"},
        {"bmc_url": "file:///etc/passwd"},
        {"bmc_url": "site:node1; reset"},
        {"bmc_url": "site:node1"},  # the settings have no power commands
        {"smbios_uuid": "00000000-0000-0000-0000-000000000000"},
        {"smbios_uuid": "none"},
        {"machine_id": "x"},
        {"boot_id": "a boot"},
    ],
)
def test_what_cannot_be_a_machine_is_refused(settings: str, store: Store, change: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        run(settings, {**NODE, **change})
    assert store.machines.all() == []
