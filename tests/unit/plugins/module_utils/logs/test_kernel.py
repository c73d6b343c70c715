# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How lines of the kernel log become bursts, whose lines count, and what hostile lines may cost."""

from __future__ import annotations

import time
from typing import Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import bursts, kernel, prefix

XID = "NVRM: Xid (PCI:0000:05:00): %s"
LOST = XID % "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BOOT = 1_700_000_000.0


@pytest.mark.parametrize(
    ("line", "text", "when", "uptime"),
    [
        ("NVRM: plain", "NVRM: plain", None, None),
        ("3,4711,171167621162,-;NVRM: kmsg", "NVRM: kmsg", None, 171167.621162),
        ("3,4711,171167621162,-,caller=T12;NVRM: kmsg", "NVRM: kmsg", None, 171167.621162),
        ("[171167.621162] NVRM: dmesg", "NVRM: dmesg", None, 171167.621162),
        ("[    0.000000][    T0] NVRM: caller", "NVRM: caller", None, 0.0),
        ("<3>[   12.5] NVRM: raw", "NVRM: raw", None, 12.5),
        ("kern  :err   : [   12.500000] NVRM: decoded", "NVRM: decoded", None, 12.5),
        ("[Mon Nov  3 10:20:30 2025] NVRM: ctime", "NVRM: ctime", None, None),
        ("2023-11-14T22:13:20,250000+00:00 NVRM: dmesg iso", "NVRM: dmesg iso", BOOT + 0.25, None),
        ("2023-11-14T23:13:20.250000+01:00 n7 kernel: NVRM: rsyslog", "NVRM: rsyslog", BOOT + 0.25, None),
        ("2023-11-14T22:13:20+0000 n7 kernel: NVRM: short-iso", "NVRM: short-iso", BOOT, None),
        ("2023-11-14T22:13:20Z n7 kernel: [  9.5] NVRM: both", "NVRM: both", BOOT, 9.5),
        ("Tue 2023-11-14 22:13:20 UTC n7 kernel: NVRM: short-full", "NVRM: short-full", None, None),
        ("Nov 14 22:13:20 n7 kernel: NVRM: syslog", "NVRM: syslog", None, None),
        ("Nov  4 22:13:20 n7.example kernel: [171167.621162] NVRM: imklog", "NVRM: imklog", None, 171167.621162),
        ("Nov 14 22:13:20 kernel: NVRM: no host", "NVRM: no host", None, None),
        ("[171167.621162] n7 kernel: NVRM: monotonic", "NVRM: monotonic", None, 171167.621162),
        ("kernel: [123.5] NVRM: tag", "NVRM: tag", None, 123.5),
    ],
)
def test_forms_of_lines(line: str, text: str, when: Optional[float], uptime: Optional[float]) -> None:
    assert prefix.parse(line) == prefix.Message(text, when, uptime)


@pytest.mark.parametrize(
    "line",
    [
        "Nov 14 22:13:20 n7 mallory: " + LOST,
        "Nov 14 22:13:20 n7 kernel[4711]: " + LOST,
        "2023-11-14T22:13:20+00:00 n7 sshd[12]: " + LOST,
        "12,4711,171167621162,-;" + LOST,  # written to /dev/kmsg by a program
        "<12>[   12.5] " + LOST,
        "user  :warn  : [   12.5] " + LOST,
        "[171167.621162] n7 mallory[12]: " + LOST,
        "python: " + LOST,
        "3,4711,171167621162,-;\\x0a" + LOST,
        "3,4711,171167621162,-;a[1]: segfault at\\x0a" + LOST,
    ],
)
def test_what_a_program_wrote_is_no_word_of_the_kernel(line: str) -> None:
    assert kernel.read(line) == []


FILES = (
    "global fatal error", "0000:05:00.0 fallen off the bus", "critical temperature reached", "x on y (z", "sda1",
    "Remounting filesystem read-only", "Sense Key : Medium Error", "timeout, ", "recovery failed",
)
LINES = (
    "%s[71]: segfault at 0 ip 0000000000401136 sp 00007ffd00000000 error 4 in %s[400000+1000]",
    "%s invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0 %s",
    "%s: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP),nodemask=(null),cpuset=%s",
    "traps: %s[71] trap invalid opcode ip:401136 sp:7ffd00000000 error:0 in %s[400000+1000]",
    "INFO: task %s:71 blocked for more than 120 seconds. %s",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task_memcg=/a,task=%s,pid=71,uid=1000 %s",
)


@pytest.mark.parametrize(
    "name",
    [
        "NVRM: x", "NVRM: Xid (PCI:", "NVRM: GPU", "NVRM: fallen of", "kernel BUG at ", "Oops: 0000 [#1]",
        "EDAC MC0: UE", "EDAC MC0: UE on", "EDAC MC0: UE x ", "thermal x", "thermal thermal", "EXT4-fs (sda): ",
        "XFS (sda): log ", "JBD2: x", "JBD2: x on sda", "nvme nvme0: ", "nvme0n1: ", "sd 0:0:0:0: [sd", "BUG: x",
        "Kernel panic", "mce: [Hardware", "{1}[Hardware Er", "Memory failure:", "ab 0000:05:00.0", "SXid (",
        "BTRFS error (de",
    ],
)
def test_no_name_of_a_process_or_a_file_reaches_a_node(name: str) -> None:
    """Both are the user's, and the kernel writes them as they are."""
    for line in LINES:
        for file in FILES:
            for found in kernel.read(line % (name[:15], file)):
                assert found.action in ("report", "ignore", "restart_app"), found


def test_a_fault_is_told_at_once_and_its_burst_at_the_end() -> None:
    log = kernel.KernelLog()
    (first,) = log.feed(XID % "31, pid=7, name=python, Ch 00000008", at=1000.0)
    assert (first.code, first.count, first.first, first.last) == ("xid31", 1, 1000.0, 1000.0)
    for second in range(1, 100):
        assert log.feed(XID % "31, pid=7, name=python, Ch 00000009", at=1000.0 + second) == []
    assert log.flush(1100.0) == []
    (whole,) = log.flush(1099.0 + 181)
    assert (whole.code, whole.device, whole.count) == ("xid31", "0000:05:00", 100)
    assert (whole.first, whole.last) == (1000.0, 1099.0)
    assert len(whole.lines) == 8
    assert log.flush(5000.0) == []
    (again,) = log.feed(XID % "31, pid=7, name=python, Ch 00000008", at=5000.0)
    assert (again.count, again.first) == (1, 5000.0)


def test_a_burst_that_does_not_end_is_told_now_and_then() -> None:
    log = kernel.KernelLog()
    told = []
    for second in range(1000):
        told += log.feed("mce: [Hardware Error]: Machine check events logged", at=float(second))
        told += log.flush(float(second))
    counts = [finding.count for finding in told + log.flush(None)]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 1000
    assert 4 <= len(counts) <= 10


def test_other_devices_and_other_codes_are_other_bursts() -> None:
    found = kernel.read("\n".join([LOST, LOST.replace("05:00", "06:00"), XID % "48, pid=1, name=a, DBE"]))
    assert [(one.code, one.device, one.count) for one in found] == [
        ("xid79", "0000:05:00", 1), ("xid79", "0000:06:00", 1), ("xid48", "0000:05:00", 1),
    ]


def test_thousands_of_clean_ups_are_one_finding_without_weight() -> None:
    (found,) = kernel.read("\n".join([XID % "45, pid=9, name=python3, Ch 00000001"] * 20_000))
    assert (found.code, found.action, found.verdict, found.count) == ("xid45", "ignore", "unknown", 20_000)


@pytest.mark.parametrize(
    ("before", "line", "cause", "verdict", "action"),
    [
        ("", "45, pid=9, name=p, Ch 00000001 caused by previous Xid 149", "xid149", "hardware", "reset_gpu"),
        ("", "45, pid=9, name=p, Ch 00000001 caused by previous Xid 31", "xid31", "application", "restart_app"),
        ("", "45, pid=9, name=p, Ch 00000001 caused by previous Xid 999", "xid999", "unknown", "report"),
        ("", "45, pid=9, name=p, Ch 00000001", "", "unknown", "ignore"),
        ("48, pid=9, name=p, DBE", "45, pid=9, name=p, Ch 00000001", "xid48", "hardware", "reset_gpu"),
        ("31, pid=9, name=p, MMU Fault", "45, pid=9, name=p, Ch 00000001", "xid31", "application", "restart_app"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 0 (0x13 0x0)", "45, Ch 1 caused by previous Xid 149",
         "xid149", "hardware", "ignore"),
        ("48, pid=9, name=p, DBE", "31, pid=9, name=p, MMU Fault", "xid48", "hardware", "reset_gpu"),
        ("94, pid=9, name=p, Contained", "43, pid=9, name=p, Ch 00000001", "xid94", "hardware", "restart_app"),
        ("79, GPU has fallen off the bus.", "13, pid=9, name=p, Graphics Exception", "xid79", "hardware", "reboot"),
        ("63, Row Remapper: New row", "31, pid=9, name=p, MMU Fault", "", "application", "restart_app"),
        ("92, High single-bit ECC error rate", "31, pid=9, name=p, MMU Fault", "", "application", "restart_app"),
    ],
)
def test_causes(before: str, line: str, cause: str, verdict: str, action: str) -> None:
    log = kernel.KernelLog()
    if before:
        log.feed(XID % before, at=0.0)
    (found,) = log.feed(XID % line, at=170.0)
    assert (found.cause, found.verdict, found.action) == (cause, verdict, action)


@pytest.mark.parametrize("later", [XID.replace("05:00", "06:00"), XID])
def test_another_gpu_or_another_time_explains_nothing(later: str) -> None:
    log = kernel.KernelLog()
    log.feed(XID % "48, pid=9, name=p, DBE", at=0.0)
    when = 170.0 if later != XID else 190.0
    (found,) = [one for one in log.feed(later % "31, pid=9, name=p, MMU Fault", at=when) if one.code == "xid31"]
    assert (found.cause, found.action) == ("", "restart_app")


@pytest.mark.parametrize(
    "lines",
    [
        ["NVRM: The NVIDIA GPU 0000:0e:00.0", "NVRM: (PCI ID: 10de:1b06) installed in this system has",
         "NVRM: fallen off the bus and is not responding to commands."],
        ["4,1,2,-;%s\\x0a%s\\x0a%s" % (
            "NVRM: The NVIDIA GPU 0000:0e:00.0", "NVRM: (PCI ID: 10de:1b06) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        )],
        ["NVRM: The NVIDIA GPU 0000:0e:00.0 (PCI ID: 10de:1b06)", "e1000e: something else",
         "NVRM: installed in this system has fallen off the bus and is not responding to commands."],
        ["NVRM: GPU at PCI:0000:0e:00: GPU-2fbf1a6e-0000-0000-0000-000000000000",
         "NVRM: Xid (PCI:0000:0e:00): 79, pid=1, name=x, GPU has fallen off the bus.",
         "NVRM: GPU 0000:0e:00.0: GPU has fallen off the bus."],
    ],
)
def test_fallen_off_the_bus_over_several_lines_is_one_fault(lines: list[str]) -> None:
    log = kernel.KernelLog()
    told = [finding for line in lines for finding in log.feed(line, at=1.0)]
    assert [(one.code, one.device, one.action, one.count) for one in told] == [("xid79", "0000:0e:00", "reboot", 1)]
    assert log.flush(None) == []


@pytest.mark.parametrize(
    ("uptimes", "actions"),
    [
        ([10.0, 20.0, 299.0], []),
        ([10.0, 400.0], ["report"]),
        ([400.0, 500.0, 600.0], ["report", "drain_and_report"]),
        ([400.0, 1100.0, 1800.0, 2500.0], ["report"] * 4),
        ([None, None, None, None], ["report"]),
    ],
)
def test_flapping_links_but_not_at_boot(uptimes: list[Optional[float]], actions: list[str]) -> None:
    log = kernel.KernelLog(boot_time=BOOT)
    told = []
    for uptime in uptimes:
        stamp = "" if uptime is None else "[%.6f] " % uptime
        told += log.feed(stamp + "mlx5_core 0000:c1:00.0 ibp193s0: Link down", at=BOOT)
    assert [one.action for one in told] == actions


def test_times_come_from_the_line_from_its_uptime_or_from_the_reader() -> None:
    log = kernel.KernelLog(boot_time=BOOT)
    lines = ("2023-11-14T22:13:20+00:00 n7 kernel: %s", "[  60.0] %s", "Nov 14 22:13:20 n7 kernel: %s")
    firsts = [
        log.feed(line % LOST.replace("05:00", "%02d:00" % number), at=5.0)[0].first for number, line in enumerate(lines)
    ]
    assert firsts == [BOOT, BOOT + 60.0, 5.0]


def test_memory_is_bounded_and_nothing_is_lost_silently() -> None:
    log = kernel.KernelLog()
    told = []
    for number in range(3000):
        line = "INFO: task cp:%d blocked for more than 120 seconds." % number
        told += log.feed(line, at=1.0) + log.feed(line, at=2.0)
    assert len(log._bursts._open) <= bursts.MAX_BURSTS
    assert sum(one.count for one in {(one.pid, one.first): one for one in told + log.flush(None)}.values()) == 6000


def test_numbers_of_lines_go_on() -> None:
    log = kernel.KernelLog()
    texts = ("a\n%s\nb\n%s" % (LOST, LOST.replace("05:", "06:")), LOST.replace("05:", "07:") + "\n", "c\nd\n",
             LOST.replace("05:", "08:"))
    numbers = [one.lines[0][0] for text in texts for one in log.feed(text, at=1.0)]
    assert numbers == [2, 4, 5, 8]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:" + "0:" * 500_000,
        "NVRM: Xid (PCI:0000:05:00): 149, " + "NETIR_" * 200_000,
        XID % ("74, NVLink: fatal error detected on link 1(" + "0x0, " * 200_000),
        XID % ("154, GPU recovery action changed from 0x0 (" + "(" * 1_000_000),
        "EDAC MC0: 1 CE " + " on" * 400_000,
        "oom-kill:constraint=CONSTRAINT_MEMCG," + ",task_memcg=" * 100_000,
        "Out of memory: Killed process 1 " + "(" * 1_000_000,
        "INFO: task " + ":1" * 500_000,
        "x" * 1_000_000 + "[1]: segfault at 0 ip 0",
        "traps: " + "[1] trap " * 100_000,
        "{1" + "1" * 1_000_000 + "}[Hardware Error]: event severity: fatal",
        "sd " + "0:" * 500_000 + " Sense Key : Medium Error",
        "Lustre: " + "Connection to " * 80_000,
        "BTRFS error (device " + "a" * 1_000_000,
        "[" + " " * 1_000_000 + "1.0] " + LOST,
        "Nov 14 22:13:20 " + "n" * 1_000_000 + " kernel: " + LOST,
        " ".join(["NVRM: ", "mce: [Hardware Error]: ", "EXT4-fs ", "nvme"] * 100_000),
        "1" * 1_000_000 + " messages suppressed",
    ],
)
def test_hostile_lines_cost_no_more_than_their_length(line: str) -> None:
    """A regular expression that goes back and forth would need hours here."""
    begun = time.process_time()
    kernel.read("\n".join([line[:1900]] * 200 + [line]))
    assert time.process_time() - begun < 20
