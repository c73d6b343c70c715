# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""People are told of incidents by a site's own task file, once for an incident and what became of it.

What is to be told stands in the ledger's outbox. The task file runs in an ansible-playbook of its own with a deadline,
and gets nothing but incidents' numbers; a module reads the rest. That it will be run is written down before, and that
it was told after it: where the service dies in between, and only then, it is told again. What has come together since
the last run is told by one, so that a storm is one message.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any, Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.process import run_bounded
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.outbox import Outbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.session import LedgerSession
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    OPENED,
    NotifySettings,
    Settings,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import lines
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.gather import Gatherer

SINK = "notify"
PLAYBOOK = "mission_control.job_recovery.notify"
MAX_AT_ONCE = 100  # incidents in one run
_BEGUN = "notify"  # in Control: since when people are told, and of what
_MAX_OUTPUT = 4194304
_GRACE = 30.0  # seconds beyond the deadline until what was being told counts as not told
_MAX_PAUSE = 3600.0
_log = logging.getLogger("job_recovery.reporter-notify")

Row = Mapping[str, Any]


class NotTold(RecoveryError):
    """The task file failed or did not end in time."""


class Notifier:
    """The reporter's worker for notifications; see `reporter.Worker`. Blocking: for a thread of its own."""

    interval = 5.0

    def __init__(self) -> None:
        self._session = LedgerSession()
        self._gatherer = Gatherer(SINK, ("opened", "ended"), self._wanted)
        self._states: tuple[str, ...] = ()

    def look(self, settings: Settings) -> bool:
        """Gather what people are to be told, and tell what waits.

        Raises:
            RecoveryError: the ledger cannot be reached, or the task file failed; it is tried again.
        """
        if not settings.notify.tasks:
            return False
        with self._session.open(settings) as store:
            self._states = settings.notify.states
            outbox = Outbox(store.database, SINK)
            self._gatherer.gather(store, outbox, begun(store, self._states))
            rows = outbox.waiting(MAX_AT_ONCE)
            if rows:
                tell(settings.notify, outbox, rows)
        return False

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _wanted(self, line: lines.Line) -> bool:
        return state_of(line.kind, line.outcome) in self._states


def state_of(component: str, outcome: str) -> str:
    """What a line tells people of its incident, of `settings.NOTICES`; empty where it tells nothing. Pure."""
    return OPENED if component == lines.FAULT else outcome if component == lines.OUTCOME else ""


def begun(store: Store, states: Sequence[str]) -> float:
    """Since when people are told of these states, epoch seconds: what happened before is nobody's news."""
    wanted = ",".join(states)
    row = store.control.get(_BEGUN)
    if row is None or row["value"] != wanted:
        store.control.put(_BEGUN, wanted, "reporter")
        row = store.control.get(_BEGUN)
    return float(row["changed_at"]) if row else store.now()


def tell(settings: NotifySettings, outbox: Outbox, rows: Sequence[Row]) -> None:
    """Run the task file for rows of the outbox, and note their end.

    Raises:
        NotTold: it failed; the rows are told later, or were given up after the last try.
    """
    pause = settings.timeout + _GRACE
    for row in rows:
        outbox.again(row["id"], pause)
    try:
        run_tasks(settings, [notice(row) for row in rows])
    except RecoveryError as exc:
        for row in rows:
            if row["tries"] + 1 >= settings.tries:
                _log.error("%s is given up: %s", row["ref"], exc)
                outbox.end([row["id"]], str(exc))
            else:
                outbox.postpone(row["id"], min(pause * 2 ** row["tries"], _MAX_PAUSE), str(exc))
        raise
    outbox.end([row["id"] for row in rows])


def notice(row: Row) -> dict[str, Any]:
    """A row of the outbox as the playbook gets it: a number and one of our own words. Pure."""
    return {
        "incident": int(json.loads(row["line"])["incident"]),
        "state": state_of(row["component"], row["outcome"]),
    }


def run_tasks(settings: NotifySettings, notices: Sequence[Mapping[str, Any]]) -> None:
    """Run the site's tasks once.

    Raises:
        NotTold: they failed or did not end in time. What they said is not shown: it may hold a password.
    """
    given = {"job_recovery_notices": list(notices), "job_recovery_notify_tasks": settings.tasks}
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    argv = [program, PLAYBOOK, "--extra-vars", json.dumps(given)]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1"}
    ended = run_bounded(argv, time.monotonic() + settings.timeout, _MAX_OUTPUT, environment)
    if ended.timed_out:
        raise NotTold("the tasks in %s did not end within %.0f s" % (settings.tasks, settings.timeout))
    if ended.rc:
        raise NotTold(
            "the tasks in %s failed (exit code %d)" % (settings.tasks, ended.rc),
            "run `ansible-playbook %s` by hand" % PLAYBOOK,
        )
