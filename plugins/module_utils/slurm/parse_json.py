# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's JSON (`scontrol show node --json`, `squeue --json`) to models, for data_parser 0.0.37 to 0.0.43.

What changed between versions: states became lists, flags moved into them, numbers became objects, exit codes and
times too. Fields that are missing in a version are None; fields that decide (name, id, state) must be there.
"""

from __future__ import annotations

import math
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import models, values


def parse_nodes(output: str) -> list[models.Node]:
    """Return the nodes of an answer; raise `Unreadable` rather than leave one out."""
    return [_node(record) for record in records(output, "nodes")]


def parse_jobs(output: str) -> list[models.Job]:
    """Return the jobs of an answer; raise `Unreadable` rather than leave one out."""
    return [_job(record) for record in records(output, "jobs")]


def errors(output: str) -> list[str]:
    """Return what the answer itself calls errors, as texts; none where the output is no JSON."""
    try:
        answer = json_text.loads(output)
    except ValueError:
        return []
    found = answer.get("errors") if isinstance(answer, dict) else None
    return [_error_text(error) for error in found] if isinstance(found, list) else []


def _error_text(error: Any) -> str:
    said = (error.get("error") or error.get("description")) if isinstance(error, dict) else error
    return said if isinstance(said, str) else values.shown(said)


def records(output: str, key: str) -> list[dict[str, Any]]:
    """Return the objects under a key; raise `Unreadable` where there is no list of them."""
    try:
        answer = json_text.loads(output)
    except ValueError as exc:
        raise Unreadable("Slurm's answer is not JSON: %s" % exc) from None
    records = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise Unreadable("Slurm's JSON has no list of %s" % key)
    return records


def _node(record: dict[str, Any]) -> models.Node:
    name = _string(record, "name")
    if not name:
        raise Unreadable("a node of Slurm's JSON has no name")
    base, flags = models.split_node_state(_words(record, "state") + _words(record, "state_flags", required=False))
    return models.Node(
        name=name,
        base_state=base,
        flags=flags,
        hostname=values.text(_string(record, "hostname")),
        address=values.text(_string(record, "address")),
        reason=values.user_text(_string(record, "reason")),
        reason_user=values.text(_string(record, "reason_set_by_user")) if _string(record, "reason") else None,
        reason_time=values.json_time(record.get("reason_changed_at")),
        boot_time=values.json_time(record.get("boot_time")),
        slurmd_start_time=values.json_time(record.get("slurmd_start_time")),
        cpus=values.integer(record.get("cpus")),
        sockets=values.integer(record.get("sockets")),
        cores_per_socket=values.integer(record.get("cores")),
        threads_per_core=values.integer(record.get("threads")),
        memory_mb=values.integer(record.get("real_memory")),
        partitions=_list(record, "partitions"),
        features=_list(record, "features"),
        gres=values.text(_string(record, "gres")),
        version=values.text(_string(record, "version") or _string(record, "slurmd_version")),
        os=values.text(_string(record, "operating_system")),
        comment=values.user_text(_string(record, "comment")),
        extra=values.user_text(_string(record, "extra")),
    )


def _job(record: dict[str, Any]) -> models.Job:
    job_id = values.integer(record.get("job_id"))
    if not job_id:
        raise Unreadable("a job of Slurm's JSON has no job_id")
    state, flags = models.split_job_state(_words(record, "job_state"))
    array_job_id = values.integer(record.get("array_job_id")) or None
    het_job_id = values.integer(record.get("het_job_id")) or None
    return models.Job(
        id=job_id,
        state=state,
        flags=flags,
        array_job_id=array_job_id,
        array_task_id=values.integer(record.get("array_task_id")) if array_job_id else None,
        array_tasks=values.text(_string(record, "array_task_string")),
        het_job_id=het_job_id,
        het_job_offset=values.integer(record.get("het_job_offset")) if het_job_id else None,
        het_jobs=values.ids(_string(record, "het_job_id_set")) if het_job_id else (),
        name=values.user_text(_string(record, "name")),
        user=values.text(_string(record, "user_name")),
        uid=values.integer(record.get("user_id")),
        account=values.text(_string(record, "account")),
        state_reason=_state_reason(record),
        exit_code=_exit_code(record.get("exit_code")),
        nodes=values.nodes(_string(record, "nodes")),
        batch_host=values.text(_string(record, "batch_host")),
        restart_count=values.integer(record.get("restart_cnt")),
        requeue=_boolean(record, "requeue"),
        batch=_boolean(record, "batch_flag"),
        comment=values.user_text(_string(record, "comment")),
        admin_comment=values.user_text(_string(record, "admin_comment")),
        stdout=values.user_text(_string(record, "stdout_expanded") or _string(record, "standard_output")),
        stderr=values.user_text(_string(record, "stderr_expanded") or _string(record, "standard_error")),
        submit_time=values.json_time(record.get("submit_time")),
        begin_time=values.json_time(record.get("eligible_time")),
        start_time=values.json_time(record.get("start_time")),
        end_time=_end_time(record, state),
        partition=values.text(_string(record, "partition")),
        dependency=values.text(_string(record, "dependency")),
        excluded_nodes=values.nodes(_string(record, "excluded_nodes")),
        required_nodes=values.nodes(_string(record, "required_nodes")),
        priority=values.integer(record.get("priority")),
    )


def _state_reason(record: dict[str, Any]) -> str | None:
    """As squeue's and scontrol's text has it: the description, where there is one, stands in place of the reason.

    A job whose launch failed has the reason JobHeldUser or JobHeldAdmin, as if somebody had held it; only the
    description says who did.
    """
    description = values.text(_string(record, "state_description"))
    return description.replace(" ", "_") if description else values.text(_string(record, "state_reason"))


def _end_time(record: dict[str, Any], state: str) -> int | None:
    """The end, or the latest possible one; without a time limit Slurm's JSON says "in a year", its text nothing."""
    if state not in models.JOB_ENDED and values.number(record.get("time_limit")) == math.inf:
        return None
    return values.json_time(record.get("end_time"))


def _words(record: dict[str, Any], key: str, required: bool = True) -> list[str]:
    """The words of a state: a list, or one text, in which older versions may join them by `+`."""
    found = record.get(key)
    if isinstance(found, str):
        found = found.split("+")
    if isinstance(found, list) and all(isinstance(word, str) for word in found) and (found or not required):
        return found
    if found is None and not required:
        return []
    raise Unreadable("%s is %s in Slurm's JSON" % (key, values.shown(found)))


def _string(record: dict[str, Any], key: str) -> str | None:
    found = record.get(key)
    if found is None or isinstance(found, str):
        return found
    raise Unreadable("%s is %s in Slurm's JSON, not a text" % (key, values.shown(found)))


def _list(record: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of names; older versions give it as one text with commas."""
    found = record.get(key)
    if found is None:
        return ()
    if isinstance(found, str):
        found = found.split(",")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise Unreadable("%s is %s in Slurm's JSON, not a list of names" % (key, values.shown(found)))
    return tuple(name for name in found if values.text(name))


def _boolean(record: dict[str, Any], key: str) -> bool | None:
    """True or false; older versions give 0 and 1, or a list of words that is empty for false."""
    found = record.get(key)
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, list):
        return bool(found)
    return bool(values.integer(found))


def _exit_code(found: Any) -> str | None:
    """`code:signal` from a wait status, or from the object that newer versions give."""
    if found is None:
        return None
    if not isinstance(found, dict) or "number" in found:
        status = values.integer(found)
        return None if status is None else values.exit_code_of_status(status)
    signal = found.get("signal") or {}
    if not isinstance(signal, dict):
        raise Unreadable("signal is %s in Slurm's JSON, not an object" % values.shown(signal))
    signal_id = values.integer(signal.get("id", signal.get("signal_id")))
    code = values.integer(found.get("return_code"))
    return "%d:%d" % (code or 0, signal_id or 0)
