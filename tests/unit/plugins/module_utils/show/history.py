# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A little history in a real ledger, for the tests of what is told of it."""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Fault, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import changes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Incident, Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store, finished


def open_incident(store: Store, node: str, plan: str = "restart_daemon", step: str = "restart_daemon") -> Incident:
    """An incident of a node, decided."""
    fault = Fault("daemon_down", "slurm", "lab", "slurm", (Target("node", node),), 1_800_000_000.0, "restart_daemon")
    incident = store.incidents.open(fault, fault.targets[0], "node:" + node, node, Request())
    store.incidents.change(incident.id, changes.plan(plan, step, "slurmd is dead", {}, new_round=True))
    return store.incidents.get(incident.id)


def do_step(store: Store, incident: Incident, change: changes.Columns, status: str = "done", why: str = "") -> Incident:
    """Begin and end the step at which an incident stands, as a run does."""
    token = store.claims.begin("test", "test", 30)
    assert store.claims.take(incident.key, token, 30, incident.id)
    store.steps.start(incident, token, {})
    store.claims.settle(incident, token, finished(status, why, {}), change)
    store.claims.release(token)
    return store.incidents.get(incident.id)


def recover(store: Store, node: str, why: str = "slurmd answers") -> Incident:
    """A node whose daemon is restarted and proved: five lines (a fault, two steps with two lines each, an outcome)."""
    incident = open_incident(store, node)
    incident = do_step(store, incident, changes.advance("confirm", "", {}))
    return do_step(store, incident, changes.close(why, {}), why=why)
