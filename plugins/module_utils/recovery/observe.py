# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at the targets of a run: everything at once, within seconds, and each part that cannot be read is unknown.

Slurm is asked once for all nodes and once for all jobs; the nodes' SSH ports, helpers and BMCs are asked all at once.
Nothing is judged here.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import creating, owner_watch
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs as kubernetes_jobs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import job_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import shell as node_shell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.probe import ANSWERS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.parallel import read_each
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import looks, reported, silence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.followers import with_followers
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.looks import (
    JobLook,
    NodeLook,
    PowerLook,
    ShellLook,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine, Tools
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import (
    detect,
    queue,
    reservations,
    suspects,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import AccountingRecord, Job

HELPER_DEADLINE = 4.0
_REPORT_DEADLINE = 15.0  # nvidia-smi wakes GPUs up that are not in persistence mode
_POWER_DEADLINE = 4.0
_KUBERNETES_WORKERS = 16
_STUCK_GRACE = 60.0

# Kinds whose node is likely to be silent: its BMC is read at once, not only after the SSH port stayed silent.
_LIKELY_SILENT = ("node_not_responding", "kubernetes_node_not_ready", "pod_stuck_terminating", "requested")

_ALIVE = {node_shell.BANNER: True, node_shell.SILENT: False, node_shell.NO_ROUTE: False}
_CONNECTS = {**dict.fromkeys(ANSWERS, True), node_shell.NO_ROUTE: False}

# Kinds of nodes that are seen by the jobs there.
_STUCK, _SUSPECT = _BY_JOBS = ("job_stuck_completing", "node_suspect")


@dataclass(frozen=True)
class Past:
    """What the ledger knows of the jobs of a node: runs that failed there and were requeued, of which the accounting
    keeps only that they were requeued; and since when its failures count (epoch seconds)."""

    ends: tuple[suspects.End, ...] = ()
    since: float = 0.0


PastOf = Callable[[Sequence[str]], Mapping[str, Past]]
MachinesOf = Callable[[Sequence[str]], Mapping[str, Machine]]  # the ledger's machines by Slurm's names
Parts = dict[str, Any]  # by name the value read, or the RecoveryError that says why not


def look_at_nodes(
    machines: Mapping[Target, Optional[Machine]],
    kinds: Mapping[Target, str],
    tools: Tools,
    full: bool,
    past: PastOf = lambda _names: {},
    reports: Mapping[Target, reported.Report] = MappingProxyType({}),
) -> dict[Target, NodeLook]:
    """Look at these nodes.

    Args:
        machines: by target its machine, None for one that the ledger does not know.
        kinds: by target the kind of its fault.
        full: look at SSH, helper and BMC too, not only at the schedulers.
        past: what the ledger knows of jobs on the nodes that are suspect, by Slurm's name.
        reports: what nodes reported of themselves; those whose fault that is are asked about it.
    """
    known = {target: machine for target, machine in machines.items() if machine is not None}
    named = {kind: sorted(known[each].slurm_name for each in known if kinds[each] == kind) for kind in _BY_JOBS}
    stuck = {known[target].kubernetes_name: kinds[target] for target in known if kinds[target] in _STUCK_PODS}
    asked = {known[target]: report for target, report in reports.items() if kinds[target] in reported.KINDS and full}
    likely = [known[target] for target in known if kinds[target] in _LIKELY_SILENT]
    with ThreadPoolExecutor(8) as pool:
        slurm = pool.submit(_slurm_nodes, tools, [machine.slurm_name for machine in known.values()])
        views = pool.submit(_kubernetes_nodes, tools, [machine.kubernetes_name for machine in known.values()])
        pods = pool.submit(_count_pods, tools, stuck)
        reserved = pool.submit(_reservations, tools, [machine.slurm_name for machine in known.values()], full)
        jobs = pool.submit(_jobs_of_nodes, tools, named, past(named[_SUSPECT]) if named[_SUSPECT] else {})
        power = pool.submit(_power, tools, likely if full else [])
        kernels = pool.submit(_kernels, tools, asked)
        gpus = pool.submit(_gpus, tools, asked)
        shells = _shells(tools, list(known.values())) if full else {}
        powers = power.result()
        silent = [machine for machine in known.values() if _is_silent(shells.get(machine.name)) and machine.bmc_url]
        powers.update(_power(tools, [machine for machine in silent if machine.name not in powers]))
        read = (slurm.result(), views.result(), shells, powers, pods.result(), reserved.result(), jobs.result())
        of_reports = (kernels.result(), gpus.result())
    found = _Found(*read, _long_silent(tools) if full else frozenset(), *of_reports)
    return {target: _node_look(machine, found, reports.get(target)) for target, machine in machines.items()}


def look_at_jobs(
    targets: Mapping[Target, str], scheduler: str, tools: Tools, machines: MachinesOf
) -> dict[Target, JobLook]:
    """Look at these jobs of one scheduler.

    Args:
        targets: by target the kind of its fault; `stale_spool` needs a look at the job's nodes, and without a kind
            nothing is looked at but the job itself.
        machines: the ledger's machines by Slurm's names, for that.
    """
    if scheduler != SLURM:
        return {target: _KUBERNETES_LOOKS.get(kind, _kubernetes_job)(tools, target) for target, kind in targets.items()}
    found = _slurm_jobs(tools, [target.name for target in targets])
    looked = {
        target: _with_left_overs(found[target.name], tools, machines) if kind == "stale_spool" else found[target.name]
        for target, kind in targets.items()
    }
    return {**looked, **with_followers({target: looked[target] for target, kind in targets.items() if kind}, tools)}


def probe(tools: Tools, machines: Iterable[Machine], deadline: float = HELPER_DEADLINE) -> dict[str, ShellLook]:
    """Ask the helpers of these machines who they are; by name the answers, without those that gave none."""
    addresses = {machine.name: machine.ssh_address for machine in machines if machine.ssh_address}
    answers = tools.nodes.call({address: ["probe"] for address in addresses.values()}, deadline)
    return {
        name: _shell_of(True, answers[address].data)
        for name, address in addresses.items()
        if answers[address].error is None
    }


def _slurm_nodes(tools: Tools, names: Sequence[str]) -> Parts:
    wanted = sorted({name for name in names if name})
    if not wanted or tools.slurm is None:
        return {}
    try:
        nodes = {node.name: node for node in tools.slurm.nodes(wanted, missing_ok=True)}
    except RecoveryError as exc:
        return dict.fromkeys(wanted, exc)
    return {name: nodes.get(name, Absent("Slurm knows no node %s" % name)) for name in wanted}


def _reservations(tools: Tools, names: Sequence[str], full: bool) -> Parts:
    """By node the reservations that have it; one call for all."""
    wanted = sorted({name for name in names if name}) if full else []
    if not wanted or tools.slurm is None:
        return {}
    try:
        made = tools.slurm.reservations()
    except RecoveryError as exc:
        return dict.fromkeys(wanted, exc)
    return {name: reservations.of_node(name, made) for name in wanted}


def _slurm_jobs(tools: Tools, ids: Sequence[str]) -> dict[str, JobLook]:
    try:
        jobs = tools.slurm.jobs(ids, missing_ok=True)
    except RecoveryError as exc:
        return {name: JobLook(unknown={looks.SLURM: str(exc)}) for name in ids}
    by_name = {name: job for job in jobs for name in names_of_job(job)}
    return {name: JobLook(job=by_name[name]) if name in by_name else JobLook(absent=True) for name in ids}


def names_of_job(job: Any) -> list[str]:
    """Every way to name a job: by its own id, as a task of its array, as a component of a heterogeneous job."""
    names = [str(job.id)]
    if job.array_job_id and job.array_task_id is not None:
        names.append("%d_%d" % (job.array_job_id, job.array_task_id))
    if job.het_job_id and job.het_job_offset is not None:
        names.append("%d+%d" % (job.het_job_id, job.het_job_offset))
    return names


def _with_left_overs(look: JobLook, tools: Tools, machines: MachinesOf) -> JobLook:
    """Look on every node that the job ever ran on for files and processes of its ended steps."""
    if look.job is None:
        return look
    numbers = [str(number) for number in look.job.het_jobs or (look.job.id,)]
    try:
        if look.job.state == "COMPLETED":
            names = _nodes_of_a_hidden_failure(tools, look.job, numbers)
        else:
            names = _nodes_of_runs(tools, look.job, numbers)
    except RecoveryError as exc:
        return JobLook(job=look.job, unknown={looks.SPOOL: str(exc)})
    if not names:
        return JobLook(job=look.job, left_overs={})
    known = machines(names)
    addresses = {known[name].ssh_address: name for name in names if name in known and known[name].ssh_address}
    words = ["spool-look", *(word for number in numbers for word in ("--job", number))]
    files = tools.nodes.call(dict.fromkeys(addresses, words), HELPER_DEADLINE)
    orphans: Mapping[str, Any] = {}
    if look.job.state == "PENDING":  # while it runs, its processes are no orphans
        of_jobs = [word for number in numbers for word in node_shell.job_words(int(number), look.job.uid)]
        words = ["orphans", *of_jobs]
        orphans = tools.nodes.call(dict.fromkeys(addresses, words), HELPER_DEADLINE)
    left, trouble = {}, [name for name in names if name not in addresses.values()]
    for address, name in addresses.items():
        answers = [answer for answer in (files.get(address), orphans.get(address)) if answer is not None]
        if any(answer.error is not None for answer in answers):
            trouble.append(name)
        words = _left_words(answers)
        if words:
            left[name] = words
    unknown = {looks.SPOOL: "the spool of %s cannot be looked at" % ", ".join(sorted(trouble)[:5])} if trouble else {}
    return JobLook(job=look.job, left_overs=left, unknown=unknown)


def _nodes_of_runs(tools: Tools, job: Job, numbers: Sequence[str]) -> list[str]:
    """Every node on which a run of the job was: the present one's, and those of its former runs by accounting."""
    names = dict.fromkeys(job.nodes)
    for record in tools.slurm.accounting(numbers):
        names.update(dict.fromkeys(record.nodes))
    return list(names)


def _nodes_of_a_hidden_failure(tools: Tools, job: Job, numbers: Sequence[str]) -> list[str]:
    """The nodes of a run that ended COMPLETED although a step of it could not start; none of any other run."""
    began = job.start_time or 0
    records = [run for run in tools.slurm.accounting(numbers, steps=True) if (run.start_time or 0) >= began]
    if not hid_a_failed_launch(records):
        return []
    return list(dict.fromkeys(name for run in records if run.step is None for name in run.nodes))


def hid_a_failed_launch(records: Sequence[AccountingRecord]) -> bool:
    """Whether a run with these records, which ended COMPLETED, had a step that could not start. Pure.

    A step that could not be launched is FAILED with the exit code 0:0; one whose program failed has another code. What
    an earlier run left on its nodes does not count: this run did not find it.
    """
    return any(
        record.step is not None
        and record.step.partition("+")[0].isdigit()
        and (record.state, record.exit_code) == ("FAILED", "0:0")
        for record in records
    )


def _left_words(answers: Sequence[Any]) -> str:
    stale = sum(len(answer.data.get("stale", ())) for answer in answers)
    processes = sum(answer.data.get("count", 0) for answer in answers if "processes" in answer.data)
    words = ["%d files" % stale] if stale else []
    words += ["%d processes" % processes] if processes else []
    return ", ".join(words)


def widths(tools: Tools, names: Sequence[str]) -> dict[str, int]:
    """By node how many nodes the widest job there has; without those that have none. For an order alone: where Slurm
    does not tell, it is empty."""
    wanted = {name for name in names if name}
    found: dict[str, int] = {}
    if not wanted or tools.slurm is None:
        return found
    try:
        states = tools.slurm.job_states(nodes=sorted(wanted))
    except RecoveryError:
        return found
    for state in states:
        for name in wanted.intersection(state.nodes):
            found[name] = max(found.get(name, 0), len(state.nodes))
    return found


def _jobs_of_nodes(tools: Tools, named: Mapping[str, Sequence[str]], past: Mapping[str, Past]) -> Parts:
    """By node what of its jobs its fault is about: fields of `NodeLook`."""
    found: Parts = {}
    for kind, look in ((_STUCK, _stuck_jobs), (_SUSPECT, _failures)):
        names = [name for name in named[kind] if name]
        if names and tools.slurm is not None:
            try:
                found.update(look(tools, names, past))
            except RecoveryError as exc:
                found.update(dict.fromkeys(names, exc))
    return found


def _stuck_jobs(tools: Tools, names: Sequence[str], _past: Mapping[str, Past]) -> Parts:
    grace = detect.completing_grace(tools.slurm.config(), tools.settings.slurm.completing_grace)
    if grace is None:
        raise Unreadable("slurm.conf does not say how long processes may take to end (UnkillableStepTimeout)")
    states = tools.slurm.job_states(nodes=names)
    stuck = [(seen.name, str(state.id)) for state in states for seen in detect.stuck_nodes(state, tools.now(), grace)]
    return {name: {"stuck_jobs": tuple(job for node, job in stuck if node == name)} for name in names}


def only_stuck_jobs(tools: Tools, name: str) -> bool:
    """Whether all that is on a node are jobs that are COMPLETING past their time: only a reboot ends them.

    Raises:
        RecoveryError: nobody can tell.
    """
    there = {str(state.id) for state in tools.slurm.job_states(nodes=[name]) if state.state != "PENDING"}
    return bool(there) and there == set(_stuck_jobs(tools, [name], {})[name]["stuck_jobs"])


def _failures(tools: Tools, names: Sequence[str], past: Mapping[str, Past]) -> Parts:
    limits, now = tools.settings.limits, tools.now()
    rule = suspects.Rule(limits.suspect_failures, limits.suspect_users, limits.suspect_window)
    ends: dict[str, list[suspects.End]] = {name: list(past.get(name, Past()).ends) for name in names}
    for record in tools.slurm.accounting(since=int(now - rule.window), nodes=names):
        if record.step is None and record.end_time:
            user, started = record.user or "", record.start_time or 0
            end = suspects.End(queue.job_name(record), user, record.state, record.end_time, started)
            for name in set(record.nodes).intersection(names):
                ends[name].append(end)
    found = {}
    for name in names:
        since = past.get(name, Past()).since
        row = suspects.streak([end for end in ends[name] if end.started >= since], now, rule.window)
        found[name] = {"failures": row if suspects.is_suspect(row, rule) else ()}
    return found


def _kubernetes_nodes(tools: Tools, names: Sequence[str]) -> Parts:
    wanted = sorted({name for name in names if name})
    if not wanted or tools.kubernetes is None:
        return {}
    return read_each(wanted, lambda name: kubernetes_nodes.read_node(tools.kubernetes, name), _KUBERNETES_WORKERS)


def _count_pods(tools: Tools, wanted: Mapping[str, str]) -> Parts:
    """By node its stuck pods; `wanted` says by node which kind of fault it is about."""
    if not wanted or tools.kubernetes is None:
        return {}
    return read_each(sorted(wanted), lambda name: _STUCK_PODS[wanted[name]](tools, name), _KUBERNETES_WORKERS)


def _terminating(tools: Tools, name: str) -> int:
    pods = kubernetes_nodes.pods_on(tools.kubernetes, name)
    return len(kubernetes_nodes.stuck_terminating(pods, time.time(), _STUCK_GRACE))


def _without_sandbox(tools: Tools, name: str) -> int:
    return creating.on_node(tools.kubernetes, name, time.time(), tools.settings.kubernetes.creating_grace)


_STUCK_PODS: dict[str, Callable[[Tools, str], int]] = {
    "pod_stuck_terminating": _terminating,
    "pod_stuck_creating": _without_sandbox,
}


def _kubernetes_job(tools: Tools, target: Target) -> JobLook:
    if tools.kubernetes is None:
        return JobLook(unknown={looks.KUBERNETES: "this site has no Kubernetes"})
    try:
        job = job_view(kubernetes_jobs.read_job(tools.kubernetes, target.name))
        return JobLook(kubernetes=job, stalled=job.is_stalled(tools.now()))
    except Absent:
        return JobLook(absent=True)
    except RecoveryError as exc:
        return JobLook(unknown={looks.KUBERNETES: str(exc)})


def _workload(tools: Tools, target: Target) -> JobLook:
    if tools.kubernetes is None:
        return JobLook(unknown={looks.KUBERNETES: "this site has no Kubernetes"})
    try:
        own = tools.settings.kubernetes.owners
        return JobLook(workload=owner_watch.find(tools.kubernetes, target.name, target.uid, own))
    except Absent:
        return JobLook(absent=True)
    except RecoveryError as exc:
        return JobLook(unknown={looks.KUBERNETES: str(exc)})


_KUBERNETES_LOOKS: dict[str, Callable[[Tools, Target], JobLook]] = {"kubernetes_workload_unrecovered": _workload}


def _shells(tools: Tools, machines: Sequence[Machine]) -> dict[str, ShellLook]:
    """The SSH port of every machine, without those that could not be asked; the helper of those that greet."""
    addresses = {machine.name: machine.ssh_address for machine in machines if machine.ssh_address}
    if not addresses:
        return {}
    banners = tools.nodes.banner(list(addresses.values()))
    greeting = [address for address, seen in banners.items() if seen == node_shell.BANNER]
    answers = tools.nodes.call({address: ["probe"] for address in greeting}, HELPER_DEADLINE)
    made = {}
    for name, address in addresses.items():
        if banners[address] == node_shell.UNKNOWN:
            continue  # our own trouble, and no silence of the node
        answer = answers.get(address)
        data = answer.data if answer is not None and answer.error is None else {}
        made[name] = replace(
            _shell_of(_ALIVE.get(banners[address]), data), connects=_CONNECTS.get(banners[address])
        )
    return made


def _shell_of(banner: Optional[bool], data: Mapping[str, Any]) -> ShellLook:
    units = data.get("units") or {}
    return ShellLook(
        banner=banner,
        answers=bool(data.get("boot_id")),
        boot_id=str(data.get("boot_id") or ""),
        machine_id=str(data.get("machine_id") or ""),
        hostname=str(data.get("hostname") or ""),
        slurmd=_active(units.get("slurmd.service")),
        kubelet=_active(units.get("kubelet.service")),
    )


def _active(unit: Any) -> Optional[bool]:
    """Whether a unit is up, as systemd says; one that is just starting or stopping is neither."""
    state = unit.get("active") if isinstance(unit, Mapping) else None
    return {"active": True, "inactive": False, "failed": False}.get(str(state))


def _kernels(tools: Tools, asked: Mapping[Machine, reported.Report]) -> Parts:
    """By machine how many seconds ago the kernel's log of its present boot said what it reported; None: it does not."""
    words = {
        machine: ["kernel-look", "--code", report.code] for machine, report in asked.items() if report.code
    }
    answers = _ask(tools, words)
    found: Parts = {}
    for machine, report in asked.items():
        answer = answers.get(machine.name)
        if answer is None or answer.error is not None:
            found[machine.name] = Unreadable("its kernel's log was not read (%s)" % (answer and answer.error))
        else:
            found[machine.name] = reported.told_ago(answer.data, report)
    return found


def _gpus(tools: Tools, asked: Mapping[Machine, reported.Report]) -> dict[str, reported.GpuLook]:
    """By machine the GPU that it reported."""
    words = {
        machine: ["gpu-look", "--device", reported.word(report.device)]
        for machine, report in asked.items()
        if reported.is_gpu(report)
    }
    answers = _ask(tools, words)
    return {
        machine.name: reported.gpu_of(answers[machine.name].data, asked[machine].device)
        for machine in words
        if machine.name in answers
    }


def _ask(tools: Tools, words: Mapping[Machine, Sequence[str]]) -> dict[str, node_shell.NodeAnswer]:
    """By machine the answer of its helper, without those that have no SSH address."""
    addresses = {machine.ssh_address: machine for machine in words if machine.ssh_address}
    answers = tools.nodes.call({address: words[machine] for address, machine in addresses.items()}, _REPORT_DEADLINE)
    return {addresses[address].name: answer for address, answer in answers.items()}


def _long_silent(tools: Tools) -> frozenset[str]:
    """Names in Slurm of the nodes that the source which probes them has not heard for long enough."""
    enough = tools.settings.limits.silence
    told = silence.read(tools.settings, tools.now())
    return frozenset(name for name, seconds in told.items() if 0 < enough <= seconds)


def _is_silent(shell: Optional[ShellLook]) -> bool:
    return shell is not None and shell.banner is False


def _power(tools: Tools, machines: Sequence[Machine]) -> Parts:
    urls = {machine.name: machine.bmc_url for machine in machines if machine.bmc_url}
    if not urls or tools.power is None:
        return {}
    states = tools.power.read_many(list(urls.values()), _POWER_DEADLINE)
    return {name: states[url] for name, url in urls.items()}


@dataclass(frozen=True)
class _Found:
    """What was read: shells and powers by machine, the others by the node's name there."""

    slurm: Parts
    views: Parts
    shells: Mapping[str, ShellLook]
    powers: Parts
    pods: Parts
    reservations: Parts
    jobs: Parts
    long_silent: frozenset[str]
    kernels: Parts
    gpus: Mapping[str, reported.GpuLook]


def _node_look(machine: Optional[Machine], found: _Found, report: Optional[reported.Report]) -> NodeLook:
    if machine is None:
        return NodeLook()
    unknown: dict[str, str] = {}
    power = _part(found.powers, machine.name, looks.POWER, unknown)
    shell = found.shells.get(machine.name)
    if shell is not None and not shell.answers:
        unknown[looks.SHELL] = "the node's helper does not answer"
    of_jobs = _part(found.jobs, machine.slurm_name, looks.JOBS, unknown) or {}
    deleted = isinstance(found.views.get(machine.kubernetes_name), Absent)
    return NodeLook(
        machine=machine,
        kubernetes_deleted=deleted,
        slurm=_part(found.slurm, machine.slurm_name, looks.SLURM, unknown),
        kubernetes=None if deleted else _part(found.views, machine.kubernetes_name, looks.KUBERNETES, unknown),
        shell=shell,
        power=PowerLook(power.state, power.uuid) if power is not None else None,
        stuck_pods=_part(found.pods, machine.kubernetes_name, looks.PODS, unknown),
        reservations=_part(found.reservations, machine.slurm_name, looks.RESERVATIONS, unknown),
        stuck_jobs=of_jobs.get("stuck_jobs"),
        failures=of_jobs.get("failures"),
        long_silent=machine.slurm_name in found.long_silent,
        report=report,
        told_ago=_part(found.kernels, machine.name, looks.KERNEL, unknown),
        gpu=found.gpus.get(machine.name),
        unknown=unknown,
    )


def _part(parts: Parts, name: str, part: str, unknown: dict[str, str]) -> Any:
    """The value read, or None with the reason written to `unknown`."""
    value = parts.get(name)
    if isinstance(value, RecoveryError):
        unknown[part] = str(value)
        return None
    return value
