# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent is told: `/etc/job-recovery/agent.json`, written by the role node_agent. No secrets stand in it.

Shape::

    {"controllers": ["head1", "head2"],  # addresses at which the recovery's service may listen, tried in turn
     "port": 6838,
     "controller_uid": 990,              # of the service there: nobody else can read a report or acknowledge it
     "node": "node7",                    # Slurm's NodeName; default: the host name to its first dot
     "kernel_log": "/dev/kmsg",          # or a file to which lines of that form are appended
     "munge_socket": "",                 # default: munge's own
     "catalogue": {"xid": {}, "sxid": {}}}  # what the site says instead of NVIDIA's, see logs/catalogue.py
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

from ..logs.catalogue import DEFAULT

DEFAULT_PATH = "/etc/job-recovery/agent.json"
_MAX_BYTES = 65536
_MAX_UID = 2**32 - 1
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:%_-]{0,252}\Z")
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)?\Z")


class Misconfigured(Exception):
    """The configuration cannot be read or used; the message names what is wrong."""


class Config(NamedTuple):
    """See above."""

    controllers: tuple
    port: int
    controller_uid: int
    node: str = ""
    kernel_log: str = "/dev/kmsg"
    munge_socket: str = ""
    catalogue: Any = None


def load(path: str) -> Config:
    """Read and check the configuration."""
    try:
        with open(path, "rb") as handle:
            data = json.loads(handle.read(_MAX_BYTES).decode("utf-8"))
    except OSError as exc:
        raise Misconfigured("%s: %s" % (path, exc.strerror)) from exc
    except ValueError as exc:
        raise Misconfigured("%s is no JSON" % path) from exc
    if not isinstance(data, dict) or not set(Config._fields[:3]) <= set(data):
        raise Misconfigured("%s does not name %s" % (path, ", ".join(Config._fields[:3])))
    for key, value in data.items():
        if key not in _CHECKS or not _CHECKS[key](value):
            raise Misconfigured("%s: %s is %s" % (path, key, ascii(value)[:80]))
    told = Config(**{**data, "controllers": tuple(data["controllers"])})
    return told._replace(node=told.node or os.uname().nodename.partition(".")[0])


def _are_hosts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(it, str) and _HOST.match(it) for it in value)


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and (not value or os.path.isabs(value))


def _changes_rows(value: Any) -> bool:
    try:
        DEFAULT.with_changes(value)
    except ValueError:
        return False
    return True


def _between(low: int, high: int) -> Any:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_CHECKS = {
    "controllers": _are_hosts,
    "port": _between(1, 65535),
    "controller_uid": _between(0, _MAX_UID),
    "node": lambda value: isinstance(value, str) and _NAME.match(value) is not None,
    "kernel_log": lambda value: _is_path(value) and bool(value),
    "munge_socket": _is_path,
    "catalogue": _changes_rows,
}
