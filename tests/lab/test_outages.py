# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmctld, MariaDB and kube-apiserver are gone for a while: when they are back, everything goes on by itself.

The event sources hear again, what broke meanwhile is repaired, what was being repaired ends well, and nothing is done
twice.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import strikes
from aftermath import all_settled, assert_booted_once, assert_jobs_restarted_once, assert_nothing_left
from joblab import faults
from joblab.demo import timeline
from joblab.demo.cases import DEADLINE, fault, frozen_node
from joblab.demo.cluster import Cluster, wait
from joblab.errors import LabError
from joblab.instance import HEAD
from watching import incidents, listening, sleep_until

SLURMCTLD, MARIADB, APISERVER = "slurmctld", "mariadb", "kube-apiserver"
ALL = (SLURMCTLD, MARIADB, APISERVER)
_HEARD_AGAIN = 90.0


@dataclass(frozen=True)
class Outage:
    """One outage in the middle of a repair.

    Attributes:
        step, status: the row of the ledger that tells the moment; no step: the repair is decided.
        service: what breaks.
        how: the fault of the lab; its own undo ends it.
        seconds: how long it lasts at least.
    """

    step: str
    status: str
    service: str
    how: str
    seconds: float

    def __str__(self) -> str:
        moment = f"{self.step} is {self.status}" if self.step else "the repair is decided"
        return f"{self.how} {self.service} when {moment}"

    def happen(self, cluster) -> None:
        """Break it, wait, and mend it."""
        break_service(cluster, self.how, self.service)
        time.sleep(self.seconds)
        break_service(cluster, faults.FAULTS[self.how].undo, self.service)


#: In the middle of one repair, one group after the other.
OUTAGES = (
    # killed later, it would have forgotten for minutes what it was told in its last seconds
    (Outage("", "", SLURMCTLD, "kill_service", 3),),
    (Outage("fence", "started", MARIADB, "kill_service", 5),),
    (
        Outage("await_boot", "waiting", APISERVER, "kill_service", 5),
        Outage("await_boot", "waiting", SLURMCTLD, "pause_service", 20),
    ),
)


class PatientCluster(Cluster):
    """Somebody who looks at the cluster, and asks again while it gives no answer."""

    def head(self, script: str, timeout: float = 30, check: bool = True) -> str:
        """As `Cluster.head`, for as long as an outage lasts."""
        until = time.monotonic() + _HEARD_AGAIN
        while True:
            try:
                return super().head(script, timeout, check)
            except LabError:
                if time.monotonic() > until:
                    raise
                time.sleep(1)


def break_service(cluster, how: str, service: str) -> None:
    """As lab/fault does, without the time that a command needs to start."""
    faults.inflict(cluster.instance, how, [HEAD], faults.Options(service=service))


@pytest.fixture(autouse=True)
def _services_up(whole_cluster):
    """Whatever a test leaves broken would break the ones that follow."""
    yield
    for service in ALL:
        break_service(whole_cluster, "resume_service", service)
        break_service(whole_cluster, "start_service", service)


def test_what_broke_while_nobody_could_look_is_repaired(cluster):
    """All three are down while slurmd dies on one node, and another loses its power for good."""
    begun = cluster.begun
    with strikes.watched_boots(cluster.instance) as boots:
        for service in ALL:
            break_service(cluster, "stop_service", service)
        fault(cluster.instance, "kill_slurmd", "node1")
        fault(cluster.instance, "power_off", "node2")
        sleep_until(lambda: not listening(cluster), 30)
        for service in reversed(ALL):
            break_service(cluster, "start_service", service)
        sleep_until(lambda: listening(cluster), _HEARD_AGAIN, 1.0)
        sleep_until(lambda: all(incidents(cluster, node) for node in ("node1", "node2")), 120, 1.0)
        all_settled(cluster)
    for row in cluster.ledger(begun)["incidents"]:
        print("\n".join(timeline.lines(row)))
    assert [row["plan"] for row in incidents(cluster, "node1")] == ["restart_daemon"]
    assert [row["plan"] for row in incidents(cluster, "node2")] == ["reboot_by_power"]
    assert_booted_once(cluster, boots, lost_power=(), repaired=("node2",))
    assert_nothing_left(cluster)


def test_a_repair_goes_on_after_outages(cluster):
    def happen(outage: Outage) -> None:
        await_moment(cluster, outage)
        outage.happen(cluster)

    with strikes.watched_boots(cluster.instance) as boots, ThreadPoolExecutor() as pool:
        story = pool.submit(frozen_node, PatientCluster(cluster.instance), DEADLINE)
        for group in OUTAGES:
            list(pool.map(happen, group))
        story = story.result()
        sleep_until(lambda: listening(cluster), _HEARD_AGAIN, 1.0)
        all_settled(cluster)
    timeline.show(cluster, story, cluster.begun)
    # a job whose step is started while slurmctld is away fails by itself, and is requeued for that, once
    again = [row for row in incidents(cluster, str(story.job)) if row["plan"] == "requeue_job"]
    assert_jobs_restarted_once(cluster, [story], len(again))
    assert_booted_once(cluster, boots, lost_power=(), repaired=story.incidents_of[:1])
    assert_nothing_left(cluster)


def await_moment(cluster, outage: Outage) -> None:
    """Wait until the repair has come so far."""
    with strikes.Ledger(cluster.instance) as ledger:
        reached = wait(lambda: ledger.reached(cluster.begun, "reboot_by_power", outage.step, outage.status), 120, 0.01)
    assert reached, f"the moment did not come: {outage}"
