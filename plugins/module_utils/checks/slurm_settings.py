# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of slurm.conf decides whether a lost job can run again: one check for each setting. Pure.

Meanings and defaults are those of slurm.conf(5).
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)

Config = Mapping[str, str]


@dataclass(frozen=True)
class Least:
    """The numbers that the settings are compared with.

    Attributes:
        min_job_age: seconds for which a finished job must be known.
        attempts: how often recovery requeues one job.
    """

    min_job_age: int = 300
    attempts: int = 3


def judge(config: Config, least: Least) -> list[Check]:
    """A check for every setting."""
    return [
        job_requeue(config),
        max_batch_requeue(config, least),
        job_comment(config),
        accounting(config),
        min_job_age(config, least),
        return_to_service(config),
        slurmd_timeout(config),
        unkillable_step_timeout(config),
        reboot_program(config),
    ]


def has_accounts(config: Config) -> bool:
    """Whether slurmdbd keeps accounts, and with them levels of rights."""
    return config.get("AccountingStorageType", "").endswith("slurmdbd")


def job_requeue(config: Config) -> Check:
    """JobRequeue is what jobs get that say neither --requeue nor --no-requeue."""
    found = config.get("JobRequeue", "")
    required = "JobRequeue=1, or every job says --requeue"
    status = {"1": PASSED, "0": WARNING}.get(found, UNKNOWN)
    hint = "set JobRequeue=1 in slurm.conf, else jobs without --requeue are lost with their node"
    return _check("slurm_job_requeue", "Jobs may be requeued", required, "JobRequeue=%s" % found, status, hint)


def max_batch_requeue(config: Config, least: Least) -> Check:
    """After so many launches that failed Slurm holds the job (JobHeldAdmin), and only a person releases it."""
    number = _number(config.get("MaxBatchRequeue"))
    status = UNKNOWN if number is None else PASSED if number >= least.attempts else WARNING
    hint = (
        "set MaxBatchRequeue=%d or more in slurm.conf: a job whose launch failed that often is held until an "
        "administrator releases it" % least.attempts
    )
    required = "MaxBatchRequeue of at least %d, as often as recovery tries" % least.attempts
    found = "MaxBatchRequeue=%s" % config.get("MaxBatchRequeue", "")
    return _check("slurm_max_batch_requeue", "Jobs may be launched again", required, found, status, hint)


def job_comment(config: Config) -> Check:
    """Jobs opt in by their comment; of finished jobs only the accounting knows it."""
    flags = [flag.strip().lower() for flag in config.get("AccountingStoreFlags", "").split(",") if flag.strip()]
    hint = (
        "add job_comment to AccountingStoreFlags in slurm.conf, then `scontrol reconfigure`: jobs opt in to "
        "restarts by their comment, which finished jobs lose otherwise"
    )
    found = "AccountingStoreFlags=%s" % (",".join(flags) or "(none)")
    status = PASSED if "job_comment" in flags else FAILED
    return _check("slurm_job_comment", "Job comments are kept", "AccountingStoreFlags=job_comment", found, status, hint)


def accounting(config: Config) -> Check:
    """Without slurmdbd there are neither levels of rights nor a memory of finished jobs."""
    found = config.get("AccountingStorageType", "(none)")
    hint = (
        "without slurmdbd finished jobs are forgotten after MinJobAge, and nobody but root and SlurmUser can be "
        "allowed to change nodes: set job_recovery_user to SlurmUser and controller_slurm_rights to false"
    )
    required = "AccountingStorageType=accounting_storage/slurmdbd"
    status = PASSED if has_accounts(config) else WARNING
    return _check("slurm_accounting", "Accounting by slurmdbd", required, found, status, hint)


def min_job_age(config: Config, least: Least) -> Check:
    """A job that slurmctld has forgotten cannot be requeued; 0 means that none is ever forgotten."""
    age = _number(config.get("MinJobAge"))
    status = UNKNOWN if age is None else PASSED if age == 0 or age >= least.min_job_age else WARNING
    hint = "set MinJobAge=%d in slurm.conf: a job that slurmctld has forgotten cannot be requeued" % least.min_job_age
    required = "MinJobAge of at least %d s" % least.min_job_age
    found = "MinJobAge=%s" % config.get("MinJobAge", "")
    return _check("slurm_min_job_age", "Finished jobs are remembered", required, found, status, hint)


def return_to_service(config: Config) -> Check:
    """With 2 a node that rebooted by itself gets jobs before anybody proved it."""
    meanings = {
        "0": "a node that was DOWN comes back only by recovery or a person",
        "1": "a node that did not respond comes back by itself, a node that rebooted does not",
        "2": "every node that registers in order comes back by itself, unproved",
    }
    value = config.get("ReturnToService", "")
    status = PASSED if value in ("0", "1") else WARNING if value == "2" else UNKNOWN
    hint = "set ReturnToService=1 (or 0) in slurm.conf: recovery then proves a node before jobs run on it again"
    found = "ReturnToService=%s: %s" % (value, meanings.get(value, "unknown"))
    return _check("slurm_return_to_service", "How nodes return", "ReturnToService of 0 or 1", found, status, hint)


def slurmd_timeout(config: Config) -> Check:
    """Slurm calls a silent node DOWN after this time; 0 means never."""
    seconds = _number(config.get("SlurmdTimeout"))
    status = UNKNOWN if seconds is None else WARNING if seconds == 0 or seconds > 3600 else PASSED
    hint = (
        "set SlurmdTimeout=300 in slurm.conf: a node without a BMC is repaired only after Slurm called it DOWN, "
        "which takes this long (0: for ever)"
    )
    found = "SlurmdTimeout=%s" % config.get("SlurmdTimeout", "")
    return _check("slurm_slurmd_timeout", "Dead nodes are noticed", "SlurmdTimeout from 1 to 3600", found, status, hint)


def unkillable_step_timeout(config: Config) -> Check:
    """slurm.conf(5): 60 s, or five times MessageTimeout where that is longer; a shorter one drains healthy nodes."""
    seconds = _number(config.get("UnkillableStepTimeout"))
    message = _number(config.get("MessageTimeout")) or 10
    least = max(60, 5 * message)
    status = UNKNOWN if seconds is None else PASSED if least <= seconds <= 1800 else WARNING
    hint = (
        "set UnkillableStepTimeout=%d in slurm.conf: shorter, and a slow file system drains nodes (Kill task failed); "
        "longer, and a job that hangs in COMPLETING is noticed late" % max(least, 180)
    )
    required = "UnkillableStepTimeout from %d to 1800 s" % least
    found = "UnkillableStepTimeout=%s" % config.get("UnkillableStepTimeout", "")
    return _check("slurm_unkillable_timeout", "Steps that do not end", required, found, status, hint)


def reboot_program(config: Config) -> Check:
    """For people's `scontrol reboot`, and sites that let recovery use it; recovery itself reboots by SSH and BMC."""
    program = config.get("RebootProgram", "")
    good = posixpath.isabs(program.split(" ", 1)[0])
    hint = "set RebootProgram=/usr/sbin/reboot in slurm.conf, else `scontrol reboot` does nothing"
    found = "RebootProgram=%s" % (program or "(none)")
    status = PASSED if good else WARNING
    return _check("slurm_reboot_program", "Slurm can reboot nodes", "RebootProgram is set", found, status, hint)


def _check(check_id: str, title: str, required: str, found: str, status: str, hint: str) -> Check:
    return Check(check_id, title, required, found, status, "" if status == PASSED else hint)


def _number(text: Optional[str]) -> Optional[int]:
    """The number of `600 sec`; None for none, `INFINITE` and `UNLIMITED` included (nothing is known of them here)."""
    match = re.match(r"\d+", text or "")
    return int(match.group()) if match else None
