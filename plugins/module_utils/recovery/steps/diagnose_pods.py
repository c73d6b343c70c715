# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a Kubernetes Job failed, as far as the logs of its pods tell: read before they may be gone."""

from __future__ import annotations

from typing import Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import jobs, pod_logs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import job_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import bounded, each
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.job_diagnosis import (
    concluded,
    kib_read,
    not_read,
)

_DEADLINE = 9.0  # of all Jobs together
_CONTAINERS = 3  # of one Job whose logs are read
_FOLDER_NAME = 200  # characters of a Job's name


def diagnose_pods(works: Sequence[Work], tools: Tools) -> list[Outcome]:
    """Every outcome is `done`, but where this run may not act any more: then nothing was read."""
    until = tools.now() + _DEADLINE
    return each(works, tools, lambda work, guarded: _diagnose(work, guarded, until))


def _diagnose(work: Work, tools: Tools, until: float) -> Outcome:
    until = min(until, tools.now() + bounded(tools.guard(work)))
    try:
        job = job_view(jobs.read_job(tools.kubernetes, work.target.name))
        if work.target.uid and job.uid != work.target.uid:
            return not_read(work, "another Job bears its name")
        failed = pod_logs.failed_containers(jobs.raw_pods_of(tools.kubernetes, job))[:_CONTAINERS]
    except RecoveryError as exc:
        return not_read(work, exc)
    why: object = "no container of its pods is known to have failed"
    texts = []
    for position, container in enumerate(failed):
        share = (until - tools.now()) / (len(failed) - position)
        try:
            texts.append(reading.text_of(*pod_logs.read(tools.kubernetes, container, kib_read(tools), share)))
        except RecoveryError as exc:
            why = exc
    if not texts:
        return not_read(work, why)
    return concluded(work, "job-%s" % job.name[:_FOLDER_NAME], texts, tools)
