# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Slurm's commands and how the answers are read, without running anything.

An operation is a generator: it yields the argv of a command, is sent its `Output` and returns models. The adapters in
`cli` drive it, one with subprocess, one with asyncio; argv and parsers exist once. Nothing ever passes a shell.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeVar

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import (
    hostlist,
    models,
    parse_json,
    parse_text,
    queue,
    reservations,
    values,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reasons import clean_text

Argv = list[str]
T = TypeVar("T")

# StateComplete and Reason. A state with every flag of Slurm is some 300 bytes long.
SINFO_WIDTHS = (400, 256)
# NodeList. Each group of nodes is a record of this width, so it begins small.
SINFO_LIST_WIDTHS = (1024, 32768, 1048576)

_IDS_AT_ONCE = 200  # jobs in one argument; the kernel takes 128 KiB, and slurmctld holds its lock for each call
_JOB_STATE_COLUMNS = (
    ("id", "%A"),
    ("array_job_id", "%F"),
    ("array_task", "%K"),
    ("state", "%T"),
    ("uid", "%U"),
    ("nodes", "%N"),
    ("partition", "%P"),
    ("submit", "%V"),
    ("start", "%S"),
    ("end", "%e"),
    ("reason", "%r"),
)
# Without what changes all the time: where nothing happened, the line of a job is the same in the next look.
_JOBS_COLUMNS = tuple(column for column in _JOB_STATE_COLUMNS if column[0] != "start")
_ONLY_STATE_COLUMNS = _JOB_STATE_COLUMNS[:4]
_ACCOUNTING_COLUMNS = (
    "jobidraw",
    "jobid",
    "state",
    "exitcode",
    "derivedexitcode",
    "user",
    "partition",
    "nodelist",
    "submit",
    "start",
    "end",
    "jobname",
    "comment",
)

_SUBMISSION_COLUMNS = ("jobidraw", "jobid", "state", "start", "submitline")

# Linux takes 128 KiB for one argument.
_MAX_ARGUMENT = 100_000


@dataclasses.dataclass(frozen=True)
class Output:
    """What a command said."""

    argv: Sequence[str]
    rc: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """stderr, or what else there is, as one bounded line."""
        return clean_text((self.stderr or self.stdout).decode("utf-8", "replace"), 500)


Operation = Generator[Argv, Output, T]


@dataclasses.dataclass(frozen=True)
class Controller:
    """One line of `scontrol ping`."""

    role: str
    host: str
    up: bool


# Texts of slurm_strerror() and of the commands, in lower case; the first that occurs decides.
_COMPLAINTS: tuple[tuple[str, type[RecoveryError], str, str], ...] = (
    ("unable to contact slurm controller", Unreachable, "unreachable", "check that slurmctld runs"),
    ("unable to establish a configuration source", Unreachable, "unreachable", "check slurm.conf, or SLURM_CONF"),
    ("could not establish a configuration source", Unreachable, "unreachable", "check slurm.conf, or SLURM_CONF"),
    ("unable to establish a connection", Unreachable, "unreachable", "check that slurmctld runs"),
    ("connection refused", Unreachable, "unreachable", "check that the daemon runs"),
    ("connection timed out", Unreachable, "unreachable", "check the network to the controller"),
    ("socket timed out", Unreachable, "unreachable", "slurmctld is overloaded or hangs"),
    ("zero bytes were transmitted or received", Unreachable, "unreachable", "slurmctld closed the connection"),
    ("slurm backup controller in standby mode", Unreachable, "unreachable", "ask the controller that is active"),
    ("problem talking to the database", Unreachable, "unreachable", "check that slurmdbd runs"),
    ("incompatible versions of client and server", Unreachable, "incompatible", "use the cluster's own commands"),
    ("protocol authentication error", Forbidden, "authentication", "check that munge runs with the cluster's key"),
    ("invalid authentication credential", Forbidden, "authentication", "check munge's key and the clocks"),
    ("munge encode failed", Forbidden, "authentication", "check that munge runs"),
    ("access/permission denied", Forbidden, "forbidden", "give this account Slurm's operator or administrator level"),
    ("access denied", Forbidden, "forbidden", "give this account Slurm's operator or administrator level"),
    ("invalid user", Forbidden, "forbidden", "give this account Slurm's administrator level"),
    ("invalid node name", Absent, "absent", ""),
    ("invalid job id", Absent, "absent", ""),
    ("only batch jobs are accepted or processed", Conflict, "not_batch", ""),
    ("requested operation is presently disabled", Conflict, "requeue_disabled", ""),
    ("job is pending execution", Conflict, "pending", ""),
    ("job/step already completing or completed", Conflict, "ended", ""),
    ("not heterogeneous job leader", Conflict, "not_het_leader", ""),
    ("operation only allowed on leader job", Conflict, "not_het_leader", ""),
    ("not supported for heterogeneous", Conflict, "not_het_leader", ""),
    ("invalid node state", Conflict, "invalid_node_state", ""),
)
_NO_JSON = re.compile(
    r"unrecognized option|invalid option|unknown option|serializer|data_parser|openapi", re.IGNORECASE
)


def check(output: Output, what: str) -> Output:
    """Return `output` if the command succeeded, else raise the error that its complaint stands for.

    Every error carries `command`, `rc`, `stderr` and `cause`, one word that says why.
    """
    if output.rc == 0:
        return output
    raise error_of(output, what)


def error_of(output: Output, what: str) -> RecoveryError:
    """The error that a command's complaint stands for; an unknown complaint is a plain `RecoveryError`."""
    fields = {"command": list(output.argv), "rc": output.rc, "stderr": output.complaint}
    said = "%s %s" % (output.complaint, " ".join(parse_json.errors(output.text)))
    for text, kind, cause, next_step in _COMPLAINTS:
        if text in said.lower():
            return kind("%s: Slurm says: %s" % (what, clean_text(said, 300)), next_step, cause=cause, **fields)
    return RecoveryError("%s: rc %d: %s" % (what, output.rc, clean_text(said, 300)), cause="failed", **fields)


class Commands:
    """The operations. An instance remembers which commands of this cluster know no JSON, nothing else."""

    def __init__(self) -> None:
        self._no_json: set[str] = set()

    # Nodes

    def nodes(self, names: Iterable[str] | None, missing_ok: bool) -> Operation[list[models.Node]]:
        """See `Slurm.nodes`."""
        wanted = None if names is None else list(dict.fromkeys(map(hostlist.check_name, names)))
        if wanted == []:
            return []
        arguments = ["show", "node"] + ([] if wanted is None else [_argument(wanted)])
        found = yield from self._show_nodes(arguments)
        if wanted is None:
            return found
        by_name = {node.name: node for node in found}
        missing = [name for name in wanted if name not in by_name]
        if missing and not missing_ok:
            raise Absent("Slurm knows no node %s" % hostlist.compress(missing), names=missing)
        return [by_name[name] for name in wanted if name in by_name]

    def _show_nodes(self, arguments: list[str]) -> Operation[list[models.Node]]:
        if "scontrol" not in self._no_json:
            output = yield ["scontrol", "--all", "--json", *arguments]
            if not self._knows_no_json(output):
                return _parse_known(output, "read nodes", parse_json.parse_nodes)
        output = yield ["scontrol", "--all", *arguments]
        return _parse_known(output, "read nodes", parse_text.parse_nodes)

    def node_groups(self) -> Operation[list[models.NodeGroup]]:
        """See `Slurm.node_groups`."""
        for list_width in SINFO_LIST_WIDTHS:
            widths = (list_width, *SINFO_WIDTHS)
            columns = ",".join("%s:%d" % each for each in zip(("NodeList", "StateComplete", "Reason"), widths))
            # without --Node, with which sinfo compares every node with every other: 2.3 s of a core for 10,000 nodes
            output = check((yield ["sinfo", "--all", "--noheader", "--Format=" + columns]), "read the states of nodes")
            groups = parse_text.parse_node_groups(output.stdout, widths)
            if all(len(group.hosts) < list_width for group in groups):
                return groups
        raise Unreadable("the list of nodes in one state is longer than %d bytes" % SINFO_LIST_WIDTHS[-1])

    def node_states(self) -> Operation[list[models.NodeState]]:
        """See `Slurm.node_states`."""
        groups = yield from self.node_groups()
        return list({state.name: state for group in groups for state in group.states}.values())

    def update_node(self, names: Iterable[str], state: str, reason: str | None) -> Operation[None]:
        """See `Slurm.update_node`."""
        wanted = [hostlist.check_name(name) for name in names]
        if not wanted:
            raise BadInput("no node is named to set to %s" % state)
        argv = ["scontrol", "update", "NodeName=" + _argument(wanted), "State=" + state]
        if reason is not None:
            argv.append("Reason=" + reason)
        check((yield argv), "set %s to %s" % (hostlist.compress(wanted), state))

    def reboot_nodes(self, names: Iterable[str]) -> Operation[None]:
        """See `Slurm.reboot_nodes`."""
        wanted = [hostlist.check_name(name) for name in names]
        if not wanted:
            raise BadInput("no node is named to reboot")
        # neither ASAP nor nextstate: either would take the node's drain away, before anybody has looked at it
        check((yield ["scontrol", "reboot", _argument(wanted)]), "reboot %s" % hostlist.compress(wanted))

    def node_events(self, names: Iterable[str], since: int) -> Operation[list[models.NodeEvent]]:
        """See `Slurm.node_events`."""
        wanted = [hostlist.check_name(name) for name in names]
        argv = ["sacctmgr", "--readonly", "--noheader", "--parsable2", "show", "event", "Nodes=" + ",".join(wanted),
                "Start=" + _sacct_time(since), "Format=NodeName,State,User,TimeStart,Reason"]
        output = check((yield argv), "read the events of nodes")
        return parse_text.parse_node_events(output.text, wanted)

    # Jobs

    def jobs(self, ids: Iterable[Any], missing_ok: bool) -> Operation[list[models.Job]]:
        """See `Slurm.jobs`."""
        refs = list(dict.fromkeys(map(values.job_ref, ids)))
        jobs: dict[int, models.Job] = {}
        missing: list[str] = []
        for some in _slices(refs):
            found = yield from self._jobs([ref.argument for ref in some])
            chosen = {job.id: job for job in found if any(_is(job, ref) for ref in some)}
            missing += [ref.argument for ref in some if not any(_is(job, ref) for job in chosen.values())]
            jobs.update(chosen)
        if missing and not missing_ok:
            raise Absent("Slurm has no job %s (any more)" % ", ".join(missing), jobs=missing)
        return list(jobs.values())

    def _jobs(self, ids: list[str]) -> Operation[list[models.Job]]:
        """What Slurm shows for these ids, by JSON where it knows that."""
        found = None
        if "squeue" not in self._no_json:
            found = yield from self._queue_json(["--states=all", "--jobs=" + ",".join(ids)])
        if found is None:
            found = yield from self._show_jobs(ids)
        return found

    def jobs_on(self, nodes: Iterable[str]) -> Operation[list[models.Job]]:
        """See `Slurm.jobs_on`."""
        names = [hostlist.check_name(name) for name in nodes]
        if not names:
            return []
        found = None
        if "squeue" not in self._no_json:
            found = yield from self._queue_json(["--nodelist=" + _argument(names)])
        if found is None:
            states = yield from self.job_states(None, names, False)
            found = yield from self._show_jobs([str(state.id) for state in states])
        return [job for job in found if job.on_nodes and set(names).intersection(job.nodes)]

    def _queue_json(self, arguments: list[str]) -> Operation[list[models.Job] | None]:
        """The jobs that squeue selects; None if this squeue knows no JSON."""
        output = yield ["squeue", "--all", "--json", *arguments]
        if self._knows_no_json(output):
            return None
        return _parse_known(output, "read jobs", parse_json.parse_jobs)

    def _show_jobs(self, ids: Iterable[str]) -> Operation[list[models.Job]]:
        """scontrol shows one job, or one array, at a time."""
        jobs: list[models.Job] = []
        for job_id in ids:
            output = yield ["scontrol", "--all", "show", "job", job_id]
            jobs.extend(_parse_known(output, "read job %s" % job_id, parse_text.parse_jobs))
        return jobs

    def job_states(
        self, ids: Iterable[Any] | None, nodes: Iterable[str] | None, only_states: bool
    ) -> Operation[list[models.JobState]]:
        """See `Slurm.job_states`."""
        if ids is None:
            return (yield from self._some_job_states(None, nodes, only_states))
        refs = list(dict.fromkeys(values.job_ref(each).argument for each in ids))
        states: list[models.JobState] = []
        for some in _slices(refs):
            states += yield from self._some_job_states(some, nodes, only_states)
        return states

    def _some_job_states(
        self, ids: list[str] | None, nodes: Iterable[str] | None, only_states: bool
    ) -> Operation[list[models.JobState]]:
        columns = _ONLY_STATE_COLUMNS if only_states else _JOB_STATE_COLUMNS
        separator = _separator()
        argv = ["squeue", "--all", "--noheader", "--format=" + "".join(form + separator for _name, form in columns)]
        if only_states:
            argv.append("--only-job-state")
        if ids is not None:
            argv += ["--states=all", "--jobs=" + ",".join(ids)]
        if nodes is not None:
            argv.append("--nodelist=" + _argument([hostlist.check_name(name) for name in nodes]))
        output = yield argv
        if output.rc and isinstance(error_of(output, ""), Absent):
            return []
        check(output, "read the states of jobs")
        rows = parse_text.Columns(tuple(name for name, _form in columns), separator).parse(output.text)
        return [parse_text.parse_job_state(row) for row in rows]

    def all_jobs(self, before: queue.Jobs) -> Operation[queue.Jobs]:
        """See `Slurm.all_jobs`."""
        names, forms = zip(*_JOBS_COLUMNS)
        form = "".join(form + before.separator for form in forms)
        argv = ["squeue", "--all", "--noheader", "--states=all", "--format=" + form]
        output = check((yield argv), "read the states of all jobs")

        def parse(cells: list[str]) -> models.JobState:
            if len(cells) != len(names):
                raise Unreadable("a line of squeue has %d columns in place of %d" % (len(cells), len(names)))
            return parse_text.parse_job_state(dict(zip(names, cells)))

        return before.then(output.text, parse)

    def restarted(self) -> Operation[frozenset[int]]:
        """See `Slurm.restarted`."""
        argv = ["squeue", "--all", "--noheader", "--states=PENDING,RUNNING,SUSPENDED",
                "--Format=JobID:20,RestartCnt:20"]
        rows = [line.split() for line in check((yield argv), "read the restarts of jobs").text.splitlines()]
        if not all(len(row) == 2 and row[0].isdigit() and row[1].isdigit() for row in rows):
            raise Unreadable("squeue does not answer with ids and restarts of jobs")
        return frozenset(int(job) for job, count in rows if int(count))

    def accounting(
        self, ids: Iterable[Any] | None, since: int | None, steps: bool, nodes: Iterable[str] | None
    ) -> Operation[list[models.AccountingRecord]]:
        """See `Slurm.accounting`."""
        separator = _separator()
        argv = ["sacct", "--duplicates", "--allusers", "--noheader", "--parsable", "--delimiter=" + separator,
                "--format=" + ",".join(_ACCOUNTING_COLUMNS)]
        if ids is not None:
            refs = [values.job_ref(each).argument for each in ids]
            if not refs:
                return []
            argv.append("--jobs=" + ",".join(refs))
        if since is not None:
            argv.append("--starttime=" + _sacct_time(since))
        if nodes is not None:
            argv.append("--nodelist=" + _argument([hostlist.check_name(name) for name in nodes]))
        if not steps:
            argv.append("--allocations")
        output = check((yield argv), "read the accounting of jobs")
        rows = parse_text.Columns(_ACCOUNTING_COLUMNS, separator).parse(output.text)
        return [parse_text.parse_accounting(row) for row in rows]

    def submissions(self, uids: Iterable[int], since: int) -> Operation[list[models.AccountingRecord]]:
        """See `Slurm.submissions`."""
        wanted = sorted({int(uid) for uid in uids})
        if not wanted:
            return []
        separator = _separator()
        argv = ["sacct", "--allocations", "--noheader", "--parsable", "--delimiter=" + separator,
                "--format=" + ",".join(_SUBMISSION_COLUMNS), "--uid=" + ",".join(map(str, wanted)),
                "--starttime=" + _sacct_time(since)]
        output = check((yield argv), "read how jobs were submitted")
        rows = parse_text.Columns(_SUBMISSION_COLUMNS, separator).parse(output.text)
        return [parse_text.parse_accounting(row) for row in rows]

    def waiting_jobs(self, uid: int) -> Operation[list[models.Job]]:
        """See `Slurm.waiting_jobs`."""
        chosen = ["--states=PENDING", "--user=%d" % uid]
        found = None
        if "squeue" not in self._no_json:
            found = yield from self._queue_json(chosen)
        if found is None:
            output = check((yield ["squeue", "--all", "--noheader", "--format=%A", *chosen]), "read a user's jobs")
            found = yield from self._show_jobs(output.text.split())
        return [job for job in found if job.uid == uid and job.state == "PENDING"]

    def requeue(self, job: int) -> Operation[None]:
        check((yield ["scontrol", "requeue", values.job_ref(job).argument]), "requeue job %s" % job)

    def release(self, job: int) -> Operation[None]:
        check((yield ["scontrol", "release", values.job_ref(job).argument]), "release job %s" % job)

    def update_job(
        self, job: int, start_now: bool, excluded_nodes: Iterable[str] | None, admin_comment: str | None
    ) -> Operation[None]:
        """See `Slurm.update_job`."""
        argv = ["scontrol", "update", "JobId=" + values.job_ref(job).argument]
        changes = []
        if start_now:
            changes.append("StartTime=now")
        if excluded_nodes is not None:
            changes.append("ExcNodeList=" + _argument([hostlist.check_name(name) for name in excluded_nodes]))
        if admin_comment is not None:
            changes.append("AdminComment=" + admin_comment)
        if not changes:
            raise BadInput("nothing is given to change of job %s" % job)
        check((yield argv + changes), "update job %s" % job)

    def accounted_comment(self, job: int) -> Operation[str | None]:
        """See `Slurm.accounted_comment`."""
        separator = _separator()
        argv = ["sacct", "--allocations", "--noheader", "--parsable", "--delimiter=" + separator,
                "--format=jobidraw,admincomment", "--jobs=" + values.job_ref(job).argument]
        output = check((yield argv), "read the comment of job %s" % job)
        rows = parse_text.Columns(("jobidraw", "admincomment"), separator).parse(output.text)
        found = [row["admincomment"] for row in rows if row["jobidraw"] == str(job)]
        return values.user_text(found[-1]) if found else None

    def update_finished_job(self, job: int, admin_comment: str) -> Operation[None]:
        """See `Slurm.update_finished_job`."""
        where = ["where", "jobid=" + values.job_ref(job).argument, "set", "AdminComment=" + admin_comment]
        check((yield ["sacctmgr", "--immediate", "--quiet", "modify", "job", *where]), "update job %s" % job)

    # The cluster

    def reservations(self) -> Operation[list[reservations.Reservation]]:
        """See `Slurm.reservations`."""
        arguments = ["show", "reservation"]
        if "scontrol" not in self._no_json:
            output = yield ["scontrol", "--all", "--json", *arguments]
            if not self._knows_no_json(output):
                return reservations.parse(check(output, "read the reservations").text)
        output = yield ["scontrol", "--all", *arguments]
        return reservations.parse(check(output, "read the reservations").text)

    def config(self) -> Operation[dict[str, str]]:
        output = check((yield ["scontrol", "show", "config"]), "read Slurm's configuration")
        return parse_text.parse_config(output.text)

    def ping(self) -> Operation[list[Controller]]:
        """scontrol ends with rc 1 if no controller answers, and says so on stdout."""
        output = yield ["scontrol", "ping"]
        found = re.findall(r"^Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)", output.text, re.MULTILINE)
        if not found:
            check(output, "ping slurmctld")
            raise Unreadable("the answer of `scontrol ping` names no controller")
        return [Controller(role, host, state == "UP") for role, host, state in found]

    def admin_level(self, user: str) -> Operation[str | None]:
        argv = ["sacctmgr", "--readonly", "--noheader", "--parsable2", "show", "user", "name=" + user]
        output = check((yield [*argv, "format=User,AdminLevel"]), "read the administrator level of %s" % user)
        levels = dict(line.split("|", 1) for line in output.text.splitlines() if "|" in line)
        return levels.get(user)

    def _knows_no_json(self, output: Output) -> bool:
        if output.rc and not output.stdout.lstrip().startswith(b"{") and _NO_JSON.search(output.complaint):
            self._no_json.add(output.argv[0])
            return True
        return False


def resolve_spool_dir(template: str, node: models.Node) -> str:
    """Return slurmd's spool directory on a node: the first `%h` is NodeHostName, the first `%n` NodeName."""
    path = template.replace("%h", node.hostname or node.name, 1)
    return path.replace("%n", node.name, 1)


def _parse_known(output: Output, what: str, parse: Any) -> Any:
    """Parse what was found; where a command complains only that something is absent, the rest is the answer.

    scontrol asked for several nodes shows those that it knows and ends with rc 1 for the others.
    """
    if output.rc and not isinstance(error_of(output, what), Absent) and not re.search(
        r"^Node \S+ not found$", output.text, re.MULTILINE
    ):
        raise error_of(output, what)
    if not output.rc:
        return parse(output.text)
    try:
        return parse(output.text)
    except Unreadable:
        if output.stdout.strip():
            raise
        return []


def _is(job: models.Job, ref: values.JobRef) -> bool:
    """Whether a reference means this job: by its id, as a task of its array, or as a part of a heterogeneous job."""
    if ref.task is not None:
        return job.array_job_id == ref.id and job.array_task_id == ref.task
    if ref.het_offset is not None:
        return job.het_job_id == ref.id and job.het_job_offset == ref.het_offset
    return ref.id in (job.id, job.array_job_id, job.het_job_id)


def _argument(names: Sequence[str]) -> str:
    """Names as one argument."""
    text = hostlist.compress(names)
    if len(text) > _MAX_ARGUMENT:
        raise BadInput("%d node names are too many for one call of Slurm" % len(names))
    return text


def _separator() -> str:
    """A separator that nobody could put into a text beforehand."""
    return "~%s~" % secrets.token_hex(8)


def _sacct_time(epoch: int) -> str:
    """A time as sacct and sacctmgr read it; the commands run with TZ=UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch))


def _slices(items: list[Any]) -> Iterable[list[Any]]:
    return (items[start : start + _IDS_AT_ONCE] for start in range(0, len(items), _IDS_AT_ONCE))
