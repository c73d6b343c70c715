# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that is no Job of batch: of an owner that makes its own pods or Jobs, or a pod that nobody makes again. Pure.

It is never touched. Who loses pods by the infrastructure has time to make them again, by the table of owners; what
failed, or still does not run then, a person is told of. Once it ran again what it lost is forgotten, so that a later
failure of its own is not taken for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import owners
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import (
    OPT_IN_ANNOTATION,
    PodView,
    pod_view,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.owner_states import State
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import (
    given_text,
    made_by,
    owner_text,
    part,
    text,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LEFT, JobOwner

POD = "Pod"
SETTLED = 60.0  # seconds until its owner has noticed a loss for sure: before, Running may be old


@dataclass(frozen=True)
class Workload:
    """One piece of work, as its owner tells of it; or one pod.

    Attributes:
        kind: of the table of owners, or `POD`.
        since: when it got its state, None where that is not said.
        opt_in: the text of the users' annotation, or None.
        owner: `Kind/name` of who made it, or the empty text.
        owner_uid: that one's uid.
        deleted: whether somebody deleted it, and it is on its way out.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    state: State = State.UNKNOWN
    since: Optional[float] = None
    opt_in: Optional[str] = None
    owner: str = ""
    owner_uid: str = ""
    deleted: bool = False

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return "%s/%s" % (self.namespace, self.name)


def view(row: owners.Owner, thing: Mapping[str, Any]) -> Workload:
    """Read an object of this row."""
    metadata = part(thing, "metadata")
    read = row.read(thing)
    maker = made_by(metadata)
    return Workload(
        kind=row.kind,
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        state=read.state,
        since=read.since,
        opt_in=given_text(part(metadata, "annotations"), OPT_IN_ANNOTATION),
        owner=owner_text(maker),
        owner_uid=text(maker, "uid"),
        deleted=bool(metadata.get("deletionTimestamp")),
    )


def of_pod(thing: Mapping[str, Any]) -> Workload:
    """Read a Pod object. One that was lost is on its way out by that, and not by a person's wish."""
    return _of_view(pod_view(thing))


def _of_view(pod: PodView) -> Workload:
    lost = pod.cause is Cause.INFRASTRUCTURE
    deleted = pod.deleted_at is not None and not lost
    state = State.FAILED if lost else State.UNKNOWN
    since = pod.disrupted_at or pod.ended_at
    return Workload(POD, pod.namespace, pod.name, pod.uid, state, since, pod.opt_in, pod.owner, pod.owner_uid, deleted)


class Roots:
    """Who, of all that is read, is at the top of what made something.

    Args:
        things: Jobs and workloads: all that has an `uid` and an `owner_uid`.
    """

    def __init__(self, things: Iterable[Any]) -> None:
        self._above = {thing.uid: thing.owner_uid for thing in things}

    def of(self, uid: str) -> str:
        """The uid at the top, which is `uid` itself where nothing that is read made it."""
        seen = {uid}
        while True:
            above = self._above.get(uid, "")
            if above not in self._above or above in seen:  # whoever writes an object chooses its owner: no circles
                return uid
            uid = above
            seen.add(uid)


@dataclass(frozen=True)
class Lost:
    """What a workload lost: when, last (epoch seconds), and whether a lost pod still stands where it was."""

    at: float
    hangs: bool = False


Remembered = Mapping[str, Mapping[str, PodView]]  # by the uid of what made them, and by their own, pods that were lost


class Losses:
    """What each workload lost and has not made up for yet; remembered from look to look.

    The pods go, and so do the Jobs that an owner makes anew.
    """

    def __init__(self) -> None:
        self._lost: dict[str, float] = {}  # by uid when, last
        self._made_up: dict[str, float] = {}  # by uid up to when

    def look(
        self, work: Sequence[Workload], roots: Roots, before: Remembered, pods: Iterable[PodView], now: float
    ) -> dict[str, Lost]:
        """By uid what is not made up for.

        Args:
            before: pods that were lost, there or not.
            pods: those that are there.
        """
        known = {one.uid: one for one in work}
        for maker, of_it in before.items():
            root = roots.of(maker)
            if root in known:
                self._lost[root] = max(self._lost.get(root, 0.0), *map(_moment, of_it.values()))
        hangs = hanging(pods)
        self._lost = {uid: moment for uid, moment in self._lost.items() if uid in known}
        found = {uid: Lost(moment, uid in hangs) for uid, moment in self._lost.items()}
        made_up = {uid: lost.at for uid, lost in found.items() if _made_up(known[uid], lost, now)}
        self._made_up = {uid: moment for uid, moment in {**self._made_up, **made_up}.items() if uid in known}
        return {uid: lost for uid, lost in found.items() if lost.at > self._made_up.get(uid, -1.0)}


def hanging(pods: Iterable[PodView]) -> set[str]:
    """The uids of what made pods that were lost and still stand where they were.

    An owner that gives its pods names of their own does not make such a pod again before it is gone; a Job does.
    """
    return {pod.owner_uid for pod in pods if pod.cause is Cause.INFRASTRUCTURE and not pod.finished and pod.node}


def _moment(pod: PodView) -> float:
    return pod.disrupted_at or pod.ended_at or pod.deleted_at or pod.created_at or 0.0


def _made_up(work: Workload, lost: Lost, now: float) -> bool:
    if work.state in (State.COMPLETE, State.SUSPENDED):
        return True
    return work.state is State.RUNNING and not lost.hangs and now - lost.at >= SETTLED


def unrecovered(
    work: Sequence[Workload], lost: Mapping[str, Lost], own: Sequence[JobOwner], everybody: bool, now: float
) -> list[Workload]:
    """Those that a person should know of: they lost pods, and their owner's time to make up for it is over.

    Args:
        lost: by uid (`Losses.look`).
        own: the site's rows of owners.
        everybody: the site recovers all Jobs, not only what opted in.
        now: epoch seconds.
    """
    return [
        one
        for one in work
        if one.uid in lost and is_judged(one, own, everybody) and _is_over(one, lost[one.uid], own, now)
    ]


def is_judged(work: Workload, own: Sequence[JobOwner], everybody: bool) -> bool:
    """Whether it is looked after, and is not left to a known owner of its own."""
    if work.deleted or (work.opt_in is None and not everybody):
        return False
    return not work.owner or not owners.is_known(work.owner, own)


def _is_over(work: Workload, lost: Lost, own: Sequence[JobOwner], now: float) -> bool:
    row = owners.owner_of(work.kind, own)
    if row.care == LEFT or (work.state is State.RUNNING and not lost.hangs):
        return False
    began = max(lost.at, work.since or 0.0) if work.state is State.FAILED else lost.at
    return now - began >= (row.after if row.care == owners.WATCH else 0.0)


def lost_pods(pods: Iterable[PodView], own: Sequence[JobOwner], everybody: bool) -> list[Workload]:
    """Pods that the infrastructure ended and that nobody makes again, or of whose owner nobody knows whether it does.

    Pods of Jobs are their Jobs'; those of an owner that is known are its own.
    """
    return [
        _of_view(pod)
        for pod in pods
        if pod.cause is Cause.INFRASTRUCTURE
        and (everybody or pod.opt_in is not None)
        and not (pod.job_uid or pod.mirror or (pod.owner and owners.is_known(pod.owner, own)))
    ]
