# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's look at the kernel's log, by the agent's code as the role node_agent installs it beside the helper."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils import agent, logs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import reported
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.node.nvidia_smi import (
    BOOT_ID,
    GpuNode,
)

XID = "NVRM: Xid (PCI:0000:05:00): 119, pid=77, name=python3, Timeout after 6s of waiting for RPC response GSP!"
OTHER = "NVRM: Xid (PCI:0000:06:00): 31, pid=77, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> GpuNode:
    node = GpuNode(tmp_path)
    for package in (agent, logs):
        source = Path(str(package.__file__)).parent
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / "lib/job_recovery" / source.name, ignore=ignored)
    told = {"controllers": ["head"], "port": 6838, "controller_uid": 0, "kernel_log": str(tmp_path / "kernel.log")}
    (tmp_path / "agent.json").write_text(json.dumps(told), encoding="utf-8")
    return node


def log(node: GpuNode, *texts: str) -> None:
    lines = ["3,%d,1,-;%s\n" % row for row in enumerate(texts)]
    (node.folder / "kernel.log").write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("texts", "code", "devices"),
    [
        ((XID, OTHER), "xid119", ["0000:05:00"]),
        ((XID, OTHER), "xid31", ["0000:06:00"]),
        ((OTHER,), "xid119", []),
        ((), "xid119", []),
        ((*("usb 1-1: new device %d" % number for number in range(9000)), XID), "xid119", ["0000:05:00"]),
    ],
)
def test_what_the_log_says(node: GpuNode, texts: tuple[str, ...], code: str, devices: list[str]) -> None:
    log(node, *texts)
    answer = node.ask("kernel-look --code " + code)
    assert answer["boot_id"] == BOOT_ID
    assert sorted({each["device"] for each in answer["findings"]}) == devices
    report = reported.Report(code, "reset_gpu", "fatal", devices[0] if devices else "0000:05:00", BOOT_ID)
    assert (reported.told_ago(answer, report) is not None) is bool(devices)


def _no_agent(node: GpuNode) -> None:
    shutil.rmtree(node.folder / "lib/job_recovery")


def _no_configuration(node: GpuNode) -> None:
    (node.folder / "agent.json").unlink()


@pytest.mark.parametrize(("change", "kind"), [(_no_agent, "absent"), (_no_configuration, "unreadable")])
def test_without_an_agent_nobody_can_tell(node: GpuNode, change: Any, kind: str) -> None:
    log(node, XID)
    change(node)
    assert node.ask("kernel-look --code xid119")["error"]["kind"] == kind


@pytest.mark.parametrize("line", ["kernel-look", "kernel-look --code XID", "kernel-look --code xid119 now"])
def test_anything_but_a_known_line_is_refused(node: GpuNode, line: str) -> None:
    assert node.ask(line)["error"]["kind"] == "bad_input"
