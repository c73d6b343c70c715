# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's message in a line of any log that holds kernel messages: whose line it is, when, and what it says.

Known forms: `/dev/kmsg`, `dmesg` with its options (-T, -x, -r, --time-format iso), `journalctl -k` in its short forms,
syslog, and the bare message. A line that a program wrote is none, whatever it says: users write to the system's log.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple, Optional

# The kernel cuts its own records at 1 KB; what is longer is nothing of its.
MAX_LENGTH = 2000

# <level>,<sequence>,<microseconds since boot>,<flags>[,...];<message>, see Documentation/ABI/testing/dev-kmsg
_KMSG = re.compile(r"(\d{1,4}),\d{1,20},(\d{1,16}),[^;]{0,60};", re.ASCII)
_LEVEL = re.compile(r"<(\d{1,4})>", re.ASCII)
_DECODED = re.compile(r"([a-z0-9]{2,8}) *:[a-z]{3,6} *: ", re.ASCII)  # dmesg -x: `kern  :err   : `
_UPTIME = re.compile(r"\[ {0,12}(\d{1,10}\.\d{1,9})\](?:\[ {0,8}[TC]\d{1,10}\])? ", re.ASCII)
_CTIME = re.compile(r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ", re.ASCII)
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([.,]\d{1,9})?(Z|[+-]\d\d:?\d\d) ", re.ASCII)
_FULL = re.compile(r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [\w+-]{1,8} ", re.ASCII)  # short-full
_SYSLOG = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? ", re.ASCII)
_HOST = re.compile(r"(?:[\w.:-]{1,255} )?kernel: ", re.ASCII)
_FIRST_USER_PRIORITY = 8  # 8 * facility + level; the kernel's facility is 0
_ESCAPED_NEWLINE = "\\x0a"


class Message(NamedTuple):
    """What the kernel said.

    Attributes:
        text: the message alone.
        time: seconds since the epoch; None where the line does not say.
        uptime: seconds since boot; None where the line does not say.
        more: further lines of the same record (a printk of several lines).
    """

    text: str
    time: Optional[float] = None
    uptime: Optional[float] = None
    more: tuple[str, ...] = ()


def parse(line: str) -> Optional[Message]:
    """The kernel's message in one line; None where a program wrote the line."""
    line = line[:MAX_LENGTH]
    if line.startswith("["):  # the most frequent form by far
        return _after_level(line)
    record = _KMSG.match(line)
    if record:
        if int(record.group(1)) >= _FIRST_USER_PRIORITY:
            return None
        first, *more = line[record.end():].split(_ESCAPED_NEWLINE)
        return Message(first, uptime=int(record.group(2)) / 1e6, more=tuple(more))
    level = _LEVEL.match(line)
    if level:
        if int(level.group(1)) >= _FIRST_USER_PRIORITY:
            return None
        line = line[level.end():]
    decoded = _DECODED.match(line)
    if decoded:
        if decoded.group(1) != "kern":
            return None
        line = line[decoded.end():]
    return _after_level(line)


def _after_level(line: str) -> Optional[Message]:
    rest, uptime = _stamp(line)
    if uptime is not None:
        host = _HOST.match(rest) if "kernel: " in rest else None
        return Message((rest[host.end():] if host else rest).lstrip(), uptime=uptime)
    time = None
    iso = _ISO.match(line)
    syslog = None if iso else _SYSLOG.match(line) or _FULL.match(line)
    if iso:
        time = _epoch(*iso.groups())
        line = line[iso.end():]
    elif syslog:
        line = line[syslog.end():]
    # dmesg writes a comma, and no host behind it.
    wants_host = bool(syslog) or bool(iso and "," not in (iso.group(2) or ""))
    ctime = _CTIME.match(line)
    if ctime:
        line = line[ctime.end():]
    host = _HOST.match(line)
    if host:
        line, uptime = _stamp(line[host.end():])
    elif wants_host:
        return None
    return Message(line.lstrip(), time, uptime)


def _stamp(line: str) -> tuple[str, Optional[float]]:
    stamp = _UPTIME.match(line)
    return (line[stamp.end():], float(stamp.group(1))) if stamp else (line, None)


def _epoch(day: str, fraction: Optional[str], zone: str) -> Optional[float]:
    zone = "+00:00" if zone == "Z" else zone if ":" in zone else zone[:3] + ":" + zone[3:]
    try:
        return datetime.fromisoformat(day + zone).timestamp() + float("0." + (fraction or ".0")[1:])
    except ValueError:
        return None
