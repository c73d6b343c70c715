# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reporter: a service of its own beside the recovery that tells others what happened. It only reads what the
recovery writes, and whatever becomes of it, the recovery goes on.

    python -m ...show.reporter [--settings FILE]

Each worker has a thread of its own: it looks, waits, and looks again, with the settings read anew each time. An error
of a look is logged once while it lasts, shown by the worker's signs of life (`reporter-NAME`), and backed off from.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional, Protocol, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import heartbeat
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Beats, Outage
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.loki_outbox import LokiOutbox
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.metrics_server import MetricsServer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.notifier import Notifier

PREFIX = "reporter-"
_END = 10.0  # seconds that the workers have to end when the service is stopped


class Looker(Protocol):
    """What a worker does, again and again. Its `interval` is the seconds between two looks."""

    interval: float

    def look(self, settings: Settings) -> bool:
        """Do some of the work, within deadlines; whether there is more to do at once. Nothing to do is no error."""

    def close(self) -> None:
        """Give back what it holds. Never fails."""


@dataclass(frozen=True)
class Worker:
    """One worker of the reporter.

    Attributes:
        name: its signs of life are called `reporter-NAME`.
        wanted: whether a site with these settings needs it; one that is not needed looks all the same and does nothing,
            so that a changed setting is enough.
        make: makes it, in its own thread.
    """

    name: str
    wanted: Callable[[Settings], bool]
    make: Callable[[], Looker]


WORKERS: tuple[Worker, ...] = (
    Worker("loki", lambda settings: bool(settings.loki.url), LokiOutbox),
    Worker("notify", lambda settings: bool(settings.notify.tasks), Notifier),
    Worker("metrics", lambda settings: bool(settings.metrics.listen), MetricsServer),
)


def expected(settings: Settings, workers: Sequence[Worker] = WORKERS) -> list[str]:
    """The names of the signs of life that a site with these settings has."""
    return [PREFIX + worker.name for worker in workers if worker.wanted(settings)]


def keep_working(
    worker: Worker,
    settings: Callable[[], Settings],
    stop: threading.Event,
    beat: Optional[Callable[[str, float, Optional[str]], None]] = None,
) -> None:
    """Let a worker look until `stop` is set."""
    name = PREFIX + worker.name
    log = logging.getLogger("job_recovery.%s" % name)
    outage, beats, looker = Outage(log), Beats(name, beat, log), worker.make()
    while not stop.is_set():
        more, pause = False, 0.0
        try:
            more = looker.look(settings())
            outage.over()
        except Exception as exc:  # noqa: BLE001 (an error of one look ends neither this worker nor another)
            outage.report(exc)
            pause = getattr(exc, "retry_after", 0.0)
        beats.tell(outage.message)
        stop.wait(0.0 if more else max(pause, outage.pause(looker.interval)))
    looker.close()


def run(workers: Sequence[Worker], path: Optional[str], stop: threading.Event) -> bool:
    """Run workers until `stop` is set; whether all of them ended in order. One that dies ends all of them.

    Raises:
        RecoveryError: the settings are not usable.
    """
    beat = heartbeat.writer(load(path))
    well: list[str] = []

    def work(worker: Worker) -> None:
        try:
            keep_working(worker, lambda: load(path), stop, beat)
            well.append(worker.name)
        finally:
            stop.set()

    threads = [threading.Thread(target=work, args=(worker,), name=worker.name, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join(_END)
    return len(well) == len(workers)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the service until it is told to end."""
    parser = argparse.ArgumentParser(description="Tell others what the recovery did.")
    parser.add_argument("--settings", help="settings file (default: the controller's own)")
    options = parser.parse_args(argv)
    if options.settings:  # for the playbooks that a worker runs
        os.environ["JOB_RECOVERY_SETTINGS"] = os.path.abspath(options.settings)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    stop = threading.Event()

    def end(*_signal: Any) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        return 0 if run(WORKERS, options.settings, stop) else 1
    except RecoveryError as exc:
        logging.getLogger("job_recovery.reporter").error("%s", exc)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
