# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller: its sources look, its rulebook starts a run for each event, and each run is what the playbook is.

Sources, modules and steps are the real ones. A run goes on alone until it ends, unless it is stopped at a point.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.sight import KubernetesSight
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import frame, incident
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.dispatch import LedgerWatch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import SlurmWatch

from .adapters import AsyncSlurm
from .strikes import Died, Process

if TYPE_CHECKING:
    from .site import Site

_RUN_STARTS = 1.2  # seconds until ansible-playbook is there
CLAIM, RELEASE, ENGINE = "claim", "release", "engine"  # beside the steps, what a process is at
_NUMBERS = itertools.count(1)


@dataclass
class Controller:
    """One head node with the service on it."""

    name: str
    settings: Settings
    site: Site
    down: bool = False
    looking: int = 0  # looks and runs that are going on, one in the other

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """The service begins, and remembers nothing."""
        self.down = False
        self._engine = Process(self.name, "engine of %s" % self.name, step=ENGINE)
        self._slurm = SlurmWatch(AsyncSlurm(self.site.slurm), self.site.clock.time, self.site.clock.time)
        self._kubernetes = KubernetesSight(self.site.clock.time, self.site.clock.time)
        self._ledger = LedgerWatch(self.site.tools, self.site.clock.time, self.site.clock.time)
        self._stopped = False
        self.owed: list[dict[str, Any]] = []  # events that reach the rulebook besides those of its sources

    def tick(self) -> None:
        """One look of the sources; a run for each event that they send."""
        if self.down or self._stopped:
            return
        self.looking += 1
        try:
            events = [*self._look(), *self.owed]
            self.owed.clear()
            for event in events:
                self.run(event)
        except Died as exc:
            if exc.process.controller != self.name:
                raise
            if self.looking > 1:
                raise
            self._died(exc)
        finally:
            self.looking -= 1

    def _died(self, exc: Died) -> None:
        """The engine is gone, and with it what it had started; the service manager starts it again."""
        self._ledger.close()
        self._kubernetes.close()
        self.down = True
        for process in self.site.points.stack:
            process.dead = process.dead or process.controller == self.name
        self.site.clock.after(5.0, self.start)

    def _look(self) -> list[dict[str, Any]]:
        self._stopped = True  # while the engine looks, or is stopped in a look, it looks at nothing else
        try:
            with self._lives(self._engine):
                return [*self._slurm_events(), *self._kubernetes_events(), *self._ledger_events()]
        finally:
            self._stopped = False

    def _slurm_events(self) -> list[dict[str, Any]]:
        look = self._slurm.look(self.settings)
        try:
            look.send(None)
        except StopIteration as done:
            return done.value
        except Partial as exc:
            return exc.events
        except RecoveryError:
            return []
        raise AssertionError("the simulated source waited for something")

    def _kubernetes_events(self) -> list[dict[str, Any]]:
        try:
            return self._kubernetes.look(self.settings)
        except RecoveryError:
            return []

    def _ledger_events(self) -> list[dict[str, Any]]:
        try:
            return self._ledger.look(self.settings)
        except RecoveryError:
            return []

    def run(self, event: dict[str, Any]) -> None:
        """What the rule's playbook does with an event."""
        if "canary" in event:
            return
        process = Process(self.name, "run %d of %s" % (next(_NUMBERS), self.name))
        fault = event.get("fault")
        remediation = {"remediation": fault["suggested"]} if fault else {}
        try:
            with self._lives(process):
                self.site.clock.sleep(_RUN_STARTS)
                self._play({**remediation, "fault": fault, "due": event.get("due")})
        except Died as exc:
            if exc.process is not process or exc.head:
                raise
        except RecoveryError as exc:
            self.site.failed_runs.append("%s: %s" % (process.name, exc))

    def _play(self, request: dict[str, Any]) -> None:
        """The tasks of the role `advance`."""
        process = self.site.points.running
        process.begin(CLAIM)
        claimed = incident.run({**_NOTHING, **request, "state": "claimed"}, False)
        if not claimed["incidents"]:
            return
        try:
            frame.run({"steps": claimed["steps"], "token": claimed["token"], "settings": None}, False)
        finally:
            process.begin(RELEASE)
            incident.run({**_NOTHING, "state": "released", "token": claimed["token"]}, False)

    @contextmanager
    def _lives(self, process: Process) -> Iterator[None]:
        self.site.points.stack.append(process)
        try:
            yield
        except Died:
            self.site.dead.add(process.name)
            raise
        finally:
            self.site.points.stack.pop()


_NOTHING: dict[str, Any] = {
    "remediation": None, "fault": None, "due": None, "canary": None, "nodes": None, "jobs": None, "reason": None,
    "override": [], "requested_by": None, "token": None, "settings": None,
}  # fmt: skip
