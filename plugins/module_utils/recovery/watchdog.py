# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the service hear? A timer asks every minute and restarts an engine that runs and is deaf.

systemd restarts a service that ends. An engine that goes on running while one of its readers has died, or while its
slots are all taken, ends nothing and logs nothing: only missing signs of life, and a canary event that does not come
back, tell.

    python -m ...watchdog --source slurm --source ledger [--well]

exits 0 when all is well, 1 otherwise, with one line on stderr for each trouble. With `--well` a source that hears and
reports an error (Slurm is down ...) is trouble too; without, only deafness is: a restart does not bring Slurm back.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import canary, heartbeat
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import open_store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load

SILENT_AFTER = 120.0  # seconds without a sign of life; a source backs off for at most 30
CANARY_LATE = 180.0  # seconds after which a canary does not come any more


@dataclass(frozen=True)
class Canary:
    """The last event that was sent the whole way, and the last one that arrived; ages in seconds."""

    sent: str
    sent_ago: float
    seen: str


def expected(settings: Settings) -> list[str]:
    """The sources that a site with these settings has."""
    slurm = ["slurm", "loss"] if settings.slurm.enabled else []
    loki = ["loki"] if settings.loki.url and settings.loki.watch else []
    return [*slurm, *(["kubernetes"] if settings.kubernetes.kubeconfig else []), *loki, "ledger"]


def judge(
    beats: Sequence[Mapping[str, Any]], canary: Optional[Canary], expected: Sequence[str], now: float, well: bool
) -> list[str]:
    """What is wrong, one sentence each; empty when the service hears. Pure.

    Args:
        beats: the last sign of life of every source, as `heartbeat.read_all` gives them.
        canary: None where the ledger gave no answer or none was sent.
        expected: names of the sources that must be there.
        now: epoch seconds.
        well: whether a source's own error counts.
    """
    troubles = []
    by_name = {beat["name"]: beat for beat in beats}
    for name in expected:
        beat = by_name.get(name)
        if beat is None:
            troubles.append("the source %s has shown no sign of life" % name)
        elif now - beat["at"] > SILENT_AFTER:
            troubles.append("the source %s is silent for %.0f s" % (name, now - beat["at"]))
        elif well and beat["error"]:
            troubles.append("the source %s: %s" % (name, beat["error"]))
    if canary is not None and canary.sent != canary.seen and canary.sent_ago > CANARY_LATE:
        troubles.append("an event that was sent %.0f s ago has not arrived" % canary.sent_ago)
    return troubles


def read_canary(settings: Settings) -> Optional[Canary]:
    """The canary's state by the ledger; None where there is none or the ledger gives no answer."""
    try:
        with open_store(settings.ledger) as store:
            sent, seen = store.control.get(canary.SENT), store.control.get(canary.SEEN)
            if sent is None:
                return None
            return Canary(sent["value"], store.now() - sent["changed_at"], seen["value"] if seen else "")
    except RecoveryError:
        return None


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Ask, and say what is wrong."""
    parser = argparse.ArgumentParser(description="Tell whether the recovery's event sources hear.")
    parser.add_argument("--settings", help="settings file (default: the controller's own)")
    parser.add_argument("--source", action="append", default=[], help="a source that must be there")
    parser.add_argument("--well", action="store_true", help="a source that reports an error is trouble too")
    options = parser.parse_args(argv)
    try:
        settings = load(options.settings)
    except RecoveryError as exc:
        sys.stderr.write("%s\n" % exc)
        return 1
    canary = read_canary(settings)
    troubles = judge(heartbeat.read_all(settings), canary, options.source, time.time(), options.well)
    sys.stderr.write("".join("%s\n" % ascii(trouble)[1:-1] for trouble in troubles))
    return 1 if troubles else 0


if __name__ == "__main__":
    raise SystemExit(main())
