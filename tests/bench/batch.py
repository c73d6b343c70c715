# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tenth of a thousand nodes freezes at once: what the engine and its ledger take for it.

The engine and MariaDB are real; cluster, BMCs and time are the simulation's of tests/chaos, in which one thing happens
after the other. So neither the start of Ansible nor waiting for Slurm, BMCs and boots is in the seconds here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LedgerSettings,
    Limits,
)
from ansible_collections.mission_control.job_recovery.tests.chaos import invariants
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation import blows
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.ledger import empty
from ansible_collections.mission_control.job_recovery.tests.chaos.simulation.site import Site
from ansible_collections.mission_control.job_recovery.tests.unit import private_mariadb
from measuring import Benchmark, Figure, Wrong

NODES, BROKEN = 1000, 100
BUDGET = 30.0
_LONGEST = 600.0  # simulated seconds
_DEFAULTS = Limits()
#: Limits that a site raises so that a rack is repaired at once, and those of a site that did not.
RAISED = {"blast_radius_nodes": NODES, "max_parallel_reboots": NODES, "common_cause_nodes": NODES + 1}
DEFAULT = {name: getattr(_DEFAULTS, name) for name in (*RAISED, "blast_radius_percent")}


def batch(_folder: Path) -> list[Figure]:
    """With raised limits all are repaired; with the defaults nothing is touched, and one gate says why."""
    # short: it is the place of a socket
    with tempfile.TemporaryDirectory(prefix="jr-db-") as short, _ledger(Path(short)) as ledger:
        seconds, core, runs = _repaired(ledger, Path(short))
        refused = _left_alone(ledger, Path(short))
    return [
        Figure("all given back", seconds, budget=BUDGET),
        Figure("  of one core, without MariaDB's", core),
        Figure("runs of playbooks", runs, ""),
        Figure("nothing done under the default limits, ten minutes", refused),
    ]


BENCHMARKS = (Benchmark("batch", "%d of %d simulated nodes freeze at once" % (BROKEN, NODES), batch),)


def _repaired(ledger: LedgerSettings, folder: Path) -> tuple[float, float, int]:
    """Seconds by the clock, seconds of a core, and how many playbooks would have run."""
    with _site(ledger, folder, RAISED) as site:
        began, used = time.perf_counter(), time.process_time()
        _freeze(site)
        site.settle(1.0, _LONGEST)
        seconds, core = time.perf_counter() - began, time.process_time() - used
        record = site.record(NODES)
        runs = site.ledger.rows("SELECT COUNT(*) AS n FROM runs")[0]["n"]
    closed = sum(row.state == "closed" for row in record.rows)
    if closed != BROKEN or len(record.boots) != BROKEN:
        raise Wrong("%d incidents are closed, and %d nodes booted, of %d" % (closed, len(record.boots), BROKEN))
    violated = invariants.check(record)
    if violated or site.failed_runs:
        raise Wrong("; ".join([*violated, *site.failed_runs][:5]))
    return seconds, core, runs


def _left_alone(ledger: LedgerSettings, folder: Path) -> float:
    with _site(ledger, folder, DEFAULT) as site:
        began = time.perf_counter()
        _freeze(site)
        site.run(_LONGEST)
        seconds = time.perf_counter() - began
        gates = {row["gate"] for row in site.ledger.rows("SELECT gate FROM refusals")}
        record = site.record()
    held = [hold.node for hold in record.holds if invariants.our_number(hold.reason) is not None]
    if record.rows or held or record.switches:
        raise Wrong("under the default limits: %d incidents, %d nodes held, %d switched" % (
            len(record.rows), len(held), len(record.switches)))  # fmt: skip
    if gates != {"common_cause"}:
        raise Wrong("refused by %s, not by common_cause" % (", ".join(sorted(gates)) or "no gate"))
    return seconds


def _freeze(site: Site) -> None:
    """All at once, and Slurm has noticed."""
    for number in range(1, BROKEN + 1):
        blows.strike(site, blows.Blow(0.0, "freeze", "node%d" % number))
    site.clock.sleep(60.0)


@contextmanager
def _site(ledger: LedgerSettings, folder: Path, limits: dict[str, Any]) -> Iterator[Site]:
    empty(ledger)
    with pytest.MonkeyPatch.context() as patch:
        site = Site(ledger, Path(tempfile.mkdtemp(dir=folder)), patch, **limits)
        try:
            site.add_nodes(NODES)
            site.run(4.0)  # the first looks: all is well
            yield site
        finally:
            site.close()


@contextmanager
def _ledger(folder: Path) -> Iterator[LedgerSettings]:
    server = private_mariadb.Server(folder)
    server.install()
    server.start()
    try:
        ledger = private_mariadb.create(server, folder)
        session = database.connect(ledger)
        schema.migrate(session)
        session.close()
        yield ledger
    finally:
        server.stop()
