# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose is the reason of a node, and what kind of fault does it name?

A reason is free text. The texts that slurmctld and slurmd write themselves are known; every other text is somebody's
wish, and what somebody wished is left alone.
"""

from __future__ import annotations

import re

# Who wrote a reason.
NOBODY = "nobody"
OURS = "ours"
SLURM = "slurm"
TOOL = "tool"
PERSON = "person"

# What a part of a reason that Slurm wrote itself stands for.
REPAIRABLE = "repairable"  # something on the node broke; a reboot or a clean-up may repair it
REBOOTED = "rebooted"  # the node came back from a boot that nobody asked Slurm for
SILENT = "silent"  # slurmd does not answer
REBOOT_FAILED = "reboot_failed"  # a boot was asked for and did not come
CONFIGURATION = "configuration"  # the node differs from slurm.conf: reported, never rebooted
UNKNOWN = "unknown"  # not a text of Slurm

# Texts of slurmctld and slurmd, 20.11 to 25.05. What Slurm itself puts behind them stands in parentheses.
_SLURM_TEXTS = (
    ("Kill task failed", REPAIRABLE),
    ("batch job complete failure", REPAIRABLE),
    ("Prolog error", REPAIRABLE),
    ("Job env setup error", REPAIRABLE),
    ("Epilog error", REPAIRABLE),
    ("Prolog/Epilog failure", REPAIRABLE),
    ("Duplicate jobid", REPAIRABLE),
    ("Node unexpectedly rebooted", REBOOTED),
    ("Not responding", SILENT),
    ("ResumeTimeout reached", REBOOT_FAILED),
    ("reboot timed out", REBOOT_FAILED),
    ("Low socket*core*thread count", CONFIGURATION),
    ("Low CPUs", CONFIGURATION),
    ("Low TmpDisk", CONFIGURATION),
    ("Low RealMemory", CONFIGURATION),
)
# "gres/gpu count reported lower than configured (0 < 8)", "gres/gpu:a100 count too low (7 < 8)"
_GRES_TEXT = re.compile(r"gres/\S+ count (?:reported lower than configured|too low|changed)\b", re.IGNORECASE)
# "Low RealMemory (reported:1900 < 100.00% of configured:2000)", "Kill task failed (JobId=7 StepId=0)"; any other text
# in parentheses is a person's note behind Slurm's.
_ADDITIONS = {CONFIGURATION: re.compile(r"\s*\(.*\)\s*\Z", re.DOTALL)}
_JOB_ADDITION = re.compile(r"\s*\(JobId=[0-9_+]{1,24}(?: StepId=[A-Za-z0-9.+_]{1,24})?\)\s*\Z", re.ASCII)

# Tools that drain nodes and take them back themselves. Matched without regard to case, at the beginning. The text of
# Base Command Manager is the one that clusters show for its own drains; what its administrators or health checks write
# besides is not known, and needs not be: every text that is nobody's here is a person's, and left alone as well.
_TOOLS = (
    ("slurm-operator", "slurm-operator:"),
    ("kubernetes", "k8s:"),
    ("nhc", "NHC:"),
    ("action", "Action:"),
    ("node_problem", "[node_problem]"),
    ("bcm", "Drained by CMDaemon"),
)

# slurmctld appends its own messages to a reason that is there already (set_node_reason in node_mgr.c); some of its
# callers join by a comma instead.
_SEPARATORS = (" : ", ", ")
_MARKS = re.compile("|".join(map(re.escape, (*_SEPARATORS, "(", ")"))))
# Messages that tell where a repair stands, and no new fault of the node.
_PROGRESS = ("reboot issued", "reboot complete", "Not responding")

MAX_REASON = 200


def split_reason(reason: str | None) -> list[str]:
    """Split `Low CPUs, Low RealMemory (reported:1 < 2) : Not responding` into its parts; parentheses hold together."""
    parts, depth, start = [], 0, 0
    text = (reason or "").strip()
    for mark in _MARKS.finditer(text):
        if mark.group() == "(":
            depth += 1
        elif mark.group() == ")":
            depth = max(0, depth - 1)
        elif depth == 0:
            parts.append(text[start:mark.start()].strip())
            start = mark.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def classify_part(part: str) -> str:
    """Return what one part of a reason stands for, `UNKNOWN` if Slurm does not write such a text."""
    for text, kind in _SLURM_TEXTS:
        addition = _ADDITIONS.get(kind, _JOB_ADDITION)
        if part == text or (part.startswith(text) and addition.match(part, len(text))):
            return kind
    if _GRES_TEXT.match(part):
        return CONFIGURATION
    return UNKNOWN


def classify_reason(reason: str | None) -> list[str]:
    """Return what every part of a reason stands for, in its order."""
    return [classify_part(part) for part in split_reason(reason)]


def is_ours(reason: str | None, ours: str | None) -> bool:
    """Whether `reason` is the text that we recorded, as it is or with what slurmctld adds while the node is repaired.

    Anything else behind it (`ours, Kill task failed`) is a new fault, or a person who added to our text.
    """
    mark = (ours or "").strip()
    if not mark or not reason or not reason.strip().startswith(mark):
        return False
    rest = _without_ours(reason.strip(), mark)
    return rest is not None and all(part in _PROGRESS for part in split_reason(rest))


def has_news(reason: str | None) -> bool:
    """Whether something other than the progress of a repair stands behind the first part of a reason."""
    return any(part not in _PROGRESS for part in split_reason(reason)[1:])


def reason_owner(reason: str | None, ours: str | None = None) -> str:
    """Return who wrote a reason: `NOBODY` (there is none), `OURS`, `SLURM`, `TOOL` or, whatever else it is, `PERSON`.

    Args:
        reason: the present text.
        ours: the text that we recorded when we drained the node, if we did.
    """
    text = (reason or "").strip()
    if not text:
        return NOBODY
    if is_ours(text, ours):
        return OURS
    if tool_of(text):
        return TOOL
    rest = _without_ours(text, (ours or "").strip())
    kinds = classify_reason(text if rest is None else rest)
    return PERSON if UNKNOWN in kinds else SLURM


def tool_of(reason: str | None) -> str | None:
    """Return the name of the tool that writes reasons beginning like this one, or None."""
    text = (reason or "").strip().lower()
    for tool, prefix in _TOOLS:
        if text.startswith(prefix.lower()):
            return tool
    return None


def clean_text(text: str, limit: int = MAX_REASON) -> str:
    """Return text fit for a reason or a comment: one line, printable, no double quote, at most `limit` characters.

    scontrol takes a double quote at either end away, and the text would no longer be the one that was recorded.
    """
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.replace('"', "'").split())[:limit].strip()


def _without_ours(text: str, mark: str) -> str | None:
    """What stands behind our own text; None where the text is not ours and something that was added to it."""
    if not mark or not text.startswith(mark):
        return None
    rest = text[len(mark):]
    for separator in _SEPARATORS:
        if rest.startswith(separator):
            return rest[len(separator):]
    return None if rest else ""
