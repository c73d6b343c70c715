# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines that Loki has of a job, of a pod, or of a LogQL query: bounded in number, bytes and time."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Refused
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.client import LokiClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.windows import MAX_LIMIT, SECOND
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import TooLong
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import SLURM, valid_job_name
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    LokiLabels,
    LokiSettings,
)

# Where so many lines are more than is read at once, or than Loki gives, fewer are asked for.
_LINES = (MAX_LIMIT, 500, 50)
_POD = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)\Z")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")

# What the module option `loki` holds.
OPTIONS: dict[str, Any] = {
    "url": {"type": "str", "required": True},
    "address": {"type": "str", "default": ""},
    "ca_file": {"type": "path"},
    "credentials_file": {"type": "path"},
    "tenant": {"type": "str", "default": ""},
    "query": {"type": "str"},
    "job": {"type": "str"},
    "job_label": {"type": "str", "default": LokiLabels().slurm_job[0]},
    "pod": {"type": "str"},
    "since": {"type": "int", "default": 3600},
}


def query_of(wanted: Mapping[str, Any]) -> str:
    """The LogQL query of the options; names are checked, so that none can end its quotes. Pure.

    Raises:
        BadInput: no such name of a job, a label or a pod.
    """
    if wanted["query"] is not None:
        return str(wanted["query"])
    if wanted["job"] is not None:
        if not valid_job_name(wanted["job"], SLURM) or not _LABEL.match(wanted["job_label"]):
            raise BadInput("loki: `job` is no id of a Slurm job, or `job_label` no name of a label")
        return '{%s="%s"}' % (wanted["job_label"], wanted["job"])
    match = _POD.match(wanted["pod"])
    if match is None:
        raise BadInput("loki: `pod` is not namespace/name")
    return '{namespace="%s", pod="%s"}' % match.groups()


def read(wanted: Mapping[str, Any], now: float, seconds: float) -> list[str]:
    """The lines of the last `since` seconds, the earliest first; of too many the last.

    Args:
        wanted: as `OPTIONS`.
        now: epoch seconds.
        seconds: deadline of the whole.

    Raises:
        BadInput: an option that is none, credentials that would go over plain HTTP. answers.Refused: Loki says that the
        query cannot be answered. RecoveryError: it does not answer, or not what Loki answers.
    """
    if wanted["since"] <= 0:
        raise BadInput("loki: `since` must be more than 0 seconds")
    if wanted["credentials_file"] and not wanted["url"].lower().startswith("https://"):
        raise BadInput("loki: credentials are sent over HTTPS only", "give an address that begins with https://")
    client = LokiClient(
        LokiSettings(
            url=wanted["url"],
            address=wanted["address"],
            ca_file=wanted["ca_file"] or "",
            credentials_file=wanted["credentials_file"] or "",
            tenant=wanted["tenant"],
            timeout=seconds / len(_LINES),
        )
    )
    query, end = query_of(wanted), int(now * SECOND)
    start = max(0, end - wanted["since"] * SECOND)
    for limit in _LINES:
        try:
            return [entry.line for entry in client.last_lines(query, start, end, limit)]
        except (TooLong, Refused):
            if limit == _LINES[-1]:
                raise
    raise AssertionError("not reached")
