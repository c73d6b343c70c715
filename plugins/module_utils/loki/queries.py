# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Loki where a site does not say. Pure.

The words are those that the readers of `logs` understand; Loki sorts out the rest, so that little travels. Every stream
is asked: how a cluster's collectors call the kernel's is not known.
"""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    JOB_LOG,
    KERNEL,
    LokiQuery,
    LokiSettings,
)

DEFAULTS = (
    LokiQuery("gpu", '{job=~".+"} |~ "NVRM: (Xid|GPU)|SXid [(]"', KERNEL),
    LokiQuery("segfault", '{job=~".+"} |= "segfault at "', KERNEL),
    LokiQuery("nccl", '{job=~".+"} |~ "Watchdog caught collective operation timeout|NCCL WARN"', JOB_LOG),
)


def queries_of(settings: LokiSettings) -> tuple[LokiQuery, ...]:
    """The site's queries, or ours."""
    return settings.queries or DEFAULTS
