# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold after a run, whatever was broken in it and whatever was killed. Pure functions of a `Record`.

Each returns the violations in words, none for none. `check` asks all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Callable, Iterable, Optional, Union

from .facts import CLOSED, COMPLETED, ESCALATED, KILLED, OPEN, WAITING, Boot, Breakage, Hold, Life, Record, Reset

#: Seconds that a deed may come after what allowed it: a repair that began under a fault ends a little later, and an act
#: that was on its way when the stop was set arrives.
GRACE = 15.0
STOP_GRACE = 2.0
#: Seconds after which an open incident that nobody has counts as forgotten: a lease and the slowest dispatch.
OWNERLESS = 330.0
#: Slurm lets a job that it requeues itself begin two minutes later.
SLURM_DELAY = 120.0
#: No wait is longer than the longest step.
LONGEST_WAIT = 2 * 3600.0

OUR_REASON = re.compile(r"job-recovery #(\d+) ")


def check(record: Record) -> list[str]:
    """The violations of all invariants, each with the invariant's name."""
    return ["%s: %s" % (name, told) for name, rule in INVARIANTS.items() for told in rule(record)]


def no_node_rebooted_twice(record: Record) -> list[str]:
    """Each boot of a node belongs to a fault of that node, and each fault to as many boots as it excuses."""
    return _without_excuse(record, record.boots, "booted", _boots_of)


def no_gpu_reset_twice(record: Record) -> list[str]:
    """Each reset of a node's GPU belongs to a fault of it, and each fault to as many resets as it excuses."""
    return _without_excuse(record, record.resets, "had its GPU reset", _resets_of)


def _boots_of(breakage: Breakage) -> int:
    return breakage.boots


def _resets_of(breakage: Breakage) -> int:
    return breakage.resets


def _without_excuse(
    record: Record, deeds: Iterable[Union[Boot, Reset]], what: str, excuses: Callable[[Breakage], int]
) -> list[str]:
    told = []
    for node in sorted({deed.node for deed in deeds}):
        left = [each for each in record.breakages if each.target == node for _deed in range(excuses(each))]
        for deed in sorted((deed for deed in deeds if deed.node == node), key=lambda deed: deed.at):
            excuse = _first(left, deed.at)
            if excuse is None:
                told.append("%s %s at %s and no fault of it is left that this belongs to" % (node, what, deed.at))
            else:
                left.remove(excuse)
    return told


def no_service_left_stopped(record: Record) -> list[str]:
    """What was stopped for a reset runs again at the end."""
    return ["services of %s were not started again" % node for node in record.stopped_services]


def no_healthy_node_switched_off(record: Record) -> list[str]:
    """A BMC was asked for Off only while its own node had a fault."""
    return [
        "the power of %s was switched off at %s and the node had no fault" % (switch.node, switch.at)
        for switch in record.switches
        if switch.level == "Off" and not _broken(record, (switch.node,), switch.at)
    ]


def no_job_requeued_twice(record: Record) -> list[str]:
    """A job is restarted at most once for each run of it; by us only after the run ended, and badly."""
    told = []
    for job in sorted({requeue.job for requeue in record.requeues}):
        lives = [life for life in record.lives if life.job == job and life.end != COMPLETED]
        requeues = sorted((requeue for requeue in record.requeues if requeue.job == job), key=lambda each: each.at)
        for number, requeue in enumerate(requeues, 1):
            begun = [life for life in lives if life.at < requeue.at]
            ended = [life for life in begun if life.until is not None and life.until < requeue.at]
            if number > len(ended if requeue.asked else begun):
                told.append("job %d was requeued at %s, and no run that ended badly is left for it" % (job, requeue.at))
    return told


def no_job_requeued_too_often(record: Record) -> list[str]:
    """A user's limit holds, also over a ledger that forgot. What Slurm restarts itself does not count."""
    times = Counter(requeue.job for requeue in record.requeues if requeue.asked)
    return [
        "job %d was requeued %d times, its user allows %d" % (job, times[job], most)
        for job, most in record.allowed
        if times[job] > most
    ]


def no_job_runs_twice_at_once(record: Record) -> list[str]:
    """No process of a run lives while one of another run of the same job does.

    Slurm itself begins a job again two minutes after it gave up a silent node, whatever still lives there: that a node
    which nobody can switch off did so is not ours.
    """
    told = []
    for job in sorted({life.job for life in record.lives}):
        lives = sorted((life for life in record.lives if life.job == job), key=lambda life: life.at)
        for index, later in enumerate(lives):
            before = [life for life in lives[:index] if life.until is None or life.until > later.at]
            if before and not _slurm_began_it(record, later):
                told.append(
                    "job %d began again at %s on %s while its run of %s still lived on %s"
                    % (job, later.at, ",".join(later.nodes), before[0].at, ",".join(before[0].nodes))
                )
    return told


def no_healthy_job_killed(record: Record) -> list[str]:
    """A run that was ended from outside had a fault, or one of its nodes had one that may cost it."""
    told = []
    for life in record.lives:
        if life.end != KILLED or life.until is None:
            continue
        if not _broken(record, (*life.nodes, str(life.job)), life.until, fatal=True):
            where = ",".join(life.nodes)
            told.append("the run of job %d on %s was killed at %s, and it was well" % (life.job, where, life.until))
    return told


def no_node_held_without_incident(record: Record) -> list[str]:
    """Each hold of ours has its incident, and one that still is has an incident that is not closed.

    A ledger that was restored has forgotten the incident: then a later one leaves the node to a person.
    """
    rows = {row.number: row for row in record.rows}
    told = []
    for hold in record.holds:
        number = our_number(hold.reason)
        if number is None:
            continue
        row = rows.get(number)
        if row is None and _taken_up(record, hold):
            continue
        if row is None or row.target != hold.node:
            told.append("%s was held at %s for incident #%d, which is not there" % (hold.node, hold.at, number))
        elif hold.until is None and row.state == CLOSED:
            told.append("%s is still held for incident #%d, which is closed" % (hold.node, number))
    return told


def _taken_up(record: Record, hold: Hold) -> bool:
    return any(row.target == hold.node and row.state == ESCALATED and row.opened_at > hold.at for row in record.rows)


def no_more_held_than_allowed(record: Record) -> list[str]:
    """The blast radius, by Slurm's own record of our holds."""
    if record.most_held is None:
        return []
    ours = [hold for hold in record.holds if our_number(hold.reason) is not None]
    told = []
    for hold in ours:
        nodes = {other.node for other in ours if other.at <= hold.at and (other.until is None or other.until > hold.at)}
        if len(nodes) > record.most_held:
            told.append("%d nodes were held at %s, allowed are %d" % (len(nodes), hold.at, record.most_held))
    return told


def no_incident_without_owner(record: Record) -> list[str]:
    """An incident that is not closed is a person's, or somebody has it, or it waits, and not for ever."""
    told = []
    for row in record.rows:
        if row.state in (CLOSED, ESCALATED) or row.claimed:
            continue
        late = record.now - OWNERLESS
        if row.state == WAITING and row.wait_until is not None:
            if row.wait_until < late:
                told.append("incident #%d of %s waited until %s" % (row.number, row.target, row.wait_until))
            elif row.wait_until > record.now + LONGEST_WAIT:
                told.append("incident #%d of %s waits until %s, too long" % (row.number, row.target, row.wait_until))
        elif row.state not in (OPEN, WAITING) or row.updated_at < late:
            told.append("incident #%d of %s is %s and nobody has it" % (row.number, row.target, row.state))
        if row.sent_until is not None and row.sent_until > record.now + OWNERLESS:
            told.append("incident #%d of %s is on its way until %s" % (row.number, row.target, row.sent_until))
    return told


def no_target_with_two_incidents(record: Record) -> list[str]:
    """A target has at most one incident at a time that is not closed."""
    told = []
    for row in record.rows:
        others = [other for other in record.rows if other.target == row.target and other.number < row.number]
        told += [
            "%s had the incidents #%d and #%d at %s" % (row.target, other.number, row.number, row.opened_at)
            for other in others
            if other.state != CLOSED or (other.closed_at or 0.0) > row.opened_at
        ]
    return told


def nothing_done_while_stopped(record: Record) -> list[str]:
    """While the emergency stop is set no node is switched off or held, and no job requeued."""
    deeds = [(switch.at, "%s was switched %s" % (switch.node, switch.level)) for switch in record.switches]
    deeds += [
        (hold.at, "%s was held" % hold.node) for hold in record.holds if our_number(hold.reason) is not None
    ]
    deeds += [(requeue.at, "job %d was requeued" % requeue.job) for requeue in record.requeues if requeue.asked]
    return [
        "%s at %s, after the stop of %s" % (what, at, stop.at)
        for stop in record.stops
        for at, what in sorted(deeds)
        if stop.at + STOP_GRACE < at and (stop.until is None or at < stop.until)
    ]


def no_wish_is_overruled(record: Record) -> list[str]:
    """Whom a person drained stays drained with the person's words."""
    return [
        "%s, which a person drained at %s (%s), was given back" % (wish.node, wish.at, wish.reason)
        for wish in record.wishes
        if not any(_bears(hold, wish.node, wish.reason) for hold in record.holds)
    ]


def nothing_forced_on_a_living_node(record: Record) -> list[str]:
    """Pods are given up without their kubelet only while their node is off, as the node's own hardware knows it."""
    return [
        "pods of %s were given up at %s, and its power was %s" % (forced.node, forced.at, forced.power)
        for forced in record.forced
        if forced.power != "Off"
    ]


def our_number(reason: str) -> Optional[int]:
    """The incident whose reason this is, None for anybody else's."""
    told = OUR_REASON.match(reason)
    return int(told.group(1)) if told else None


def _bears(hold: Hold, node: str, reason: str) -> bool:
    return hold.node == node and hold.until is None and reason in hold.reason


def _slurm_began_it(record: Record, life: Life) -> bool:
    """Whether the run began when Slurm had set its begin time to, after a requeue of its own."""
    before = [requeue for requeue in record.requeues if requeue.job == life.job and requeue.at <= life.at]
    last = max(before, key=lambda requeue: requeue.at, default=None)
    # Slurm keeps begin times in whole seconds
    return last is not None and not last.asked and life.at - last.at >= SLURM_DELAY - 1


def _broken(record: Record, targets: Iterable[str], at: float, fatal: bool = False) -> bool:
    wanted = set(targets)
    return any(
        breakage.target in wanted and _lasts(breakage, at) and (breakage.fatal or not fatal)
        for breakage in record.breakages
    )


def _first(breakages: Iterable[Breakage], at: float) -> Optional[Breakage]:
    """The one that ends first of those that last."""
    found = [breakage for breakage in breakages if _lasts(breakage, at)]
    return min(found, key=lambda breakage: (breakage.until is None, breakage.until or 0.0), default=None)


def _lasts(breakage: Breakage, at: float) -> bool:
    return breakage.at <= at and (breakage.until is None or at <= breakage.until + GRACE)


INVARIANTS: dict[str, Callable[[Record], list[str]]] = {
    rule.__name__: rule
    for rule in (
        no_node_rebooted_twice,
        no_gpu_reset_twice,
        no_service_left_stopped,
        no_healthy_node_switched_off,
        no_job_requeued_twice,
        no_job_requeued_too_often,
        no_job_runs_twice_at_once,
        no_healthy_job_killed,
        no_node_held_without_incident,
        no_more_held_than_allowed,
        no_incident_without_owner,
        no_target_with_two_incidents,
        nothing_done_while_stopped,
        no_wish_is_overruled,
        nothing_forced_on_a_living_node,
    )
}
