# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's jobs for the steps: which job a work means, where it has run, and how to reach those nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.observe import names_of_job
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import proved_off
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord, Job


@dataclass(frozen=True)
class Places:
    """Where a job has run.

    Attributes:
        number: the job's own id, as its processes and files bear it (a task's is not its array's).
        numbers: the same of all components of a heterogeneous job; of any other job that one.
        addresses: by node name the SSH address, of all its runs.
        last: the nodes of its last run.
        uid: its user's, None where that is not known.
    """

    number: int
    numbers: tuple[int, ...]
    addresses: Mapping[str, str]
    last: frozenset[str]
    uid: Optional[int] = None


def read_jobs(works: Sequence[Work], tools: Tools) -> dict[int, Job]:
    """By incident the job as Slurm has it now, by one call; without those that Slurm has forgotten.

    Raises:
        RecoveryError: Slurm cannot be read.
    """
    if not works:
        return {}
    jobs = tools.slurm.jobs(sorted({work.target.name for work in works}), missing_ok=True)
    by_name = {name: job for job in jobs for name in names_of_job(job)}
    return {work.incident: by_name[work.target.name] for work in works if work.target.name in by_name}


def read_parts(works: Sequence[Work], jobs: Mapping[int, Job], tools: Tools) -> dict[int, list[Job]]:
    """By incident all components of its job, the job itself first; of one that is not heterogeneous, it alone.

    Raises:
        RecoveryError: Slurm cannot be read.
    """
    wanted = sorted({number for job in jobs.values() for number in job.het_jobs if number != job.id})
    others = {job.id: job for job in tools.slurm.jobs(wanted, missing_ok=True)} if wanted else {}
    return {
        work.incident: [
            jobs[work.incident],
            *(others[number] for number in jobs[work.incident].het_jobs if number in others),
        ]
        for work in works
        if work.incident in jobs
    }


def find_places(works: Sequence[Work], parts: Mapping[int, Sequence[Job]], tools: Tools) -> dict[int, Places]:
    """By incident where its job, or any component of it, has run; without those of which nobody knows.

    Args:
        parts: what `read_parts` found.

    The addresses are the ledger's, and Slurm's own NodeAddr for a node that the ledger does not know.

    Raises:
        RecoveryError: accounting or Slurm cannot be read.
    """
    asked = {str(part.id) for some in parts.values() for part in some}
    asked.update(work.target.name for work in works if work.incident not in parts)
    records = tools.slurm.accounting(sorted(asked)) if asked else []
    found: dict[int, Places] = {}
    for work in works:
        places = _places(work, parts.get(work.incident, []), records)
        if places is not None:
            found[work.incident] = places
    return _with_addresses(found, tools)


def _places(work: Work, parts: Sequence[Job], records: Iterable[AccountingRecord]) -> Optional[Places]:
    wanted = {str(part.id) for part in parts} or {work.target.name}
    runs = [record for record in records if record.step is None and record.nodes and wanted & _names_of(record)]
    runs.sort(key=lambda run: (run.start_time or 0, run.submit_time or 0))
    last = {run.id: run.nodes for run in runs}  # by component the nodes of its last run
    last.update((part.id, part.nodes) for part in parts if part.nodes)
    names = dict.fromkeys(name for nodes in [*last.values(), *(run.nodes for run in runs)] for name in nodes)
    if not names:
        return None
    numbers = tuple(dict.fromkeys([part.id for part in parts] or last))
    last_nodes = frozenset(name for nodes in last.values() for name in nodes)
    return Places(numbers[0], numbers, dict.fromkeys(names, ""), last_nodes, parts[0].uid if parts else None)


def _names_of(record: AccountingRecord) -> set[str]:
    names = {str(record.id), str(record.het_job_id or record.id)}
    if record.array_job_id and record.array_task_id is not None:
        names.add("%d_%d" % (record.array_job_id, record.array_task_id))
    return names


def _with_addresses(found: Mapping[int, Places], tools: Tools) -> dict[int, Places]:
    known = addresses_of({name for places in found.values() for name in places.addresses}, tools)
    return {
        incident: replace(places, addresses={name: known.get(name, "") for name in places.addresses})
        for incident, places in found.items()
    }


def addresses_of(names: Iterable[str], tools: Tools) -> dict[str, str]:
    """By node name the SSH address that the ledger has, else Slurm's NodeAddr; without nodes that neither knows.

    Raises:
        RecoveryError: Slurm cannot be read.
    """
    wanted = sorted(set(names))
    known = {name: machine.ssh_address for name, machine in tools.machines(wanted).items() if machine.ssh_address}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        known.update((node.name, node.address or node.name) for node in tools.slurm.nodes(unknown, missing_ok=True))
    return known


def ask_places(
    verb: str, places: Iterable[Places], tools: Tools, deadline: float, words_of: Callable[[Places], list[str]]
) -> dict[str, NodeAnswer]:
    """Ask all nodes of these jobs for a verb, each node once for all of its jobs; by address the answer.

    Args:
        words_of: the helper's words for one job.
    """
    asked: dict[str, dict[int, Places]] = {}
    for place in places:
        for address in set(place.addresses.values()):
            if address:
                asked.setdefault(address, {})[place.number] = place
    requests = {
        address: [verb, *(word for number in sorted(jobs) for word in words_of(jobs[number]))]
        for address, jobs in asked.items()
    }
    return tools.nodes.call(requests, deadline)


def answers_of(
    place: Places, answers: Mapping[str, NodeAnswer]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, RecoveryError]]:
    """A job's answers by node name, and the errors of nodes that gave none."""
    data, errors = {}, {}
    for name, address in place.addresses.items():
        answer = answers.get(address) or NodeAnswer(error=Absent("no SSH address of node %s is known" % name))
        if answer.error is not None:
            errors[name] = answer.error
        else:
            data[name] = answer.data
    return data, errors


def may_live_on(names: Iterable[str], tools: Tools) -> list[str]:
    """Of these nodes, on which a job has run, those where it may live on.

    Slurm ends a job on the nodes that it hears. One that is only cut off, or frozen, goes on with it, unless its own
    BMC says that it is off.

    Raises:
        RecoveryError: Slurm cannot be read.
    """
    asked = sorted(set(names))
    heard = {node.name for node in tools.slurm.nodes(asked, missing_ok=True) if node.responding} if asked else set()
    silent = [name for name in asked if name not in heard]
    machines = tools.machines(silent) if silent else {}
    off = proved_off(list(machines.values()), tools)
    return [name for name in silent if name not in machines or machines[name].name not in off]


def serious(place: Places, errors: Mapping[str, RecoveryError]) -> list[RecoveryError]:
    """Errors of nodes of the last run; for those of earlier ones see `may_live_on`."""
    return [error for name, error in errors.items() if name in place.last]
