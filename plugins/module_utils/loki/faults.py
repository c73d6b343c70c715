# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of Loki as faults: whose they are, what they say, and what of that asks for something.

A line in Loki is a hint. Whoever may push to Loki, or make a collector push, can have written it; so the line of a
container is never a kernel's, and before anything is done the node is asked itself (gate `gone`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar

from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent_listener import believe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.jobs import JobLog
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.kernel import KernelLog
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import Finding
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Entry
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.labels import (
    Subject,
    job_of,
    node_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    KERNEL,
    REPORT,
    LokiLabels,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show.lines import JOB_LABEL

_MAX_LOGS = 2000  # of nodes, and of jobs, that are read at the same time
_HANGS = ("nccl_timeout", "nccl_stuck")  # what a job's log tells of a job that does not go on
_SECOND = 1e9

Log = TypeVar("Log")
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Found:
    """A fault that a line tells.

    Attributes:
        subject: whose it is.
        at: epoch seconds of the line, as Loki has it.
        body: what is kept as evidence.
    """

    subject: Subject
    kind: str
    suggested: str
    at: float
    body: Mapping[str, Any] = field(compare=False)

    @property
    def key(self) -> Key:
        """The same fault of the same thing has the same one."""
        return (self.subject.key, str(self.body["code"]), str(self.body["device"]))


class Reader:
    """Reads lines in the order of their time. What belongs to one burst is told once; see `logs.kernel`."""

    def __init__(self) -> None:
        self._kernels: OrderedDict[str, KernelLog] = OrderedDict()
        self._jobs: OrderedDict[str, JobLog] = OrderedDict()

    def read(
        self, reads: str, entries: Sequence[Entry], labels: LokiLabels, machines: Mapping[str, Machine]
    ) -> list[Found]:
        """The faults that fresh lines tell.

        Args:
            reads: of `settings.LOKI_READS`.
            machines: by each of their names.
        """
        found: list[Found] = []
        for entry in sorted(entries):
            told = dict(entry.labels)
            if told.get("job") == JOB_LABEL:  # what we told Loki ourselves
                continue
            if reads == KERNEL:
                found += self._kernel(entry, told, labels, machines)
            else:
                found += self._job(entry, told, labels)
        return found

    def end_bursts(self, now: float) -> None:
        """Forget what has been silent for long."""
        for log in self._kernels.values():
            log.flush(now)

    def _kernel(
        self, entry: Entry, told: Mapping[str, str], labels: LokiLabels, machines: Mapping[str, Machine]
    ) -> list[Found]:
        if any(told.get(name) for name in labels.container):
            return []
        subject = node_of(told, labels.node, machines)
        if subject is None:
            return []
        at = entry.at / _SECOND
        findings = _of(self._kernels, subject.key, KernelLog).feed(entry.line, at)
        made = [_node_fault(subject, finding, at) for finding in findings]
        return [one for one in made if one is not None]

    def _job(self, entry: Entry, told: Mapping[str, str], labels: LokiLabels) -> list[Found]:
        subject = job_of(told, labels)
        if subject is None:
            return []
        at = entry.at / _SECOND
        log = _of(self._jobs, subject.key, JobLog)
        log.feed(entry.line, at)
        hangs = [finding for finding in log.findings() if finding.code in _HANGS and finding.last == at]
        return [Found(subject, "job_hung", REPORT, at, _body(finding)) for finding in hangs]


def _of(logs: OrderedDict[str, Log], key: str, make: Callable[[], Log]) -> Log:
    """The log of this key, made where there is none; the one that was not used for longest goes."""
    if key not in logs:
        logs[key] = make()
        if len(logs) > _MAX_LOGS:
            logs.popitem(last=False)
    logs.move_to_end(key)
    return logs[key]


def _node_fault(subject: Subject, finding: Finding, at: float) -> Optional[Found]:
    body = _body(finding)
    suggested = believe.suggested(body)
    return Found(subject, believe.kind_of(body), suggested, at, body) if suggested else None


def _body(finding: Finding) -> dict[str, Any]:
    """A finding as the ledger keeps it. Of which boot it is nobody knows; the node is asked."""
    report = {**finding.__dict__, "lines": [list(line) for line in finding.lines], "boot_id": ""}
    return believe.evidence_of(report, report["boot_id"])
