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
_ADDITION = re.compile(r"(?:\s*\(.*\))?\s*\Z", re.DOTALL)

# Tools that drain nodes and take them back themselves. Matched without regard to case, at the beginning.
_TOOLS = (
    ("slurm-operator", "slurm-operator:"),
    ("kubernetes", "k8s:"),
    ("nhc", "NHC:"),
    ("action", "Action:"),
    ("node_problem", "[node_problem]"),
    ("bcm", "BCM:"),
    ("bcm", "cmdaemon"),
    ("bcm", "cmd:"),
    ("bcm", "drained by cmd"),
    ("bcm", "Drained by BCM"),
    ("bcm", "Failed health check"),
)

# What slurmctld puts behind the reason of a node that it reboots (`scontrol reboot`).
REBOOT_SUFFIXES = (" : reboot issued", " : reboot complete")

MAX_REASON = 200


def split_reason(reason: str | None) -> list[str]:
    """Split `Low CPUs, Low RealMemory (reported:1 < 2)` into its parts; commas in parentheses do not split."""
    parts, depth, start = [], 0, 0
    text = (reason or "").strip()
    for position, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth = max(0, depth - 1)
        elif depth == 0 and text.startswith(", ", position):
            parts.append(text[start:position].strip())
            start = position + 2
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def classify_part(part: str) -> str:
    """Return what one part of a reason stands for, `UNKNOWN` if Slurm does not write such a text."""
    for text, kind in _SLURM_TEXTS:
        if part.startswith(text) and _ADDITION.match(part, len(text)):
            return kind
    if _GRES_TEXT.match(part):
        return CONFIGURATION
    return UNKNOWN


def classify_reason(reason: str | None) -> list[str]:
    """Return what every part of a reason stands for, in its order."""
    return [classify_part(part) for part in split_reason(reason)]


def is_ours(reason: str | None, ours: str | None) -> bool:
    """Whether `reason` is the text that we recorded, as it is or with what slurmctld adds when it reboots the node.

    Anything else behind it (`ours, Kill task failed`) is a new fault, or a person who added to our text.
    """
    if not ours or not reason:
        return False
    text = reason.strip()
    return text in [ours.strip()] + [ours.strip() + suffix for suffix in REBOOT_SUFFIXES]


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
    kinds = classify_reason(_without_ours(text, ours))
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


def _without_ours(text: str, ours: str | None) -> str:
    """Take our own text away from the beginning, so that what Slurm added to it can be told from what a person did."""
    mark = (ours or "").strip()
    if mark and text.startswith(mark):
        for separator in (", ", " : "):
            if text.startswith(separator, len(mark)):
                return text[len(mark) + len(separator):]
    return text
