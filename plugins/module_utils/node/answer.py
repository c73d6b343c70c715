# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The helper's answers: one line of JSON on stdout, bounded, for success and for refusal alike."""

from __future__ import annotations

import json
import sys

MARK = "job_recovery_node"  # the key by which the controller knows our line among login noise
VERSION = 1
MAX_BYTES = 262144

# kinds of refusal: the controller maps each to one of its errors
BAD_INPUT = "bad_input"
ABSENT = "absent"
UNREADABLE = "unreadable"
TIMED_OUT = "timed_out"
CONFLICT = "conflict"
FAILED = "failed"


class Refusal(Exception):
    """The verb was not done, or not known to be done.

    Args:
        kind: one of the words above.
        message: the thing and the cause, in one sentence.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def write(verb: str, data: dict) -> None:
    """Answer that the verb was done."""
    _write({MARK: VERSION, "verb": verb, "ok": True, **data})


def write_refusal(verb: str, refusal: Refusal) -> None:
    """Answer that it was not."""
    error = {"kind": refusal.kind, "message": str(refusal)[:1000]}
    _write({MARK: VERSION, "verb": verb, "ok": False, "error": error})


def _write(answer: dict) -> None:
    line = json.dumps(answer, separators=(",", ":"), sort_keys=False)
    if len(line) > MAX_BYTES:
        error = {"kind": FAILED, "message": "the answer has %d bytes, more than %d" % (len(line), MAX_BYTES)}
        line = json.dumps({MARK: VERSION, "verb": answer["verb"], "ok": False, "error": error})
    sys.stdout.write("\n" + line + "\n")  # a shell's start-up noise may have left an unfinished line
    sys.stdout.flush()
