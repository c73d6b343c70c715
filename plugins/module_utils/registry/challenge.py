# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a registry says what it wants to see: the header WWW-Authenticate. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Optional

_WORD = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PARAMETER = re.compile(r'\s*,?\s*(%s)\s*=\s*("(?:[^"\\]|\\.)*"|%s)' % (_WORD, _WORD))
_SCHEME = re.compile(r"\s*,?\s*(%s)(?=\s|,|\Z)" % _WORD)


@dataclass(frozen=True)
class Challenge:
    """One way to authenticate: `bearer` or `basic` (in lower case), with its parameters."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A parameter, or the empty text."""
        return self.parameters.get(name, "")


def parse(header: str) -> list[Challenge]:
    """All challenges of a header (RFC 9110 11.6.1); what is not understood ends the reading."""
    found = []
    position = 0
    while True:
        scheme = _SCHEME.match(header, position)
        if scheme is None:
            return found
        position = scheme.end()
        parameters = {}
        while True:
            parameter = _PARAMETER.match(header, position)
            if parameter is None:
                break
            name, value = parameter.groups()
            parameters[name.lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
            position = parameter.end()
        found.append(Challenge(scheme.group(1).lower(), parameters))


def choose(header: str) -> Optional[Challenge]:
    """The challenge to answer: a token before a password with every request; None where neither is offered."""
    known = {challenge.scheme: challenge for challenge in reversed(parse(header))}
    return known.get("bearer") or known.get("basic")
