# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports that the controller has not taken yet, and how far the log was read: in memory, and in one file.

Both are written together, so that a kill at any moment loses nothing: what was read and is not in the file is read
again. The file is written by a thread of its own: the disk may be what is broken, and a write to it may never end,
but the report about it must go out all the same.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from ..logs import model
from .records import Position

LIMIT = 200  # reports
# Codes of what is lost: the kernel's records that were overwritten before they were read, and reports without room.
OVERRUN = "kernel_log_overrun"
DROPPED = "agent_reports_dropped"
LOSSES = (OVERRUN, DROPPED)
_FILE = "state.json"
_MAX_BYTES = 4 * 1024 * 1024
_POSITION_EVERY = 5.0  # seconds between two writes for a position alone
_RETRY = 30.0


class Spool:
    """See above. Threads may use it together.

    Args:
        folder: of the file.
        limit: reports that are kept; then the oldest goes that asks for nothing to be done, or else the oldest.

    Attributes:
        added: how many reports were ever kept.
        trouble: why the file was not written the last time, empty when it was.
    """

    def __init__(self, folder: str, limit: int = LIMIT) -> None:
        self._path = os.path.join(folder, _FILE)
        self._limit = limit
        self._lock = threading.Condition()
        self._writing = threading.Lock()
        self._reports: dict[str, dict] = {}
        self._lost = dict.fromkeys(LOSSES, 0)
        self._changed = self._moved = False
        self._written_at = 0.0
        self._ended = False
        self.position = Position()
        self.added = 0
        self.trouble = ""
        self._load()

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as handle:
                data = json.loads(handle.read(_MAX_BYTES).decode("utf-8"))
            self.position = Position(*data["position"])
            self._reports = {report["id"]: report for report in data["reports"]}
            self._lost = {code: int(data["lost"][code]) for code in LOSSES}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as exc:
            self.trouble = "%s is not understood (%s): what it held is lost" % (self._path, type(exc).__name__)

    def add(self, reports: Iterable[dict], position: Position, overrun: int = 0) -> None:
        """Keep reports, and note how far the log was read when they were made, and how many records were overrun."""
        with self._lock:
            self._keep(reports)
            self._lost[OVERRUN] += overrun
            self._changed = self._changed or overrun > 0
            self._moved = self._moved or position != self.position
            self.position = position
            self._lock.notify_all()

    def tell_losses(self, make: Callable[[dict], list]) -> None:
        """Keep reports of what was lost, made of numbers by code, in its place."""
        with self._lock:
            lost = {code: number for code, number in self._lost.items() if number}
            if lost:
                self._lost = dict.fromkeys(LOSSES, 0)
                self._keep(make(lost))
                self._lock.notify_all()

    def _keep(self, reports: Iterable[dict]) -> None:
        for report in reports:
            self._reports[report["id"]] = report
            self.added += 1
            self._changed = True
        while len(self._reports) > self._limit:
            del self._reports[self._least()]
            self._lost[DROPPED] += 1

    def _least(self) -> str:
        mild = (name for name, report in self._reports.items() if report["action"] not in model.NODE_ACTIONS)
        return next(mild, None) or next(iter(self._reports))

    def oldest(self, number: int) -> list:
        """The reports that were kept first."""
        with self._lock:
            return list(self._reports.values())[:number]

    def remove(self, names: Sequence[str]) -> None:
        """Forget reports that were taken."""
        with self._lock:
            for name in names:
                self._changed = self._reports.pop(name, None) is not None or self._changed
            self._lock.notify_all()

    def wait(self, seconds: float) -> None:
        """Until there is something to send or the end has come, at most so long."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._reports) or self._ended, seconds)

    def end(self) -> None:
        """Let those that wait go on, and write what is left."""
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        self.write(now=True)

    def keep_writing(self) -> None:
        """Write what changes, until the end; for a thread of its own."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._changed or self._moved or self._ended, 1.0)
                if self._ended:
                    return
            if not self.write():
                time.sleep(0.2)

    def write(self, now: bool = False) -> bool:
        """Write the file if that is due; whether it was."""
        with self._writing:
            state = self._due(now)
            if state is None:
                return False
            try:
                self._replace(json.dumps(state).encode("utf-8"))
                self.trouble = ""
            except OSError as exc:
                self.trouble = "%s cannot be written: %s" % (self._path, exc.strerror)
                with self._lock:
                    self._changed = True
            return True

    def _due(self, now: bool) -> Optional[dict]:
        with self._lock:
            age = time.monotonic() - self._written_at
            pause = _RETRY if self.trouble else 0.0 if self._changed else _POSITION_EVERY
            if not (self._changed or self._moved) or (age < pause and not now):
                return None
            self._changed = self._moved = False
            self._written_at = time.monotonic()
            return {
                "position": list(self.position),
                "reports": list(self._reports.values()),
                "lost": self._lost,
            }

    def _replace(self, content: bytes) -> None:
        fresh = self._path + ".new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(fresh, self._path)
        folder = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
