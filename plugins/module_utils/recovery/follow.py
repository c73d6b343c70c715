# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow incidents until they are over: the module `recovery_follow`, for a person who waits at a terminal.

The service goes on with the incidents while somebody follows them. Where no service listens, the follower sends what
is due to the same runs itself; the ledger keeps the two apart, should the service come back meanwhile.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    dispatch,
    frame,
    heartbeat,
    incident,
    stop,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import (
    CLOSED,
    LIVE,
    Incident,
    StepRow,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Tools
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.tools import make_tools

SPEC: dict[str, Any] = {
    "argument_spec": {
        "incidents": {"type": "list", "elements": "int", "required": True},
        "timeout": {"type": "float", "default": 7200.0},
        "settings": {"type": "path"},
    },
    "supports_check_mode": False,
}

_INTERVAL = 1.0
_SOURCE = "ledger"  # who sends what is due while the service runs

Tell = Callable[[str], None]


class Unrepaired(RecoveryError):
    """An incident ended and its target is left to a person."""


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module; see its documentation for what comes back."""
    return run_and_tell(params, check_mode, tell=lambda _line: None)


def run_and_tell(params: dict[str, Any], _check_mode: bool, tell: Tell) -> dict[str, Any]:
    """The module, with one line for each thing that happens to `tell`."""
    follower = Follower(params["incidents"], params["settings"], tell)
    until = time.monotonic() + params["timeout"]
    while not follower.look():
        if time.monotonic() >= until:
            raise TimedOut(
                "after %.0f s it is not over: %s" % (params["timeout"], "; ".join(follower.open)),
                "nothing is lost: the service goes on with it, see `job-recovery incidents`",
                incidents=follower.states,
            )
        time.sleep(_INTERVAL)
    if follower.left:
        raise Unrepaired("; ".join(follower.left), "see `job-recovery incidents`", incidents=follower.states)
    return {"changed": True, "incidents": follower.states}


class Follower:
    """Some incidents, looked at again and again.

    Args:
        numbers: of the incidents.
        settings: path of the settings file, None for the controller's own.
        tell: takes one line.
        make: makes the adapters, for where no service listens.

    Attributes:
        states: `{incident, target, state, why}` of the last look.
    """

    def __init__(
        self,
        numbers: Sequence[int],
        settings: Optional[str],
        tell: Tell,
        make: Callable[[Settings], Tools] = make_tools,
    ) -> None:
        self._numbers, self._path, self._make = list(numbers), settings, make
        self._story = Story(tell)
        self._tell = tell
        self._trouble = ""
        self.states: list[dict[str, Any]] = []

    @property
    def open(self) -> list[str]:
        """Those that are not over, in words."""
        return ["%s: %s" % (each["target"], printable(each["why"])) for each in self.states if each["state"] in LIVE]

    @property
    def left(self) -> list[str]:
        """Those that are left to a person, in words."""
        return [
            "%s: %s" % (each["target"], printable(each["why"]))
            for each in self.states
            if each["state"] not in LIVE + (CLOSED,)
        ]

    def look(self) -> bool:
        """Tell what is new, and send what is due where no service does; whether all is over.

        An error (the ledger does not answer) is told once while it lasts, and nothing is known meanwhile.
        """
        try:
            over, due = self._look(load(self._path))
            for event in due:
                advance(event["due"], self._path)
        except RecoveryError as exc:
            if str(exc) != self._trouble:
                self._tell("         %s" % printable(str(exc)))
            self._trouble = str(exc)
            return False
        self._trouble = ""
        return over

    def _look(self, settings: Settings) -> tuple[bool, list[dict[str, Any]]]:
        with open_store(settings.ledger) as store:
            incidents = store.incidents.many(self._numbers)
            self._story.tell(incidents, store.steps.of(self._numbers), store.now())
            self.states = [
                {"incident": each.id, "target": each.target.name, "state": each.state, "why": each.why}
                for each in incidents
            ]
            if not any(each.state in LIVE for each in incidents):
                return True, []
            return False, self._due(settings, store)

    def _due(self, settings: Settings, store: Store) -> list[dict[str, Any]]:
        if service_listens(settings, time.time()) or stop.stopped(settings, store):
            return []
        idle = store.incidents.idle().intersection(self._numbers)
        return dispatch.due_events(store, self._make(settings), idle, time.time()) if idle else []


class Story:
    """What was told of incidents, so that each thing is told once. Pure but for `tell`."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: set[tuple[Any, ...]] = set()

    def tell(self, incidents: Sequence[Incident], steps: Sequence[StepRow], now: float) -> None:
        """Tell what is new: steps and what became of them, and how each incident stands."""
        by_number = {each.id: each for each in incidents}
        for row in sorted(steps, key=lambda row: (row.started_at, row.incident)):
            if row.incident in by_number:
                self._tell_step(by_number[row.incident], row, now)
        for each in incidents:
            text = "%s%s" % (each.state, ": %s" % each.why if each.why else "")
            self._once((each.id, text), now - each.opened_at, each.target.name, text)

    def _tell_step(self, of: Incident, row: StepRow, now: float) -> None:
        text = "%s %s%s" % (row.step, row.status, ": %s" % row.why if row.why else "")
        moment = row.finished_at or (row.started_at if row.status == "started" else now)
        self._once((of.id, row.round, text), moment - of.opened_at, of.target.name, text)

    def _once(self, key: tuple[Any, ...], seconds: float, target: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._tell("%+8.1f s  %s  %s" % (seconds, target, printable(text)))


def service_listens(settings: Settings, now: float) -> bool:
    """Whether the service's own source has looked lately, so that it sends what is due."""
    beats: Sequence[Mapping[str, Any]] = heartbeat.read_all(settings)
    return any(beat["name"] == _SOURCE and now - beat["at"] < heartbeat.SILENT_AFTER for beat in beats)


def advance(due: Mapping[str, Any], settings: Optional[str]) -> None:
    """One run, as the role `advance` does it: claim, run the steps, release.

    Raises:
        RecoveryError: see `incident` and `frame`; the ledger goes on from there.
    """
    claim = incident.run({**_no_request(), "state": "claimed", "due": dict(due), "settings": settings}, False)
    if not claim["incidents"]:
        return
    try:
        frame.run({"steps": claim["steps"], "token": claim["token"], "settings": settings}, False)
    finally:
        incident.run({**_no_request(), "state": "released", "token": claim["token"], "settings": settings}, False)


def _no_request() -> dict[str, Any]:
    return {name: option.get("default") for name, option in incident.SPEC["argument_spec"].items()}
