# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `log_diagnosis`: a text, a file as a user may read it, or lines from Loki in; findings, a verdict out."""

from __future__ import annotations

import dataclasses
import os
import pwd
import time
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    RecoveryError,
    TimedOut,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import jobs, kernel, reading, verdict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import Diagnosis
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import last_lines
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import user_file
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node.answer import Refusal

ANY, JOB, KERNEL = "any", "job", "kernel"

SPEC: dict[str, Any] = {
    "argument_spec": {
        "text": {"type": "str"},
        "path": {"type": "path"},
        "loki": {
            "type": "dict",
            "options": last_lines.OPTIONS,
            "mutually_exclusive": [("query", "job", "pod")],
            "required_one_of": [("query", "job", "pod")],
        },
        "source": {"type": "str", "choices": [ANY, JOB, KERNEL], "default": ANY},
        "user": {"type": "str"},
        "max_bytes": {"type": "int", "default": reading.MAX_BYTES},
        "timeout": {"type": "float", "default": 10.0},
    },
    "mutually_exclusive": [("text", "path", "loki"), ("text", "user"), ("loki", "user")],
    "required_one_of": [("text", "path", "loki")],
    "supports_check_mode": True,
}

_ERRORS = {"bad_input": BadInput, "absent": Absent, "timed_out": TimedOut, "unreadable": Unreadable}


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, verdict, action, why, findings}`, of a file `size` and `modified`, too, of Loki
    `lines_read`.

    Raises:
        BadInput: a limit that is none, no such user, a path that is not absolute, what `loki.last_lines` says. Absent,
        Unreadable, TimedOut, RecoveryError: the file, as that user sees it, or Loki.
    """
    if not 0 < params["max_bytes"] <= user_file.MAX_BYTES:
        raise BadInput("max_bytes must be from 1 to %d" % user_file.MAX_BYTES)
    if params["timeout"] <= 0:
        raise BadInput("timeout must be more than 0 seconds")
    if params["loki"] is not None:
        lines = last_lines.read(params["loki"], time.time(), params["timeout"])
        text = "\n".join(lines)[-params["max_bytes"] :]
        return {"changed": False, **as_dict(diagnose(text, params["source"])), "lines_read": len(lines)}
    if params["path"] is None:
        return {"changed": False, **as_dict(diagnose(params["text"][-params["max_bytes"] :], params["source"]))}
    end = _tail(params["path"], _uid(params["user"]), params["max_bytes"], params["timeout"])
    told = as_dict(diagnose(reading.text_of(end.content, end.size), params["source"]))
    return {"changed": False, **told, "size": end.size, "modified": end.modified}


def diagnose(text: str, source: str) -> Diagnosis:
    """What a text says, read as a job's log, as a kernel's, or as both; what the kernel's reader knows is its."""
    of_kernel = kernel.read(text) if source != JOB else []
    of_job = jobs.findings(text) if source != KERNEL else ()
    taken = {number for one in of_kernel for number, dummy in one.lines}
    left = [one for one in of_job if not taken.issuperset(number for number, dummy in one.lines)]
    return verdict.diagnose(left, of_kernel)


def as_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as plain data: lines as `{number, text}`."""
    found = []
    for finding in diagnosis.findings:
        data = dataclasses.asdict(finding)
        data["lines"] = [{"number": number, "text": text} for number, text in finding.lines]
        found.append(data)
    return {"verdict": diagnosis.verdict, "action": diagnosis.action, "why": diagnosis.why, "findings": found}


def _tail(path: str, uid: int, limit: int, deadline: float) -> user_file.Tail:
    try:
        return user_file.tail(os.fsencode(path), uid, limit, deadline)
    except Refusal as refusal:
        raise _ERRORS.get(refusal.kind, RecoveryError)("%s: %s" % (ascii(path), refusal)) from refusal


def _uid(user: Optional[str]) -> int:
    if user is None:
        return os.geteuid()
    if user.isascii() and user.isdigit():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise BadInput("no user is called %s" % ascii(user)) from None
