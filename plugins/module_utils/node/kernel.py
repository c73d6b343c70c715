# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the kernel's log of this boot say what was reported? Read and understood by the agent's own code, which is the
only one to know how; a node without an agent reports nothing, and is asked nothing.
"""

from __future__ import annotations

import os
import time

from . import machine
from .answer import Refusal

_DEADLINE = 8.0
_AT_ONCE = 2000  # records
_LISTED = 100


def look(here, code: str, deadline: float = _DEADLINE) -> dict:
    """The findings of this code in the kernel's log.

    Returns:
        `{"boot_id", "findings": [{"code", "device", "ago" (seconds since it was said last; None: the log bears no
        time)}]}`, the latest ones.

    Raises:
        Refusal: `absent` without an agent, `unreadable`, `timed_out` when the log does not end.
    """
    try:
        from job_recovery.agent import config, records
        from job_recovery.logs import kernel
    except ImportError as exc:
        raise Refusal("absent", "this node has no agent (%s)" % exc) from exc
    boot_id = machine.boot_id(here.proc)
    try:
        told = config.load(os.path.join(os.path.dirname(here.config_path), "agent.json"))
        log = records.opened(told.kernel_log, boot_id, records.Position(boot_id))  # from the beginning of this boot
        found = _read(log, kernel.KernelLog(), deadline)
    except (config.Misconfigured, OSError) as exc:
        raise Refusal("unreadable", "the kernel's log cannot be read: %s" % exc) from exc
    now = time.time()
    same = [
        {"code": code, "device": each.device, "ago": None if each.last is None else max(0.0, now - each.last)}
        for each in found
        if each.code == code
    ]
    return {"boot_id": boot_id, "findings": same[-_LISTED:]}


def _read(log, reader, deadline: float) -> list:
    """All findings, those of bursts that go on with their last line."""
    until = time.monotonic() + deadline
    found: list = []
    while True:
        batch = log.read(_AT_ONCE)
        if not batch.records:
            return found + reader.flush(None)
        for record in batch.records:
            found += reader.feed(record.text, record.at)
        if time.monotonic() > until:
            raise Refusal("timed_out", "the kernel's log was not read in %g s" % deadline)
