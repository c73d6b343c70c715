# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's loop: read the kernel's log, understand it, keep what is a fault, deliver. Three threads, one of them
for the disk and one for the network: whatever hangs there, the log is read on.

The launcher that the role node_agent installs is::

    #!/usr/bin/python3 -IS
    import sys
    sys.path.insert(0, "/usr/local/lib/job-recovery")
    from job_recovery.agent.service import main
    sys.exit(main())
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable

from ..logs import catalogue, kernel, model
from . import config, disks, records
from .delivery import Delivery
from .spool import Spool

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STATE = "/var/lib/job-recovery-agent"
_AT_ONCE = 2000  # records
_TELL_EVERY = 60.0  # seconds between two reports of losses
_NOTHING_TO_DO = (model.IGNORE, model.RESTART_APP)  # an application's own faults are its users' to see


def main(path: str = config.DEFAULT_PATH) -> int:
    """Run until SIGTERM. Returns 0 then, 1 when it cannot begin."""
    try:
        told = config.load(path)
        with open(_BOOT_ID, encoding="ascii") as handle:
            boot_id = handle.read().strip()
        spool = Spool(os.environ.get("STATE_DIRECTORY") or _STATE)
        log = records.opened(told.kernel_log, boot_id, spool.position)
    except (config.Misconfigured, OSError) as exc:
        say("cannot begin: %s" % exc)
        return 1
    if spool.trouble:
        say(spool.trouble)
    if log.skipped:
        say("this boot's log was never read and is not new: what stands in it is left out")
    Agent(told, boot_id, spool, log).run()
    return 0


def say(text: str) -> None:
    """One line for the journal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Agent:
    """See above."""

    def __init__(self, told: config.Config, boot_id: str, spool: Spool, log) -> None:
        self._boot_id, self._spool, self._log = boot_id, spool, log
        self._delivery = Delivery(told, boot_id, spool, say)
        self._kernel = kernel.KernelLog(
            entries=catalogue.DEFAULT.with_changes(told.catalogue or {}), disks=disks.own()
        )
        self._told_at = -_TELL_EVERY
        self._ended = threading.Event()

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_signal: self._ended.set())
        for work in (self._spool.keep_writing, lambda: self._delivery.run(self._ended.is_set)):
            threading.Thread(target=work, daemon=True).start()
        while not self._ended.is_set():
            if not self.step():
                self._log.wait(0.5)
        self._spool.end()

    def step(self) -> int:
        """Read on once; how many of the kernel's records there were."""
        batch = self._log.read(_AT_ONCE)
        findings = [found for record in batch.records for found in self._kernel.feed(record.text, record.at)]
        if len(batch.records) < _AT_ONCE:  # what there is was read: silence is silence
            findings += self._kernel.flush(time.time())
        self._spool.add(reports_of(findings, self._boot_id), batch.position, batch.lost)
        if time.monotonic() - self._told_at >= _TELL_EVERY:
            self._spool.tell_losses(self._tell)
        return len(batch.records)

    def _tell(self, lost: dict) -> list:
        self._told_at = time.monotonic()
        for code, number in lost.items():
            say("%s: %d" % (code, number))
        return losses_of(lost, self._boot_id, time.time())


def losses_of(lost: dict, boot_id: str, now: float) -> list:
    """The reports of what was lost: numbers by code."""
    found = [
        model.Finding(code, "agent", model.UNKNOWN, model.REPORT, count=number, first=now, last=now)
        for code, number in lost.items()
    ]
    return reports_of(found, boot_id)


def reports_of(findings: Iterable[model.Finding], boot_id: str) -> list:
    """The reports of what asks for something, as `protocol.REPORT` wants them."""
    return [
        {
            "id": secrets.token_hex(16),
            "code": found.code,
            "family": found.family,
            "verdict": found.verdict,
            "action": found.action,
            "severity": found.severity,
            "device": found.device,
            "cause": found.cause,
            "count": found.count,
            "first": found.first,
            "last": found.last,
            "boot_id": boot_id,
            "lines": [text for _number, text in found.lines],
        }
        for found in findings
        if found.action not in _NOTHING_TO_DO
    ]
