# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import asyncio
import dataclasses

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import parse_event
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.source import Partial
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import (
    AccountingRecord,
    Job,
    JobState,
    NodeGroup,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.watch import SlurmWatch

OPT_IN = '{"APS":{"auto_resume_mode":"requeue"}}'
HOSTILE = "{{ lookup('pipe','touch /tmp/x') }}"
SETTINGS = settings.parse({"cluster": "lab", "scope": {"partitions": ["main"]}})


@dataclasses.dataclass
class Cluster:
    """A Slurm of plain values, with the methods of the asynchronous adapter that a watch uses."""

    nodes: dict = dataclasses.field(default_factory=dict)  # name -> (base, flags, reason)
    queued: dict = dataclasses.field(default_factory=dict)  # id -> Job
    ended: dict = dataclasses.field(default_factory=dict)
    accounted: list = dataclasses.field(default_factory=list)
    down: bool = False
    accounting_down: bool = False
    now: float = 1000000.0
    details_read: int = 0
    took: float = 0.0  # seconds of its clock for each look
    looks_at_jobs: int = 0
    conf: dict = dataclasses.field(default_factory=lambda: {"MinJobAge": "300 sec", "UnkillableStepTimeout": "60 sec"})

    def _answer(self, value):
        if self.down:
            raise TimedOut("sinfo did not end within 10 s")
        return value

    async def node_groups(self):
        self.now += self.took
        return self._answer([NodeGroup(name, *state) for name, state in self.nodes.items()])

    async def all_jobs(self, before):
        self.looks_at_jobs += 1
        self.now += self.took
        states = {repr(state): state for state in await self.job_states()}
        return queue.Jobs(states, frozenset(queue.job_name(states[line]) for line in set(states) - set(before.lines)))

    async def restarted(self):
        return self._answer(frozenset(job.id for job in self.queued.values() if job.restart_count))

    async def job_states(self, ids=None):
        jobs = {**self.ended, **self.queued}
        wanted = [job for job in jobs.values() if ids is None or str(job.id) in ids]
        return self._answer(
            [
                JobState(
                    job.id,
                    job.state,
                    job.flags,
                    state_reason=job.state_reason,
                    submit_time=job.submit_time,
                    uid=job.uid,
                    nodes=job.nodes,
                    end_time=job.end_time,
                )
                for job in wanted
            ]
        )

    async def jobs(self, ids, missing_ok=False):
        self.details_read += len(ids)
        return self._answer([job for job in {**self.ended, **self.queued}.values() if str(job.id) in ids])

    async def config(self):
        return self._answer(self.conf)

    async def accounting(self, since):
        if self.accounting_down:
            raise TimedOut("sacct did not end within 10 s")
        return self._answer([AccountingRecord(id=job, state=state) for job, state in self.accounted])


class Watching:
    """Looks at a cluster every five seconds of its own clock, and tells (kind, names, suggestion) of each event."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.watch = SlurmWatch(cluster, clock=lambda: cluster.now, steady=lambda: cluster.now)

    def look(self, seconds=5.0):
        self.cluster.now += seconds
        events = asyncio.run(self.watch.look(SETTINGS))
        assert HOSTILE not in repr(events)
        faults = [parse_event(event) for event in events]
        assert all(fault.seen_at == pytest.approx(self.cluster.now, abs=0.01) for fault in faults)
        return [(fault.kind, [target.name for target in fault.targets], fault.suggested) for fault in faults]


def job(number, state, comment=OPT_IN, submit=1, **more):
    return Job(id=number, state=state, name=HOSTILE, comment=comment, submit_time=submit, **more)


def test_a_storm_of_nodes_is_one_event_and_lasts():
    cluster = Cluster(nodes={f"node{n}": ("IDLE", ("NOT_RESPONDING",), None) for n in range(1, 300)})
    watching = Watching(cluster)
    [(kind, names, suggested)] = watching.look()
    assert (kind, len(names), suggested) == ("node_not_responding", 299, "reboot_node")
    assert watching.look() == []
    assert len(watching.look(60)[0][1]) == 299
    cluster.nodes["node7"] = ("IDLE", (), None)
    watching.look()
    cluster.nodes["node7"] = ("IDLE", ("NOT_RESPONDING",), None)
    assert watching.look() == [("node_not_responding", ["node7"], "reboot_node")]


def test_a_node_whose_name_could_be_code_never_gets_into_an_event():
    with pytest.raises(HostlistError):
        Watching(Cluster(nodes={HOSTILE: ("DOWN", (), "Node unexpectedly rebooted")})).look()


def test_without_accounting_nodes_and_the_queue_are_watched_and_the_trouble_is_told():
    """slurmdbd is down, or the site has none."""
    cluster = Cluster(nodes={"node1": ("DOWN", (), "Node unexpectedly rebooted")}, accounting_down=True)
    cluster.queued = {1: job(1, "RUNNING")}
    watching = Watching(cluster)
    assert [kind for kind, _names, _suggested in watching.look()] == ["node_rebooted"]  # before any look at jobs
    with pytest.raises(Partial, match="sacct") as told:
        watching.look()
    assert told.value.events == []
    cluster.ended = {1: dataclasses.replace(cluster.queued.pop(1), state="NODE_FAIL")}
    with pytest.raises(Partial) as told:
        watching.look()
    assert [parse_event(event).kind for event in told.value.events] == ["job_failed"]
    cluster.nodes["node2"] = cluster.nodes["node1"]
    with pytest.raises(Partial, match="sacct"):  # a fault of a node does not hide that the jobs are not seen whole
        watching.look()


def test_nodes_that_are_told_again_all_the_time_do_not_keep_jobs_from_being_looked_at():
    """A dozen nodes that stay broken, each told once a minute, are one event in every look."""
    cluster = Cluster(queued={1: job(1, "RUNNING")})
    watching = Watching(cluster)
    for number in range(12):
        cluster.nodes[f"node{number}"] = ("DOWN", (), "Node unexpectedly rebooted")
        watching.look()
    cluster.ended = {1: dataclasses.replace(cluster.queued.pop(1), state="NODE_FAIL")}
    told = [kind for _look in range(6) for kind, _names, _suggested in watching.look()]
    assert told.count("node_rebooted") == 6
    assert told.count("job_failed") == 1


def test_a_clock_that_goes_back_hides_nothing():
    cluster = Cluster(nodes={"node1": ("DOWN", (), "Node unexpectedly rebooted")})
    watch = SlurmWatch(cluster, clock=lambda: cluster.now)
    assert len(asyncio.run(watch.look(SETTINGS))) == 1
    cluster.now -= 3600
    cluster.nodes["node2"] = ("DOWN", (), "Node unexpectedly rebooted")
    [event] = asyncio.run(watch.look(SETTINGS))
    assert [target.name for target in parse_event(event).targets] == ["node2"]


def test_very_many_faults_are_several_events():
    cluster = Cluster(nodes={f"node{n}": ("IDLE", ("NOT_RESPONDING",), None) for n in range(1200)})
    assert [len(names) for _kind, names, _suggested in Watching(cluster).look()] == [500, 500, 200]


def test_an_outage_is_no_answer_and_changes_nothing():
    cluster = Cluster(queued={1: job(1, "RUNNING")})
    watching = Watching(cluster)
    assert watching.look() == []
    cluster.down = True
    with pytest.raises(TimedOut):
        watching.look()
    cluster.down = False
    cluster.ended = {1: dataclasses.replace(cluster.queued.pop(1), state="NODE_FAIL")}
    assert watching.look() == [("job_failed", ["1"], "requeue_job")]


def test_the_end_of_a_job_is_seen_when_it_leaves_the_queue():
    cluster = Cluster(queued={1: job(1, "RUNNING"), 2: job(2, "RUNNING", comment=None), 3: job(3, "RUNNING")})
    watching = Watching(cluster)
    assert watching.look() == []
    cluster.ended = {
        1: job(1, "FAILED"),
        2: job(2, "FAILED", comment=None),
        3: job(3, "COMPLETED"),
    }
    cluster.queued = {}
    assert watching.look() == [("job_failed", ["1"], "requeue_job")]
    assert watching.look() == []
    assert watching.look(60) == [("job_failed", ["1"], "requeue_job")]
    cluster.ended = {}
    assert watching.look(60) == []


def test_what_ended_while_nobody_watched_is_found_in_the_accounting():
    cluster = Cluster(ended={1: job(1, "TIMEOUT"), 2: job(2, "NODE_FAIL")})
    cluster.accounted = [(1, "TIMEOUT"), (2, "NODE_FAIL"), (3, "FAILED"), (4, "COMPLETED")]
    assert Watching(cluster).look() == [("job_failed", ["1"], "report"), ("job_failed", ["2"], "requeue_job")]


def test_a_requeued_job_may_have_left_something_behind_each_time():
    cluster = Cluster(queued={1: job(1, "RUNNING", restart_count=0)})
    watching = Watching(cluster)
    assert watching.look() == []
    cluster.queued[1] = job(1, "PENDING", flags=("COMPLETING",), restart_count=1, submit=2)
    assert watching.look() == []
    cluster.queued[1] = job(1, "PENDING", restart_count=1, submit=2)
    assert watching.look() == [("stale_spool", ["1"], "requeue_job")]
    assert watching.look() == []
    cluster.queued[1] = job(1, "RUNNING", restart_count=1, submit=2)
    assert watching.look() == []
    cluster.queued[1] = job(1, "PENDING", restart_count=2, submit=3)
    assert watching.look() == [("stale_spool", ["1"], "requeue_job")]


def test_details_are_read_of_suspects_and_of_what_runs_and_once():
    cluster = Cluster(queued={number: job(number, "RUNNING") for number in range(1, 500)})
    watching = Watching(cluster)
    watching.look()
    cluster.queued[5] = job(5, "PENDING", restart_count=0, submit=9)
    for _turn in range(5):
        watching.look()
    assert cluster.details_read == 499 + 1


def test_a_finished_job_is_seen_before_it_is_purged():
    """slurmctld forgets ended jobs after six seconds: the jobs are looked at every two."""
    cluster = Cluster(queued={1: job(1, "RUNNING")}, conf={"MinJobAge": "6 sec"})
    watching = Watching(cluster)
    watching.look(1)
    ended_at = cluster.now
    cluster.ended = {1: dataclasses.replace(cluster.queued.pop(1), state="FAILED")}
    told = []
    while not told and cluster.now < ended_at + 6:
        told = watching.look(1)
    assert told == [("job_failed", ["1"], "requeue_job")]
    assert cluster.now - ended_at <= 3


@pytest.mark.parametrize(("took", "nodes", "jobs"), [
    (0.01, 1.0, 5.0),  # what the settings say
    (0.06, 1.5, 5.0),
    (0.8, 2.4, 11.4),
    (2.0, 6.0, 12.0),
    (10.0, 30.0, 30.0),
])
def test_looks_that_take_long_are_further_apart(took, nodes, jobs):
    cluster = Cluster(queued={1: job(1, "RUNNING")}, took=took)
    watch = SlurmWatch(cluster, clock=lambda: cluster.now, steady=lambda: cluster.now)
    asyncio.run(watch.look(SETTINGS))
    assert watch.interval(1.0) == pytest.approx(nodes, abs=0.1)
    began = cluster.now - took
    looks = cluster.looks_at_jobs
    while cluster.looks_at_jobs == looks:
        cluster.now += 0.1
        asyncio.run(watch.look(SETTINGS))
    assert cluster.now - took - began == pytest.approx(jobs, abs=2 * took + 0.2)


def test_an_event_names_the_submission_that_was_seen():
    cluster = Cluster(ended={1: job(1, "FAILED", submit=77)}, accounted=[(1, "FAILED")])
    watch = SlurmWatch(cluster, clock=lambda: cluster.now, steady=lambda: cluster.now)
    [event] = asyncio.run(watch.look(SETTINGS))
    assert event["fault"]["targets"] == [{"job": "1", "uid": "77"}]


def test_the_node_that_keeps_a_job_completing_is_the_fault():
    began = 1000000
    cluster = Cluster(queued={1: job(1, "COMPLETING", None, flags=("COMPLETING",), nodes=("n7",), end_time=began)})
    watching = Watching(cluster)
    assert watching.look() == []
    assert watching.look(120) == [("job_stuck_completing", ["n7"], "reboot_node")]
    assert watching.look() == []
    assert watching.look(60) == [("job_stuck_completing", ["n7"], "reboot_node")]
    cluster.queued = {}
    assert watching.look(60) == []


def test_without_the_configuration_no_job_is_stuck():
    cluster = Cluster(queued={1: job(1, "COMPLETING", flags=("COMPLETING",), nodes=("n7",), end_time=1)}, conf={})
    assert Watching(cluster).look() == []


def test_a_node_that_fails_the_jobs_of_several_users_is_suspect():
    cluster = Cluster(queued={n: job(n, "RUNNING", None, uid=n % 3, nodes=("n7",)) for n in range(1, 6)})
    watching = Watching(cluster)
    watching.look()
    for number in range(1, 6):
        running = cluster.queued.pop(number)
        cluster.ended[number] = dataclasses.replace(running, state="FAILED", end_time=int(cluster.now))
        told = watching.look()
        assert told == ([("node_suspect", ["n7"], "quarantine_node")] if number == 4 else []), number


def test_a_requeued_job_whose_script_hides_its_failed_launch():
    cluster = Cluster(queued={1: job(1, "PENDING", restart_count=1, submit=2), 2: job(2, "RUNNING")})
    watching = Watching(cluster)
    assert watching.look() == [("stale_spool", ["1"], "requeue_job")]
    cluster.queued[1] = job(1, "RUNNING", restart_count=1, submit=2)
    assert watching.look() == []
    cluster.queued = {}
    cluster.ended = {1: job(1, "COMPLETED", restart_count=1, submit=2), 2: job(2, "COMPLETED")}
    read = cluster.details_read
    assert watching.look() == [("stale_spool", ["1"], "requeue_job")]
    assert cluster.details_read == read + 1  # of the job that was never requeued nothing is read


def test_a_job_that_was_requeued_before_the_service_started_is_known_to_be_one():
    cluster = Cluster(queued={1: job(1, "RUNNING", restart_count=1, submit=2), 2: job(2, "RUNNING", restart_count=0)})
    watching = Watching(cluster)
    assert watching.look() == []
    cluster.queued = {}
    cluster.ended = {1: job(1, "COMPLETED", restart_count=1, submit=2), 2: job(2, "COMPLETED")}
    assert watching.look() == [("stale_spool", ["1"], "requeue_job")]
