# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one family of errors that this collection raises.

Every error names the thing, the cause and the next step; `fields` carries what a caller may want to show beside it
(command, rc, stderr). Absent, unreachable, forbidden and unreadable are four different answers and never merged:
only `Absent` says that a thing is not there, all others mean that nobody knows.
"""

from __future__ import annotations

from typing import Any


class RecoveryError(Exception):
    """Something could not be done.

    Args:
        message: the thing and the cause in one sentence, without secrets.
        next_step: what a person can do about it; appended to the message.
        fields: plain data for the result of a failed module (JSON types only).
    """

    def __init__(self, message: str, next_step: str = "", **fields: Any) -> None:
        super().__init__(message if not next_step else "%s; %s" % (message, next_step))
        self.next_step = next_step
        self.fields = fields


class BadInput(RecoveryError):
    """The caller gave something that cannot be used; nothing was tried."""


class Absent(RecoveryError):
    """The system asked says that the thing does not exist."""


class Unreachable(RecoveryError):
    """No answer: refused, no route, or the daemon is down. The state of the thing is unknown."""


class TimedOut(Unreachable):
    """No answer within the deadline. The state of the thing is unknown, and a write may or may not have happened."""


class Forbidden(RecoveryError):
    """The system asked refuses us: which permission is missing stands in the message."""


class Unreadable(RecoveryError):
    """An answer came and was not understood. It is never taken for "nothing"."""


class Conflict(RecoveryError):
    """The thing changed under us, or is somebody else's; nothing was written."""
