# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only looks like a loss of nodes: no node that lives is switched off, by the BMCs' own journal.

Five minutes long, so `make chaos` runs it, and `make test` tells the story of the lost switch in the simulation alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import losing
import strikes
from aftermath import all_settled, assert_booted_once
from controller import settings_changed
from joblab import bmc, faults
from joblab.instance import HEAD, NODES
from watching import incidents, sleep_until

SILENCE = 10  # seconds, job_recovery_silence: what looks like a loss looks so for longer
LASTS = 25.0
SHORT = 5.0  # seconds of an interruption that is over before SILENCE is


@contextmanager
def broken(cluster, how: str, hosts: tuple[str, ...], **options: object) -> Iterator[None]:
    """A fault of the lab, and its own undo."""
    wanted = faults.Options(**options)
    faults.inflict(cluster.instance, how, hosts, wanted)
    try:
        yield
    finally:
        faults.inflict(cluster.instance, faults.FAULTS[how].undo, hosts, wanted)


@contextmanager
def overloaded(cluster, node: str) -> Iterator[None]:
    """Its kernel answers, and no daemon does: neither sshd nor slurmd gets a turn."""
    processes = "$(pgrep -x sshd; pgrep -x slurmd)"
    group = f"for pid in {processes}; do kill -%s $pid; done"
    cluster.on(node, f"systemd-run --collect --unit=overload sh -c '{group % 'STOP'}; sleep {LASTS}; {group % 'CONT'}'",
               check=True)  # fmt: skip
    yield


#: What looks like a loss, for how long, by name.
FALSE_ALARMS = {
    "the controller stands still": (
        LASTS, lambda cluster: broken(cluster, "pause_service", (HEAD,), service="job-recovery")),
    "a node is overloaded": (LASTS, lambda cluster: overloaded(cluster, "node1")),
    "a node loses a third of its packets": (LASTS, lambda cluster: broken(cluster, "lose_packets", ("node2",))),
    "the switch is gone": (LASTS, lambda cluster: broken(cluster, "cut_network", NODES)),
    "the controller's cable is out": (LASTS, lambda cluster: broken(cluster, "cut_network", (HEAD,))),
    "a cable is out for a moment": (SHORT, lambda cluster: broken(cluster, "cut_network", ("node3",))),
}  # fmt: skip


def test_no_node_that_lives_is_switched_off(cluster):
    stock, boots_seen = losing.stock_slurm(cluster.instance), strikes.watched_boots(cluster.instance)
    hasty = settings_changed(cluster, f"s/^  silence: .*/  silence: {SILENCE}.0/")
    with stock, boots_seen as boots, hasty:
        job, _nodes = losing.start(cluster, 600, len(NODES))
        for name, (seconds, alarm) in FALSE_ALARMS.items():
            begun = time.time()
            with alarm(cluster):
                time.sleep(seconds)
            time.sleep(8)  # whatever was on its way arrives
            assert bmc.switches(cluster.instance, begun) == [], name
            assert losing.running(cluster, job, 0), (name, cluster.job(job))
        # the same setting does switch off what stays silent: it is not that nobody looked
        with broken(cluster, "cut_network", ("node3",)):
            sleep_until(lambda: bmc.switches(cluster.instance, begun), 90, 0.5)
        cluster.cancel(job)
        all_settled(cluster)
    assert {one.node for one in bmc.switches(cluster.instance, cluster.begun)} == {"node3"}
    assert_booted_once(cluster, boots, lost_power=(), repaired=("node3",))
    assert {row["state"] for row in incidents(cluster)} <= {"closed"}, incidents(cluster)
