# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs on a node: how they are looked at, and how they are reset once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import gpu
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.node.nvidia_smi import (
    BOOT_ID,
    GpuNode,
)

NAME, DEVICE = "17-1764540000000", "0000-05-00"
SET = ["nvidia-persistenced.service", "nvidia-dcgm.service"]


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> GpuNode:
    return GpuNode(tmp_path)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:05:00.0", "0000:05:00"),
        ("0000:DC:00.0", "0000:dc:00"),
        ("PCI:0018:01:00", "0018:01:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("0000:05:00", "0000:05:00"),
        ("05:00.0", ""),
        ("0000:05:00.0; id", ""),
        ("", ""),
    ],
)
def test_addresses_have_one_form(text: str, address: str) -> None:
    assert gpu.address(text) == address
    assert gpu.of_word(address.replace(":", "-")) == address


LOOKS: list[tuple[dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    ({"recovery": "None"}, {}, "answers", {"recovery": "None", "pending": False, "remap_failed": False}),
    ({"recovery": "Drain and Reset", "pending": "Yes"}, {}, "answers",
     {"recovery": "Drain and Reset", "pending": True}),
    ({"recovery": "N/A", "failure": "Yes", "persistence": True}, {}, "answers",
     {"recovery": "", "remap_failed": True, "persistence": True}),
    ({"pending": "N/A", "failure": "N/A"}, {}, "answers", {"recovery": "", "pending": None, "remap_failed": None}),
    ({"lost": True}, {}, "lost", {"recovery": "", "pending": None}),
    ({}, {"warns": "WARNING: infoROM is corrupted at gpu 0000:06:00.0"}, "answers", {"pending": False}),
    ({}, {"rc": 15, "says": "The GPU has fallen off the bus or has otherwise become inaccessible."}, "lost", {}),
    ({}, {"rc": 9, "says": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}, "unknown",
     {}),
    ({}, {"rc": 12, "says": "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."}, "absent", {}),
    ({}, {"rc": 255, "says": "Unknown Error"}, "unknown", {}),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "more", "state", "told"), LOOKS)
def test_look(
    node: GpuNode, shown: dict[str, Any], more: dict[str, Any], state: str, told: dict[str, Any]
) -> None:
    node.gpus["0000:05:00"] = shown
    node.more = more
    answer = node.ask("gpu-look --device %s" % DEVICE)
    (found,) = answer["gpus"]
    assert (answer["state"], found["state"], found["device"]) == (state, state, "0000:05:00")
    assert {key: found[key] for key in told} == told
    assert bool(answer["trouble"]) is (state != "answers")


def test_look_at_all_and_at_one_that_is_not_there(node: GpuNode) -> None:
    assert [each["device"] for each in node.ask("gpu-look")["gpus"]] == ["0000:05:00", "0000:06:00"]
    assert [each["state"] for each in node.ask("gpu-look --device 0000-99-00")["gpus"]] == ["lost"]


def test_look_without_nvidia_smi(node: GpuNode) -> None:
    (node.folder / "bin/nvidia-smi").unlink()
    assert node.ask("gpu-look --device %s" % DEVICE)["gpus"][0]["state"] == "absent"


def test_who_has_a_gpu_open(node: GpuNode) -> None:
    node.opens(77, "/dev/nvidia0")
    node.opens(78, "/dev/nvidia1", "dcgm")
    node.opens(79, "/dev/nvidiactl")
    assert node.ask("gpu-look --device %s" % DEVICE)["users"] == [{"pid": 77, "name": "python3"}]
    assert [each["pid"] for each in node.ask("gpu-look")["users"]] == [77, 78]
    (node.folder / "proc/driver/nvidia/gpus/0000:05:00.0/information").unlink()  # then nobody knows whose file it is
    assert [each["pid"] for each in node.ask("gpu-look --device %s" % DEVICE)["users"]] == [77, 78]


def test_a_whole_reset(node: GpuNode) -> None:
    node.gpus["0000:05:00"] = {"recovery": "Reset", "persistence": True}
    stopped = node.ask("gpu-stop --name %s" % NAME)
    assert (stopped["state"], stopped["services"], stopped["persistence"]) == ("done", SET, ["0000:05:00"])
    assert set(node.services.values()) == {"inactive"}
    done = node.ask("gpu-reset --name %s --device %s --if-boot-id %s" % (NAME, DEVICE, BOOT_ID))
    assert (done["state"], done["devices"]) == ("done", ["0000:05:00"])
    assert [node.gpus[each].get("resets") for each in node.gpus] == [1, None]
    assert node.ask("gpu-start --name %s" % NAME)["services"] == SET
    assert [node.services[unit] for unit in SET] == ["active", "active"]
    assert "dcgm-exporter.service" not in node.services, "what did not run is not started"
    assert node.gpus["0000:05:00"]["persistence"] is True


def test_requests_that_are_repeated_do_nothing_twice(node: GpuNode) -> None:
    for _time in range(2):
        assert node.ask("gpu-stop --name %s" % NAME)["services"] == SET
    for _time in range(3):
        assert node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))["state"] == "done"
    assert node.gpus["0000:05:00"]["resets"] == 1
    for _time in range(2):
        assert node.ask("gpu-start --name %s" % NAME)["services"] == SET
    assert node.ask("gpu-reset --name 18-1 --device %s" % DEVICE)["state"] == "done"
    assert node.gpus["0000:05:00"]["resets"] == 2, "another name is another reset"


def test_a_reset_whose_helper_died_is_not_repeated(node: GpuNode) -> None:
    node.services = {}
    node.ask("gpu-stop --name %s" % NAME)
    node.more = {"hangs": True}
    helper = node.begin("gpu-reset --name %s --device %s" % (NAME, DEVICE))
    record = node.folder / "run" / ("gpu-reset-" + NAME)
    until = time.monotonic() + 20
    while "begun" not in record.read_text(encoding="utf-8") and time.monotonic() < until:
        time.sleep(0.02)
    meanwhile = node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))
    assert (meanwhile["state"], node.ask("gpu-start --name %s" % NAME)["state"]) == ("running", "running")
    helper.kill()
    helper.communicate()
    node.more = {}
    after = node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))
    assert (after["state"], "interrupted" in after["why"]) == ("failed", True)
    assert "resets" not in node.gpus["0000:05:00"]


def test_what_is_in_use_is_not_reset_and_may_be_asked_for_again(node: GpuNode) -> None:
    node.ask("gpu-stop --name %s" % NAME)
    node.opens(77, "/dev/nvidia0")
    busy = node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))
    assert (busy["state"], busy["users"]) == ("busy", [{"pid": 77, "name": "python3"}])
    assert not [call for call in node.called if "--gpu-reset" in call]
    node.ends(77)
    assert node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))["state"] == "done"


ALL = ["nvidia-smi", "--gpu-reset"]
ONE = [*ALL, "-i", "0000:05:00"]
TIED: list[tuple[dict[str, dict[str, Any]], int, str, list[list[str]]]] = [
    # the GPUs, the process that has the other one open, what comes of it, the resets that were tried
    ({"0000:05:00": {"tied": True}, "0000:06:00": {"tied": True}}, 0, "done", [ONE, ALL]),
    ({"0000:05:00": {"tied": True}, "0000:06:00": {"tied": True}}, 77, "failed", [ONE]),
    ({"0000:05:00": {"stuck": True}, "0000:06:00": {}}, 0, "failed", [ONE, ALL]),
    ({"0000:05:00": {"used": True}, "0000:06:00": {}}, 77, "failed", [ONE]),
]


@pytest.mark.parametrize(("gpus", "user", "state", "tried"), TIED)
def test_gpus_that_nvlink_ties_together(
    node: GpuNode, gpus: dict[str, dict[str, Any]], user: int, state: str, tried: list[list[str]]
) -> None:
    node.gpus = gpus
    node.services = {}
    if user:
        node.opens(user, "/dev/nvidia1")
    answer = node.ask("gpu-reset --name %s --device %s" % (NAME, DEVICE))
    assert (answer["state"], node.called) == (state, tried)
    assert answer["devices"] == ([] if len(tried) > 1 else ["0000:05:00"])


def test_a_reset_that_the_gpu_does_not_know(node: GpuNode) -> None:
    node.more = {"rc": 3, "says": "Resetting GPU 00000000:05:00.0 is not supported."}
    answer = node.ask("gpu-reset --name %s --device %s --device 0000-06-00" % (NAME, DEVICE))
    assert (answer["state"], "cannot be reset" in answer["why"]) == ("failed", True)


def test_services_that_do_not_obey_are_told(node: GpuNode) -> None:
    node.more = {"stubborn": "nvidia-dcgm.service"}
    assert "does not stop" in node.ask("gpu-stop --name %s" % NAME)["error"]["message"]
    node.more = {}
    assert node.ask("gpu-stop --name %s" % NAME)["services"] == SET, "recorded before the first try"
    node.more = {"stubborn": "nvidia-persistenced.service"}
    assert "does not start" in node.ask("gpu-start --name %s" % NAME)["error"]["message"]


@pytest.mark.parametrize(
    "line",
    [
        "gpu-look --device 0000:05:00",
        "gpu-look --device 05-00",
        "gpu-look all",
        "gpu-stop",
        "gpu-stop --name ..-1",
        "gpu-reset --device 0000-05-00",
        "gpu-reset --name 1-1 --device x",
        "gpu-start --name 1",
    ],
)
def test_anything_but_a_known_line_is_refused(node: GpuNode, line: str) -> None:
    assert node.ask(line)["error"]["kind"] == "bad_input"
    assert node.called == []


@pytest.mark.parametrize("clients", ["nvidia-dcgm.service", ["nvidia-dcgm"], ["../x.service"], ["a b.service"], [1]])
def test_clients_that_are_no_services_are_not_taken(node: GpuNode, clients: Any) -> None:
    node.config["gpu_clients"] = clients
    assert node.ask("gpu-stop --name %s" % NAME)["error"]["kind"] == "unreadable"
