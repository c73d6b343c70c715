# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A million lines of a kernel log: how long one core needs to say what is wrong."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.kernel import KernelLog
from measuring import Benchmark, Figure, Wrong

LINES = 1_000_000
BUDGET = 10.0  # seconds of one core
PIECE = 65536  # characters that are read at once
SEED = 11
STORM = 100_000
QUIET = (
    "systemd[1]: Started Session {0} of User root.",
    "audit: type=1400 audit(1700000000.123:{0}): apparmor=\"ALLOWED\" operation=\"open\" profile=\"x\" name=\"/data\"",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{0}: link becomes ready",
    "docker0: port 1(veth{0}) entered blocking state",
    "EXT4-fs (nvme0n1p2): mounted filesystem {0} with ordered data mode. Quota mode: none.",
    "nvidia-uvm: Loaded the UVM driver, major device number {0}.",
)
LOUD = (
    "NVRM: Xid (PCI:0000:{1:02x}:00): 45, pid={0}, name=python3, Ch 00000001",
    "NVRM: Xid (PCI:0000:{1:02x}:00): 31, pid={0}, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE CE0",
    "mce: [Hardware Error]: Machine check events logged",
    "EDAC MC{1}: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x0 offset:0x0)",
    "python3[{0}]: segfault at 0 ip 0000000000401136 sp 00007ffd00000000 error 4 in libc.so.6[7f00+1000]",
    "pcieport 0000:{1:02x}:00.0: AER: Corrected error received: 0000:{1:02x}:00.0",
)


def million(folder: Path) -> list[Figure]:
    """Five lines of a hundred say something, which is more than a sick node says; and a storm of one fault."""
    chance = random.Random(SEED)
    loud = 0
    path = folder / "kernel.log"
    with path.open("w", encoding="ascii") as log:
        for number in range(LINES):
            says = chance.random() < 0.05
            loud += says
            line = chance.choice(LOUD if says else QUIET).format(number, chance.randrange(8))
            log.write("[%d.%06d] %s\n" % (number // 50, number % 1000000, line))
    seconds, counted = _seconds(path)
    if counted != loud:
        raise Wrong("%d lines say something, and %d were counted" % (loud, counted))
    path.write_text("[90000.000001] %s\n" % LOUD[0].format(7, 5) * STORM, "ascii")
    storm, counted = _seconds(path)
    if counted != STORM:
        raise Wrong("%d lines of a storm, and %d were counted" % (STORM, counted))
    return [
        Figure("a million lines, one core", seconds, budget=BUDGET),
        Figure("a storm of %d lines, one core" % STORM, storm),
        Figure("memory of the process at most", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB"),
    ]


def _seconds(path: Path) -> tuple[float, int]:
    """Seconds of the processor, and how many lines were counted in all findings."""
    began = time.process_time()
    log = KernelLog(boot_time=1_700_000_000.0)
    told: dict[tuple[str, str, object], int] = {}
    for piece in _pieces(path):
        for finding in log.feed(piece, at=1_800_000_000.0):
            told[finding.code, finding.device, finding.first] = finding.count
    for finding in log.flush(None):
        told[finding.code, finding.device, finding.first] = finding.count
    return time.process_time() - began, sum(told.values())


def _pieces(path: Path) -> Iterator[str]:
    with path.open(encoding="ascii") as log:
        while True:
            lines = log.readlines(PIECE)
            if not lines:
                return
            yield "".join(lines)


BENCHMARKS = (Benchmark("log-diagnosis", "a kernel log of %d lines" % LINES, million),)
