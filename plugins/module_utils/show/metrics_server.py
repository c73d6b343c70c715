# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reporter's worker that serves metrics to Prometheus: http://ADDRESS:PORT/metrics.

The page is made of what the ledger said at the last look, at most some seconds ago, and of the signs of life as they
are now: a scrape never waits for the database.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    canary,
    decide,
    heartbeat,
    plans,
    state_file,
    stop,
    watchdog,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import JOB, NODE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import history
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.figures import Figures
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    ESCALATED,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import (
    agents_silent,
    breaker_state,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import totals as counted
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.metrics import (
    CONTENT_TYPE,
    Known,
    Standing,
    exposition,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.totals import Look, Totals

_FILE = "metrics-totals.json"
_PAGE = 1000  # rows in one query
_PAGES = 500
_AT_ONCE = 8  # connections; more are closed
_HOLDING = tuple(plan for plan in plans.PLANS if decide.holds_node(plan))


class MetricsServer:
    """The worker; see `reporter.Worker`. Its server is opened at the first look, and anew where the address changes."""

    interval = 10.0

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._session = LedgerSession()
        self._totals: Optional[Totals] = None
        self._standing: Optional[Standing] = None
        self._ledger_at: Optional[float] = None
        self._settings: Optional[Settings] = None
        self._server: Optional[_Server] = None
        self._listens = ""

    def look(self, settings: Settings) -> bool:
        """Ask the ledger. Nothing is ever left to do at once.

        Raises:
            RecoveryError: the address cannot be listened on, the ledger not be asked, or the totals not be kept.
        """
        self._settings = settings
        self._listen(settings.metrics.listen)
        if not settings.metrics.listen:
            return False
        if self._totals is None:
            self._totals = _read_totals(settings.state_dir)
        try:
            with self._session.open(settings) as store:
                self._standing, self._totals = _read(settings, store, self._totals)
        except RecoveryError:
            self._standing = None
            raise
        self._ledger_at = self._clock()
        _keep_totals(settings.state_dir, self._totals)
        return False

    def close(self) -> None:
        """Close the server and the session."""
        self._listen("")
        self._session.close()

    @property
    def port(self) -> int:
        """Where it listens; 0 for nowhere."""
        return self._server.server_address[1] if self._server else 0

    def _listen(self, address: str) -> None:
        if address == self._listens:
            return
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server, self._listens = None, ""
        if address:
            self._server = _Server(_address(address), self._page)
            self._listens = address
            threading.Thread(target=self._server.serve_forever, name="metrics-http", daemon=True).start()

    def _page(self) -> str:
        settings = self._settings
        if settings is None:
            return ""
        return exposition(
            Known(
                cluster=settings.cluster,
                mode=settings.mode,
                standing=self._standing,
                ledger_at=self._ledger_at,
                totals=self._totals or Totals(),
                beats=heartbeat.read_all(settings),
                sources=watchdog.expected(settings),
            )
        )


def _read(settings: Settings, store: Store, totals: Totals) -> tuple[Standing, Totals]:
    figures, now = Figures(store.database), store.now()
    since = counted.since(totals, now)
    nodes_out = figures.nodes_out(since, _HOLDING)
    held = [row["state"] for row in nodes_out if row["state"] != CLOSED]
    by_person = held.count(ESCALATED)
    bird = canary.read(store)
    standing = Standing(
        stopped=bool(stop.stopped(settings, store)),
        restored=stop.restored(settings, store),
        incidents={(row["target_kind"], row["state"]): row["n"] for row in figures.open()},
        nodes_out={counted.BY_PERSON: by_person, counted.BY_RECOVERY: len(held) - by_person},
        breaker={kind: breaker_state(settings, store, kind) for kind in (NODE, JOB)},
        canary={"sent_at": bird.sent_at, "way": bird.way},
        outbox={"loki": Outbox(store.database, "loki").backlog()} if settings.loki.url else {},
        silent_agents=len(agents_silent(settings, store)),
    )
    look = Look(
        at=now,
        faults=figures.faults(since),
        ended=_ended(store, since),
        steps=figures.steps(since),
        refusals=figures.refusals(since),
        nodes_out=nodes_out,
    )
    return standing, counted.add(totals, look)


def _ended(store: Store, since: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(_PAGES):
        rows = history.ended(store.database, since, _PAGE, number * _PAGE)
        found += rows
        if len(rows) < _PAGE:
            break
    return found


def _read_totals(folder: str) -> Totals:
    """What was kept; none where nothing was, or it is damaged: then counting begins anew."""
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as handle:
            return counted.load(handle.read())
    except (OSError, ValueError):
        return Totals()


def _keep_totals(folder: str, totals: Totals) -> None:
    path = os.path.join(folder, _FILE)
    try:
        state_file.replace(path, counted.dump(totals))
    except OSError as exc:
        raise Unreadable("the totals cannot be kept in %s (%s)" % (path, exc.strerror), "is the disk full?") from exc


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInput("metrics.listen is %s" % ascii(text), "use ADDRESS:PORT, such as 0.0.0.0:9832")
    return host.strip("[]"), int(port)


@dataclass
class _Page:
    """What the handlers of one server answer with."""

    make: Callable[[], str]


class _Server(ThreadingHTTPServer):
    """Bounded: so many connections at once, each with a deadline."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], make: Callable[[], str]) -> None:
        self.page = _Page(make)
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        try:
            super().__init__(address, _Handler)
        except OSError as exc:
            raise Unreadable(
                "%s:%d cannot be listened on (%s)" % (*address, exc.strerror), "choose another metrics.listen"
            ) from exc

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a connection to a thread of its own, or close it where too many are open."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread's work."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0
    server: _Server
    server_version = "job-recovery"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer `/metrics`."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body = self.server.page.make().encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Every scrape would be a line."""
