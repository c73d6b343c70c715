# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the texts of a job's log say, as the outcome of a step and as evidence for people."""

from __future__ import annotations

from typing import Any, Iterable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import jobs as job_logs
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import reading, verdict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import Diagnosis
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import evidence
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import done
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.save_evidence import EVIDENCE
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable

DIAGNOSIS = "diagnosis"  # in the incident's memory: `{verdict, why, rank}`


def kib_read(tools: Tools) -> int:
    """KiB of the end of each log that are read; 0: none is."""
    return min(tools.settings.nodes.job_log_kib, reading.MAX_BYTES // 1024)


def not_read(work: Work, why: object) -> Outcome:
    """Done all the same: a log that cannot be had keeps no repair."""
    return done(work, "the job's log was not read: %s" % printable(str(why))[:300])


def concluded(work: Work, folder: str, texts: Iterable[str], tools: Tools) -> Outcome:
    """Done, with the verdict; the lines that say so are kept in this folder of the incident's evidence."""
    found = verdict.diagnose([one for text in texts for one in job_logs.findings(text)])
    first = found.findings[0] if found.findings else None
    told = {"verdict": found.verdict, "why": found.why, "rank": first.rank if first else None}
    remember: dict[str, Any] = {DIAGNOSIS: told}
    trouble = ""
    if found.findings:
        try:
            page = _page(found).encode("utf-8")
            remember[EVIDENCE] = evidence.save(tools.settings.state_dir, work.incident, folder, {"diagnosis.txt": page})
        except RecoveryError as exc:
            trouble = str(exc)
    return done(work, trouble, remember, {**told, "codes": [one.code for one in found.findings]})


def _page(found: Diagnosis) -> str:
    """For people: the verdict, and the lines that say so, harmless for a terminal."""
    lines = ["%s: %s" % (found.verdict, found.why)]
    for one in found.findings:
        rank = "" if one.rank is None else ", rank %d" % one.rank
        lines.append("")
        lines.append("%s (%s, seen %d times%s)" % (one.code, one.verdict, one.count, rank))
        lines.extend("%8d: %s" % (number, printable(text)) for number, text in one.lines)
    return "\n".join(lines) + "\n"
