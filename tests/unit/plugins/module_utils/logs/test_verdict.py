# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose fault it is: the job's log beside the node's kernel log."""

from __future__ import annotations

from typing import Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import (
    APPLICATION,
    DRAIN_AND_REPORT,
    HARDWARE,
    IGNORE,
    REBOOT,
    REPORT,
    RESET_GPU,
    UNKNOWN,
    Finding,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.verdict import diagnose


def _kernel(code: str, verdict: str = HARDWARE, action: str = RESET_GPU, at: Optional[float] = 1000.0) -> Finding:
    return Finding(code, "xid", verdict, action, first=at, last=at)


@pytest.mark.parametrize(
    ("line", "kernel", "ended", "verdict", "action", "why"),
    [
        ("an illegal memory access", [], 1000.0, APPLICATION, "restart_app", "cuda_illegal_address"),
        ("an illegal memory access", [_kernel("xid48")], 1000.0, HARDWARE, RESET_GPU, "kernel_log"),
        ("an illegal memory access", [_kernel("xid94", action="restart_app")], 1000.0, HARDWARE, "restart_app",
         "kernel_log"),
        ("an illegal memory access", [_kernel("xid31", APPLICATION, "restart_app")], 1000.0, APPLICATION,
         "restart_app", "cuda_illegal_address"),
        ("an illegal memory access", [_kernel("xid79")], 9000.0, APPLICATION, "restart_app", "cuda_illegal_address"),
        ("an illegal memory access", [_kernel("xid79", at=None)], 1000.0, APPLICATION, "restart_app",
         "cuda_illegal_address"),
        ("an illegal memory access", [_kernel("xid79", at=None)], None, HARDWARE, RESET_GPU, "kernel_log"),
        ("uncorrectable ECC error encountered", [], 1000.0, HARDWARE, REPORT, "cuda_ecc"),
        ("uncorrectable ECC error encountered", [_kernel("xid48"), _kernel("xid79", action=REBOOT)], 1000.0, HARDWARE,
         REBOOT, "kernel_log"),
        ("MemoryError", [_kernel("xid79", action=REBOOT)], 1000.0, APPLICATION, REPORT, "host_oom"),
        ("Segmentation fault", [_kernel("mce", action=DRAIN_AND_REPORT)], 1000.0, HARDWARE, DRAIN_AND_REPORT,
         "kernel_log"),
        ("Segmentation fault", [_kernel("edac_ce", action=REPORT)], 1000.0, APPLICATION, "restart_app", "segfault"),
        ("all is well", [_kernel("xid79", action=REBOOT)], 1000.0, HARDWARE, REBOOT, "kernel_log"),
        ("all is well", [], 1000.0, UNKNOWN, IGNORE, "nothing_found"),
        ("Watchdog caught collective operation timeout", [], 1000.0, UNKNOWN, REPORT, "nccl_timeout"),
    ],
)
def test_diagnosis(line: str, kernel: list, ended: Optional[float], verdict: str, action: str, why: str) -> None:
    diagnosis = diagnose(jobs.findings(line), kernel, ended)
    assert (diagnosis.verdict, diagnosis.action, diagnosis.why) == (verdict, action, why)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("Connection reset by peer\nSegmentation fault", "segfault"),
        ("Segmentation fault\nNo space left on device", "segfault"),
        ("No space left on device\nSegmentation fault", "fs_full"),
        ("Segmentation fault\nuncorrectable ECC error", "cuda_ecc"),
        ("MPI_ABORT was invoked on rank 3\nCannot send: No route to host", "net_unreachable"),
        ("Segmentation fault\n*** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***", "node_fail"),
        ("Watchdog caught collective operation timeout\n*** JOB 1 ON n1 CANCELLED AT x DUE TO TIME LIMIT ***",
         "nccl_timeout"),
    ],
)
def test_which_fault_decides(log: str, why: str) -> None:
    assert diagnose(jobs.findings(log)).why == why
