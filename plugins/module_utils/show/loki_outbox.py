# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened, told to Loki: nothing lost while Loki is away, nothing twice, in the order of time.

Everything is written into the ledger's outbox first, from the rows of the recovery, which does nothing for it and
never waits for it. Then it is pushed, the earliest first, and noted as told when Loki has taken it. A line's time and
text are the same whenever it is pushed, so that Loki keeps one that is pushed again, after a crash, once.
"""

from __future__ import annotations

import logging
import zlib
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.client import LokiClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LokiSettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.gather import Gatherer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.lines import JOB_LABEL, micros

SINK = "loki"
MAX_ENTRIES = 500  # in one push
MAX_BYTES = 1000000  # of text in one push; Loki takes 4 MB
_log = logging.getLogger("job_recovery.reporter-loki")

Row = Mapping[str, Any]


class LokiOutbox:
    """The reporter's worker for Loki; see `reporter.Worker`. Blocking: for a thread of its own."""

    interval = 2.0

    def __init__(self) -> None:
        self._session = LedgerSession()
        self._gatherer = Gatherer(SINK)
        self._client: Optional[LokiClient] = None
        self._client_for: Optional[LokiSettings] = None

    def look(self, settings: Settings) -> bool:
        """Gather what happened and tell some of it; whether more is waiting.

        Raises:
            RecoveryError: the ledger or Loki cannot be reached. What is not told stays for the next look.
        """
        if not settings.loki.url or not settings.loki.ship:
            return False
        with self._session.open(settings) as store:
            outbox = Outbox(store.database, SINK)
            self._gatherer.gather(store, outbox)
            rows = batch(outbox.waiting(MAX_ENTRIES))
            self._tell(settings, outbox, rows)
            return bool(rows)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _tell(self, settings: Settings, outbox: Outbox, rows: Sequence[Row]) -> None:
        """Push rows and note their end. Those that Loki will never take are found by halves and told in the log."""
        if not rows:
            return
        never = self._opened(settings.loki).push(streams_of(settings.cluster, rows)).never
        if not never:
            outbox.end([row["id"] for row in rows])
        elif len(rows) == 1:
            _log.error("Loki will never take %s: %s", rows[0]["ref"], printable(never))
            outbox.end([rows[0]["id"]], printable(never))
        else:  # the good ones of them are taken by now, and are kept once though they are pushed again
            self._tell(settings, outbox, rows[: len(rows) // 2])
            self._tell(settings, outbox, rows[len(rows) // 2 :])

    def _opened(self, settings: LokiSettings) -> LokiClient:
        if self._client is None or self._client_for != settings:
            self._client, self._client_for = LokiClient(settings), settings
        return self._client


def batch(rows: Sequence[Row]) -> list[Row]:
    """The first rows that fit into one push, at least one. Pure."""
    size = 0
    chosen: list[Row] = []
    for row in rows:
        size += len(row["line"])
        if chosen and size > MAX_BYTES:
            break
        chosen.append(row)
    return chosen


def streams_of(cluster: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of the outbox as Loki's streams, each in the order of the rows. Pure."""
    streams: dict[tuple[str, str], list[list[str]]] = {}
    for row in rows:
        stamped = [str(nanoseconds(row["at"], row["ref"])), row["line"]]
        streams.setdefault((row["component"], row["outcome"]), []).append(stamped)
    return [
        {
            "stream": {"job": JOB_LABEL, "component": component, "cluster": cluster, "outcome": outcome},
            "values": sorted(values, key=_stamp),
        }
        for (component, outcome), values in streams.items()
    ]


def nanoseconds(at: float, ref: str) -> int:
    """The time of a line: the ledger's microsecond, and below it a number that follows from what the line is."""
    return micros(at) * 1000 + zlib.crc32(ref.encode("utf-8")) % 1000


def _stamp(value: Sequence[str]) -> int:
    return int(value[0])
