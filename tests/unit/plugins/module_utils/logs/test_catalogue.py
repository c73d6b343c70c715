# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's catalogues: all of their rows, what the text of a line decides, and what a site changes."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import catalogue, kernel, xid_table
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import (
    ACTIONS,
    IGNORE,
    NODE_ACTIONS,
    REPORT,
    UNKNOWN,
    VERDICTS,
)

# Resolution buckets of the catalogue that send somebody to the node or the GPU, code by code, as NVIDIA lists them.
RESETS = {46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 149, 150, 155, 156, 158}
REBOOTS = {79, 151}
MECHANICS = {54}


def test_every_code_of_the_catalogue_has_a_row_and_no_other() -> None:
    assert [code for code in range(1, 173) if catalogue.DEFAULT.xid(code) is catalogue.NOT_LISTED] == []
    assert catalogue.DEFAULT.xid(173) is catalogue.NOT_LISTED
    assert catalogue.DEFAULT.xid(0) is catalogue.NOT_LISTED
    assert not xid_table.UNUSED_XIDS & {int(line.split()[0]) for line in xid_table.XIDS.split("\n") if line}


def test_no_other_code_takes_a_node_out_of_service() -> None:
    found: dict[str, set[int]] = {action: set() for action in NODE_ACTIONS}
    for code in range(1000):
        action = catalogue.DEFAULT.xid(code).action
        if action in NODE_ACTIONS:
            found[action].add(code)
    assert found == {"reset_gpu": RESETS, "reboot": REBOOTS, "drain_and_report": MECHANICS}


def test_what_is_unknown_is_never_acted_upon() -> None:
    for code in range(30000):
        for entry in (catalogue.DEFAULT.xid(code), catalogue.DEFAULT.sxid(code)):
            assert entry.verdict in VERDICTS
            assert entry.action in ACTIONS
            if entry.verdict == UNKNOWN:
                assert entry.action in (REPORT, IGNORE)


@pytest.mark.parametrize(
    ("code", "unit", "severity", "words", "action"),
    [
        (144, "SAW_MVB", "fatal", (0x1, 0x2), "reset_gpu"),
        (144, "SAW_MVB", "nonfatal", (0x1, 0x1), "ignore"),
        (145, "RLW_REMAP", "nonfatal", (0x4, 0x1), "restart_app"),
        (145, "RLW_TAGSTATE", "fatal", (0x8, 0x100000), "reset_gpu"),
        (145, "RLW_SRC_TRACK", "nonfatal", (0x7, 0x2 | 0x4), "restart_app"),  # two bits: the firmer one
        (145, "RLW_SRC_TRACK", "nonfatal", (0x7, 0x2 | 0x40), "ignore"),  # a bit that no row has: the severity
        (145, "RLW_SRC_TRACK", "", (0x7, 0x40), None),
        (146, "TLW_RX_PIPE0", "fatal", (0xA, 0x4), "reset_gpu"),
        (149, "NETIR_BER_EVENT", "nonfatal", (0x13, 0x3), "ignore"),
        (149, "NETIR_MFDE_EVENT", "nonfatal", (0x14, 0x3), "ignore"),
        (149, "NETIR_MFDE_EVENT", "fatal", (0x14, 0x7), "reset_gpu"),
        (149, "NETIR_LINK_DOWN", "fatal", (0x11, 0x0), "reset_gpu"),
        (149, "NETIR_LINK_DOWN", "fatal", (0b101000 << 20 | 0x11, 0x0), "ignore"),
        (149, "NETIR_LINK_DOWN", "fatal", (0b111111 << 20 | 0x11, 0x0), "reset_gpu"),
        (149, "NETIR_LINK_DOWN", "", (), None),
        (150, "MSE_WATCHDOG", "fatal", (0x0, 0x0), "reset_gpu"),
        (145, "SAW_MVB", "fatal", (0x1, 0x2), None),  # a unit of another code
        (149, "BRAND_NEW", "fatal", (0x1, 0x2), None),
    ],
)
def test_nvlink5(code: int, unit: str, severity: str, words: tuple[int, ...], action: Optional[str]) -> None:
    assert catalogue.nvlink5(code, unit, severity, words) == action


@pytest.mark.parametrize(
    ("registers", "answer"),
    [
        ((1 << 0 | 1 << 23 | 1 << 30, 0, 0, 0, 0, 0, 0), ("ignore", 0)),
        ((0, 0, 0, 0, 1 << 20 | 1 << 29, 0, 0), ("ignore", 0)),
        ((1 << 4, 0, 0, 0, 0, 0, 0), ("report", 3)),
        ((0, 0, 1 << 6, 0, 0, 0, 0), ("report", 3)),
        ((0, 0, 0, 0, 1 << 28, 0, 0), ("report", 3)),
        ((1 << 27, 0, 0, 0, 0, 0, 0), ("report", 2)),
        ((0, 0, 1 << 19, 0, 0, 0, 0), ("report", 2)),
        ((1 << 16, 0, 0, 0, 0, 0, 0), ("drain_and_report", 0)),
        ((1 << 22 | 1 << 0, 0, 0, 0, 0, 0, 0), ("drain_and_report", 0)),
        ((0, 0, 1 << 13, 0, 0, 0, 0), ("drain_and_report", 0)),
        ((1 << 1 | 1 << 20, 0, 0, 0, 0, 0, 0), ("report", 0)),  # a consequence of something else
        ((0, 0, 0, 1 << 18, 0, 0, 0), ("report", 0)),
        ((0, 1 << 5, 0, 0, 0, 0, 0), ("report", 0)),  # a register that the workflow does not know
        ((), ("report", 0)),
    ],
)
def test_nvlink(registers: tuple[int, ...], answer: tuple[str, int]) -> None:
    assert catalogue.nvlink(registers) == answer


@pytest.mark.parametrize(
    ("value", "words", "action"),
    [
        (0, "None", "ignore"), (1, "GPU Reset Required", "reset_gpu"), (1, "PF FLR", "reset_gpu"),
        (2, "Node Reboot Required", "reboot"), (2, "OS Reboot", "reboot"), (3, "Drain P2P", "drain_and_report"),
        (4, "Drain and Reset", "reset_gpu"), (1, "None", None), (2, "GPU Reset Required", None), (5, "Anything", None),
        (2, "", None),
    ],
)
def test_recovery_action(value: int, words: str, action: Optional[str]) -> None:
    assert catalogue.recovery_action(value, words) == action


def test_a_site_changes_rows() -> None:
    changed = catalogue.DEFAULT.with_changes(
        {"xid": {"79": {"action": "drain_and_report"}, "74": {"action": "reset_gpu"},
                 "200": {"verdict": "hardware", "action": "reboot"}},
         "sxid": {12028: {"action": "ignore"}}}
    )
    assert changed.xid(79).name == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert (changed.xid(79).verdict, changed.xid(79).action) == ("hardware", "drain_and_report")
    assert changed.xid(200) == catalogue.Entry("", "hardware", "reboot")
    assert changed.sxid(12028).action == "ignore"
    assert changed.xid(48) == catalogue.DEFAULT.xid(48)
    assert catalogue.DEFAULT.xid(79).action == "reboot"
    log = kernel.KernelLog(entries=changed)
    lines = (
        "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:06:00): 74, NVLink: fatal error detected on link 1(0x400000, 0x0, 0x0, 0x0, 0x0)",
        "NVRM: Xid (PCI:0000:07:00): 200, something new",
        "NVRM: The NVIDIA GPU 0000:08:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus",
    )
    told = [log.feed(line, at=1.0)[0].action for line in lines]
    assert told == ["drain_and_report", "reset_gpu", "reboot", "drain_and_report"]


@pytest.mark.parametrize(
    "changes",
    [
        [], "79", {"xids": {}}, {"xid": []}, {"xid": {"seventy": {"action": "reboot"}}}, {"xid": {"79": {}}},
        {"xid": {"79": "reboot"}}, {"xid": {"79": {"action": "explode"}}}, {"xid": {"79": {"verdict": "maybe"}}},
        {"xid": {"79": {"action": "reboot", "severity": "fatal"}}}, {"xid": {"-1": {"action": "reboot"}}},
        {"xid": {"999": {"action": "reboot"}}},  # what is unknown is never acted upon
        {"xid": {"61": {"action": "reset_gpu"}}}, {"sxid": {"28006": {"action": "reboot"}}},
        {"xid": {"\u0667\u0669": {"action": "reboot"}}},
    ],
)
def test_mistakes_of_a_site_are_refused(changes: Any) -> None:
    with pytest.raises(ValueError, match=r"catalogue|xid|mapping"):
        catalogue.DEFAULT.with_changes(changes)
