# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's text output to models.

`scontrol show` does not quote free text, and users write some of it (job names, comments, output paths). So the
structure is checked: a record's lines come in Slurm's order and every key once. A user who forges lines with newlines
in a job name makes the record unreadable, and nothing else.

squeue and sacct are asked for columns that end in a separator made up for that call (`Columns`): nobody can put it
into his text. sinfo knows columns of a fixed width only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import models, values

# Keys of `scontrol show`, whose value is the rest of the line and may contain anything.
_NODE_FREE = frozenset(("OS", "Reason", "Comment", "Extra", "Gres", "InstanceId", "InstanceType", "ResvComment"))
_JOB_FREE = frozenset(
    [
        "JobName", "Command", "WorkDir", "Comment", "AdminComment", "SystemComment", "StdErr", "StdIn", "StdOut",
        "SubmitLine", "MailUser", "Extra", "Dependency", "Network",
    ]
)
# The first keys of the lines that we read, in the order in which Slurm prints them. Others may stand between them.
_NODE_ORDER = ("NodeName", "CPUAlloc", "AvailableFeatures", "ActiveFeatures", "Gres", "NodeAddr", "OS", "RealMemory",
               "State", "Partitions", "BootTime", "LastBusyTime", "CfgTRES", "AllocTRES", "CurrentWatts", "Reason",
               "Comment", "Extra")
_JOB_ORDER = ("JobId", "HetJobIdSet", "UserId", "Priority", "JobState", "Requeue", "RunTime", "SubmitTime",
              "AccrueTime", "StartTime", "PreemptEligibleTime", "SuspendTime", "Partition", "ReqNodeList", "NodeList",
              "BatchHost", "NumNodes", "OverSubscribe", "Command", "WorkDir", "AdminComment", "SystemComment",
              "Comment", "StdErr", "StdIn", "StdOut")
# What tells which job a record is of stands in its first line, before any text of the user.
_FIRST_LINE = frozenset(("ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset"))
_NODE_REQUIRED = ("NodeName", "State", "RealMemory")
_JOB_REQUIRED = ("JobId", "JobState", "UserId", "Requeue", "NodeList", "SubmitTime", "Partition")

_KEY_LINE = re.compile(r" {3}([A-Za-z][A-Za-z0-9_/:]*)=")
_KEY = re.compile(r"(?:\A| )([A-Za-z][A-Za-z0-9_/:]*)=")
_REASON_STAMP = re.compile(r"\A(?P<text>.*) \[(?P<user>[^\[\]@]*)@(?P<time>[^\[\]]*)\]\Z", re.DOTALL)

Fields = dict[str, str]


def parse_nodes(output: str) -> list[models.Node]:
    """Return the nodes of `scontrol show node` (not its one-line form)."""
    return [_node(_fields(record, _NODE_FREE, _NODE_ORDER, _NODE_REQUIRED)) for record in _records(output, "NodeName=")]


def parse_jobs(output: str) -> list[models.Job]:
    """Return the jobs of `scontrol show job` (not its one-line form)."""
    return [_job(_fields(record, _JOB_FREE, _JOB_ORDER, _JOB_REQUIRED)) for record in _records(output, "JobId=")]


def parse_config(output: str) -> dict[str, str]:
    """Return the settings of `scontrol show config` with Slurm's words; a setting that is not set is left out."""
    settings: dict[str, str] = {}
    for line in output.splitlines():
        name, equals, value = line.partition("=")
        if equals and re.match(r"[A-Za-z][A-Za-z0-9_/:\[\]-]*\s*\Z", name) and values.text(value) is not None:
            settings.setdefault(name.strip(), value.strip())
    if "SLURM_VERSION" not in settings:
        raise Unreadable("the answer of `scontrol show config` has no SLURM_VERSION")
    return settings


def _records(output: str, start: str) -> list[list[str]]:
    """Split at the lines that begin a record; blank lines also occur within one."""
    records: list[list[str]] = []
    for line in output.split("\n"):
        if line.startswith(start):
            records.append([line])
        elif records:
            records[-1].append(line)
        elif line.strip() and not _is_notice(line):
            raise Unreadable("unexpected line before the first record: %r" % line[:80])
    return records


def _is_notice(line: str) -> bool:
    """Answers of scontrol that are no record, and no error either."""
    return line.startswith(("No nodes in the system", "No jobs in the system")) or line.rstrip().endswith(" not found")


def _fields(lines: list[str], free: frozenset[str], order: tuple[str, ...], required: tuple[str, ...]) -> Fields:
    """Return a record's keys and values.

    Raises:
        Unreadable: a key twice, a line out of order, a required key missing: the record is damaged or forged.
    """
    fields: dict[str, list[str]] = {}
    rank, text = -1, None  # `text`: the free text that a line without a key belongs to
    for position, line in enumerate(lines):
        if position and not _KEY_LINE.match(line):
            _continue(text, line, lines)
            continue
        pairs = [(key, [value]) for key, value in _pairs(line.strip() if position == 0 else line[3:], free)]
        text = pairs[-1][1] if pairs[-1][0] in free else None
        rank = max(rank, _rank(pairs[0][0], order, rank, lines))
        for key, value in pairs:
            if key in fields:
                raise _damaged(lines, "%s stands there twice" % key)
            # what we read stands in lines that we know: another line may be a user's, and its keys count for nothing
            if pairs[0][0] in order and (position == 0 or key not in _FIRST_LINE):
                fields[key] = value
    missing = [key for key in required if key not in fields]
    if missing:
        raise _damaged(lines, "%s is missing" % ", ".join(missing))
    return {key: "\n".join(parts) for key, parts in fields.items()}


def _rank(first: str, order: tuple[str, ...], least: int, lines: list[str]) -> int:
    """The place of a line in Slurm's order, -1 for one that we do not know."""
    found = order.index(first) if first in order else -1
    if -1 < found < least:
        raise _damaged(lines, "line %s is out of order" % first)
    return found


def _pairs(line: str, free: frozenset[str]) -> list[tuple[str, str]]:
    """Read `A=1 B=2 Reason=all the rest`; a value goes on to the next key, so that none is cut at a blank in it."""
    keys = list(_KEY.finditer(line))
    if not keys or keys[0].start():
        raise Unreadable("%r is no line of `scontrol show`" % line[:80])
    pairs: list[tuple[str, str]] = []
    for key, end in zip(keys, [*(following.start() for following in keys[1:]), len(line)]):
        if key.group(1) in free:
            return [*pairs, (key.group(1), line[key.end():])]
        pairs.append((key.group(1), line[key.end():end].strip(" ")))
    return pairs


def _continue(text: list[str] | None, line: str, lines: list[str]) -> None:
    """Append a line without a key to the free text before it."""
    if not line.strip():
        return
    if text is None:
        raise _damaged(lines, "unexpected line %r" % line[:80])
    text.append(line.strip())


def _damaged(lines: list[str], why: str) -> Unreadable:
    return Unreadable("the record %r of scontrol is damaged: %s" % (lines[0][:40], why))


def _node(fields: Fields) -> models.Node:
    base, flags = models.split_node_state(fields["State"].split("+"))
    reason, user, since = split_reason_stamp(fields.get("Reason"))
    return models.Node(
        name=fields["NodeName"],
        base_state=base,
        flags=flags,
        hostname=values.text(fields.get("NodeHostName")),
        address=values.text(fields.get("NodeAddr")),
        reason=reason,
        reason_user=user,
        reason_time=since,
        boot_time=values.text_time(fields.get("BootTime"), "BootTime"),
        slurmd_start_time=values.text_time(fields.get("SlurmdStartTime"), "SlurmdStartTime"),
        cpus=values.text_integer(fields.get("CPUTot"), "CPUTot"),
        sockets=values.text_integer(fields.get("Sockets"), "Sockets"),
        cores_per_socket=values.text_integer(fields.get("CoresPerSocket"), "CoresPerSocket"),
        threads_per_core=values.text_integer(fields.get("ThreadsPerCore"), "ThreadsPerCore"),
        memory_mb=values.text_integer(fields.get("RealMemory"), "RealMemory"),
        partitions=_comma_list(fields.get("Partitions")),
        features=_comma_list(fields.get("AvailableFeatures")),
        gres=values.text(fields.get("Gres")),
        version=values.text(fields.get("Version")),
        os=values.text(fields.get("OS")),
        comment=values.user_text(fields.get("Comment")),
        extra=values.user_text(fields.get("Extra")),
    )


def split_reason_stamp(value: str | None) -> tuple[str | None, str | None, int | None]:
    """Return reason, user and time of `prolog failed [root@1758466931]`; only the first line carries the stamp."""
    if value is None or values.user_text(value.strip()) is None:
        return None, None, None
    first, newline, rest = value.partition("\n")
    match = _REASON_STAMP.match(first)
    if not match:
        return value, None, None
    since = values.text_time(match.group("time"), "the time of the reason")
    return match.group("text") + newline + rest, values.text(match.group("user")), since


def _job(fields: Fields) -> models.Job:
    state, flags = models.split_job_state([fields["JobState"]])
    user, uid = _user(fields["UserId"])
    tasks = fields.get("ArrayTaskId")
    single = tasks is not None and tasks.isdigit()
    return models.Job(
        id=_required_id(fields["JobId"]),
        state=state,
        flags=flags,
        array_job_id=values.text_integer(fields.get("ArrayJobId"), "ArrayJobId"),
        array_task_id=values.text_integer(tasks, "ArrayTaskId") if single else None,
        array_tasks=None if single else values.text(tasks),
        het_job_id=values.text_integer(fields.get("HetJobId"), "HetJobId"),
        het_job_offset=values.text_integer(fields.get("HetJobOffset"), "HetJobOffset"),
        het_jobs=values.ids(fields.get("HetJobIdSet")) if fields.get("HetJobId") else (),
        name=values.user_text(fields.get("JobName")),
        user=user,
        uid=uid,
        account=values.text(fields.get("Account")),
        state_reason=values.text(fields.get("Reason")),
        exit_code=values.text(fields.get("ExitCode")),
        nodes=values.nodes(fields["NodeList"]),
        batch_host=values.text(fields.get("BatchHost")),
        restart_count=values.text_integer(fields.get("Restarts"), "Restarts"),
        requeue=_flag(fields.get("Requeue")),
        batch=_flag(fields.get("BatchFlag")),
        comment=values.user_text(fields.get("Comment", "").rstrip(" ")),  # 24.11 puts a space behind it
        admin_comment=values.user_text(fields.get("AdminComment")),
        stdout=values.user_text(fields.get("StdOut")),
        stderr=values.user_text(fields.get("StdErr")),
        submit_time=values.text_time(fields.get("SubmitTime"), "SubmitTime"),
        begin_time=values.text_time(fields.get("EligibleTime"), "EligibleTime"),
        start_time=values.text_time(fields.get("StartTime"), "StartTime"),
        end_time=values.text_time(fields.get("EndTime"), "EndTime"),
        partition=values.text(fields.get("Partition")),
        dependency=values.text(fields.get("Dependency")),
        excluded_nodes=values.nodes(fields.get("ExcNodeList")),
        required_nodes=values.nodes(fields.get("ReqNodeList")),
        priority=values.text_integer(fields.get("Priority"), "Priority"),
    )


def _user(value: str) -> tuple[str | None, int | None]:
    """`alice(1000)`; a user without a name is `1000(1000)`, or `(null)(1000)`."""
    match = re.match(r"(.*)\(([0-9]{1,20})\)\Z", value)
    if not match:
        return values.text(value), None
    return values.text(match.group(1)), int(match.group(2))


def _required_id(value: str) -> int:
    found = values.text_integer(value, "JobId")
    if not found:
        raise Unreadable("JobId is %r" % value[:80])
    return found


def _flag(value: str | None) -> bool | None:
    found = values.text_integer(value, "flag")
    return None if found is None else bool(found)


def _comma_list(value: str | None) -> tuple[str, ...]:
    return tuple(name for name in (value or "").split(",") if values.text(name))


class Columns:
    """Columns that end in a separator which nobody could know when he wrote his text.

    Args:
        names: the columns, in the order of the command's format.
        separator: made up for this call.
    """

    def __init__(self, names: tuple[str, ...], separator: str) -> None:
        self.names = names
        self.separator = separator

    def parse(self, output: str) -> list[Fields]:
        """Return the lines of an output in which every column, the last one too, is followed by the separator."""
        cells = output.split(self.separator)
        rest = cells.pop()
        if rest.strip() or len(cells) % len(self.names):
            raise Unreadable("the answer does not consist of whole lines of %d columns" % len(self.names))
        rows = []
        for start in range(0, len(cells), len(self.names)):
            row = cells[start:start + len(self.names)]
            if start and not row[0].startswith("\n"):
                raise Unreadable("a line of the answer does not end where it should")
            row[0] = row[0].lstrip("\n")
            rows.append(dict(zip(self.names, row)))
        return rows


def parse_job_state(row: Fields) -> models.JobState:
    """One line of squeue; columns `id`, `array_job_id`, `array_task`, `state` and, if asked for, the others."""
    state, flags = models.split_job_state([row["state"]])
    job_id = _required_id(row["id"])
    array_job_id = values.text_integer(row.get("array_job_id"), "array job id")
    tasks = values.text(row.get("array_task"))
    is_array = tasks is not None
    return models.JobState(
        id=job_id,
        state=state,
        flags=flags,
        array_job_id=array_job_id if is_array else None,
        array_task_id=values.text_integer(tasks, "task") if tasks is not None and tasks.isdigit() else None,
        array_tasks=tasks if tasks is not None and not tasks.isdigit() else None,
        state_reason=values.text(row.get("reason")),
        uid=values.text_integer(row.get("uid"), "uid"),
        nodes=values.nodes(row.get("nodes")),
        partition=values.text(row.get("partition")),
        submit_time=values.text_time(row.get("submit"), "submit time"),
        begin_time=values.text_time(row.get("begin"), "eligible time"),
        start_time=values.text_time(row.get("start"), "start time"),
        end_time=values.text_time(row.get("end"), "end time"),
    )


def parse_accounting(row: Fields) -> models.AccountingRecord:
    """One line of sacct, see `Columns`; the columns bear sacct's own names in lower case."""
    raw = values.job_ref(row["jobidraw"])
    shown = values.job_ref(row["jobid"])
    state, cancelled_by = accounting_state(row["state"])
    return models.AccountingRecord(
        id=raw.id,
        state=state,
        step=raw.step,
        array_job_id=shown.id if shown.task is not None or shown.tasks else None,
        array_task_id=shown.task,
        het_job_id=shown.id if shown.het_offset is not None else None,
        cancelled_by=cancelled_by,
        exit_code=values.text(row.get("exitcode")),
        derived_exit_code=values.text(row.get("derivedexitcode")),
        user=values.text(row.get("user")),
        partition=values.text(row.get("partition")),
        nodes=values.nodes(row.get("nodelist")),
        failed_node=values.text(row.get("failednode")),
        submit_time=values.text_time(row.get("submit"), "submit time"),
        start_time=values.text_time(row.get("start"), "start time"),
        end_time=values.text_time(row.get("end"), "end time"),
        restart_count=values.text_integer(row.get("restarts"), "restarts"),
        name=values.user_text(row.get("jobname")),
        comment=values.user_text(row.get("comment")),
        submit_line=values.user_text(row.get("submitline")),
    )


def accounting_state(value: str) -> tuple[str, int | None]:
    """`CANCELLED by 1060117917` is the state CANCELLED, and who did it; an unknown state is kept as it is."""
    match = re.match(r"(?P<state>[A-Z_]+)(?:\+)?(?: by (?P<uid>[0-9]{1,20}))?\Z", value.strip())
    if not match:
        raise Unreadable("%r is not the state of a job" % value[:80])
    uid = match.group("uid")
    return match.group("state"), None if uid is None else int(uid)


def parse_node_events(output: str, names: Iterable[str]) -> list[models.NodeEvent]:
    """Return the lines of `sacctmgr show event`, whose last column is the reason; only `names` begin a line.

    sacctmgr cannot be given a separator, and a reason may go over several lines and hold any character.
    """
    known = "|".join(re.escape(name) for name in names)
    columns = r"^(?P<name>%s)\|(?P<state>[^|\n]*)\|(?P<user>[^|\n]*)\|(?P<time>[^|\n]*)\|" % known
    start = re.compile(columns, re.MULTILINE)
    found = list(start.finditer(output))
    if output.strip() and (not found or found[0].start()):
        raise Unreadable("the answer of sacctmgr does not begin with a node: %r" % output[:80])
    ends = [match.start() for match in found[1:]] + [len(output)]
    return [
        models.NodeEvent(
            name=match.group("name"),
            state=match.group("state"),
            user=values.text(match.group("user").partition("(")[0]),
            time=values.text_time(match.group("time"), "the time of an event"),
            reason=values.user_text(output[match.end():end].rstrip("\n")),
        )
        for match, end in zip(found, ends)
    ]


def parse_node_groups(output: bytes, widths: tuple[int, int, int]) -> list[models.NodeGroup]:
    """Return the groups of `sinfo -h -O NodeList:W1,StateComplete:W2,Reason:W3`; a list that fills W1 is cut off.

    Every record is exactly as wide as its columns: a line end within a reason therefore does no harm.
    """
    size = sum(widths) + 1
    if len(output) % size:
        raise Unreadable("the answer of sinfo does not consist of records of %d bytes" % size)
    return [_node_group(output[start:start + size], widths) for start in range(0, len(output), size)]


def _node_group(record: bytes, widths: tuple[int, int, int]) -> models.NodeGroup:
    first, second = widths[0], widths[0] + widths[1]
    cells = [cell.decode("utf-8", "replace") for cell in (record[:first], record[first:second], record[second:-1])]
    hosts, state, reason = (cell.rstrip(" ") for cell in cells)
    if record[-1:] != b"\n" or not hosts or not state or len(state) == widths[1]:
        raise Unreadable("a record of sinfo is damaged or cut off: %r" % record[:60])
    base, flags = models.split_node_state(state.split("+"))
    found = None if reason in ("none", "") else values.user_text(reason)
    return models.NodeGroup(hosts, base, flags, found, reason_cut=len(reason) >= widths[2] - 1)
