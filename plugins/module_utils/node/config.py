# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own facts for the helper: `/etc/job-recovery/node.json`, written by the role node_agent.

Shape, every key optional::

    {"node_name": "node7",                                 # Slurm's NodeName; default: host name to its first dot
     "spool_dir": "/var/spool/slurmd",                     # resolved: without %n and %h
     "state_save_location": "/var/spool/slurmctld",        # never cleaned
     "smbios_uuid_path": "/sys/class/dmi/id/product_uuid",
     "health_command": "/usr/local/sbin/node-health",      # absolute path; exits 0 when the node is fit
     "health_timeout": 60,                                 # seconds
     "test_step": "pmix",                                  # srun's --mpi in the test step; empty: none is run
     "test_step_timeout": 10,                              # seconds, of the step's task
     "slurm_bin_dir": "/opt/slurm/bin",                    # where srun is; default: on PATH
     "slurm_conf": "/opt/slurm/etc/slurm.conf",            # default: where srun looks by itself
     "reboot_command": "/usr/local/sbin/node-reboot",      # absolute path; default: systemctl reboot
     "gpu_clients": ["nvidia-persistenced.service"]}       # services that are stopped while a GPU is reset
"""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple, Sequence

from .answer import Refusal

DEFAULT_PATH = "/etc/job-recovery/node.json"
_MAX_BYTES = 65536


class Config(NamedTuple):
    """What this node is told; an empty text means "none"."""

    node_name: str = ""
    spool_dir: str = ""
    state_save_location: str = ""
    smbios_uuid_path: str = "/sys/class/dmi/id/product_uuid"
    health_command: str = ""
    health_timeout: int = 60
    test_step: str = ""
    test_step_timeout: int = 10
    slurm_bin_dir: str = ""
    slurm_conf: str = ""
    reboot_command: str = ""
    gpu_clients: Sequence[str] = ()


def load(path: str) -> Config:
    """Read the configuration; a file that is not there gives the defaults.

    Raises:
        Refusal: `unreadable`, when the file is there and is not understood as a whole.
    """
    try:
        with open(path, "rb") as handle:
            raw = handle.read(_MAX_BYTES)
    except FileNotFoundError:
        return Config()
    except OSError as exc:
        raise Refusal("unreadable", "%s: %s" % (path, exc.strerror)) from exc
    try:
        data = json.loads(raw.decode("utf-8"))
    except ValueError as exc:
        raise Refusal("unreadable", "%s is no JSON" % path) from exc
    if not isinstance(data, dict):
        raise Refusal("unreadable", "%s is no JSON object" % path)
    return Config(**{key: _value(path, key, value) for key, value in data.items()})


def _value(path: str, key: str, value: object) -> object:
    check = _CHECKS.get(key)
    if check is None or not check(value):
        raise Refusal("unreadable", "%s: %s is %r" % (path, key, value))
    return value


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (not value or os.path.isabs(value))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and (not value or re.fullmatch(r"[A-Za-z0-9._-]{1,255}", value) is not None)


def _is_seconds(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 600


def _is_services(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,200}\.service", name) for name in value
    )


_CHECKS = {
    "node_name": _is_name,
    "spool_dir": _is_path,
    "state_save_location": _is_path,
    "smbios_uuid_path": _is_path,
    "health_command": _is_path,
    "health_timeout": _is_seconds,
    "test_step": _is_name,
    "test_step_timeout": _is_seconds,
    "slurm_bin_dir": _is_path,
    "slurm_conf": _is_path,
    "reboot_command": _is_path,
    "gpu_clients": _is_services,
}
